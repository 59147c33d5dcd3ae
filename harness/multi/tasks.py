"""A task: its request and its expected answer. Reads its fields in both spellings and words all errors about them."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from harness.core.errors import ConfigError, ValidationError
from harness.core.types import JsonDict, Message, Messages
from harness.envs.dataset import message_fault, without_gaps
from harness.multi import javascript
from harness.settings.wording import shown, suggestion

MatchMode: TypeAlias = Literal["exact", "contains"]

MATCH_MODES: tuple[MatchMode, ...] = ("exact", "contains")


class Unset(enum.Enum):
    """The marker for a task without `expected`, since None is a valid value: JSON's null."""

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
    """Chat options of this task's request, instead of those of all tasks."""
    timeout_ms: float | None = None
    description: str | None = None
    """Used as the prompt if there is none."""
    metadata: JsonDict = field(default_factory=dict[str, Any])
    """Any data for a scoring hook."""

    def document(self) -> JsonDict:
        """The task as a dict: the fields that are set, by their documented names."""
        document: JsonDict = {}
        for name, documented in DOCUMENTED.items():
            value: object = getattr(self, name)
            if value is UNSET or (value is None and name != "expected") or (name == "metadata" and not value):
                continue
            document[documented] = value
        return document

    def __getitem__(self, name: str) -> object:
        return self.document()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.document()

    def __iter__(self) -> Iterator[str]:
        return iter(self.document())

    def get(self, name: str, default: object = None) -> object:
        """A field by its documented name, or `default` if it is not set."""
        return self.document().get(name, default)

    @property
    def conversation(self) -> Messages:
        """The messages of the request: `messages`, else the prompt as a user message."""
        if self.messages:
            return self.messages
        return [{"role": "user", "content": self.prompt or self.description or ""}]

    @property
    def expected_text(self) -> str | None:
        """`String(expected)`; None without an expected value."""
        return None if self.expected is UNSET else javascript.text_of(self.expected)


DOCUMENTED: Mapping[str, str] = {
    "id": "id", "prompt": "prompt", "description": "description", "messages": "messages", "schema": "schema",
    "expected": "expected", "match_mode": "matchMode", "chat_options": "chatOptions", "timeout_ms": "timeoutMs",
    "metadata": "metadata",
}  # fmt: skip
"""The fields of `Task` → their names in files."""

_FIELDS: Mapping[str, str] = {documented: name for name, documented in DOCUMENTED.items()} | {
    name: name for name in DOCUMENTED
}


def read_tasks(values: object, where: str = "") -> list[Task]:
    """Read a list of tasks. A task without an id gets `task-` and its number, from 0.

    Args:
        values: Tasks, dicts or dataclasses.
        where: Their source, for messages.

    Raises:
        ValidationError: there are no tasks.
        ConfigError: a task is invalid, or two have the same id; names the task.
    """
    start = f"{where}: " if where else ""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not values:
        raise ValidationError(f"{start}Task list required")
    tasks: list[Task] = []
    numbers: dict[str, int] = {}
    for index, value in enumerate(cast("Sequence[object]", values)):
        task = read_task(value, index, where)
        first = numbers.setdefault(task.id, index)
        if first != index:
            raise ConfigError(
                f"{start}tasks {first} and {index} (counted from 0) are both called {task.id!r}; give each an id of "
                "its own, which results are told apart by"
            )
        tasks.append(task)
    return tasks


def read_task(value: object, index: int, where: str = "") -> Task:
    """Read one task.

    Args:
        value: A `Task`, a mapping in either spelling (`matchMode`, `match_mode`), or a dataclass of the caller's, whose
            fields that are None count as not set.
        index: Its number in its list, from 0, for its default id.
        where: Its source, for messages.

    Raises:
        ConfigError: the value is not a task, lacks a required field, or has an unknown one; names field and task.
    """
    return _TaskReader(_fields_of(value, index, where), index, where).task()


def _fields_of(value: object, index: int, where: str) -> Mapping[object, object]:
    if isinstance(value, Task):
        return cast("Mapping[object, object]", value.document())
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: cast(object, getattr(value, each.name)) for each in dataclasses.fields(value)}
        return {name: part for name, part in fields.items() if part is not None and part is not UNSET}
    start = f"{where}: " if where else ""
    raise ConfigError(f"{start}task {index} (counted from 0) must be an object, not {type(value).__name__}")


