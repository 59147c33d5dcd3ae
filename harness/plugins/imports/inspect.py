"""Import of eval logs of Inspect 0.3: `.eval` archives and `.json` files, also those of `bench export -f inspect`. A
sample is an example, an epoch a rollout, a scorer a metric. `inspect_messages` converts the messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from harness.core.errors import UsageError
from harness.core.records import Row, Timing
from harness.core.types import JsonDict, Prompt, Usage
from harness.plugins.imports.archive import Archive
from harness.plugins.imports.inspect_log import LogChoice, LogHeader, LogResults, LogSample, LogScore, LogSpec, LogStats
from harness.plugins.imports.inspect_messages import conversation, resolved
from harness.plugins.imports.reading import (
    begins_with_keys,
    checked,
    chosen_reward,
    column_names,
    moment,
    parsed,
    read_document,
    score,
    utc,
)
from harness.settings.wording import shown
from harness.store.import_runs import ImportedRollout, ImportedRun, Importer, ImportOptions
from harness.store.manifest import RunStatus
from harness.store.safe_files import is_file
from harness.store.values import count, ends, number, table

_HEADER, _START = "header.json", "_journal/start.json"

_MEMBER = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d{1,9})\.json", re.DOTALL)
_CHUNKED = re.compile(r"samples/.+/sample\.json", re.DOTALL)

_STATUS: Mapping[str, RunStatus] = {"success": "done", "error": "failed", "cancelled": "interrupted"}

_WORDS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""Numbers of scores that are words, as in Inspect's `value_to_float`."""

_SAMPLING = {"stop_seqs": "stop", "num_choices": "n"}
"""Sampling argument for each field of Inspect's generation config that has another name there."""

_NOT_A_NUMBER = "the score is not a number"


class InspectImporter(Importer):
    """Importer of Inspect's eval logs."""

    takes = ("reward",)

    def accepts(self, path: Path) -> bool:
        """Return whether the path is an `.eval` file, or a `.json` file that begins like an eval log."""
        suffix = path.suffix.lower()
        return is_file(path) and (
            suffix == ".eval" or (suffix == ".json" and begins_with_keys(path, "version", "status", "eval"))
        )

    def read(self, path: Path, options: ImportOptions) -> Iterable[ImportedRun]:
        """Read a log as one run."""
        if path.suffix.lower() != ".json":
            with Archive(path) as archive:
                yield from _archived(path, archive, options)
            return
        document = table(parsed(read_document(path), str(path)))
        header = checked(LogHeader, document, str(path))
        listed: object = document.get("samples")
        items = cast("list[object]", listed) if isinstance(listed, list) else []
        samples = [checked(LogSample, each, f"{path}, samples[{number}]") for number, each in enumerate(items)]
        order = _order(header)
        samples.sort(key=lambda each: (order.get(str(each.id), len(order)), str(each.id), each.epoch))
        yield _run(header, str(path), _scored(samples), options, samples)


IMPORTER = InspectImporter()


def _archived(path: Path, archive: Archive, options: ImportOptions) -> Iterator[ImportedRun]:
    name = _HEADER if _HEADER in archive.names or _START not in archive.names else _START
    header = checked(LogHeader, parsed(archive.read(name), f"{path}, {name}"), f"{path}, {name}")
    if any(_CHUNKED.fullmatch(each) for each in archive.names):
        raise UsageError(f"{path} has samples in parts, a layout of large samples that cannot be read")
    order = _order(header)
    found = [match for each in archive.names if (match := _MEMBER.fullmatch(each)) is not None]
    found.sort(key=lambda match: (order.get(match["id"], len(order)), match["id"], int(match["epoch"])))

    def read() -> Iterator[LogSample]:
        for match in found:
            where = f"{path}, {match[0]}"
            yield checked(LogSample, parsed(archive.read(match[0]), where), where)

    yield _run(header, str(path), _scored(read()), options, read())


def _order(header: LogHeader) -> dict[str, int]:
    """Return the position of each sample in the dataset, by its id."""
    return {str(each): place for place, each in enumerate(header.eval.dataset.sample_ids or [])}


def _scored(samples: Iterable[LogSample]) -> LogSample | None:
    """Return the first sample that has scores."""
    return next((each for each in samples if each.error is None and (each.scores or each.score)), None)


