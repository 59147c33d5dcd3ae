"""Import of samples of lm-evaluation-harness 0.4: `samples_TASK_TIME.jsonl`, with the `results_TIME.json` beside it if
there is one. A document is an example with one rollout. A task with several filters has a line for each filter and
document; its metrics are then called `metric,filter`, as in the results of lm-eval."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ConfigDict

from harness.core.errors import UsageError
from harness.core.records import Row
from harness.core.types import JsonDict, Prompt
from harness.plugins.imports.reading import (
    chosen_reward,
    column_names,
    first_line,
    json_lines,
    objects,
    parsed,
    read_document,
    score,
    utc,
    validated,
)
from harness.store.codec import to_text
from harness.store.import_runs import ImportedRollout, ImportedRun, Importer, ImportOptions
from harness.store.safe_files import files_in, is_file, is_folder
from harness.store.values import number, table

_SAMPLES = re.compile(r"samples_(?P<task>.+)_(?P<time>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)\.jsonl")

_KEYS = frozenset(
    {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash",
     "target_hash"}
)  # fmt: skip
"""Keys of a line that are no metrics."""

_STATE = ("doc", "filtered_resps", "resps", "choices")
"""Columns of the dataset: the document, the answers that the filters extracted, all replies, and the log-likelihood of
each choice."""

_NO_FILTER = "none"


class _Line(BaseModel):
    """One line: a document as one filter saw it. Other keys are metrics."""

    model_config = ConfigDict(extra="allow")

    doc_id: int
    doc: object = None
    target: object = ""
    arguments: object = None
    resps: list[object] = []
    filtered_resps: object = None
    filter: str = _NO_FILTER
    metrics: list[str] | None = None

    def values(self) -> dict[str, object]:
        """Return the metrics of the line. Releases before 0.4.5 do not list their names."""
        extra = self.model_extra or {}
        names = [name for name in extra if name not in _KEYS] if self.metrics is None else self.metrics
        return {name: extra.get(name) for name in names}


class _Config(BaseModel):
    model: object = ""
    model_args: object = None
    gen_kwargs: object = None


class _Results(BaseModel):
    """The parts of `results_TIME.json` that are read."""

    config: _Config = _Config()
    configs: dict[str, JsonDict] = {}
    versions: dict[str, object] = {}
    higher_is_better: dict[str, dict[str, bool | None]] = {}
    n_samples: dict[str, JsonDict] = {}
    n_shot: dict[str, int | None] = {}
    date: float | None = None
    lm_eval_version: str | None = None
    model_name: str | None = None
    total_evaluation_time_seconds: float | None = None


@dataclass(slots=True)
class _Metrics:
    """The metrics of all documents, which a first reading of the file collects."""

    filters: dict[str, None] = field(default_factory=dict[str, None])
    names: dict[str, None] = field(default_factory=dict[str, None])
    """Names of metrics with a number for a document."""
    values: dict[int, dict[tuple[str, str], float | None]] = field(
        default_factory=dict[int, dict[tuple[str, str], float | None]]
    )
    """Values by document, and by metric and filter."""

    def add(self, line: _Line, place: str) -> None:
        """Add the metrics of one line.

        Raises:
            UsageError: the document has a line of the same filter already.
        """
        own = self.values.setdefault(line.doc_id, {})
        if any(name == line.filter for _, name in own):
            raise UsageError(f"{place}: document {line.doc_id} with the filter {line.filter!r} is there twice")
        self.filters[line.filter] = None
        own["", line.filter] = None  # also of a line without metrics
        for name, value in line.values().items():
            # Metrics of a whole corpus, such as perplexity by words, have a pair of numbers for a document.
            if not isinstance(value, list | dict | str):
                self.names[name] = None
                own[name, line.filter] = score(value)

    def title(self, name: str, filtered: str) -> str:
        """Return the name of a metric in the run."""
        return name if len(self.filters) == 1 else f"{name},{filtered}"

    def titles(self) -> list[str]:
        """Return the names of all metrics in the run."""
        return [self.title(name, each) for name in self.names for each in self.filters]

    def of(self, document: int) -> dict[str, float | None]:
        """Return the metrics of a document by their names in the run."""
        return {self.title(*key): value for key, value in self.values[document].items() if key[0]}


class LmEvalImporter(Importer):
    """Importer of samples of lm-evaluation-harness."""

    takes = ("reward",)

    def accepts(self, path: Path) -> bool:
        """Return whether the path is a file of samples, or a folder of such files."""
        if is_folder(path):
            return bool(_files(path))
        keys = {"doc_id", "doc", "resps", "filtered_resps"}
        return path.suffix == ".jsonl" and keys <= first_line(path).keys()

    def read(self, path: Path, options: ImportOptions) -> Iterable[ImportedRun]:
        """Read each file of samples as one run."""
        files = _files(path) if is_folder(path) else [path]
        if not files:
            raise UsageError(f"{path} has no file samples_TASK_TIME.jsonl")
        for file in files:
            yield _run(file, options)


IMPORTER = LmEvalImporter()


def _files(folder: Path) -> list[Path]:
    """Return the files of samples in a folder or, if it has none, in its subfolders, one for each model."""
    folders = [folder, *sorted(each for each in folder.iterdir() if is_folder(each))]
    found = [[file for file in files_in(each, ".jsonl") if _SAMPLES.fullmatch(file.name)] for each in folders]
    return found[0] or [file for files in found[1:] for file in files]


def _run(path: Path, options: ImportOptions) -> ImportedRun:
    named = _SAMPLES.fullmatch(path.name)
    task = named["task"] if named else path.stem
    facts = _results(path, named["time"] if named else "")
    found = _Metrics()
    for place, line in json_lines(path):
        found.add(validated(_Line, line, place), place)
    reward = _reward(found, facts.higher_is_better.get(task, {}), options.reward, str(path))
    config, own = facts.config, facts.configs.get(task, {})
    sampling = {**table(own.get("generation_kwargs")), **table(config.gen_kwargs)}
    shots = facts.n_shot.get(task)
    versions = {"lm_eval": facts.lm_eval_version, task: facts.versions.get(task)}
    effective = table(facts.n_samples.get(task)).get("effective")
    return ImportedRun(
        task,
        facts.model_name or (config.model if isinstance(config.model, str) else "") or "unknown",
        _rollouts(path, found, reward),
        created=utc(facts.date or 0.0),
        settings={
            "env.env_args": {} if shots is None else {"num_fewshot": shots},
            "model.api_base_url": _base_url(config.model_args),
            "model.sampling_args": sampling,
        },
        state_columns=_STATE,
        # The time is that of all tasks together.
        wall_s=facts.total_evaluation_time_seconds if len(facts.configs) == 1 else None,
        versions={name: str(version) for name, version in versions.items() if version not in (None, "")},
        reward=reward,
        planned=(effective if isinstance(effective, int) else 0, 1),
    )


def _reward(found: _Metrics, higher_is_better: Mapping[str, bool | None], wanted: str | None, where: str) -> str:
    """Choose the metric that becomes the reward among those of which higher values are better."""
    worse = [title for title in found.titles() if higher_is_better.get(title.partition(",")[0]) is False]
    if wanted is not None and "," in wanted and [wanted.partition(",")[2]] == [*found.filters]:
        wanted = wanted.partition(",")[0]  # lm-eval also names the filter if there is only one: `acc,none`
    if wanted in worse:
        raise UsageError(f"{where}: of {wanted}, lower values are better, so it cannot be the reward", setting="reward")
    return chosen_reward([title for title in found.titles() if title not in worse], wanted, where)


def _results(samples: Path, time: str) -> _Results:
    """Read the results of the same evaluation; without such a file, nothing is known."""
    path = samples.with_name(f"results_{time}.json")
    if not time or not is_file(path):
        return _Results()
    document = read_document(path).replace(b'"n-shot"', b'"n_shot"', 1).replace(b'"n-samples"', b'"n_samples"', 1)
    return validated(_Results, document, str(path))


def _base_url(arguments: object) -> str:
    if isinstance(arguments, str):  # before 0.4.10: `model=M,base_url=URL`
        pairs = (pair.partition("=") for pair in arguments.split(","))
        arguments = {name: value for name, _, value in pairs}
    url = table(arguments).get("base_url")
    return url.removesuffix("/chat/completions").removesuffix("/completions") if isinstance(url, str) else ""


def _rollouts(path: Path, found: _Metrics, reward: str) -> Iterator[ImportedRollout]:
    seen: set[int] = set()
    for place, text in json_lines(path):
        line = validated(_Line, text, place)
        if line.doc_id in seen:
            continue  # the line of another filter
        seen.add(line.doc_id)
        metrics = found.of(line.doc_id)
        requests = _requests(line.arguments)
        prompt = _prompt(requests[0][0] if requests else "")
        completion, choices = _completion(line, requests, is_chat=not isinstance(prompt, str))
        state: Mapping[str, object] = {
            "doc": line.doc, "filtered_resps": line.filtered_resps, "resps": line.resps, "choices": choices,
        }  # fmt: skip
        yield ImportedRollout(
            Row(line.doc_id, prompt, line.target if isinstance(line.target, str) else to_text(line.target)),
            completion,
            metrics.get(reward),
            column_names(metrics, _STATE),
            "" if metrics.get(reward) is not None else f"the document has no number for {reward}",
            state={name: value for name, value in state.items() if value is not None},
            place=place,
        )


def _requests(arguments: object) -> list[list[object]]:
    """Return the arguments of each request. Releases before 0.4.3 have lists instead of objects."""
    if isinstance(arguments, dict):
        groups = cast("list[object]", [*cast(JsonDict, arguments).values()])
    else:
        groups = cast("list[object]", arguments) if isinstance(arguments, list) else []
    return [
        [*cast(JsonDict, each).values()] if isinstance(each, dict) else cast("list[object]", each)
        for each in groups
        if isinstance(each, list | dict) and each
    ]


def _prompt(context: object) -> Prompt:
    """Return the prompt of a request; a chat is recorded as JSON text."""
    if isinstance(context, list):
        inner = cast("list[object]", context)
        context = inner[0] if len(inner) == 1 else inner
    if isinstance(context, str) and context.startswith("[{"):
        with suppress(UsageError):  # an ordinary text
            context = parsed(context.encode("utf-8", "surrogatepass"), "the prompt")
    messages = objects(context)
    return messages or (context if isinstance(context, str) else to_text(context))


def _completion(line: _Line, requests: list[list[object]], *, is_chat: bool) -> tuple[Prompt | None, object]:
    """Return the reply, and the log-likelihood of each choice. Of several choices, the likeliest is the reply. A
    log-likelihood of one text is no reply."""
    replies = [cast("list[object]", each) if isinstance(each, list) else [each] for each in line.resps]
    first = replies[0][0] if replies and replies[0] else None
    text: object = first
    choices = None
    if not isinstance(first, str) or (requests and len(requests[0]) < 2):
        text, values = None, [_likelihood(each) for each in replies]
        texts = [each[1] if len(each) > 1 else None for each in requests]
        if len(texts) == len(values) > 1:
            known = [(value, place) for place, value in enumerate(values) if value is not None]
            text = texts[max(known, key=lambda each: each[0])[1]] if known else None
            choices = [{"text": name, "log_likelihood": value} for name, value in zip(texts, values, strict=True)]
    if not isinstance(text, str):
        return None, choices
    return ([{"role": "assistant", "content": text}] if is_chat else text), choices


def _likelihood(reply: list[object]) -> float | None:
    """Return the log-likelihood in the reply to a request, which is recorded as `[["-0.5", "False"]]`."""
    inner = reply[0] if reply else None
    if isinstance(inner, list):
        pair = cast("list[object]", inner)
        inner = pair[0] if pair else None
    if isinstance(inner, str):
        try:
            return number(float(inner))
        except ValueError:
            return None
    return number(inner)
