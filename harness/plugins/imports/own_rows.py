"""The rows of `bench export -f jsonl` and `-f parquet`, and of the dataset of a run: the inverse of `store.rows`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, BeforeValidator, Field

from harness.core.records import FIXED_COLUMNS, Row, Timing
from harness.core.types import JsonDict, Message, Messages, Usage
from harness.plugins.imports.reading import checked, first_line, parsed, score
from harness.store.arrow import arrow, parquet
from harness.store.import_runs import ImportedRollout
from harness.store.safe_files import is_file

_AFTER_METRICS, _BEFORE_METRICS = "outcome", "reward"
_RUN_ID = "run_id"


def _decoded(value: Any) -> Any:
    """Parse JSON text, which Parquet files have in place of objects."""
    return parsed(value.encode("utf-8", "surrogatepass"), "JSON text") if isinstance(value, str) else value


_Object = Annotated[JsonDict, BeforeValidator(_decoded)]


def _scoring(timing: Any) -> Any:
    """Return the seconds of scoring, which `timing` has besides the fields of `Timing`."""
    known = _decoded(timing)
    return cast(JsonDict, known).get("scoring", 0.0) if isinstance(known, dict) else 0.0


class _Row(BaseModel):
    """The fixed columns."""

    example_id: int | str
    rollout_index: int = Field(ge=0)
    prompt: list[JsonDict]
    completion: list[JsonDict]
    answer: str | None = None
    task: str | None = None
    info: _Object | None = None
    reward: float | None = None
    outcome: str = ""
    error: str | None = None
    stop_condition: str | None = None
    is_truncated: bool = False
    usage: Annotated[Usage, BeforeValidator(_decoded)] = Usage()
    timing: Annotated[Timing, BeforeValidator(_decoded)] = Timing()
    scoring: Annotated[float, BeforeValidator(_scoring)] = Field(0.0, validation_alias="timing")


def is_own(path: Path) -> bool:
    """Return whether a file is a JSON Lines or Parquet file with the columns of our exports."""
    if not is_file(path):
        return False
    names: set[str] = set()
    if path.suffix.lower() == ".jsonl":
        names = set(first_line(path))
    elif path.suffix.lower() == ".parquet":
        try:
            names = set(cast("list[str]", parquet().read_schema(path).names))
        except (OSError, arrow().ArrowException):
            return False
    return names >= set(FIXED_COLUMNS)


def own_columns(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the metrics and the state columns of an export, given all columns in order."""
    top = [*names]
    metrics = top[top.index(_BEFORE_METRICS) + 1 : top.index(_AFTER_METRICS)]
    state = [name for name in top[top.index("env_id") + 1 :] if name not in (_RUN_ID, f"bench_{_RUN_ID}")]
    return tuple(metrics), tuple(state)


def own_rollout(row: JsonDict, place: str, metrics: tuple[str, ...], state: tuple[str, ...]) -> ImportedRollout:
    """Convert a row of an export to a rollout.

    Args:
        row: The row.
        place: File and row, for error messages.
        metrics: Columns with metrics.
        state: Columns with state values.
    """
    known = checked(_Row, row, place)
    error = known.error or ""
    is_failed = known.outcome != "scored" and not known.completion
    reason, _, words = error.partition(": ")
    is_text = isinstance(row["timing"], str)  # in Parquet files, every value that is no scalar is JSON text
    values = {name: _decoded(row.get(name)) if is_text else row.get(name) for name in state}
    return ImportedRollout(
        Row(known.example_id, _messages(known.prompt), known.answer or "", known.task or "", known.info or {}),
        _messages(known.completion),
        score(known.reward),
        {name: score(row.get(name)) for name in metrics},
        words if is_failed else error,
        (reason or "error") if is_failed else "",
        known.rollout_index,
        known.stop_condition,
        known.is_truncated,
        known.usage,
        known.timing,
        known.scoring,
        {name: value for name, value in values.items() if value is not None},
        place=place,
    )


def _messages(messages: list[JsonDict]) -> Messages:
    return [_message(each) for each in messages]


def _message(message: JsonDict) -> Message:
    """Restore a message; Parquet files have the same fields in every message, and others as JSON text in `extra`."""
    if not {"parts", "extra"} <= message.keys():
        return message
    told: Message = {
        name: value
        for name, value in message.items()
        if value is not None and name not in ("parts", "extra", "tool_calls")
    }
    told.setdefault("content", None)
    if (parts := message.get("parts")) is not None:
        told["content"] = _decoded(parts)
    if calls := cast("list[JsonDict] | None", message.get("tool_calls")):
        told["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": call.get("type"),
                "function": {"name": call.get("name"), "arguments": call.get("arguments")},
            }
            for call in calls
        ]
    return told | (cast(JsonDict, _decoded(message.get("extra"))) or {})
