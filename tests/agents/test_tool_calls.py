"""From tool calls to tool messages: what is read, what is written, and in which order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from tables import for_each_row

from harness.agents.tool_calls import (
    ToolArgumentError,
    ToolExecutionError,
    create_tool_error_result,
    create_tool_result,
    execute_tool_calls,
    get_tool_call_info,
    parse_tool_arguments,
    serialize_tool_result,
)
from harness.core.errors import ToolCallError, ToolParseError


@dataclass
class Point:
    x: int


def call(call_id: str, arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}


def test_tool_messages() -> None:
    assert create_tool_result("c1", "4") == {"role": "tool", "content": "4", "tool_call_id": "c1"}
    assert create_tool_error_result("c1", "no")["content"] == "Error: no"


@for_each_row(
    ("result", "text"),
    [
        (True, "true"), (False, "false"), (None, "null"), (4, "4"), (0.1, "0.1"), (1e30, "1e+30"),
        ("as is", "as is"), ('"', '"'), ({"a": [1, None]}, '{"a": [1, null]}'), ([], "[]"), ((1, 2), "[1, 2]"),
        (date(2026, 1, 2), "2026-01-02"), ({"when": date(2026, 1, 2)}, '{"when": "2026-01-02"}'),
        (Point(3), '{"x": 3}'),
    ],
)  # fmt: skip
def test_results_as_text(result: object, text: str) -> None:
    assert serialize_tool_result(result) == text


@for_each_row(("given", "arguments"), [('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1}), ("{}", {}), ("", {}), (" \n", {})])
def test_arguments_are_read(given: Any, arguments: Any) -> None:
    assert parse_tool_arguments(given) == arguments


@for_each_row(
    ("given", "words"),
    [
        ("{", "Invalid JSON arguments: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[1]", "Expected dict from JSON, got list"),
        ("null", "Expected dict from JSON, got NoneType"),
        (3, "Expected str or dict arguments, got int"),
        (None, "Expected str or dict arguments, got NoneType"),
    ],
)
def test_arguments_that_cannot_be_read_are_refused(given: Any, words: str) -> None:
    with pytest.raises(ToolArgumentError) as caught:
        parse_tool_arguments(given)
    assert str(caught.value) == words


def test_json_that_is_nested_too_deeply_is_refused_like_any_other() -> None:
    with pytest.raises(ToolArgumentError, match=r"^Invalid JSON arguments: "):
        parse_tool_arguments('{"a":' * 200_000)


@for_each_row(
    ("given", "info"),
    [
        (call("c1", '{"a": 1}'), ("c1", "add", {"a": 1})),
        (call("c1", {"a": 1}), ("c1", "add", {"a": 1})),
        ({"function": {"name": "now"}}, ("unknown", "now", {})),
        ({"id": None, "function": {"name": "now", "arguments": None}}, ("unknown", "now", {})),
        ({"id": "c1"}, ("c1", "", {})),
    ],
)
def test_id_name_and_arguments_of_a_call(given: Any, info: Any) -> None:
    assert get_tool_call_info(given) == info


def test_a_call_whose_arguments_cannot_be_read_says_which_it_is() -> None:
    with pytest.raises(ToolArgumentError) as caught:
        get_tool_call_info(call("c7", "[1]"))
    error = caught.value
    assert (str(error), error.tool_call_id, error.tool_name) == ("Expected dict from JSON, got list", "c7", "add")
    assert isinstance(error, ToolExecutionError)
    assert isinstance(error, ToolCallError)
    assert isinstance(error, ToolParseError)


def test_calls_run_at_once_and_are_answered_in_their_order() -> None:
    async def main() -> list[Any]:
        finished: list[str] = []
        all_there = asyncio.Barrier(3)

        async def execute(tool_call: dict[str, Any]) -> dict[str, str]:
            await all_there.wait()  # never, if they ran one after the other
            for _ in range({"a": 6, "b": 3, "c": 0}[tool_call["id"]]):
                await asyncio.sleep(0)
            finished.append(tool_call["id"])
            return create_tool_result(tool_call["id"], tool_call["id"].upper())

        answers = await execute_tool_calls([call("a"), call("b"), call("c")], execute)
        return [finished, [answer["content"] for answer in answers]]

    assert asyncio.run(main()) == [["c", "b", "a"], ["A", "B", "C"]]


def test_no_calls_have_no_answers() -> None:
    async def execute(tool_call: dict[str, Any]) -> dict[str, str]:
        raise AssertionError(tool_call)

    assert asyncio.run(execute_tool_calls([], execute)) == []


def test_what_an_executor_raises_comes_out_as_it_is_and_ends_the_others() -> None:
    ended: list[str] = []

    async def execute(tool_call: dict[str, Any]) -> dict[str, str]:
        if tool_call["id"] == "bad":
            raise LookupError("no such row")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(tool_call["id"])
        raise AssertionError

    with pytest.raises(LookupError) as caught:
        asyncio.run(execute_tool_calls([call("a"), call("bad"), call("b")], execute))
    assert str(caught.value) == "no such row"
    assert sorted(ended) == ["a", "b"]
