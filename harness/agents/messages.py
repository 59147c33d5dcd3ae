"""Functions for reading chat messages (role, text, tool calls) and stop words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast


def parse_tool_calls(assistant_message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of an assistant message; empty if `tool_calls` is missing or not a list."""
    calls: object = assistant_message.get("tool_calls")
    return cast("list[dict[str, Any]]", calls) if isinstance(calls, list) else []


def normalize_stop(stop: object) -> list[str] | None:
    """Convert stop words, given as a string or a list, to a list of strings; return None for anything else."""
    if isinstance(stop, str):
        return [stop]
    if isinstance(stop, list):
        return [str(word) for word in cast("list[object]", stop)]
    return None


def get_message_content(message: Mapping[str, Any]) -> str:
    """Return the text of a message; "" if the content is missing, null or a list of parts."""
    content: object = message.get("content")
    return content if isinstance(content, str) else ""


def get_message_role(message: Mapping[str, Any]) -> str:
    """Return the role of a message, or `unknown` if the message has no role."""
    role: object = message.get("role")
    return role if isinstance(role, str) else "unknown"


def is_assistant_message(message: Mapping[str, Any]) -> bool:
    """Return whether the message has the role `assistant`."""
    return get_message_role(message) == "assistant"


def is_tool_message(message: Mapping[str, Any]) -> bool:
    """Return whether the message has the role `tool`: whether it is the result of a tool call."""
    return get_message_role(message) == "tool"


def is_user_message(message: Mapping[str, Any]) -> bool:
    """Return whether the message has the role `user`."""
    return get_message_role(message) == "user"


def count_messages_by_role(messages: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count messages by role, in the order in which the roles first appear."""
    return dict(Counter(get_message_role(message) for message in messages))


def text_of_parts(parts: Iterable[object]) -> str:
    """Join the text parts of a message's content: strings, and dicts with a key `text`. Other parts are omitted."""
    texts = [cast("Mapping[str, object]", part).get("text") if isinstance(part, Mapping) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))