def _run(
    header: LogHeader, where: str, first: LogSample | None, options: ImportOptions, samples: Iterable[LogSample]
) -> ImportedRun:
    """Build the run of a log; `first` is a sample that shows the names of the scores."""
    spec, own, stats = header.eval, header.own or {}, header.stats or LogStats()
    reward = _reward_of(header, [] if first is None else [*_values(first)], options.reward, where)
    sampling = {
        _SAMPLING.get(name, name): value
        for name, value in {**(table(header.plan and header.plan.config)), **(spec.model_generate_config or {})}.items()
        if value is not None
    }
    if header.own is not None:
        sampling |= spec.model_args or {}
    began, ended = moment(stats.started_at), moment(stats.completed_at)
    columns = own.get("state_columns")
    names = tuple(map(str, cast("list[object]", columns))) if isinstance(columns, list) else ()
    limits, threshold = ends(own.get("reward_range")), number(own.get("pass_threshold"))
    return ImportedRun(
        spec.task,
        spec.model,
        (_rollout(sample, reward, names, header, where) for sample in samples),
        created=utc(moment(spec.created)),
        settings={
            "env.env_args": spec.task_args or {},
            "model.api_base_url": spec.model_base_url or "",
            "model.sampling_args": sampling,
        },
        state_columns=names,
        reward_range=(-math.inf, math.inf) if limits is None else limits,
        pass_threshold=1.0 if threshold is None else threshold,
        wall_s=max(0.0, ended - began) if began and ended else None,
        versions={**(spec.packages or {}), **({spec.task: spec.task_version} if spec.task_version else {})},
        reward="" if header.own is not None and reward == "reward" else reward,
        planned=_planned(spec, is_own=header.own is not None),
        kind="eval" if own.get("kind") == "eval" else "run",
        name=spec.task_display_name or "",
        status=_STATUS.get(header.status, "interrupted"),
    )


def _planned(spec: LogSpec, *, is_own: bool) -> tuple[int, int]:
    """Return the planned numbers of examples and of rollouts per example."""
    ids, limit = spec.dataset.sample_ids, spec.config.limit
    samples = (spec.dataset.samples or 0) if ids is None else len(ids)
    if is_own and isinstance(limit, int):
        samples = limit  # the ids are those of the rollouts that ended
    return samples, spec.config.epochs or 1


def _reward_of(header: LogHeader, names: list[str], wanted: str | None, where: str) -> str:
    """Return the name of the value that becomes the reward: the one that the user names, the log's headline, or the
    only one; "" if no sample has a score."""
    headline = (header.results or LogResults()).headline
    if wanted is None and headline is not None:
        candidates = (headline.scorer, f"{headline.scorer}.{headline.score}", headline.score)
        if marked := next((each for each in candidates if each in names), None):
            return marked
    if wanted is None and not names:
        return ""
    return chosen_reward(names, wanted, where)


def _values(sample: LogSample) -> dict[str, tuple[object, LogScore]]:
    """Return the values of a sample by name; a score with several values has names such as `scorer.part`."""
    scores = dict(sample.scores or {}) or ({} if sample.score is None else {"score": sample.score})
    values: dict[str, tuple[object, LogScore]] = {}
    for name, each in scores.items():
        value = cast(object, each.value)
        parts = dict(enumerate(cast("list[object]", value))) if isinstance(value, list) else value
        if isinstance(parts, dict):
            values |= {f"{name}.{key}": (part, each) for key, part in cast("dict[object, object]", parts).items()}
        else:
            values[name] = (value, each)
    return values


def _number(value: object) -> float | None:
    if not isinstance(value, str):
        return score(value)
    if value in _WORDS or value.lower() in _WORDS:
        return _WORDS.get(value, _WORDS.get(value.lower()))
    try:
        return score(float(value))
    except ValueError:
        return None


