"""A rollout as a row of the dataset: columns, Arrow types, and conversion of values. The schema depends only on the
names of metrics and state columns, never on values, so runs with and without rows or scores have the same schema."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.core.errors import ConfigError, StoreError
from harness.core.records import FIXED_COLUMNS, Failed, Generated, Scored
from harness.core.types import JsonDict, Message, Prompt
from harness.stats.scores import LARGEST_SCORE
from harness.store.arrow import arrow, json_line, parquet, table_from
from harness.store.atomic import translated
from harness.store.codec import to_text
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome

BATCH_ROWS = 1000
"""Rows per row group. Readers load one row group at a time; the Hub's viewer needs at least some hundreds."""

BATCH_BYTES = 16 << 20
"""Maximum bytes of text in a row group: limits memory, and keeps Arrow's offsets well below 32 bits."""

WRITER_OPTIONS: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "write_statistics": False}
"""Options of the parquet writer. zstd: half the size of the default snappy on transcripts, in the same time. Statistics
are off, since they would copy long texts into the footer, and are useful only for readers that skip row groups."""

_MESSAGE_TEXTS = ("role", "content", "parts", "reasoning_content", "name", "tool_call_id")
_CALL_TEXTS = ("id", "type", "name", "arguments")
_MESSAGE_FIELDS = frozenset({"role", "content", "reasoning_content", "name", "tool_call_id", "tool_calls"})
_BEFORE_METRICS = 8
"""Number of fixed columns before those of the metrics; the last of them is `reward`."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """Columns of the rows of a run's dataset.

    Raises:
        ConfigError: two columns would have the same name.
    """

    env_id: str
    model: str
    metric_names: tuple[str, ...] = ()
    state_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen = set(FIXED_COLUMNS)
        for kind, names in (("metric", self.metric_names), ("state column", self.state_columns)):
            for name in names:
                if not name.isprintable() and any("\ud800" <= char <= "\udfff" for char in name):
                    raise ConfigError(f"{kind} {name!r} has a lone surrogate, which no file can store; rename it")
                if name in seen:
                    raise ConfigError(f"{kind} {name!r} has the name of another column of the dataset; rename it")
                seen.add(name)

    @classmethod
    def of(cls, manifest: Manifest) -> RowShape:
        """The columns of a recorded run."""
        return cls(manifest.env_id, manifest.model, tuple(manifest.metric_names), tuple(manifest.state_columns))

    @property
    def names(self) -> tuple[str, ...]:
        """All columns in order."""
        before, after = FIXED_COLUMNS[:_BEFORE_METRICS], FIXED_COLUMNS[_BEFORE_METRICS:]
        return (*before, *self.metric_names, *after, *self.state_columns)


class RowFile:
    """A parquet file being written, one row group at a time.

    Args:
        path: The file; its content is overwritten, its permissions are kept.
        columns: Columns of the rows.
        notes: Key-value metadata of the file.
    """

    def __init__(self, path: Path, columns: RowShape, notes: Mapping[str, str]) -> None:
        self.path = path
        self.rows = 0
        self._schema = arrow_schema(columns)
        with translated("write", path):
            self._writer = parquet().ParquetWriter(path, self._schema.with_metadata(notes), **WRITER_OPTIONS)
        self._columns = columns
        self._lines = bytearray()
        """Rows of the next row group, as lines of JSON."""
        self._waiting = 0
        """Number of rows that wait for the next row group to be written."""

    def add(self, outcome: Outcome) -> None:
        """Add one rollout."""
        row: JsonDict = {**plain_row(self._columns, outcome)}
        row["prompt"] = [_message(each) for each in as_messages(outcome.example.prompt, "user")]
        row["completion"] = [_message(each) for each in completion_messages(outcome.base)]
        self._lines += json_line(row)
        self.rows += 1
        self._waiting += 1
        if self._waiting >= BATCH_ROWS or len(self._lines) >= BATCH_BYTES:
            self._flush()

    def close(self) -> None:
        """Write remaining rows and the footer. The file is not synced."""
        self._flush()
        with translated("write", self.path):
            self._writer.close()

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Complete and close the file. After an exception, only close it; the file is then unreadable on purpose."""
        if kind is None:
            self.close()
            return
        with contextlib.suppress(OSError, ValueError):  # the original error is being raised
            self._writer.close()

    def _flush(self) -> None:
        if not self._waiting:
            return
        try:
            table = table_from(self._lines, self._schema)
            self._lines, self._waiting = bytearray(), 0
            with translated("write", self.path):
                self._writer.write_table(table, row_group_size=len(table))
        except arrow().ArrowException as error:
            raise StoreError(f"cannot write {self.path}: {error}") from error


