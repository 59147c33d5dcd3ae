"""Type names of the classic API: aliases and dict shapes for annotations and constructors, without behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from harness.plugins.classic.records import Record

ClientType: TypeAlias = Literal[
    "openai_completions", "openai_chat_completions", "openai_responses", "anthropic_messages"
]
MessageType: TypeAlias = Literal["chat", "completion"]
JsonPrimitive: TypeAlias = Literal["string", "number", "integer", "boolean", "array", "object"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"] | None

ChatMessage: TypeAlias = dict[str, Any]
ChatMessages: TypeAlias = list[ChatMessage]
Message: TypeAlias = str | ChatMessage
Messages: TypeAlias = str | list[ChatMessage]
TypedMessages: TypeAlias = list[Any]
ContentPart: TypeAlias = dict[str, Any]
MessageContent: TypeAlias = str | list[Any]
ModelResponse: TypeAlias = Any
ToolParam: TypeAlias = dict[str, Any]
Role: TypeAlias = str

Info: TypeAlias = dict[str, Any]
SamplingArgs: TypeAlias = dict[str, Any]
IndividualRewardFunc: TypeAlias = Callable[..., float | Awaitable[float]]
GroupRewardFunc: TypeAlias = Callable[..., list[float] | Awaitable[list[float]]]
RewardFunc: TypeAlias = Callable[..., Any]
DatasetBuilder: TypeAlias = Callable[[], Any]
StartCallback: TypeAlias = Callable[..., None]
ProgressCallback: TypeAlias = Callable[..., None]
LogCallback: TypeAlias = Callable[[str], None]
ThinkingBlock: TypeAlias = Any
Endpoints: TypeAlias = dict[str, Any]
ResponseTokens: TypeAlias = dict[str, Any]
Table: TypeAlias = dict[str, Any]
"""Any dict of the API whose fields only matter to type checkers: a row, a step of a trajectory, scores, metadata."""


class ClientConfig(Record):
    """Configuration of a classic client."""

    defaults: ClassVar[Mapping[str, object]] = {
        "api_key_var": "OPENAI_API_KEY",
        "api_base_url": "https://api.openai.com/v1",
        "extra_headers": {},
    }
