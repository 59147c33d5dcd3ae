"""Export of a run to an Inspect eval log, for `inspect view` and `inspect_ai.log`: the `.eval` (zip) and `.json` files,
and their header with settings, results and totals. `inspect_sample` and `inspect_messages` create the samples. Does not
need Inspect. Samples are first written to a temporary file, to limit memory: the header precedes them, but is complete
only after the last sample."""

from __future__ import annotations

import hashlib
import math
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import IO

from harness.core.records import Failed
from harness.core.types import JsonDict, Usage
from harness.plugins.exports.foreign import NOT_A_NUMBER, Source, json_bytes
from harness.plugins.exports.inspect_sample import REWARD, SampleIds, judge_usage, moment, sample_of, summary_of, used
from harness.stats.intervals import Estimate
from harness.stats.summary import Spread, number
from harness.store.export_formats import Exported
from harness.store.outcomes import Outcome
from harness.store.rundir import RunDir, safe_name
from harness.store.values import table

LOG_VERSION = 2
"""Version of the log's schema, as written by Inspect 0.3."""

_STATUS = {"done": "success", "stopped": "error", "failed": "error", "interrupted": "cancelled", "running": "cancelled"}
"""Status of the Inspect log by the status of the run. Logs have the status `started` only while Inspect itself writes
them, so an unfinished run is exported as cancelled."""


@dataclass(slots=True)
class Totals:
    """Counts and token usage of all exported samples, for the log's header."""

    generated: int = 0
    failed: int = 0
    finished_at: float = 0.0
    judges: dict[str, Usage] = field(default_factory=dict[str, Usage])
    ids: SampleIds = field(default_factory=SampleIds)

    def add(self, outcome: Outcome) -> None:
        """Add one rollout to the totals."""
        timing, is_failed = outcome.base.timing, isinstance(outcome.base, Failed)
        self.failed += is_failed
        self.generated += not is_failed
        scoring = 0.0 if outcome.score is None else outcome.score.seconds
        self.finished_at = max(self.finished_at, timing.started_at + timing.generation + scoring)
        for name, usage in judge_usage(outcome).items():
            self.judges[name] = self.judges.get(name, Usage()) + usage


def header_of(source: Source, totals: Totals) -> JsonDict:
    """Return the whole Inspect log except its samples, with the fields in Inspect's order."""
    manifest = source.manifest
    status = _STATUS.get(manifest.status, "cancelled")
    try:
        began = datetime.fromisoformat(manifest.created).timestamp()
    except ValueError:
        began = 0.0
    # A replayed or rescored run is newer than its rollouts, so the end of the last rollout is not the end of the run.
    ended = max(began + (source.summary.wall_s or 0.0) if began else 0.0, totals.finished_at)
    header: JsonDict = {
        "version": LOG_VERSION,
        "status": status,
        "eval": _spec(source, totals.ids.all),
        "plan": {"name": "plan", "steps": [], "config": _generation(source)[0]},
        "results": _results(source, totals),
        "stats": {
            "started_at": manifest.created,
            "completed_at": moment(ended) or manifest.created,
            **used(manifest.model, source.summary.usage, totals.judges),
        },
    }
    if status == "error":
        header["error"] = {"message": f"the run {manifest.status}", "traceback": "", "traceback_ansi": ""}
    return header


def _spec(source: Source, sample_ids: list[int | str]) -> JsonDict:
    manifest = source.manifest
    settings = manifest.settings
    config, rest = _generation(source)
    args = table(settings.get("env.env_args"))
    spec: JsonDict = {
        "eval_id": _mark("eval", manifest.id),
        "run_id": manifest.id,
        "created": manifest.created,
        "task": manifest.env_id,
        "task_id": _mark("task", manifest.id),
        "task_version": str(manifest.versions.get(manifest.env_id) or 0),
        "task_display_name": manifest.name or manifest.env_id,
        "task_args": args,
        "task_args_passed": args,
        "tags": ["bench", manifest.kind],
        "dataset": {
            "name": manifest.env_id,
            "samples": len(sample_ids),
            "sample_ids": sample_ids,
            "shuffled": bool(settings.get("env.shuffle")),
        },
        "model": manifest.model,
        "model_generate_config": config,
        "model_args": rest,
        "config": _config(source),
        "packages": {name: str(version) for name, version in manifest.versions.items() if name != "python"},
        "metadata": {"bench": _own(source)},
        "scorers": [{"name": name} for name in (REWARD, *source.summary.metrics)],
    }
    if source.url:
        spec["model_base_url"] = source.url
    if commit := manifest.git.get("commit"):
        spec["revision"] = {"type": "git", "origin": "", "commit": commit, "dirty": bool(manifest.git.get("dirty"))}
    return spec


