"""The documented schema check, keyword by keyword."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.multi.subset import check

OK = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}


@for_each_row(
    ("value", "schema", "errors"),
    [
        ({"ok": True}, OK, []),
        ({}, OK, ["Missing required field: ok"]),
        ({"ok": "yes"}, OK, ["Field ok: expected boolean, got string"]),
        # null is fine for any property, and is an object at the top
        ({"ok": None}, OK, []),
        (None, OK, ["Expected object, got object"]),
        ([], OK, ["Expected object, got array", "Missing required field: ok"]),
        ("a", OK, ["Expected object, got string"]),
        ([], {"type": "array"}, []),
        ({}, {"type": "array"}, ["Expected array, got object"]),
        (None, {"type": "array"}, ["Expected array, got object"]),
        ("a", {"type": "string"}, []),
        (1, {"type": "string"}, ["Expected string, got number"]),
        (1, {"type": "number"}, []),
        (1.5, {"type": "number"}, []),
        (True, {"type": "number"}, ["Expected number, got boolean"]),
        (False, {"type": "boolean"}, []),
        # neither is a word that typeof knows
        (3, {"type": "integer"}, ["Expected integer, got number"]),
        (None, {"type": "null"}, ["Expected null, got object"]),
        ({"n": 3}, {"properties": {"n": {"type": "integer"}}}, ["Field n: expected integer, got number"]),
        ({"n": None}, {"properties": {"n": {"type": "null"}}}, []),
        ({"n": []}, {"properties": {"n": {"type": "object"}}}, ["Field n: expected object, got array"]),
        ({"n": {}}, {"properties": {"n": {"type": "array"}}}, ["Field n: expected array, got object"]),
        ({"n": []}, {"properties": {"n": {"type": "array"}}}, []),
        # a list of types is none of them
        ("a", {"type": ["string", "null"]}, ["Expected string,null, got string"]),
        (
            {"n": "a"},
            {"properties": {"n": {"type": ["string", "null"]}}},
            ["Field n: expected string,null, got string"],
        ),
        # several, in the order of the schema
        (
            {"b": 1, "a": 1},
            {
                "type": "object",
                "required": ["x", "a", "y"],
                "properties": {"a": {"type": "string"}, "b": {"type": "array"}},
            },
            [
                "Missing required field: x",
                "Missing required field: y",
                "Field a: expected string, got number",
                "Field b: expected array, got number",
            ],
        ),
        ("a", {"type": []}, ["Expected , got string"]),
        ({"n": 1}, {"properties": {"n": {"type": {}}}}, ["Field n: expected [object Object], got number"]),
        # fields are told in the order that JavaScript has them in
        (
            {"b": 1, "10": 1, "2": 1},
            {"properties": {name: {"type": "string"} for name in ("b", "10", "2")}},
            [f"Field {name}: expected string, got number" for name in ("2", "10", "b")],
        ),
        # everything else is ignored
        (
            {"n": 5},
            {"properties": {"n": {"type": "number", "maximum": 1, "enum": [2]}}, "additionalProperties": False},
            [],
        ),
        ({"a": {"b": 1}}, {"properties": {"a": {"type": "object", "required": ["c"]}}}, []),
        ([1, "a"], {"type": "array", "items": {"type": "string"}, "maxItems": 1}, []),
        ("a", {"const": "b"}, []),
        ({"n": 5}, {"properties": {"n": True, "m": {"type": "string"}}}, []),
        ({}, {"required": "ok"}, []),
        ("text", {"required": ["ok"], "properties": {"ok": {"type": "string"}}}, []),
        # an array has its indexes and a length
        (["a"], {"required": ["0", "length", "1", 0]}, ["Missing required field: 1"]),
        (
            ["a"],
            {"properties": {"0": {"type": "number"}, "length": {"type": "string"}, "01": {"type": "number"}}},
            ["Field 0: expected number, got string", "Field length: expected string, got number"],
        ),
        ({"1": 0}, {"required": [1, None]}, ["Missing required field: null"]),
        # no schema asks for nothing
        (1, {}, []),
        (1, {"type": ""}, []),
        (1, None, []),
        (1, "a", []),
    ],
)
def test_what_it_says(value: object, schema: object, errors: list[str]) -> None:
    assert check(value, schema) == errors


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
RULES = st.fixed_dictionaries({}, optional={"type": JSON, "required": JSON, "properties": JSON})


@given(JSON, RULES)
def test_it_takes_whatever_it_is_given(value: object, schema: dict[str, object]) -> None:
    assert all(isinstance(error, str) for error in check(value, schema))
