"""Messages and tool calls of the classic API: dicts in the OpenAI wire format in the older API (generation B), and
typed messages that also act as dicts in the newer one (generation C). Both are stored in the wire format. The fields of
a tool call can be read in nested form, as in the wire format, and in flat form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from harness.core.errors import EnvironmentFault
from harness.core.types import JsonDict, Messages, Prompt
from harness.plugins.classic.context import generation
from harness.plugins.classic.generation import Generation
from harness.plugins.classic.records import Record, plain, recorded

_FLAT = ("name", "arguments")


class WireToolCall(Record):
    """A tool call: `call["function"]["name"]`, `call.function.name`, `call["name"]` and `call.name` are the same."""

    defaults: ClassVar[Mapping[str, object]] = {"type": "function"}

    def __init__(self, *args: Any, **values: Any) -> None:
        fields: JsonDict = dict(*args, **values)
        function: JsonDict = dict(fields.pop("function", None) or {})
        function.update({name: fields.pop(name) for name in _FLAT if name in fields})
        for name in _FLAT:
            function.setdefault(name, "")
        super().__init__({"id": fields.pop("id", "") or "", **fields, "function": Record(function)})

    def __missing__(self, name: str) -> Any:
        return self["function"][name] if name in _FLAT else super().__missing__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in _FLAT:
            self["function"][name] = value
        else:
            super().__setitem__(name, value)


class ToolCall(WireToolCall):
    """A tool call of the newer, typed API (generation C): `vf.ToolCall(id=…, name=…, arguments=…)`."""

    def __contains__(self, name: object) -> bool:
        return name in _FLAT or super().__contains__(name)

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> JsonDict:
        """Convert the tool call to a plain dict in the flat form."""
        return {"id": self["id"], "name": self.name, "arguments": self.arguments}


class WireMessage(Record):
    """A message of the older classic API (generation B): a dict in the OpenAI wire format."""

    call_type: ClassVar[type[WireToolCall]] = WireToolCall

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        calls = cast("Sequence[object] | None", super().get("tool_calls"))
        if calls is not None:
            super().__setitem__("tool_calls", [self._call(call) for call in calls])

    def _call(self, call: Any) -> WireToolCall:
        return call if type(call) is self.call_type else self.call_type(**plain(call))

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "tool_calls" and value is not None:
            value = [self._call(call) for call in value]
        super().__setitem__(name, value)


class TypedMessage(WireMessage):
    """A typed message of the newer classic API (generation C). As in that API, `"tool_calls" in message` tests whether
    the class of the message has the field."""

    call_type = ToolCall
    role_name: ClassVar[str] = ""

    def __init__(self, *args: Any, **values: Any) -> None:
        fields: JsonDict = dict(*args, **values)
        if self.role_name:
            fields = {"role": self.role_name, **fields}
        content = fields.get("content")
        if isinstance(content, list | tuple):
            fields["content"] = recorded(content)
        kept = {name: value for name, value in fields.items() if value is not None or name == "content"}
        super().__init__(kept)
        if "content" not in kept:
            if "content" not in self.declared:
                raise TypeError(f"{type(self).__name__}(…) requires the argument `content`")
            self["content"] = None

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.declared


class SystemMessage(TypedMessage):
    """A system message: `vf.SystemMessage(content=…)`."""

    role_name = "system"

    @classmethod
    def from_path(cls, path: str | Path) -> Self:
        """Create a system message from the content of a text file."""
        return cls(content=Path(path).read_text(encoding="utf-8"))


class UserMessage(TypedMessage):
    """A user message: `vf.UserMessage(content=…)`."""

    role_name = "user"


class TextMessage(TypedMessage):
    """Plain text in place of a chat message, such as the reply of a completion model."""

    role_name = "text"


class AssistantMessage(TypedMessage):
    """A model's message: `vf.AssistantMessage(content=…, tool_calls=…)`."""

    role_name = "assistant"
    declared = ("content", "reasoning_content", "thinking_blocks", "tool_calls")