def _own(source: Source) -> JsonDict:
    """Return data of the run for which the schema of the log has no field."""
    manifest = source.manifest
    own: JsonDict = {"command": manifest.command, "kind": manifest.kind, "status": manifest.status}
    own |= {name: value for name in ("suite", "parent", "seed") if (value := getattr(manifest, name)) is not None}
    if manifest.derived:
        own["derived"] = manifest.derived
    own |= {
        "reward_range": [number(bound) for bound in manifest.reward_range],
        "pass_threshold": source.summary.pass_threshold,
        "state_columns": list(manifest.state_columns),
    }
    return own


def _config(source: Source) -> JsonDict:
    settings = source.manifest.settings
    config: JsonDict = {
        "epochs": source.epochs,
        "epochs_reducer": ["mean"],
        "fail_on_error": False,
        "log_samples": True,
    }
    numbers: dict[str, object] = {
        "limit": source.manifest.planned.get("num_examples"),
        "time_limit": settings.get("env.timeout"),
        "retry_on_error": settings.get("env.max_retries"),
        "max_samples": settings.get("model.max_concurrent_generation"),
    }
    for name, value in numbers.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            config[name] = math.ceil(value)
    if settings.get("env.shuffle"):
        config["sample_shuffle"] = True if source.manifest.seed is None else source.manifest.seed
    return config


_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
"""Values of `reasoning_effort` that Inspect accepts."""

_GENERATION: Mapping[str, tuple[str, type | UnionType]] = {
    "temperature": ("temperature", int | float),
    "top_p": ("top_p", int | float),
    "top_k": ("top_k", int),
    "max_tokens": ("max_tokens", int),
    "max_completion_tokens": ("max_tokens", int),
    "frequency_penalty": ("frequency_penalty", int | float),
    "presence_penalty": ("presence_penalty", int | float),
    "seed": ("seed", int),
    "n": ("num_choices", int),
    "logprobs": ("logprobs", bool),
    "top_logprobs": ("top_logprobs", int),
    "parallel_tool_calls": ("parallel_tool_calls", bool),
    "reasoning_effort": ("reasoning_effort", str),
    "extra_body": ("extra_body", dict),
}
"""Field of Inspect's generation config for each sampling argument, and the type of the values that it accepts."""


