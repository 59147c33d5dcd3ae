"""Tools before they go to an endpoint: passed on whole, or refused with the reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tables import for_each_row

from harness.agents.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
)
from harness.agents.validation import validate_tools
from harness.core.errors import ToolValidationError

LETTERS = "letter/underscore and contain only alphanumeric characters, underscores and hyphens, 64 at most"


def tool(name: Any = "add", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def fault(*tools: Any) -> str:
    with pytest.raises(ToolValidationError) as caught:
        validate_tools(list(tools))
    return str(caught.value)


def test_a_schema_is_written_out() -> None:
    schema = OpenAIFunctionToolSchema(
        type="function",
        function=OpenAIFunctionSchema(
            name="add",
            description="Add.",
            parameters=OpenAIFunctionParametersSchema(
                type="object", properties={"a": OpenAIFunctionPropertySchema(type="integer")}, required=["a"]
            ),
        ),
    )
    parameters = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert validate_tools([schema]) == [tool("add", description="Add.", parameters=parameters, strict=False)]


def test_a_dict_is_passed_on_whole() -> None:
    parameters = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/P"}, "n": {"type": "integer", "enum": [1, 2], "default": None}},
        "required": ["p"],
        "$defs": {"P": {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "number"}}}}},
        "additionalProperties": False,
    }
    given = [tool("plot", description="Plot.", parameters=parameters, strict=True), tool("now")]
    before = copy.deepcopy(given)
    assert validate_tools(given) == before
    assert given == before


def test_an_endpoints_own_kind_of_tool_is_passed_on() -> None:
    given = [{"type": "web_search", "filters": {"domain": "x"}}]
    assert validate_tools(given) == given


def test_no_tools_are_none() -> None:
    assert validate_tools([]) == []
    assert validate_tools(()) == []


@for_each_row("name", ["a", "_", "get-weather", "Get_Weather2", "a" * 64])
def test_names_that_endpoints_take(name: str) -> None:
    assert validate_tools([tool(name)]) == [tool(name)]


@for_each_row("name", ["", "2add", "-add", "get weather", "a.b", "größe", "a" * 65, "a\n"])
def test_names_that_endpoints_refuse(name: str) -> None:
    assert fault(tool(name)) == f"Tool '{name}': name must start with {LETTERS}"


@for_each_row(
    ("given", "words"),
    [
        ("add", "Tool 0: must be a tool schema or a dict, got str"),
        (None, "Tool 0: must be a tool schema or a dict, got NoneType"),
        ({}, "Tool 0: type must be 'function', got None"),
        ({"type": "func", "function": {}}, "Tool 0: type must be 'function', got 'func'"),
        ({"type": "function"}, "Tool 0: 'function' must be an object, got NoneType"),
        ({"type": "function", "function": {}}, "Tool 0: the function has no name; add one"),
        (tool(3), "Tool 0: the function has no name; add one"),
        (tool(description=3), "Tool 'add': description must be a string, got int"),
        (tool(parameters=[]), "Tool 'add': parameters must be a JSON schema, got list"),
        (tool(parameters={}), "Tool 'add': parameters.type must be 'object', got None"),
        (tool(parameters={"type": "array"}), "Tool 'add': parameters.type must be 'object', got 'array'"),
        (
            tool(parameters={"type": "object", "properties": []}),
            "Tool 'add': parameters.properties must be an object that maps names to schemas",
        ),
        (
            tool(parameters={"type": "object", "properties": {"a": {"default": float("nan")}}}),
            "Tool 'add': its schema cannot be written as JSON: Out of range float values are not JSON compliant",
        ),
        (
            tool(parameters={"type": "object", "properties": {"a": {"default": {1}}}}),
            "Tool 'add': its schema cannot be written as JSON: Object of type set is not JSON serializable",
        ),
    ],
)
def test_what_endpoints_refuse_is_refused_before(given: Any, words: str) -> None:
    assert fault(given).partition(": nan")[0] == words


def test_the_tool_at_fault_is_named() -> None:
    assert fault(tool("a"), tool("b", parameters=3)) == "Tool 'b': parameters must be a JSON schema, got int"
    assert fault(tool("a"), {}) == "Tool 1: type must be 'function', got None"


def test_two_tools_of_one_name_are_refused() -> None:
    words = "Tool 'b': two tools have this name; rename one"
    assert fault(tool("a"), tool("b"), tool("b")) == words


@for_each_row("tools", [None, "add", {"type": "function"}, 3])
def test_tools_must_be_a_list(tools: Any) -> None:
    with pytest.raises(ToolValidationError) as caught:
        validate_tools(tools)
    assert str(caught.value) == f"get_tools() must return a list of tools, not {type(tools).__name__}"