class _TaskReader:
    """Validation of the fields of one task."""

    def __init__(self, given: Mapping[object, object], index: int, where: str) -> None:
        self._index = index
        self._where = f"{where}: " if where else ""
        self._id = ""
        self._values: dict[str, object] = {}
        for key, value in given.items():
            name = _FIELDS.get(key) if isinstance(key, str) else None
            if name is None:
                hint = suggestion(str(key), DOCUMENTED.values())
                raise self._wrong(f"has an unknown field {key!r}; {hint} (a field of your own goes into metadata)")
            if name in self._values:
                raise self._wrong(f"has {DOCUMENTED[name]} and {name}, which are one field; leave one out")
            if value is not UNSET and (value is not None or name == "expected"):
                self._values[name] = self._plain(name, value)

    def task(self) -> Task:
        """Build the validated task."""
        self._id = self._name()
        messages = self._messages()
        prompt, description = self._text("prompt"), self._text("description")
        if not messages and prompt is None and description is None:
            raise self._wrong("has neither a prompt nor messages, so there is nothing to ask")
        return Task(
            id=self._id,
            prompt=prompt,
            messages=messages,
            schema=self._schema(),
            expected=self._expected(),
            match_mode=self._match_mode(),
            chat_options=self._object("chat_options"),
            timeout_ms=self._timeout(),
            description=description,
            metadata=self._object("metadata") or {},
        )

    def _wrong(self, words: str) -> ConfigError:
        called = f" ({self._id!r})" if self._id and self._id != _unnamed(self._index) else ""
        return ConfigError(f"{self._where}task {self._index}{called} {words}")

    def _plain(self, name: str, value: object) -> object:
        """A copy of the value as a journal would store it."""
        if value is None or isinstance(value, str | bool | int):
            return value
        try:
            return cast(object, json.loads(json.dumps(value, allow_nan=False)))
        except (TypeError, ValueError, RecursionError) as error:
            raise self._wrong(f"has a value of {DOCUMENTED[name]} that is no JSON value: {error}") from error

    def _name(self) -> str:
        value = self._values.get("id")
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if value is not None and not isinstance(value, str):
            raise self._wrong(f"has an id that is no text: {shown(value)}")
        return value or _unnamed(self._index)

    def _text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(f"has a {name} that is no text: {shown(value)}")

    def _object(self, name: str) -> JsonDict | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self._wrong(f"has {DOCUMENTED[name]} that are no object: {shown(value)}")
        return dict(cast("Mapping[str, Any]", value))

    def _messages(self) -> Messages | None:
        value = self._values.get("messages")
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._wrong(f"has messages that are no list: {shown(value)}")
        messages: Messages = []
        for number, message in enumerate(cast("list[object]", value)):
            words = message_fault(message)
            if words:
                raise self._wrong(f"has a message {number} that {words}")
            messages.append(without_gaps(cast(Message, message)))
        return messages

    def _schema(self) -> JsonDict | str | None:
        value = self._values.get("schema")
        if value is None or value == "":
            return None
        if isinstance(value, str):
            return value
        if not isinstance(value, Mapping):
            raise self._wrong(f"has a schema that is neither an object nor the name of a tool: {shown(value)}")
        return dict(cast("Mapping[str, Any]", value))

    def _expected(self) -> object:
        value = self._values.get("expected", UNSET)
        if isinstance(value, Mapping):
            raise self._wrong(
                "has an expected that is an object, and outputs are compared as text: write the text, or describe the "
                "object in a schema"
            )
        return value

    def _match_mode(self) -> MatchMode | None:
        value = self._values.get("match_mode")
        if value is None or value == "":
            return None
        if value not in MATCH_MODES:
            hint = suggestion(value, MATCH_MODES) if isinstance(value, str) else "it is exact or contains"
            raise self._wrong(f"has an unknown matchMode {shown(value)}; {hint}")
        return value

    def _timeout(self) -> float | None:
        value = self._values.get("timeout_ms")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self._wrong(f"has a timeoutMs that is no number: {shown(value)}")
        return value


def _unnamed(index: int) -> str:
    return f"task-{index}"
