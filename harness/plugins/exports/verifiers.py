"""Export of a run to `results.jsonl` and `metadata.json` of verifiers 0.1. The keys are those of 0.1.14, the last
release of that line, as its `vf-tui` and `--resume` read them; `task` and `time_ms` of releases up to 0.1.9 are
included. Tool calls have the OpenAI wire format, which the viewers of all these releases understand. Unlike the
original files, every line is valid JSON, and a rollout without a score has a null reward: readers would take 0 for a
wrong answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from harness.core.records import Failed, Generated
from harness.core.types import JsonDict, Message, Prompt, Usage
from harness.plugins.exports.foreign import Source, json_bytes, token_counts
from harness.store.codec import to_text
from harness.store.export_formats import Exported
from harness.store.export_plain import one_line
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome
from harness.store.rundir import RunDir

RESULTS, METADATA = "results.jsonl", "metadata.json"

_KEYS = frozenset({
    "example_id", "src_id", "prompt", "completion", "answer", "info", "task", "reward", "error", "timing",
    "is_completed", "is_truncated", "stop_condition", "metrics", "tool_defs", "token_usage", "error_chain",
    "long_error_chain",
})  # fmt: skip
"""Fixed keys of a line of `results.jsonl`. A metric with such a name is written only to the object `metrics`."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The columns of `results.jsonl`. They are equal in every line, because readers infer types from the first
    lines."""

    metrics: tuple[str, ...]
    state_columns: Mapping[str, str]
    """Names of the state columns in the exported lines, by their names in the run."""
    renumbered: bool
    """Whether `example_id` is the example's number in the run, because the dataset's ids are not unique integers."""
    has_answer: bool
    has_info: bool
    has_task: bool

    @classmethod
    def of(cls, manifest: Manifest, recorded: Recorded) -> _Shape:
        """Determine the columns of the exported lines from all rollouts of a run."""
        ids: set[int] = set()
        renumbered = has_answer = has_info = has_task = False
        for example in recorded.examples() if recorded.example_count else ():
            own = example.example_id
            renumbered = renumbered or not isinstance(own, int) or own in ids
            if isinstance(own, int):
                ids.add(own)
            has_answer = has_answer or bool(example.answer)
            has_info = has_info or bool(example.info)
            has_task = has_task or bool(example.task)
        metrics = tuple(manifest.metric_names)
        taken = _KEYS | set(metrics)
        state = {name: name if name not in taken else f"state_{name}" for name in manifest.state_columns}
        return cls(metrics, state, renumbered, has_answer, has_info, has_task)


@dataclass(slots=True)
class _Count:
    """Counts and sums over the written lines, for `metadata.json`."""

    rows: int = 0
    unscored: int = 0
    with_usage: int = 0
    usage: Usage = Usage()  # noqa: RUF009 - frozen

    def add(self, outcome: Outcome) -> None:
        self.rows += 1
        self.unscored += not outcome.is_scored
        if token_counts(outcome.base.usage) is not None:
            self.with_usage += 1
            self.usage += outcome.base.usage


def write(run: RunDir, target: Path) -> Exported:
    """Write a run as a folder with `results.jsonl` and `metadata.json`; see `harness.store.export_formats.Writer`."""
    source = Source.read(run)
    shape = _Shape.of(source.manifest, source.recorded)
    count = _Count()
    target.mkdir()
    with (target / RESULTS).open("xb") as file:
        for outcome in source.outcomes():
            file.write(one_line(json_bytes(_line(shape, outcome))))
            count.add(outcome)
    (target / METADATA).write_bytes(one_line(json_bytes(_metadata(source, shape, count))))
    return Exported((target / RESULTS, target / METADATA), count.rows, _notes(shape, count))


def _line(shape: _Shape, outcome: Outcome) -> JsonDict:
    example, base, score = outcome.example, outcome.base, outcome.score
    line: JsonDict = {"example_id": example.index if shape.renumbered else example.example_id}
    if shape.renumbered:
        line["src_id"] = example.example_id
    line |= {
        "prompt": _messages(example.prompt),
        "completion": _messages([] if isinstance(base, Failed) and not base.completion else base.completion),
    }
    if shape.has_answer:
        line["answer"] = example.answer
    if shape.has_info:
        line["info"] = example.info
    if shape.has_task:
        line["task"] = example.task
    metrics = {name: None if score is None else score.metrics.get(name) for name in shape.metrics}
    error, counts = _error(outcome), token_counts(base.usage)
    line |= {
        "reward": outcome.reward,
        "error": error,
        "timing": _timing(outcome),
        "is_completed": isinstance(base, Generated),
        "is_truncated": isinstance(base, Generated) and base.is_truncated,
        "stop_condition": base.stop_condition if isinstance(base, Generated) else None,
        "metrics": metrics,
        "tool_defs": None,
        "token_usage": counts and {name: float(counts[name]) for name in ("input_tokens", "output_tokens")},
        "error_chain": None if error is None else error["error_chain_repr"],
        "long_error_chain": None if error is None else error["error_chain_str"],
    }
    line |= {name: value for name, value in metrics.items() if name not in _KEYS}
    state = outcome.state
    return {**line, **{new: state.get(old) for old, new in shape.state_columns.items()}}


def _messages(prompt: Prompt) -> Prompt:
    """Convert each tool call in messages to a JSON string, as releases 0.1 of verifiers write it; other fields are
    unchanged."""
    if not isinstance(prompt, list):
        return prompt
    return [_message(message) for message in cast("list[object]", prompt)]


def _message(message: object) -> Message:
    if not isinstance(message, dict):
        return {"role": "text", "content": message}
    told = cast(Message, message)
    said: Message = {**told, "content": "" if told.get("content") is None else told["content"]}
    calls = said.pop("tool_calls", None)
    if isinstance(calls, list) and calls:
        said["tool_calls"] = [to_text(call) for call in cast("list[object]", calls)]
    return said


def _error(outcome: Outcome) -> JsonDict | None:
    """Return the error of a rollout without a score. A scored rollout has none, even if a metric of weight 0 failed."""
    if outcome.is_scored:
        return None
    reason, words = outcome.reason, outcome.error or outcome.reason
    return {"error": reason, "error_chain_repr": words, "error_chain_str": words}


def _timing(outcome: Outcome) -> JsonDict:
    """Return the times of a rollout as spans of Unix time. For model calls and scoring, only the total duration
    is recorded: `model` has no spans, and scoring is placed right after generation."""
    timing = outcome.base.timing
    scoring = 0.0 if outcome.score is None else outcome.score.seconds
    ended = timing.started_at + timing.generation
    total = timing.generation + scoring

    def span(start: float, duration: float) -> JsonDict:
        return {"start": start, "end": start + duration, "duration": duration}

    return {
        "start_time": timing.started_at,
        "setup": span(timing.started_at, 0.0),
        "generation": span(timing.started_at, timing.generation),
        "scoring": span(ended, scoring),
        "model": {"spans": [], "duration": timing.model},
        "env": {"spans": [], "duration": 0.0},
        "total": total,
        "overhead": max(0.0, total - timing.model - scoring),
    }


def _metadata(source: Source, shape: _Shape, count: _Count) -> JsonDict:
    manifest, summary = source.manifest, source.summary
    seconds = summary.wall_s
    settings, numbers = manifest.settings, summary.to_json()
    version = manifest.versions.get(manifest.env_id)
    usage: JsonDict | None = None
    if count.with_usage:
        # Means over the rollouts whose endpoint reported tokens, as the format defines them.
        each = {"input_tokens": count.usage.input_tokens, "output_tokens": count.usage.output_tokens}
        usage = {name: tokens / count.with_usage for name, tokens in each.items()}
    return {
        "env_id": manifest.env_id,
        "env_args": settings.get("env.env_args", {}),
        "model": manifest.model,
        "base_url": settings.get("model.api_base_url", ""),
        "num_examples": manifest.planned.get("num_examples", summary.num_examples),
        "rollouts_per_example": manifest.planned.get("rollouts_per_example", 1),
        "sampling_args": settings.get("model.sampling_args", {}),
        "date": manifest.created,
        "time": seconds,
        "time_ms": None if seconds is None else seconds * 1000,
        "avg_reward": numbers["reward"]["mean"],
        "avg_metrics": {name: metric["mean"] for name, metric in numbers["metrics"].items()},
        "avg_error": count.unscored / count.rows if count.rows else None,
        "pass_at_k": numbers["pass_at_k"],
        "pass_all_k": numbers["pass_hat_k"],
        "pass_threshold": summary.pass_threshold,
        "usage": usage,
        "version_info": {"vf_version": None, "vf_commit": None, "env_version": version, "env_commit": None},
        "state_columns": list(shape.state_columns.values()),
        "tools": None,
        "bench": {
            "run": manifest.id,
            "status": manifest.status,
            "versions": manifest.versions,
            "rollouts": count.rows,
            "unscored": dict(summary.unscored),
        },
    }


def _notes(shape: _Shape, count: _Count) -> tuple[str, ...]:
    notes: list[str] = []
    if count.unscored:
        notes.append(
            f"{count.unscored} of {count.rows} rollouts have no score: their reward is null, and the averages exclude "
            "them, as vf-tui does"
        )
    if shape.renumbered:
        notes.append(
            "this format requires an integer example_id, so it is the number in the run; src_id is the original id"
        )
    clashes = [name for name in shape.metrics if name in _KEYS]
    notes += [f"metric {name!r} has the name of a format key, so it is only in `metrics`" for name in clashes]
    renamed = {old: new for old, new in shape.state_columns.items() if old != new}
    notes += [
        f"state column {old!r} has the name of a format key, so it is renamed to {new!r}"
        for old, new in renamed.items()
    ]
    return tuple(notes)
