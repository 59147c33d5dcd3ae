"""The documented schema check: a small part of JSON Schema with JavaScript's semantics, and its error texts;
`json_schema` is the full check. It checks `type`, `required` and the `type` of `properties`, one level deep, and
compares with `typeof`: so "integer" and "null" match nothing, and null is valid for any property. All other keywords
are ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from harness.multi import javascript


def check(value: object, schema: object) -> list[str]:
    """Validate a value against a schema of a task file, and return the errors as the documented texts.

    Args:
        value: A value from `read_json`.
        schema: A schema; anything but an object accepts all values.
    """
    if not isinstance(schema, Mapping):
        return []
    rules = cast("Mapping[str, object]", schema)
    errors: list[str] = []
    kind = _kind(value)
    wanted = rules.get("type")
    if javascript.is_truthy(wanted) and (kind != wanted or (wanted == "object" and value is None)):
        errors.append(f"Expected {javascript.text_of(wanted)}, got {kind}")
    if isinstance(value, Mapping | list):
        holder = cast("Mapping[str, object] | list[object]", value)
        errors += _missing(holder, rules.get("required"))
        errors += _misfits(holder, rules.get("properties"))
    return errors


def _missing(value: Mapping[str, object] | list[object], required: object) -> list[str]:
    if not isinstance(required, list | tuple):
        return []
    names = [javascript.text_of(name) for name in cast("Sequence[object]", required)]
    return [f"Missing required field: {name}" for name in names if not _has(value, name)]


def _misfits(value: Mapping[str, object] | list[object], properties: object) -> list[str]:
    if not isinstance(properties, Mapping):
        return []
    errors: list[str] = []
    for name, rule in javascript.entries(cast("Mapping[str, object]", properties)):
        wanted = cast("Mapping[str, object]", rule).get("type") if isinstance(rule, Mapping) else None
        if javascript.is_truthy(wanted) and _has(value, name):
            part = _part(value, name)
            kind = _kind(part)
            if kind != wanted and part is not None:
                errors.append(f"Field {name}: expected {javascript.text_of(wanted)}, got {kind}")
    return errors


def _kind(value: object) -> str:
    """Return JavaScript's `typeof`, except that arrays are `array`; null is `object`."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _has(value: Mapping[str, object] | list[object], name: str) -> bool:
    """Evaluate JavaScript's `name in value`; an array has its indexes and `length`."""
    if isinstance(value, Mapping):
        return name in value
    return name == "length" or _index(value, name) is not None


def _part(value: Mapping[str, object] | list[object], name: str) -> object:
    if isinstance(value, Mapping):
        return value[name]
    index = _index(value, name)
    return len(value) if index is None else value[index]


def _index(value: Sequence[object], name: str) -> int | None:
    index = javascript.index_of(name)
    return index if index is not None and index < len(value) else None