def _generation(source: Source) -> tuple[JsonDict, JsonDict]:
    """Convert the sampling arguments to Inspect's generation config; also return those that have no field there."""
    config: JsonDict = {}
    rest: JsonDict = {}
    for name, value in source.sampling_args.items():
        field_name, kind = _GENERATION.get(name, ("", str))
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if field_name and fits and (name != "reasoning_effort" or value in _EFFORTS):
            config[field_name] = value
        elif name == "stop" and isinstance(value, str | list):
            config["stop_seqs"] = [value] if isinstance(value, str) else [str(each) for each in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        else:
            rest[name] = value
    return config, rest


def _results(source: Source, totals: Totals) -> JsonDict:
    summary = source.summary
    spreads = {REWARD: summary.reward, **summary.metrics}
    scores = [_score(name, spread, summary.num_examples) for name, spread in spreads.items()]
    for title, rates in (("pass_at", summary.pass_at_k), ("pass_k", summary.pass_hat_k)):
        for k, rate in rates.items():
            if k > 1 and rate.value is not None:
                metrics = _metrics(rate.value, rate.estimate)
                scores.append({
                    "name": REWARD, "scorer": REWARD, "reducer": f"{title}_{k}", "metrics": metrics,
                    "unscored_samples": rate.excluded, "params": {"value": summary.pass_threshold},
                })  # fmt: skip
    bounds = None if summary.bounds is None else list(summary.bounds)
    return {
        "total_samples": summary.planned,
        "completed_samples": totals.generated,
        "scores": scores,
        "headline": {"scorer": REWARD, "score": REWARD, "metric": "mean"},
        "metadata": {"bounds": bounds, "unscored": dict(summary.unscored), "failed": totals.failed},
    }


def _score(name: str, spread: Spread, examples: int) -> JsonDict:
    estimate = spread.estimate
    metrics = _metrics(NOT_A_NUMBER if estimate.mean is None else estimate.mean, estimate, std=spread.std)
    return {
        "name": name, "scorer": name, "reducer": None, "metrics": metrics, "params": {},
        "scored_samples": estimate.examples, "unscored_samples": examples - estimate.examples,
    }  # fmt: skip


def _metrics(mean: object, estimate: Estimate, **others: float | None) -> JsonDict:
    """Return a mean with its uncertainty, as far as it is known."""
    values = {"stderr": estimate.stderr, "ci_low": estimate.low, "ci_high": estimate.high, **others}
    metrics: JsonDict = {"mean": {"name": "mean", "value": mean, "params": {}}}
    for title, value in values.items():
        if value is not None and math.isfinite(value):
            params = {"method": estimate.method} if title.startswith("ci") else {}
            metrics[title] = {"name": title, "value": value, "params": params}
    return metrics


def _mark(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:22]


_LEVEL = 3
"""Compression level; higher levels hardly reduce the size and take several times as long."""

_LISTED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}[:-]\d{2}[:-]\d{2}")
"""Pattern of a time at the start of a file name. Inspect lists every `.eval` file as a log, but a `.json` file only if
its name begins with such a time."""


def write(run: RunDir, target: Path) -> Exported:
    """Write a run as an Inspect log: as JSON if the file name ends in `.json`, else in the `.eval` format.

    Args:
        run: The run.
        target: The file; must not exist.

    Raises:
        StoreError: the run cannot be read.
        OSError: the file cannot be written.
    """
    source, totals = Source.read(run), Totals()

    def samples() -> Iterator[JsonDict]:
        for outcome in source.outcomes():
            totals.add(outcome)
            yield sample_of(outcome, totals.ids.of(outcome.example), source)

    is_json = target.suffix.lower() == ".json"
    (_write_json if is_json else _write_eval)(target, samples(), lambda: header_of(source, totals))
    notes: list[str] = []
    if unscored := sum(source.summary.unscored.values()):
        notes.append(
            f"{unscored} rollouts have no score: the log has NaN or an error for them, and its means exclude them"
        )
    if is_json and not _LISTED.match(target.name):
        name = f"{source.manifest.created[:19].replace(':', '-')}_{safe_name(source.manifest.env_id)}.json"
        notes.append(f"inspect view lists a .json log only if its name begins with the time of the run, as in {name}")
    return Exported((target,), totals.generated + totals.failed, tuple(notes))


def _write_eval(target: Path, read: Iterator[JsonDict], make_header: Callable[[], JsonDict]) -> None:
    packed = zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
    with tempfile.TemporaryFile(dir=target.parent) as summaries, packed as archive:
        for sample in read:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json_bytes(sample))
            summaries.write((b",\n" if summaries.tell() else b"[") + json_bytes(summary_of(sample)))
        summaries.write(b"]" if summaries.tell() else b"[]")
        header = make_header()
        start = {"version": LOG_VERSION, "eval": header["eval"], "plan": header["plan"]}
        archive.writestr("_journal/start.json", json_bytes(start))
        with archive.open("summaries.json", "w", force_zip64=True) as member:
            _copy(summaries, member)
        archive.writestr("header.json", json_bytes(header))


def _write_json(target: Path, read: Iterator[JsonDict], make_header: Callable[[], JsonDict]) -> None:
    with tempfile.TemporaryFile(dir=target.parent) as samples, target.open("xb") as file:
        for sample in read:
            samples.write((b",\n" if samples.tell() else b"") + json_bytes(sample))
        file.write(json_bytes(make_header()).removesuffix(b"}") + b',"samples":[')
        _copy(samples, file)
        file.write(b"]}\n")


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    source.seek(0)
    shutil.copyfileobj(source, target, 1 << 20)
