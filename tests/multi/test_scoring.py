"""The documented scoring, case by case: every line of its table is a test here."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.multi.scoring import MISMATCH, TaskOptions, score_output
from harness.multi.tasks import Task, TaskScore, read_task

OK = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}

INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}}

FITS = '{"ok": true}'
"""12 units."""

NOT_JSON = {"expertId": "m", "errors": ["Output is not valid JSON"]}


def scored(output: str, options: dict[str, Any] | None = None, **fields: Any) -> TaskScore:
    return score_output(
        read_task({"prompt": "p", **fields}, 0), output, TaskOptions(**{"model_id": "m", **(options or {})})
    )


# Golden samples: what the documented implementation gives


@for_each_row(
    ("output", "fields", "score", "valid", "errors"),
    [
        ("hello", {}, 0.5025, True, []),
        ("x" * 400, {}, 0.7, True, []),
        ("x" * 4000, {}, 0.7, True, []),
        ("", {}, 0.5, True, []),
        ("Hello, Reploid!", {"expected": "hello"}, 0.7075, True, []),
        ("Hello, Reploid!", {"expected": "bye"}, 0.3075, False, [MISMATCH]),
        (FITS, {"schema": OK}, 0.706, True, []),
        (FITS, {"schema": OK, "expected": "false"}, 0.506, False, [MISMATCH]),
        ("not {ok} json", {"schema": OK, "expected": "x"}, 0.0065, False, [NOT_JSON, MISMATCH]),
        ("twelve chars", {"schema": OK, "expected": "x"}, 0.006, False, [NOT_JSON, MISMATCH]),
        (
            '{"n": 3}',
            {"schema": INTEGER},
            0.104,
            False,
            [{"expertId": "m", "errors": ["Field n: expected integer, got number"]}],
        ),
        ('{"n":3}', {"schema": INTEGER}, 0.1035, False, None),
        (f"{FITS[:-1]}{' ' * 188}}}", {"schema": OK, "expected": "true"}, 1.0, True, []),
        (f"{FITS[:-1]}{' ' * 888}}}", {"schema": OK, "expected": "true"}, 1.0, True, []),
    ],
)
def test_golden_samples(
    output: str, fields: dict[str, Any], score: float, valid: bool, errors: list[Any] | None
) -> None:
    said = scored(output, **fields)
    assert said.score == pytest.approx(score, abs=1e-15)
    assert said.valid is valid
    if errors is not None:
        assert said.errors == errors


def test_the_mean_of_two_golden_samples() -> None:
    """A model that repeats the prompts `hi` and `x`, on a task that expects `hi` and one that expects `q`."""
    hit, miss = scored("hi", expected="hi"), scored("x", expected="q")
    assert (hit.score + miss.score) / 2 == pytest.approx(0.50075, abs=1e-15)
    assert [hit.valid, miss.valid] == [True, False]


# The parts, one by one


@for_each_row(
    ("output", "fields", "score"),
    [
        ("", {}, 0.5),
        (FITS, {"schema": OK}, 0.7),
        ("no", {"schema": OK}, 0.1),
        ("a", {"expected": "a"}, 0.7),
        ("a", {"expected": "b"}, 0.3),
        (FITS, {"schema": OK, "expected": "ok"}, 0.9),
        (FITS, {"schema": OK, "expected": "x"}, 0.5),
        ("no", {"schema": OK, "expected": "no"}, 0.3),
        ("no", {"schema": OK, "expected": "x"}, 0.0),
    ],
)
def test_schema_and_match_without_length(output: str, fields: dict[str, Any], score: float) -> None:
    assert scored(output, {"length_target": -1}, **fields).score == pytest.approx(score, abs=1e-15)


def test_the_arithmetic_is_that_of_the_document_to_the_last_bit() -> None:
    assert scored("no", {"length_target": -1}, schema=OK, expected="no").score == 0.1 + 0.2 == 0.30000000000000004
    assert scored(FITS, {"length_target": -1}, schema=OK, expected="ok").score == 0.7 + 0.2 == 0.8999999999999999
    assert scored("x" * 7, expected="x").score == 0.7 + 7 / 400 * 0.2


@for_each_row(
    ("target", "output", "bonus"),
    [
        (400, "x" * 200, 0.1),
        (0, "x" * 200, 0.1),
        (0.0, "x" * 400, 0.2),
        (-1, "x" * 400, 0.0),
        (-400, "x" * 400, 0.0),
        (10, "x" * 5, 0.1),
        (10, "x" * 11, 0.2),
        (0.5, "x", 0.2),
        (0.5, "", 0.0),
        (400, "🙂" * 100, 0.1),
        (400, "é" * 100, 0.05),
    ],
)
def test_length(target: float, output: str, bonus: float) -> None:
    assert scored(output, {"length_target": target}).score == pytest.approx(0.5 + bonus, abs=1e-15)


def test_the_length_counts_for_a_wrong_answer_as_well() -> None:
    said = scored("x" * 400, expected="y")
    assert (said.score, said.valid) == (pytest.approx(0.5, abs=1e-15), False)


@for_each_row(
    ("expected", "output", "contains", "exact"),
    [
        ("hello", "hello", True, True),
        ("hello", "  HELLO\n", True, True),
        (" Hello ", "hello", True, True),
        ("hello", "say hello to Reploid", True, False),
        ("hello", "goodbye", False, False),
        ("hello", "", False, False),
        ("", "anything", True, False),
        ("", "", True, True),
        ("  ", "a", True, False),
        (None, "null", True, True),
        (None, "nullable", True, False),
        (None, "none", False, False),
        (True, "TRUE", True, True),
        (False, "it is false", True, False),
        (42, "42", True, True),
        (42.0, "42", True, True),
        (42.5, "42.50", True, False),
        (1e21, "1e+21", True, True),
        (0.0000001, "1E-7", True, True),
        ([1, 2], "1,2", True, True),
        ("STRASSE", "straße", False, False),
        ("\ufeffa\u00a0", "a", True, True),
    ],
)
def test_match(expected: object, output: str, contains: bool, exact: bool) -> None:
    for mode, is_match in (("contains", contains), ("exact", exact)):
        for said in (
            scored(output, {"match_mode": mode}, expected=expected),
            scored(
                output, {"match_mode": "exact" if mode == "contains" else "contains"}, expected=expected, matchMode=mode
            ),
        ):
            assert said.matched is is_match, mode
            assert said.valid is is_match
            assert said.errors == ([] if is_match else [MISMATCH])


def test_contains_is_the_mode_of_a_task_that_does_not_say() -> None:
    assert scored("say hello", expected="hello").matched is True


def test_without_an_expected_nothing_is_matched() -> None:
    assert scored("x") == TaskScore(0.5 + 1 / 400 * 0.2, True, [], None, None)
    assert scored("x", schema={}).matched is None


@for_each_row(
    ("schema", "output", "errors"),
    [
        (OK, FITS, []),
        (OK, f" {FITS}\n", []),
        (OK, '{"ok": null}', []),
        (OK, "{}", ["Missing required field: ok"]),
        (OK, "null", ["Expected object, got object"]),
        (OK, "[]", ["Expected object, got array", "Missing required field: ok"]),
        (OK, f"```json\n{FITS}\n```", ["Output is not valid JSON"]),
        (OK, f"Here: {FITS}", ["Output is not valid JSON"]),
        (OK, "", ["Output is not valid JSON"]),
        (OK, "NaN", ["Output is not valid JSON"]),
        ({"type": "array"}, "{}", ["Expected array, got object"]),
        ({"type": "integer"}, "3", ["Expected integer, got number"]),
        ({"type": "null"}, "null", ["Expected null, got object"]),
        ({"type": "string"}, '"a"', []),
        ({}, "5", []),
        ({}, "five", ["Output is not valid JSON"]),
        ({"enum": [1], "maximum": 1, "additionalProperties": False}, "5", []),
    ],
)
def test_schema(schema: dict[str, Any], output: str, errors: list[str]) -> None:
    said = scored(output, schema=schema)
    assert said.errors == ([{"expertId": "m", "errors": errors}] if errors else [])
    assert said.schema_valid is said.valid is (not errors)


def test_a_schema_by_the_name_of_a_tool() -> None:
    tools = {"tools": [{"name": "lookup", "parameters": OK}]}
    assert scored(FITS, schema="lookup", chatOptions=tools).valid
    assert scored(FITS, {"chat_options": tools}, schema="lookup").valid
    assert not scored("{}", {"chat_options": tools}, schema="lookup").valid


def test_json_schema_takes_fences_and_integers_and_looks_deeper() -> None:
    options = {"schema_mode": "jsonschema"}
    assert scored('```json\n{"n": 3}\n```', options, schema=INTEGER).schema_valid is True
    assert scored('{"n": 3.5}', options, schema=INTEGER).errors == [
        {"expertId": "m", "errors": ["$.n: 3.5 is not of type 'integer'"]}
    ]
    assert scored('Here: {"n": 3}', options, schema=INTEGER).errors == [NOT_JSON]
    assert scored('{"n": 3}', options, schema=INTEGER).score == 0.7 + 8 / 400 * 0.2


def test_what_an_error_calls_the_model() -> None:
    task = Task(id="t", prompt="p", schema=OK)
    assert score_output(task, "x").errors == [{"expertId": "unknown", "errors": ["Output is not valid JSON"]}]


# Whatever there is

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "schema": st.sampled_from([OK, INTEGER, {}, {"type": "array"}]),
        "expected": st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        "matchMode": st.sampled_from(["exact", "contains"]),
    },
)
OUTPUTS = st.text() | st.sampled_from([FITS, "{}", "[]", '{"n": 1}', "x" * 500])
TARGETS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 500)


@given(OUTPUTS, FIELDS, TARGETS, st.sampled_from(["subset", "jsonschema"]))
def test_a_score_is_between_0_and_1_and_valid_means_no_errors(
    output: str, fields: dict[str, Any], target: float, mode: str
) -> None:
    said = scored(output, {"length_target": target, "schema_mode": mode}, **fields)
    assert 0.0 <= said.score <= 1.0
    assert said.valid is (not said.errors)
    assert said.valid is (said.schema_valid is not False and said.matched is not False)
    assert (said.schema_valid is None) is ("schema" not in fields)
    assert (said.matched is None) is ("expected" not in fields)
    longer = scored(output + "\n" * 50, {"length_target": target, "schema_mode": mode}, **fields)
    assert longer.score >= said.score
