"""`rollouts_df` and `messages_df`: data frames with one row per rollout, or per message, of one or more runs. Values
that are also in the run's dataset are converted in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, overload

from harness.core.errors import UsageError
from harness.report.frames.fields import Backend, Field, framed, free_name, library, selected, table_of
from harness.report.frames.runs import chosen
from harness.stats.summary import tokens_known
from harness.store.codec import to_text
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rows import RowShape, as_messages, completion_messages, content_text, plain_row
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    from harness.report.frames.fields import Frame
    from harness.report.frames.runs import Runs


@dataclass(frozen=True, slots=True)
class Run:
    """A run whose rollouts become rows of a data frame."""

    folder: RunDir
    manifest: Manifest
    columns: RowShape
    """Columns of the run's rows, without state values."""
    state: tuple[str, ...]
    """Names of state values that become columns of the data frame."""


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """Run, outcome and dataset row from which one row of the data frame is built."""

    run: Run
    outcome: Outcome
    row: dict[str, str | int | float | bool | None]
    """Row of the run's dataset, without the messages."""


_BEFORE_METRICS = 11
"""Number of columns before those of the metrics; the last of them is `error`."""

_Value: TypeAlias = Callable[[RolloutRow], object]


@overload
def rollouts_df(
    runs: Runs,
    *,
    path: str | Path = "outputs",
    columns: Sequence[str] | None = None,
    state: Sequence[str] | None = None,
    backend: Literal["pandas"] = "pandas",
) -> pandas.DataFrame: ...
@overload
def rollouts_df(
    runs: Runs,
    *,
    path: str | Path = "outputs",
    columns: Sequence[str] | None = None,
    state: Sequence[str] | None = None,
    backend: Literal["polars"],
) -> polars.DataFrame: ...
def rollouts_df(
    runs: Runs,
    *,
    path: str | Path = "outputs",
    columns: Sequence[str] | None = None,
    state: Sequence[str] | None = None,
    backend: Backend = "pandas",
) -> Frame:
    """Data frame with one row per rollout, ordered by run, example and rollout index.

    Read from the journals, so the rollouts of a run that is running or was killed are included. A rollout without a
    score has no reward, never 0. The columns are documented in docs/reference/results-api.md.

    Args:
        runs: A run's id, the beginning of one, `latest`, its path, an output folder, a list of these, or a frame of
            `runs_df`.
        path: The output folder in which ids are looked up.
        columns: Only these columns, in this order. Without `prompt` and `completion` large runs need far less memory.
        state: Values of the rollouts' state that become columns, as JSON; None for each run's own setting
            (`state_columns`).
        backend: `pandas`, or `polars`.

    Raises:
        UsageError: no such run, column or backend.
        StoreError: a run cannot be read.
    """
    made_by = library(backend)
    if isinstance(state, str):
        raise UsageError(f'state: give a list of names, such as ["{state}"]')
    described: list[Run] = []
    for folder in chosen(runs, path):
        manifest = folder.read_manifest()
        names = manifest.state_columns if state is None else tuple(dict.fromkeys(state))
        # State values are added separately, since a state name may equal a column of the dataset.
        shape = RowShape(manifest.env_id, manifest.model, tuple(manifest.metric_names))
        described.append(Run(folder, manifest, shape, names))
    rows = (
        RolloutRow(run, outcome, plain_row(run.columns, outcome))
        for run in described
        for outcome in outcomes(read_journal(run.folder))
    )
    return framed(table_of(selected(_fields(described), columns), rows), made_by)


def _fields(runs: Sequence[Run]) -> list[Field[RolloutRow]]:
    """All columns of `rollouts_df`: the fixed ones, with metrics after `error` and state values at the end."""
    names = {field.name for field in _FIXED}
    metrics = dict.fromkeys(name for run in runs for name in run.columns.metric_names)
    measured = [Field(free_name(name, "metric", names), "number", _of_row(name)) for name in metrics]
    names.update(field.name for field in measured)
    state = dict.fromkeys(name for run in runs for name in run.state)
    kept = [Field(free_name(name, "state", names), "text", _of_state(name)) for name in state]
    return [*_FIXED[:_BEFORE_METRICS], *measured, *_FIXED[_BEFORE_METRICS:], *kept]


def _of_row(name: str) -> _Value:
    return lambda rollout: rollout.row.get(name)


def _of_usage(name: str) -> _Value:
    """Return a function that reads the token count `name` of a rollout; its result is None if no usage was reported."""

    def value(rollout: RolloutRow) -> object:
        usage = rollout.outcome.base.usage
        return getattr(usage, name) if tokens_known(usage) else None

    return value


def _of_state(name: str) -> _Value:
    """Return a function that reads a state value of a rollout as JSON. A value set during scoring takes precedence."""

    def value(rollout: RolloutRow) -> object:
        state = rollout.outcome.state
        return to_text(state[name]) if name in state else None

    return value


def _by_role(messages: Sequence[object], role: str) -> list[Mapping[str, object]]:
    return [table for table in map(_table, messages) if table.get("role") == role]


def _last_text(messages: Sequence[object], role: str) -> str | None:
    """Text of the last message with this role; None if there is no such message or it has no text."""
    found = _by_role(messages, role)
    return content_text(found[-1].get("content")) if found else None


def _duration(row: RolloutRow, name: str) -> object:
    """A duration of the rollout in seconds; None if its times are unknown."""
    timing = row.outcome.base.timing
    return getattr(timing, name) if timing.is_known else None