def _message(message: object) -> JsonDict:
    """Convert a message to the fixed fields of the dataset."""
    if not isinstance(message, dict):
        message = {"content": message}
    found = cast(Message, message)
    content = content_text(found.get("content"))
    extra: JsonDict = {name: value for name, value in found.items() if name not in _MESSAGE_FIELDS}
    calls, exact = _tool_calls(found.get("tool_calls") or [])
    if not exact:
        extra["tool_calls"] = found.get("tool_calls")
    return {
        **{name: _text(found.get(name)) for name in _MESSAGE_TEXTS},
        "content": content,
        # Content that is not a plain text is also kept, as JSON.
        "parts": None if content is found.get("content") else to_text(found.get("content")),
        "tool_calls": calls,
        "extra": to_text(extra) if extra else None,
    }


def _tool_calls(calls: object) -> tuple[list[JsonDict], bool]:
    """Convert a message's tool calls; also return whether they have exactly the usual fields."""
    if not isinstance(calls, list):
        return [], False
    exact = True
    rows: list[JsonDict] = []
    for item in cast("list[object]", calls):
        call = cast(Message, item) if isinstance(item, dict) else {}
        given = call.get("function")
        function = cast(Message, given) if isinstance(given, dict) else {}
        exact = exact and call.keys() <= {"id", "type", "function"} and function.keys() <= {"name", "arguments"}
        exact = exact and isinstance(given, dict)
        values = call.get("id"), call.get("type"), function.get("name"), function.get("arguments")
        rows.append(dict(zip(_CALL_TEXTS, map(_text, values), strict=True)))
    return rows, exact


def plain_row(columns: RowShape, outcome: Outcome) -> dict[str, str | int | float | bool | None]:
    """A rollout as a row of the dataset, without messages; values that are not scalar become JSON text.

    Args:
        columns: Columns of the row.
        outcome: The rollout.

    Returns:
        Values by column name, except `prompt` and `completion`.
    """
    example, base, score = outcome.example, outcome.base, outcome.score
    metrics, state = score.metrics if score is not None else {}, outcome.state
    reward = None if score is None else _usable(score.reward)
    row: dict[str, str | int | float | bool | None] = {
        "example_id": _text(example.example_id),
        "rollout_index": base.rollout_index,
        "answer": _text(example.answer),
        "task": _text(example.task),
        "info": to_text(example.info),
        "reward": reward,
        "outcome": outcome.column,
        "error": outcome.error,
        "stop_condition": _text(base.stop_condition) if isinstance(base, Generated) else None,
        "is_truncated": bool(base.is_truncated) if isinstance(base, Generated) else False,
        "usage": to_text(base.usage),
        "timing": _timing(base, score),
        "model": columns.model,
        "env_id": columns.env_id,
    }
    row |= {name: _usable(metrics.get(name)) for name in columns.metric_names}
    for name in columns.state_columns:
        row[name] = to_text(state[name]) if name in state else None
    return row


def arrow_schema(columns: RowShape) -> Any:
    """The Arrow schema of a run's rows (a `pyarrow.Schema`)."""
    pa = arrow()
    call = pa.struct([pa.field(name, pa.string()) for name in _CALL_TEXTS])
    fields = [pa.field(name, pa.string()) for name in _MESSAGE_TEXTS]
    message = pa.struct([*fields, pa.field("tool_calls", pa.list_(call)), pa.field("extra", pa.string())])
    messages = pa.list_(message)
    special = {"prompt": messages, "completion": messages, "rollout_index": pa.int64(), "is_truncated": pa.bool_()}
    special |= dict.fromkeys(("reward", *columns.metric_names), pa.float64())
    return pa.schema([pa.field(name, special.get(name, pa.string())) for name in columns.names])


def completion_messages(base: Generated | Failed) -> Sequence[object]:
    """The completion of a rollout as messages; empty if it failed before any."""
    if isinstance(base, Failed) and not base.completion:
        return []
    return as_messages(base.completion, "assistant")


def as_messages(prompt: Prompt | object, role: str) -> Sequence[object]:
    """Convert a prompt or completion to messages: a plain string becomes one message of `role`."""
    if isinstance(prompt, str):
        return [{"role": role, "content": prompt}]
    return cast("Sequence[object]", prompt) if isinstance(prompt, list | tuple) else [{"content": prompt}]


def content_text(content: object) -> str | None:
    """Text of a message's content: the content itself, or its text parts."""
    if content is None or isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else []
    found = [cast(Message, part).get("text") if isinstance(part, dict) else part for part in parts]
    texts = [text for text in found if isinstance(text, str)]
    return "\n".join(texts) if texts else None


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else to_text(value)


def _usable(value: object) -> float | None:
    """A score for statistics; None if it is missing, invalid or too large."""
    try:
        number = float(cast(float, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST_SCORE else None


def _timing(base: Generated | Failed, score: Scored | None) -> str:
    timing = base.timing
    spent = {
        "started_at": timing.started_at,
        "generation": timing.generation,
        "model": timing.model,
        "waiting": timing.waiting,
    }
    return to_text({**spent, "scoring": 0.0 if score is None else score.seconds})
