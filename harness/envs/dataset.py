"""An environment's dataset: reading its rows one by one, validating them and formatting them for the model. The data is
not copied.

A list is validated completely when the environment is built. For a `datasets.Dataset`, or another sequence that
computes its rows on access, only the ids and the first row are validated then, and each row when it is read. The result
of a builder function is validated the same way on first use."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from harness.core.errors import EnvironmentFault, HarnessError
from harness.core.records import Row
from harness.core.types import JsonDict, Message, Messages, MessageType, Prompt, value_class, without_gaps
from harness.envs import hub
from harness.usercode.exceptions import describe, should_propagate

Dataset: TypeAlias = "Sequence[Mapping[str, Any]] | Callable[[], Any] | Any"
"""A list of dicts, any sequence of mappings, a `datasets.Dataset`, or a function without arguments that returns one."""

COLUMNS: tuple[str, ...] = ("prompt", "question", "answer", "info", "task", "example_id")
"""The columns that are read; others are ignored."""


@value_class
class Style:
    """How to build a prompt from a dataset row: message type, system prompt and few-shot messages."""

    message_type: MessageType
    system_prompt: str | None
    few_shot: Messages


class Table:
    """One dataset of an environment, opened on first use.

    Args:
        source: The rows: a list or other sequence of mappings, or a function without arguments that returns one.
        name: `dataset` or `eval_dataset`, for messages.

    Raises:
        EnvironmentFault: `source` is not a valid dataset.
    """

    def __init__(self, source: Dataset, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self.is_checked = False
        """Whether `check` has validated the dataset."""
        self._build: Callable[[], Any] | None = None
        if callable(source) and not hasattr(source, "__getitem__"):
            self._build = source
        self._rows: Sequence[Any] | None = None if self._build else self._checked(source)

    @property
    def is_open(self) -> bool:
        """Whether the rows are loaded; those of a builder function are loaded on first use."""
        return self._rows is not None

    def check(self, style: Style) -> None:
        """Validate the dataset once, so that wrong columns are found early: all rows of a list, but only the first row
        of another source, which may be slow to read.

        Raises:
            EnvironmentFault: a row is invalid; the message names the row and the column.
        """
        if self.is_checked:
            return
        rows = self._opened()
        self._check_ids(rows)
        for index in range(len(rows) if isinstance(rows, list | tuple) else 1):
            self.row(index, style)
        self.is_checked = True

    def __len__(self) -> int:
        return len(self._opened())

    def row(self, index: int, style: Style) -> Row:
        """Read one row and format it.

        Raises:
            IndexError: the index is out of range.
            EnvironmentFault: the row is invalid; the message names the row and the column.
        """
        rows = self._opened()
        if not 0 <= index < len(rows):
            raise IndexError(f"{self._name} has {len(rows)} rows; row {index} does not exist")
        try:
            cells = rows[index]
        except BaseException as error:  # reported as an error of the author's sequence, with the row
            if should_propagate(error):
                raise
            raise EnvironmentFault(f"{self._name} row {index} cannot be read: {describe(error)}") from error
        if not isinstance(cells, Mapping):
            raise EnvironmentFault(f"{self._name} row {index} must be a dict of columns, not {type(cells).__name__}")
        return _CellReader(cast("Mapping[str, object]", cells), f"{self._name} row {index}").row(index, style)

    def _opened(self) -> Sequence[Any]:
        if self._rows is not None:
            return self._rows
        with self._lock, hub.failing_fast():
            if self._rows is None:
                assert self._build is not None
                try:
                    self._rows = self._checked(self._build())
                except BaseException as error:  # reported as an error of the environment
                    if isinstance(error, HarnessError) or should_propagate(error):
                        raise
                    cause = f": {why}" if (why := hub.refusal()) else ""
                    raise EnvironmentFault(f"the {self._name} function raised {describe(error)}{cause}") from error
        return self._rows

    def _checked(self, source: Any) -> Sequence[Any]:
        if isinstance(source, Mapping):
            names = ", ".join(str(name) for name in cast("Mapping[object, object]", source))
            raise EnvironmentFault(f"{self._name} must be one list of rows, not a mapping; choose one of: {names}")
        if isinstance(source, str | bytes) or not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            raise EnvironmentFault(
                f"{self._name} must be a list of dicts, a sequence, a datasets.Dataset or a function that returns one, "
                f"not {type(source).__name__}"
            )
        if len(source) == 0:
            raise EnvironmentFault(f"{self._name} is empty")
        return source

    def _check_ids(self, rows: Sequence[Any]) -> None:
        """Reject duplicate `example_id`s, if reading the whole column is cheap."""
        if isinstance(rows, list | tuple):
            ids: Iterable[object] = (
                cast("Mapping[str, object]", cells).get("example_id") if isinstance(cells, Mapping) else None
                for cells in cast("Sequence[object]", rows)
            )
        elif "example_id" in getattr(rows, "column_names", ()):
            ids = cast("Any", rows)["example_id"]
        else:
            return
        seen: dict[object, int] = {}
        for index, value in enumerate(ids):
            if isinstance(value, int | str) and seen.setdefault(value, index) != index:
                raise EnvironmentFault(
                    f"{self._name} row {index}, column 'example_id': {value!r} is also the id of row {seen[value]}"
                )


class _CellReader:
    """Validates and converts the cells of one row."""

    def __init__(self, cells: Mapping[str, object], where: str) -> None:
        self._cells = cells
        self._where = where

    def row(self, index: int, style: Style) -> Row:
        """Validate the cells and return the row, formatted for the model."""
        example_id = self._cells.get("example_id")
        if example_id is None:
            example_id = index
        if isinstance(example_id, bool) or not isinstance(example_id, int | str):
            raise self._wrong("example_id", f"must be an integer or a string, not {type(example_id).__name__}")
        return Row(example_id, self._prompt(style), self._text("answer"), self._text("task"), self._info())

    def _wrong(self, column: str, words: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self._where}, column {column!r}: {words}")

    def _text(self, column: str) -> str:
        value = self._cells.get(column)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(
                column, f"must be a string, not {type(value).__name__}; use str(), or put structured values into 'info'"
            )
        return value

    def _info(self) -> JsonDict:
        value = self._cells.get("info")
        if value is None:
            return {}
        if isinstance(value, str):
            try:
                value = cast(object, json.loads(value))
            except ValueError as error:
                raise self._wrong("info", f"is not JSON: {error}") from error
        if not isinstance(value, Mapping):
            raise self._wrong("info", f"must be a dict, or a JSON object as a string, not {type(value).__name__}")
        return dict(cast("Mapping[str, object]", value))

    def _prompt(self, style: Style) -> Prompt:
        prompt, question = self._cells.get("prompt"), self._cells.get("question")
        if prompt is None and question is None:
            raise EnvironmentFault(
                f"{self._where}: a column 'prompt' or 'question' is required; the columns are "
                f"{', '.join(str(name) for name in self._cells)}"
            )
        if prompt is None:
            text = self._filled("question", question)
            if style.message_type == "completion":
                return text
            system: Messages = [{"role": "system", "content": style.system_prompt}] if style.system_prompt else []
            return [*system, *style.few_shot, {"role": "user", "content": text}]
        if style.message_type == "completion":
            return self._filled("prompt", prompt)
        if isinstance(prompt, str):
            raise self._wrong(
                "prompt",
                "must be a list of messages if message_type is 'chat'; rename the column to 'question', or build the "
                "environment with message_type='completion'",
            )
        if style.few_shot:
            raise self._wrong("prompt", "cannot be combined with few_shot; rename the column to 'question'")
        messages = self._messages(prompt)
        if style.system_prompt and messages[0].get("role") != "system":
            return [{"role": "system", "content": style.system_prompt}, *messages]
        return messages

    def _filled(self, column: str, value: object) -> str:
        if not isinstance(value, str):
            raise self._wrong(column, f"must be a string, not {type(value).__name__}")
        if not value.strip():
            raise self._wrong(column, "is empty")
        return value

    def _messages(self, value: object) -> Messages:
        if not isinstance(value, Sequence) or not value:
            raise self._wrong("prompt", f"must be a list of messages, not {value!r}")
        messages = cast("Sequence[Message]", value)
        if words := messages_fault(messages):
            raise self._wrong("prompt", words)
        return [without_gaps(message) for message in messages]


def message_fault(message: object) -> str:
    """Return why a chat message is invalid, such as `has no role`; "" if it is valid."""
    if not isinstance(message, Mapping):
        return f"must be a dict with 'role' and 'content', not {type(message).__name__}"
    fields = cast("Mapping[str, object]", message)
    role, content = fields.get("role"), fields.get("content")
    if not isinstance(role, str) or not role:
        return "has no role"
    if content is not None and not isinstance(content, str | list | tuple):
        return f"has a content of type {type(content).__name__}; it must be a string or a list of parts"
    if content is None and not fields.get("tool_calls"):
        return "has no content"
    return ""


def messages_fault(messages: Iterable[object]) -> str:
    """Return why the first invalid message of a chat is invalid, such as `message 2 has no role`; "" if all are
    valid."""
    faults = ((number, message_fault(message)) for number, message in enumerate(messages))
    return next((f"message {number} {words}" for number, words in faults if words), "")
