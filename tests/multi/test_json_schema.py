"""JSON Schema through its library: what counts, what is refused, and that nothing is fetched."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.multi.json_schema import TOO_DEEP, checker

NESTED: dict[str, Any] = {
    "$defs": {"point": {"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 1}},
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/point"}, "kind": {"enum": ["a", "b"]}},
    "required": ["at"],
    "additionalProperties": False,
}


@for_each_row(
    ("value", "schema", "errors"),
    [
        ({"at": [1]}, NESTED, []),
        ({"at": [1.0]}, NESTED, []),
        ({"at": ["x"]}, NESTED, ["$.at[0]: 'x' is not of type 'integer'"]),
        ({"at": [1], "kind": "c"}, NESTED, ["$.kind: 'c' is not one of ['a', 'b']"]),
        ({}, NESTED, ["$: 'at' is a required property"]),
        (3, {"type": "integer"}, []),
        (None, {"type": ["string", "null"]}, []),
        (True, {"type": "integer"}, ["$: True is not of type 'integer'"]),
        ("x", {"format": "email"}, []),
        ("x", {}, []),
        # of the draft that it names, where a list of items means something else
        ([1, 2], {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]},
         ["$[0]: 1 is not of type 'string'"]),
    ],
)  # fmt: skip
def test_what_it_says(value: object, schema: dict[str, Any], errors: list[str]) -> None:
    assert checker(schema)(value) == errors


def test_what_it_says_is_short() -> None:
    errors = checker({"items": {"type": "string"}})([1] * 1000)
    assert len(errors) == 10
    [error] = checker({"type": "string"})(["x" * 5000])
    assert len(error) == 300
    assert error.endswith("…")


@for_each_row(
    ("schema", "words"),
    [
        (
            {"type": "strng"},
            "the schema is not a valid JSON Schema: $.type: 'strng' is not valid under any of the given schemas",
        ),
        ({"properties": []}, "the schema is not a valid JSON Schema: $.properties: [] is not of type 'object'"),
        ({"pattern": "("}, "the schema is not a valid JSON Schema: $.pattern: '(' is not a 'regex'"),
        (
            {"$ref": "#/$defs/none"},
            "the schema refers to '#/$defs/none', which is not part of it; put the definition under",
        ),
        ({"$ref": "https://example.com/schema.json"}, "the schema refers to 'https://example.com/schema.json', which"),
        (
            {"properties": {"a": {"items": {"$ref": "other.json"}}}},
            "the schema refers to 'other.json', which is not part of it",
        ),
        ({"$ref": "#"}, "the schema has circular references"),
        ({"anyOf": [{"$ref": "#"}]}, "the schema has circular references"),
        ({"enum": [{1, 2}]}, "JSON cannot represent the schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checker(schema)
    assert words in str(refused.value)


def test_a_multiple_is_one_of_the_decimal_number() -> None:
    check = checker({"multipleOf": 0.01})
    fitting: list[object] = [19.99, 4.35, 1.1, 3, 0, -0.07, 1e300, 10**30, "no number", None, True]
    assert [check(value) for value in fitting] == [[]] * len(fitting)
    assert check(19.999) == ["$: 19.999 is not a multiple of 0.01"]
    assert [len(check(value)) for value in (1e-3, float("inf"))] == [1, 1]
    assert checker({"items": {"multipleOf": 3}})([3, 9.0, 4]) == ["$[2]: 4 is not a multiple of 3"]


def test_a_schema_may_refer_to_itself_where_that_comes_to_an_end() -> None:
    tree = {"$id": "https://example.com/tree", "type": "object", "properties": {"next": {"$ref": "#"}}}
    check = checker(tree)
    assert check({"next": {"next": {}}}) == []
    assert check({"next": {"next": 1}}) == ["$.next.next: 1 is not of type 'object'"]


def test_an_output_that_is_nested_too_deeply_does_not_fit() -> None:
    tree = {"properties": {"n": {"$ref": "#"}}}
    value: dict[str, Any] = {}
    for _ in range(20_000):
        value = {"n": value}
    assert checker(tree)(value) == [TOO_DEEP]


def test_the_library_is_imported_when_it_is_needed() -> None:
    program = (
        "import sys, harness.multi.environment as e\n"
        "assert 'jsonschema' not in sys.modules and 'referencing' not in sys.modules\n"
        "e.TaskEnv([{'prompt': 'p', 'schema': {}}])\n"
        "assert 'jsonschema' not in sys.modules\n"
        "sys.modules['jsonschema'] = None\n"
        "try:\n"
        "    e.TaskEnv([{'prompt': 'p', 'schema': {}}], options=e.TaskOptions(schema_mode='jsonschema'))\n"
        "except e.ConfigError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "task 'task-0': schema_mode = \"jsonschema\" needs the package jsonschema: pip install"
    )
