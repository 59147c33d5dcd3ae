"""Small questions about messages."""

from __future__ import annotations

from typing import Any

from tables import for_each_row

from harness.agents.messages import (
    count_messages_by_role,
    get_message_content,
    get_message_role,
    is_assistant_message,
    is_tool_message,
    is_user_message,
    normalize_stop,
    parse_tool_calls,
)


@for_each_row(
    ("calls", "expected"), [([{"id": "1"}], [{"id": "1"}]), (None, []), ([], []), ("text", []), ({"id": "1"}, [])]
)
def test_tool_calls_are_a_list_whatever_stands_there(calls: Any, expected: list[Any]) -> None:
    assert parse_tool_calls({"role": "assistant", "tool_calls": calls}) == expected


def test_a_message_without_the_key_has_no_tool_calls() -> None:
    assert parse_tool_calls({}) == []


@for_each_row(
    ("stop", "expected"),
    [(None, None), ("END", ["END"]), (["a", 1], ["a", "1"]), ([], []), (3, None), ({"a": 1}, None)],
)
def test_stop_words_are_a_list_or_nothing(stop: Any, expected: list[str] | None) -> None:
    assert normalize_stop(stop) == expected


@for_each_row(
    ("message", "text"),
    [({"content": "hi"}, "hi"), ({"content": None}, ""), ({}, ""), ({"content": [{"type": "text", "text": "a"}]}, "")],
)
def test_content_is_a_text(message: Any, text: str) -> None:
    assert get_message_content(message) == text


def test_roles() -> None:
    assert get_message_role({"role": "tool"}) == "tool"
    assert get_message_role({}) == "unknown"
    assert get_message_role({"role": 3}) == "unknown"
    checks = (is_assistant_message, is_tool_message, is_user_message)
    told = {role: [check({"role": role}) for check in checks] for role in ("assistant", "tool", "user", "system")}
    assert told == {
        "assistant": [True, False, False],
        "tool": [False, True, False],
        "user": [False, False, True],
        "system": [False, False, False],
    }


def test_roles_are_counted_in_the_order_of_their_first_message() -> None:
    roles = ["system", "user", "assistant", "tool", "assistant", None]
    counts = count_messages_by_role([{"role": role} for role in roles])
    assert list(counts.items()) == [("system", 1), ("user", 1), ("assistant", 2), ("tool", 1), ("unknown", 1)]
    assert count_messages_by_role([]) == {}
