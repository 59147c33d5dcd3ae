"""What the reference models say: as good as it gets, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tables import for_each_row

from harness.multi.reference import empty_output, ideal_output
from harness.multi.scoring import TaskOptions, score_output
from harness.multi.tasks import read_task

DEEP: dict[str, Any] = {
    "$defs": {
        "point": {
            "type": "array",
            "prefixItems": [{"type": "integer", "minimum": 3}, {"type": "number"}],
            "minItems": 3,
        },
        "named": {"required": ["name"], "properties": {"name": {"type": "string", "minLength": 30}}},
    },
    "type": "object",
    "required": ["at", "kind", "half", "maybe", "other", "fixed"],
    "properties": {
        "at": {"$ref": "#/$defs/point"},
        "kind": {"enum": ["a", "b"]},
        "half": {"type": "number", "exclusiveMinimum": 0, "maximum": 10, "multipleOf": 0.5},
        "maybe": {"anyOf": [{"$ref": "#/$defs/named"}, {"type": "null"}]},
        "other": {"allOf": [{"$ref": "#/$defs/named"}, {"type": "object"}]},
        "fixed": {"const": 5},
        "free": {"type": ["null", "boolean"]},
    },
    "additionalProperties": False,
}


@for_each_row(
    ("fields", "options", "score"),
    [
        ({}, {}, 0.7),
        ({"expected": "hello"}, {}, 0.9),
        ({"expected": " Hello\n"}, {}, 0.9),
        ({"expected": None}, {}, 0.9),
        ({"expected": 42}, {"length_target": -1}, 0.7),
        ({"expected": "hello"}, {"length_target": 5.5}, 0.9),
        ({"expected": "x" * 500}, {}, 0.9),
        ({"expected": "hello", "matchMode": "exact"}, {"length_target": 10}, 0.8),
        ({"expected": "", "matchMode": "exact"}, {}, 0.7),
        ({"schema": {}}, {}, 0.9),
        ({"schema": {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}}, {}, 0.9),
        ({"schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}, {}, 0.9),
        ({"schema": {"type": "array", "items": {"type": "string"}, "minItems": 2}}, {}, 0.9),
        ({"schema": {"type": "number"}, "expected": "42"}, {"length_target": 2}, 1.0),
        ({"schema": {"type": "string"}, "expected": "blue"}, {"length_target": 6}, 1.0),
        ({"schema": {"type": "boolean"}, "expected": "true", "matchMode": "exact"}, {"length_target": 4}, 1.0),
        ({"schema": {"type": "object", "required": ["ok"]}, "expected": "hello"}, {}, 1.0),
        ({"schema": {"type": "object", "properties": {"n": {"type": "integer"}}}, "expected": "7"}, {}, 1.0),
        ({"schema": {"type": "object"}, "expected": '{"a": 1}', "matchMode": "exact"}, {"length_target": 8}, 1.0),
        ({"schema": DEEP}, {}, 0.9),
        ({"schema": DEEP}, {"schema_mode": "jsonschema"}, 0.9),
        ({"schema": DEEP, "expected": "Arvik"}, {"schema_mode": "jsonschema"}, 1.0),
        ({"schema": DEEP, "expected": "b"}, {"schema_mode": "jsonschema"}, 1.0),
        (
            {
                "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
                "expected": "7",
            },
            {"schema_mode": "jsonschema"},
            1.0,
        ),
        (
            {"schema": {"type": "integer", "minimum": 7, "multipleOf": 5}},
            {"schema_mode": "jsonschema", "length_target": 2},
            0.9,
        ),
        ({"schema": {"type": "object", "default": {"a": 1}}}, {}, 0.9),
        ({"schema": {"properties": {"a": {"properties": {"a": {"$ref": "#"}}}}}}, {"schema_mode": "jsonschema"}, 0.9),
    ],
)
def test_the_ideal_output_is_the_best_that_there_is(
    fields: dict[str, Any], options: dict[str, Any], score: float
) -> None:
    task, scoring = read_task({"prompt": "p", **fields}, 0), TaskOptions(**options)
    output = ideal_output(task, scoring)
    said = score_output(task, output, scoring)
    assert said.valid, output
    assert said.score == pytest.approx(score, abs=1e-12), output
    if task.schema is not None:
        json.loads(output)


def test_a_schema_that_asks_for_the_impossible_still_gets_an_answer() -> None:
    for schema in (
        {"type": "integer"},
        {"type": "object", "required": 5, "properties": {"a": {"minItems": "x", "type": "array"}}},
        {"anyOf": 5},
    ):
        output = ideal_output(read_task({"prompt": "p", "schema": schema}, 0), TaskOptions())
        json.loads(output)


def test_an_endless_target_is_filled_up_to_a_point() -> None:
    assert len(ideal_output(read_task({"prompt": "p"}, 0), TaskOptions(length_target=1e12))) == 20_000


@for_each_row(
    ("fields", "output"),
    [
        ({}, "I do not know."),
        ({"expected": "hello"}, "I do not know."),
        ({"expected": "no"}, "?"),
        ({"expected": "I do not know.", "matchMode": "exact"}, "?"),
        ({"expected": ""}, "I do not know."),
        ({"schema": {}, "expected": "know"}, "I do not know."),
    ],
)
def test_the_empty_output_passes_only_where_all_do(fields: dict[str, Any], output: str) -> None:
    task = read_task({"prompt": "p", **fields}, 0)
    assert empty_output(task, TaskOptions()) == output
    assert score_output(task, output).valid is (fields in ({}, {"expected": ""}))
