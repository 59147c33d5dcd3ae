"""Simple types of the classic API: aliases for annotations, and the configuration of a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from harness.plugins.classic.records import Record

ClientType: TypeAlias = Literal[
    "openai_completions", "openai_chat_completions", "openai_responses", "anthropic_messages"
]
MessageType: TypeAlias = Literal["chat", "completion"]
JsonPrimitive: TypeAlias = Literal["string", "number", "integer", "boolean", "array", "object"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"] | None
ChatMessages: TypeAlias = list[dict[str, Any]]
Message: TypeAlias = str | dict[str, Any]
Messages: TypeAlias = str | ChatMessages


class ClientConfig(Record):
    """Configuration of a model client in the classic API."""

    defaults: ClassVar[Mapping[str, object]] = {
        "api_key_var": "OPENAI_API_KEY",
        "api_base_url": "https://api.openai.com/v1",
        "extra_headers": {},
    }
