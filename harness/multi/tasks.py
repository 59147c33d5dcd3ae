"""Task of a multi-model evaluation: its request and expected answer, with the validation of its fields; and the score
of an output."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from harness.core.errors import ConfigError
from harness.core.types import JsonDict, Message, Messages, without_gaps
from harness.envs.dataset import message_fault
from harness.multi import javascript
from harness.multi.fields import (
    LIST,
    NUMBER,
    TABLE,
    TEXT,
    FieldType,
    camel,
    check_fields,
    choice,
    items_of,
    plain_json,
    read_fields,
)

MatchMode: TypeAlias = Literal["exact", "contains"]

MATCH_MODES: tuple[MatchMode, ...] = ("exact", "contains")


class Unset(enum.Enum):
    """Type of the marker for a task without `expected`, since None is a valid value: JSON's null."""

    UNSET = "unset"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Task:
    """One task. Its fields can also be read by their documented names: `task["matchMode"]`, `task.get("expected")`. Use
    `read_task` to build and validate one from a dict."""

    id: str = ""
    prompt: str | None = None
    messages: Messages | None = None
    schema: JsonDict | str | None = None
    """A JSON schema, or the name of a tool in the chat options, whose parameters are the schema."""
    expected: object = UNSET
    """The expected output, or part of it, compared as `String(expected)`: None is the text "null"."""
    match_mode: MatchMode | None = None
    chat_options: JsonDict | None = None
    """Chat options of this task's request, which replace those of all tasks."""
    timeout_ms: float | None = None
    description: str | None = None
    """Used as the prompt if the task has none."""
    metadata: JsonDict = field(default_factory=dict[str, Any])
    """Any data that the caller's scoring hook needs."""

    def document(self) -> JsonDict:
        """Return the task as a dict: the fields that are set, by their documented names."""
        document: JsonDict = {}
        for name in _NAMES:
            value: object = getattr(self, name)
            if value is UNSET or (value is None and name != "expected") or (name == "metadata" and not value):
                continue
            document[camel(name)] = value
        return document

    def __getitem__(self, name: str) -> object:
        return self.document()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.document()

    def __iter__(self) -> Iterator[str]:
        return iter(self.document())

    def get(self, name: str, default: object = None) -> object:
        """Return a field of the task by its documented name, or `default` if it is not set."""
        return self.document().get(name, default)

    @property
    def conversation(self) -> Messages:
        """Return the messages of the task's request: `messages`, or else the prompt as a user message."""
        if self.messages:
            return self.messages
        return [{"role": "user", "content": self.prompt or self.description or ""}]

    @property
    def expected_text(self) -> str | None:
        """Return the expected value as text, by JavaScript's `String(expected)`; None if no value is expected."""
        return None if self.expected is UNSET else javascript.text_of(self.expected)


TaskError: TypeAlias = "str | JsonDict"
"""Error of a scored output: a string, or `{"expertId": model, "errors": [text, …]}` for a failed schema check."""


@dataclass(frozen=True, slots=True)
class TaskScore:
    """The score of an output, with its validity and errors."""

    score: float
    valid: bool
    """Whether the output passes; success depends on this, not on the score."""
    errors: list[TaskError] = field(default_factory=list["TaskError"])
    schema_valid: bool | None = None
    """Whether the output fits the schema; None if the task has no schema."""
    matched: bool | None = None
    """Whether the output equals or contains the expected text; None if the task has none."""


_NAMES = (
    "id", "prompt", "description", "messages", "schema", "expected", "match_mode", "chat_options", "timeout_ms",
    "metadata",
)  # fmt: skip
"""Names of a task's fields, in the order of a stored task."""

_TYPES = {
    "id": FieldType(lambda value: isinstance(value, str | int) and not isinstance(value, bool), "a string"),
    "prompt": TEXT,
    "description": TEXT,
    "messages": LIST,
    "schema": FieldType(lambda value: isinstance(value, str | Mapping), "an object, or the name of a tool"),
    "expected": FieldType(
        lambda value: not isinstance(value, Mapping),
        "a string, since outputs are compared as text; describe an object in a schema",
    ),
    "match_mode": choice(*MATCH_MODES),
    "chat_options": TABLE,
    "timeout_ms": NUMBER,
    "metadata": TABLE,
}


def read_tasks(values: object, where: str = "") -> list[Task]:
    """Read and validate a list of tasks. A task without an id gets the id `task-N`, with N counted from 0.

    Args:
        values: Tasks, dicts or dataclasses.
        where: Their source, for messages.

    Raises:
        ValidationError: there are no tasks.
        ConfigError: a task is invalid, or two have the same id; the message names the task.
    """
    start = f"{where}: " if where else ""
    tasks: list[Task] = []
    numbers: dict[str, int] = {}
    for index, value in enumerate(items_of(values, f"{start}Task list required")):
        task = read_task(value, index, where)
        first = numbers.setdefault(task.id, index)
        if first != index:
            raise ConfigError(
                f"{start}tasks {first} and {index} (counted from 0) have the same id {task.id!r}; give each its own id"
            )
        tasks.append(task)
    return tasks


def read_task(value: object, index: int, where: str = "") -> Task:
    """Read and validate one task.

    Args:
        value: A `Task`, a mapping in either spelling (`matchMode`, `match_mode`), or a dataclass of the caller's, whose
            fields that are None count as not set.
        index: Position of the task in its list, from 0, for the default id.
        where: Its source, for messages.

    Raises:
        ConfigError: the value is not a task, lacks a required field, or has an unknown field; the message names it.
    """
    place = f"{where}: task {index}" if where else f"task {index}"
    given = value.document() if isinstance(value, Task) else value
    found = read_fields(given, _NAMES, place, hint=" (put your own fields into metadata)")
    if isinstance(given, Mapping) and cast(JsonDict, given).get("expected", UNSET) is None:
        found["expected"] = None  # JSON's null, a valid value
    for name, part in list(found.items()):
        if part is UNSET or (part == "" and name in ("schema", "match_mode")):
            del found[name]
    name = str(found.get("id", ""))
    place += f" ({name!r})" if name else ""
    check_fields(found, _TYPES, place)
    found = {name: plain_json(part, f"{place}: {camel(name)}") for name, part in found.items()}
    for number, message in enumerate(messages := cast("list[object]", found.get("messages", []))):
        if fault := message_fault(message):
            raise ConfigError(f"{place}: messages[{number}] {fault}")
        messages[number] = without_gaps(cast(Message, message))
    if not found.get("messages") and "prompt" not in found and "description" not in found:
        raise ConfigError(f"{place}: the task has neither a prompt nor messages; give it one of them")
    return Task(**cast(JsonDict, {**found, "id": name or f"task-{index}"}))
