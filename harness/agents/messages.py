"""Helpers for agents to read chat messages: role, text, tool calls, stop words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast


def parse_tool_calls(assistant_message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of an assistant message; empty if the value is missing or not a list."""
    calls: object = assistant_message.get("tool_calls")
    return cast("list[dict[str, Any]]", calls) if isinstance(calls, list) else []


def normalize_stop(stop: object) -> list[str] | None:
    """Stop words as a list, given as one text or as a list; None for anything else."""
    if isinstance(stop, str):
        return [stop]
    if isinstance(stop, list):
        return [str(word) for word in cast("list[object]", stop)]
    return None


def get_message_content(message: Mapping[str, Any]) -> str:
    """The text of a message; "" if the content is missing, null or in parts."""
    content: object = message.get("content")
    return content if isinstance(content, str) else ""


def get_message_role(message: Mapping[str, Any]) -> str:
    """The role of a message, `unknown` without one."""
    role: object = message.get("role")
    return role if isinstance(role, str) else "unknown"


def is_assistant_message(message: Mapping[str, Any]) -> bool:
    """Whether the message has the role `assistant`."""
    return get_message_role(message) == "assistant"


def is_tool_message(message: Mapping[str, Any]) -> bool:
    """Whether the message is the result of a tool call."""
    return get_message_role(message) == "tool"


def is_user_message(message: Mapping[str, Any]) -> bool:
    """Whether the message has the role `user`."""
    return get_message_role(message) == "user"


def count_messages_by_role(messages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The number of messages of each role, in the order in which roles first appear."""
    return dict(Counter(get_message_role(message) for message in messages))