def _rollout(
    sample: LogSample, reward: str, columns: tuple[str, ...], header: LogHeader, where: str
) -> ImportedRollout:
    own = _own(sample) if header.own is not None else None
    prompt, completion = conversation(
        resolved(sample.input, sample.attachments), resolved(sample.messages, sample.attachments), own
    )
    values = _values(sample)
    numbers = {name: _number(value) for name, (value, _) in values.items()}
    reasons = {
        name: each.explanation or each.reason or _NOT_A_NUMBER if own is not None
        # Of another tool, the explanation may be a whole reply of a grader.
        else each.reason or f"{_NOT_A_NUMBER}: {shown(value)}"
        for name, (value, each) in values.items() if numbers[name] is None
    }  # fmt: skip
    found = numbers.pop("reward", None) if own is not None else None
    found = found if own is not None and reward == "reward" else numbers.get(reward)
    missing = reasons.pop("reward", "") if own is not None else reasons.get(reward, "")
    if found is None and not reasons:
        reasons = {"*": missing or f"the log has no score {reward}".rstrip()}
    metrics = column_names(numbers, columns)
    failure, error = ("", "") if sample.error is None else _failure(sample.error.message, own)
    own = own or {}
    choice = sample.output.choices[0] if sample.output.choices else LogChoice()
    is_cut = own.get("is_truncated", choice.stop_reason in ("max_tokens", "model_length"))
    stop = own.get("stop_condition", f"{sample.limit.type}_limit" if sample.limit else choice.stop_reason)
    attempts = own.get("attempts")
    return ImportedRollout(
        _row(sample, prompt, own),
        completion,
        found,
        metrics,
        error,
        failure,
        sample.epoch - 1,
        stop if isinstance(stop, str) else None,
        bool(is_cut),
        _usage(sample, header.eval.model, own),
        _timing(sample, own),
        number(own.get("scoring")) or 0.0,
        sample.store or {},
        {next(iter(column_names({name: None}, columns))): words for name, words in reasons.items()},
        _extra(sample, own),
        own.get("retryable") is True,
        attempts if isinstance(attempts, int) and attempts > 0 else 1,
        f"{where}, sample {shown(sample.id)}, epoch {sample.epoch}",
    )


def _own(sample: LogSample) -> JsonDict:
    """Return the data that `bench export` added to the metadata of a sample, and remove it there."""
    metadata = dict(sample.metadata or {})
    name = "bench"
    while f"{name}_" in metadata:
        name += "_"
    found = table(metadata.pop(name, None))
    sample.metadata = metadata
    return found


def _row(sample: LogSample, prompt: Prompt, own: JsonDict) -> Row:
    target = sample.target
    if isinstance(target, list):
        target = target[0] if len(target) == 1 else "\n".join(target)
    example_id, info = own.get("example_id", sample.id), dict(sample.metadata or {})
    if sample.choices:
        info["choices"] = sample.choices
    task = own.get("task")
    return Row(
        example_id if isinstance(example_id, int | str) else sample.id,
        prompt,
        target,
        task if isinstance(task, str) else "",
        info,
    )


def _failure(message: str, own: JsonDict | None) -> tuple[str, str]:
    """Return the short and the full reason of a failed sample."""
    reason, colon, words = message.partition(": ")
    if own is not None and colon:
        return reason, words
    return "error", message


def _usage(sample: LogSample, model: str, own: JsonDict) -> Usage | None:
    """Return the tokens of the evaluated model; None if the log has none."""
    known = sample.model_usage.get(model)
    unreported, requests = own.get("replies_without_usage"), own.get("requests")
    if known is None and own:
        return Usage(requests=count(requests), unreported=count(unreported))
    if known is None:
        return None
    cached = known.input_tokens_cache_read or 0
    return Usage(
        known.input_tokens + cached + (known.input_tokens_cache_write or 0),
        known.output_tokens,
        known.reasoning_tokens or 0,
        cached,
        requests if isinstance(requests, int) else max(1, sum(m.get("role") == "assistant" for m in sample.messages)),
        unreported if isinstance(unreported, int) else 0,
        known.total_cost,
    )


def _timing(sample: LogSample, own: JsonDict) -> Timing:
    total, working = number(sample.total_time) or 0.0, number(sample.working_time)
    waiting = 0.0 if working is None else max(0.0, total - working)
    return Timing(
        moment(sample.started_at),
        max(0.0, total - (number(own.get("scoring")) or 0.0)),
        number(sample.output.time) or 0.0,
        waiting,
    )


def _extra(sample: LogSample, own: JsonDict) -> JsonDict:
    """Return the notes of the scorers: their answers, explanations and metadata."""
    scores = sample.scores or ({} if sample.score is None else {"score": sample.score})
    if own:
        return table(scores["reward"].metadata) if "reward" in scores else {}
    notes = {name: each.model_dump(exclude={"value"}, exclude_none=True) for name, each in scores.items()}
    notes = {name: note for name, note in notes.items() if note}
    return {"scores": notes} if notes else {}
