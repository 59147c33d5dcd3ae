"""`messages_df`: a data frame with one row per message, over one or more runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, overload

from harness.report.frames.fields import Field, selected, table_of
from harness.report.frames.selection import chosen
from harness.report.frames.tables import Backend, framed, library
from harness.store.codec import to_text
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome, outcomes, read_journal
from harness.store.rows import as_messages, completion_messages, content_text
from harness.store.rundir import RunDir

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingTypeStubs]
    import polars

    from harness.report.frames.selection import Runs
    from harness.report.frames.tables import Frame

_KNOWN = frozenset({"role", "content", "reasoning_content", "name", "tool_call_id", "tool_calls"})


@dataclass(frozen=True, slots=True)
class MessageRow:
    """Source of one row."""

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
    """Data frame with one row per message: prompt and completion of every rollout, in the order of `rollouts_df`.

    Args:
        runs: A run's id, the beginning of one, `latest`, its path, an output folder, a list of such, or a frame of
            `runs_df`.
        path: The output folder in which ids are looked up.
        columns: Only these columns, in this order.
        backend: `pandas`, or `polars`.

    Raises:
        UsageError: no such run, column or backend.
        StoreError: a run cannot be read.
    """
    made_by = library(backend)
    fields = selected(_FIELDS, columns)
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


def _of(name: str) -> Callable[[MessageRow], object]:
    return lambda said: said.message.get(name)


def _parts(said: MessageRow) -> str | None:
    content = said.message.get("content")
    return None if content is None or isinstance(content, str) else to_text(content)


def _tool_calls(said: MessageRow) -> str | None:
    calls = said.message.get("tool_calls")
    return to_text(calls) if calls else None


def _extra(said: MessageRow) -> str | None:
    rest = {name: value for name, value in said.message.items() if name not in _KNOWN}
    return to_text(rest) if rest else None


_FIELDS: tuple[Field[MessageRow], ...] = (
    Field("run_id", "text", lambda s: s.run.id),
    Field("env_id", "text", lambda s: s.run.env_id),
    Field("model", "text", lambda s: s.run.model),
    Field("example_id", "text", lambda s: s.outcome.example.example_id),
    Field("rollout_index", "integer", lambda s: s.outcome.base.rollout_index),
    Field("position", "integer", lambda s: s.position),
    Field("part", "text", lambda s: s.part),
    Field("role", "text", _of("role")),
    Field("content", "text", lambda s: content_text(s.message.get("content"))),
    Field("parts", "text", _parts),
    Field("reasoning", "text", _of("reasoning_content")),
    Field("tool_calls", "text", _tool_calls),
    Field("name", "text", _of("name")),
    Field("tool_call_id", "text", _of("tool_call_id")),
    Field("extra", "text", _extra),
)