class ToolMessage(TypedMessage):
    """The result of a tool call: `vf.ToolMessage(tool_call_id=…, content=…)`."""

    role_name = "tool"


class TextContentPart(Record):
    """Text part of a message's content."""

    defaults: ClassVar[Mapping[str, object]] = {"type": "text"}


class ImageUrlContentPart(Record):
    """Image part of a message's content."""

    defaults: ClassVar[Mapping[str, object]] = {"type": "image_url"}


class InputAudioContentPart(Record):
    """Audio part of a message's content."""

    defaults: ClassVar[Mapping[str, object]] = {"type": "input_audio"}


class Tool(Record):
    """The definition of a tool: `vf.Tool(name=…, description=…, parameters=…)`."""

    declared = ("strict",)


_KINDS: dict[str, type[TypedMessage]] = {
    kind.role_name: kind for kind in (SystemMessage, UserMessage, TextMessage, AssistantMessage, ToolMessage)
}


_OWN: dict[Generation, frozenset[type]] = {"B": frozenset({WireMessage}), "C": frozenset({*_KINDS.values()})}
"""Message classes of each generation of the classic API. Their objects are not converted again; this saves time, since
whole conversations are converted several times in each turn."""


def message_of(value: object, kind: Generation | None = None) -> WireMessage:
    """Convert a value to a message of a generation of the classic API, by default that of the running code.

    Args:
        value: A mapping, or an object of pydantic or the openai package.
        kind: The generation, if not that of the running code.

    Raises:
        EnvironmentFault: the value is not a message.
    """
    chosen = kind or generation()
    wanted = TypedMessage if chosen == "C" else WireMessage
    if isinstance(value, wanted) and isinstance(value, TypedMessage) == (chosen == "C"):
        return value
    fields = plain(value)
    if not isinstance(fields, dict) or "role" not in fields:
        raise EnvironmentFault(f"a message must be a dict with 'role' and 'content', not {value!r}")
    given = {name: part for name, part in cast(JsonDict, fields).items() if part is not None or name == "content"}
    if chosen == "C":
        given.setdefault("content", None)
        return _KINDS.get(str(given["role"]), TypedMessage)(**given)
    if given["role"] == "assistant" and given.get("content") is None:
        given["content"] = ""
    return WireMessage(given)


def messages_of(value: object, kind: Generation | None = None) -> Prompt:
    """Convert messages to those of a generation of the classic API, by default that of the running code. A string is
    returned unchanged; a single message becomes a list.

    Raises:
        EnvironmentFault: the value is neither a string nor messages.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) or hasattr(value, "model_dump"):
        return [message_of(cast(object, value), kind)]
    if not isinstance(value, Sequence):
        raise EnvironmentFault(f"messages must be a list, not {type(value).__name__}")
    chosen = kind or generation()
    own, messages = _OWN[chosen], cast("Sequence[object]", value)
    return cast(Messages, [each if type(each) in own else message_of(each, chosen) for each in messages])


def concat(parts: Sequence[object]) -> Prompt:
    """Concatenate strings, or lists of messages."""
    if all(isinstance(part, str) for part in parts):
        return "".join(cast("Sequence[str]", parts))
    joined: Messages = []
    for part in parts:
        if isinstance(part, list):
            joined.extend(cast(Messages, part))
        else:
            joined.append(cast(Any, part))
    return joined


def tools_to_wire(tools: object) -> list[JsonDict]:
    """Convert tool definitions of either generation of the classic API to the OpenAI wire format."""
    wire: list[JsonDict] = []
    for tool in cast("Sequence[object]", tools or ()):
        fields: JsonDict = plain(tool)
        if "function" not in fields:
            fields = {"type": "function", "function": {k: v for k, v in fields.items() if v is not None}}
        wire.append(fields)
    return wire


def tools_of(wire: Sequence[JsonDict], kind: Generation) -> list[JsonDict]:
    """Convert tool definitions from the OpenAI wire format to the form of a generation of the classic API."""
    if kind == "B":
        return list(wire)
    return [tool if isinstance(tool, Tool) else Tool(**tool.get("function", tool)) for tool in wire]
