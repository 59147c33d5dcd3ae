"""Where a task's schema is, how outputs are read, and what a hook's registry answers."""

from __future__ import annotations

from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.multi.schemas import (
    NotJsonError,
    SchemaMode,
    SchemaRegistry,
    check_schema,
    read_fenced_json,
    read_json,
    registry_of,
    schema_of,
    tools_of,
)
from harness.multi.tasks import Task

OK = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}

LOOKUP = {"name": "lookup", "description": "d", "parameters": OK}

WIRE = {"type": "function", "function": LOOKUP}


@for_each_row(
    ("text", "value"),
    [
        ('{"a": [1, -0.5e3, true, null, "\\ud800"]}', {"a": [1, -500.0, True, None, "\ud800"]}),
        (" \t\r\n 1 ", 1),
        ('"a"', "a"),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("9" * 5000, float("inf")),
        ("[" * 500 + "]" * 500, None),
    ],
)
def test_json_is_read(text: str, value: object) -> None:
    read = read_json(text)
    assert value is None or read == value
    assert read_fenced_json(text) == read


@for_each_row(
    "text",
    [
        "",
        "hello",
        "NaN",
        "Infinity",
        "-Infinity",
        "{'a': 1}",
        '{"a": 1,}',
        "01",
        "1 2",
        "\u00a01",
        '"a\nb"',
        'Here: {"ok": true}',
        "[" * 100_000,
    ],
)
def test_what_is_no_json_is_none_in_either_way(text: str) -> None:
    for read in (read_json, read_fenced_json):
        with pytest.raises(NotJsonError, match=r"^Output is not valid JSON$"):
            read(text)


@for_each_row(
    "text",
    [
        '```json\n{"ok": true}\n```',
        '```\n{"ok": true}```',
        ' \n```JSON  \n\n{"ok":\ntrue}\n\n```\n',
        '~~~\n{"ok": true}\n~~~',
        '````json\n{"ok": true}\n````',
        '```json\r\n{"ok": true}\r\n```',
    ],
)
def test_a_fence_is_read_where_it_may_be(text: str) -> None:
    assert read_fenced_json(text) == {"ok": True}
    with pytest.raises(NotJsonError):
        read_json(text)


@for_each_row(
    "text",
    [
        'Sure:\n```json\n{"ok": true}\n```',
        '```json\n{"ok": true}\n```\nThere.',
        '```json\n{"ok": true}',
        "```json\n```",
        "```json\n1\n```\n```json\n2\n```",
        '```json {"ok": true}```',
    ],
)
def test_prose_and_half_a_fence_are_no_json(text: str) -> None:
    with pytest.raises(NotJsonError):
        read_fenced_json(text)


def test_a_registry_checks_values() -> None:
    registry = SchemaRegistry()
    assert registry.validate_schema({"ok": 1}, OK) == {
        "valid": False,
        "errors": ["Field ok: expected boolean, got number"],
    }
    assert registry.validateSchema({"ok": True}, OK) == {"valid": True, "errors": []}
    assert registry.validateSchema("text", None) == {"valid": True, "errors": []}
    assert SchemaRegistry("jsonschema").validate_schema({"ok": 1}, OK) == {
        "valid": False,
        "errors": ["$.ok: 1 is not of type 'boolean'"],
    }
    assert SchemaRegistry("jsonschema").validate_schema(1, None) == {"valid": True, "errors": []}


def test_a_registry_checks_outputs_by_who_said_them() -> None:
    outputs = {"a": '{"ok": true}', "b": "yes", "c": {"ok": 1}, "d": '```\n{"ok": true}\n```'}
    said = SchemaRegistry().validateCombinedOutput(outputs, OK)
    assert said == {
        "valid": False,
        "errors": [
            {"expertId": "b", "errors": ["Output is not valid JSON"]},
            {"expertId": "c", "errors": ["Field ok: expected boolean, got number"]},
            {"expertId": "d", "errors": ["Output is not valid JSON"]},
        ],
    }
    said = SchemaRegistry("jsonschema").validate_combined_output(outputs, OK)
    assert [each["expertId"] for each in said["errors"]] == ["b", "c"]
    assert SchemaRegistry().validate_combined_output({}, OK) == {"valid": True, "errors": []}


def test_a_registry_knows_the_tools() -> None:
    registry = registry_of({"tools": [LOOKUP]}, "subset")
    assert registry.getToolSchema("lookup") == LOOKUP
    assert registry.get_tool_schema("other") is None
    assert registry.validate_combined_output({"a": "{}"}, "lookup")["errors"] == [
        {"expertId": "a", "errors": ["Missing required field: ok"]}
    ]
    assert registry.validate_combined_output({"a": "{}"}, "other") == {"valid": True, "errors": []}
    assert not registry.validate_combined_output({"a": "text"}, "other")["valid"]


def test_tools_are_sent_as_endpoints_want_them() -> None:
    strict = {"type": "function", "name": "x", "strict": True}
    assert tools_of({"tools": [WIRE, LOOKUP, strict]}) == [
        WIRE,
        WIRE,
        {"type": "function", "function": {"name": "x", "strict": True}},
    ]
    assert tools_of({}) == tools_of({"tools": None}) == tools_of({"tools": []}) == []


@for_each_row(
    ("tools", "words"),
    [
        ("lookup", 'chatOptions.tools must be a list of tools, not "lookup"'),
        ({"name": "x"}, 'chatOptions.tools must be a list of tools, not {"name": "x"}'),
        ([WIRE, "lookup"], 'chatOptions.tools[1] must be a tool with a name, not "lookup"'),
        ([{"type": "function", "function": {}}], "chatOptions.tools[0] must be a tool with a name"),
        ([{"name": 5}], "chatOptions.tools[0] must be a tool with a name"),
    ],
)
def test_what_are_no_tools_is_refused(tools: object, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tools_of({"tools": tools})
    assert words in str(refused.value)


def test_a_schema_may_be_a_tools_parameters() -> None:
    assert schema_of(Task(prompt="p", schema=OK), {}) == OK
    assert schema_of(Task(prompt="p"), {"tools": [WIRE]}) is None
    assert schema_of(Task(prompt="p", schema="lookup"), {"tools": [WIRE]}) == OK


@for_each_row(
    ("chat_options", "words"),
    [
        ({}, 'schema = "lokup": must be a schema, or the name of a tool in chatOptions.tools; '),
        ({}, "; there are no tools"),
        ({"tools": [WIRE]}, '; did you mean "lookup"?'),
        ({"tools": [{"name": "lokup"}]}, 'schema = "lokup": this tool in chatOptions.tools has no parameters'),
    ],
)
def test_a_tool_that_is_not_there_is_no_schema(chat_options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        schema_of(Task(prompt="p", schema="lokup"), chat_options)
    assert words in str(refused.value)


@for_each_row(
    ("schema", "mode", "words"),
    [
        ({"properties": ["ok"]}, "subset", 'the schema\'s properties must be an object, not ["ok"]'),
        ({"properties": {"ok": "boolean"}}, "subset", 'the schema\'s properties.ok must be a schema, not "boolean"'),
        ({"type": "bool"}, "jsonschema", "the schema is not a valid JSON Schema"),
    ],
)
def test_a_broken_schema_is_refused(schema: dict[str, Any], mode: SchemaMode, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_schema(schema, mode)
    assert words in str(refused.value)


def test_a_schema_that_is_odd_is_none_of_our_business() -> None:
    check_schema({"type": "bool", "required": "ok", "properties": {"a": True, "b": {"type": "integer"}}}, "subset")
    check_schema({}, "subset")
    check_schema(OK, "jsonschema")