_FIXED: tuple[Field[RolloutRow], ...] = (
    Field("run_id", "text", lambda r: r.run.folder.id),
    Field("env_id", "text", lambda r: r.run.manifest.env_id),
    Field("model", "text", lambda r: r.run.manifest.model),
    Field("name", "text", lambda r: r.run.manifest.name),
    Field("example_id", "text", _of_row("example_id")),
    Field("example_key", "text", lambda r: r.outcome.example.key),
    Field("rollout_index", "integer", _of_row("rollout_index")),
    Field("reward", "number", _of_row("reward")),
    Field("outcome", "text", _of_row("outcome")),
    Field("reason", "text", lambda r: None if r.outcome.is_scored else r.outcome.reason),
    Field("error", "text", _of_row("error")),
    Field("input_tokens", "integer", _of_usage("input_tokens")),
    Field("output_tokens", "integer", _of_usage("output_tokens")),
    Field("reasoning_tokens", "integer", _of_usage("reasoning_tokens")),
    Field("cached_tokens", "integer", _of_usage("cached_tokens")),
    Field("requests", "integer", lambda r: r.outcome.base.usage.requests),
    Field("cost", "number", lambda r: r.outcome.base.usage.cost),
    Field("started", "time", lambda r: r.outcome.base.timing.started_at or None),
    Field("generation_s", "number", lambda r: _duration(r, "generation")),
    Field("model_s", "number", lambda r: _duration(r, "model")),
    Field("waiting_s", "number", lambda r: _duration(r, "waiting")),
    Field("scoring_s", "number", lambda r: None if r.outcome.score is None else r.outcome.score.seconds),
    Field("attempts", "integer", lambda r: r.outcome.base.attempts),
    Field("turns", "integer", lambda r: len(_by_role(completion_messages(r.outcome.base), "assistant"))),
    Field("stop_condition", "text", _of_row("stop_condition")),
    Field("is_truncated", "flag", _of_row("is_truncated")),
    Field("task", "text", _of_row("task")),
    Field("info", "text", _of_row("info")),
    Field("prompt", "text", lambda r: _last_text(as_messages(r.outcome.example.prompt, "user"), "user")),
    Field("completion", "text", lambda r: _last_text(completion_messages(r.outcome.base), "assistant")),
    Field("answer", "text", _of_row("answer")),
)


_KNOWN = frozenset({"role", "content", "reasoning_content", "name", "tool_call_id", "tool_calls"})


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message with its rollout, from which one row of the data frame is built."""

    run: Manifest
    outcome: Outcome
    position: int
    part: Literal["prompt", "completion"]
    message: Mapping[str, object]


@overload
def messages_df(
    runs: Runs,
    *,
    path: str | Path = "outputs",
    columns: Sequence[str] | None = None,
    backend: Literal["pandas"] = "pandas",
) -> pandas.DataFrame: ...
@overload
def messages_df(
    runs: Runs, *, path: str | Path = "outputs", columns: Sequence[str] | None = None, backend: Literal["polars"]
) -> polars.DataFrame: ...
def messages_df(
    runs: Runs, *, path: str | Path = "outputs", columns: Sequence[str] | None = None, backend: Backend = "pandas"
) -> Frame:
    """Data frame with one row per message of every rollout (prompt, then completion), in the order of `rollouts_df`.

    Args:
        runs: A run's id, the beginning of one, `latest`, its path, an output folder, a list of these, or a frame of
            `runs_df`.
        path: The output folder in which ids are looked up.
        columns: Only these columns, in this order.
        backend: `pandas`, or `polars`.

    Raises:
        UsageError: no such run, column or backend.
        StoreError: a run cannot be read.
    """
    made_by = library(backend)
    fields = selected(_MESSAGE_FIELDS, columns)
    return framed(table_of(fields, _messages(chosen(runs, path))), made_by)


def _messages(runs: Sequence[RunDir]) -> Iterator[MessageRow]:
    for folder in runs:
        manifest = folder.read_manifest()
        for outcome in outcomes(read_journal(folder)):
            prompt = as_messages(outcome.example.prompt, "user")
            for position, message in enumerate(prompt):
                yield MessageRow(manifest, outcome, position, "prompt", _table(message))
            for position, message in enumerate(completion_messages(outcome.base), len(prompt)):
                yield MessageRow(manifest, outcome, position, "completion", _table(message))


def _table(message: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", message) if isinstance(message, Mapping) else {"content": message}


def _of_message(name: str) -> Callable[[MessageRow], object]:
    return lambda said: said.message.get(name)


def _json_or_none(value: object) -> str | None:
    return to_text(value) if value else None


_MESSAGE_FIELDS: tuple[Field[MessageRow], ...] = (
    Field("run_id", "text", lambda s: s.run.id),
    Field("env_id", "text", lambda s: s.run.env_id),
    Field("model", "text", lambda s: s.run.model),
    Field("example_id", "text", lambda s: s.outcome.example.example_id),
    Field("rollout_index", "integer", lambda s: s.outcome.base.rollout_index),
    Field("position", "integer", lambda s: s.position),
    Field("part", "text", lambda s: s.part),
    Field("role", "text", _of_message("role")),
    Field("content", "text", lambda s: content_text(s.message.get("content"))),
    Field("parts", "text", lambda s: None if isinstance(held := s.message.get("content"), str) else held),
    Field("reasoning", "text", _of_message("reasoning_content")),
    Field("tool_calls", "text", lambda s: _json_or_none(s.message.get("tool_calls"))),
    Field("name", "text", _of_message("name")),
    Field("tool_call_id", "text", _of_message("tool_call_id")),
    Field(
        "extra", "text", lambda s: _json_or_none({name: s.message[name] for name in s.message if name not in _KNOWN})
    ),
)
