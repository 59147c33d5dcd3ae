"""Replies of the reference models: an output with the best possible score, built from the task's schema and expected
text, and an output that does not answer the task."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

from harness.core.types import JsonDict
from harness.multi import javascript
from harness.multi.schemas import chat_options_of, schema_of
from harness.multi.scoring import LENGTH_TARGET, TaskOptions, score_output
from harness.multi.tasks import Task

_EMPTY = ("I do not know.", "?", "")

_FILLER = "This goes on until it is as long as the task wants it. "

_LONGEST = 20_000
"""Maximum length of a padded output in UTF-16 units, since the length target has no limit."""

_DEEPEST = 8
"""Maximum depth to which a schema is filled in, since it may refer to itself."""

_COMPOSED = frozenset({"$ref", "allOf", "anyOf", "oneOf"})

_OF_TYPE: Mapping[str, object] = {"string": "text", "boolean": True, "null": None}


def ideal_output(task: Task, options: TaskOptions) -> str:
    """Return an output for a task that scores well under the documented formula: the best of several candidates.

    Args:
        task: A validated task.
        options: Options of the scoring.
    """
    target = min(options.length_target or LENGTH_TARGET, _LONGEST)

    def worth(output: str) -> tuple[bool, float]:
        said = score_output(task, output, options)
        return said.valid, said.score

    candidates = list(dict.fromkeys(_candidates(task, options)))
    is_json = task.schema is not None
    return max([*candidates, *(_filled(each, target, is_json=is_json) for each in candidates)], key=worth)


def empty_output(task: Task, options: TaskOptions) -> str:
    """Return an output that does not answer the task, and does not pass if possible."""
    return next((each for each in _EMPTY if not score_output(task, each, options).valid), _EMPTY[0])


def _candidates(task: Task, options: TaskOptions) -> Iterator[str]:
    expected = task.expected_text
    schema = schema_of(task, chat_options_of(task, options.chat_options))
    if expected is not None:
        yield javascript.trimmed(expected)
    if schema is None:
        yield _FILLER.strip()
        return
    for text in (expected, None):
        for everything in (False, True):
            value = _made(schema, text, everything=everything)
            yield _json(value)
            if isinstance(value, dict):
                fields = cast(JsonDict, value)
                # The documented check never accepts an integer by type and accepts null for any property.
                loose = {name: part if isinstance(part, str) else None for name, part in fields.items()}
                yield _json(loose)
                if expected is not None:
                    yield _json({**fields, "answer": expected})
                    yield _json({**loose, "answer": expected})
    if expected is not None:
        yield _json(expected)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _filled(output: str, target: float, *, is_json: bool) -> str:
    """Pad an output to a length: with words, or with spaces if it is JSON."""
    missing = math.ceil(target) - javascript.length(output)
    if missing <= 0:
        return output
    if is_json:
        return output[0] + " " * missing + output[1:] if output[:1] in ("{", "[") else output
    filler = "\n" + _FILLER * (missing // len(_FILLER) + 1)
    return f"{output}{filler[: missing - 1]}."


def _made(schema: JsonDict, text: str | None, *, everything: bool) -> object:
    try:
        return _Maker(schema, text, everything=everything).make(schema)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return None  # the documented check accepts schemas of any shape, also those for which no output can be made


def _merged(rules: JsonDict, part: JsonDict) -> JsonDict:
    properties: JsonDict = {**(part.get("properties") or {}), **(rules.get("properties") or {})}
    required: list[object] = [*(rules.get("required") or []), *(part.get("required") or [])]
    merged = {**part, **rules}
    return merged | ({"properties": properties} if properties else {}) | ({"required": required} if required else {})


class _Maker:
    """Generator of a value that fits a schema of a common kind.

    Args:
        root: The whole schema, for references into it.
        text: The value for strings, and for numbers if it is numeric; None for default values.
        everything: Whether objects also get their optional properties.
    """

    def __init__(self, root: JsonDict, text: str | None, *, everything: bool) -> None:
        self._root = root
        self._text = text
        self._everything = everything

    def make(self, schema: object, depth: int = 0) -> Any:
        """Make a value that fits a schema, down to a limited depth."""
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return {}
        rules = self._whole(cast(JsonDict, schema))
        for name in ("const", "default"):
            if name in rules:
                return rules[name]
        for name in ("enum", "examples"):
            if isinstance(rules.get(name), list) and rules[name]:
                return self._chosen(rules[name])
        kind = self._kind(rules)
        if kind == "object":
            return self._object(rules, depth)
        if kind == "array":
            return self._array(rules, depth)
        if kind in ("number", "integer"):
            return self._number(rules, kind)
        if kind == "string":
            return self._string(rules)
        return _OF_TYPE.get(kind, {})

    def _whole(self, rules: JsonDict) -> JsonDict:
        """Merge a schema's rules with its references and the first of its alternatives."""
        whole = rules
        for _ in range(_DEEPEST):
            parts = self._parts(whole)
            if not parts:
                break
            whole = {name: value for name, value in whole.items() if name not in _COMPOSED}
            for part in parts:
                whole = _merged(whole, part)
        return whole

    def _parts(self, rules: JsonDict) -> list[JsonDict]:
        parts: list[object] = [self._at(rules["$ref"])] if isinstance(rules.get("$ref"), str) else []
        parts += rules.get("allOf") or []
        parts += [rules[name][0] for name in ("anyOf", "oneOf") if rules.get(name)]
        return [cast(JsonDict, part) for part in parts if isinstance(part, dict)]

    def _at(self, reference: str) -> object:
        """Return the part of the schema that a reference names; None if it is missing."""
        found: object = self._root
        for name in reference.removeprefix("#").split("/")[1:]:
            part = name.replace("~1", "/").replace("~0", "~")
            found = cast("dict[str, object]", found).get(part) if isinstance(found, dict) else None
        return found

    def _kind(self, rules: JsonDict) -> str:
        kind: object = rules.get("type")
        if isinstance(kind, list) and kind:
            kind = next((each for each in cast("list[object]", kind) if each != "null"), "null")
        return kind if isinstance(kind, str) else "array" if "items" in rules else "object"

    def _chosen(self, values: list[object]) -> object:
        return next((each for each in values if self._text and javascript.text_of(each) == self._text), values[0])

    def _object(self, rules: JsonDict, depth: int) -> JsonDict:
        properties = cast(JsonDict, rules.get("properties") or {})
        required = cast("list[object]", rules.get("required") or [])
        names = dict.fromkeys([*map(str, required), *(properties if self._everything else ())])
        return {name: self.make(properties.get(name, {"type": "string"}), depth + 1) for name in names}

    def _array(self, rules: JsonDict, depth: int) -> list[Any]:
        first = cast("list[object]", rules.get("prefixItems") or [])
        least = max(int(rules.get("minItems") or 0), len(first), 1 if self._everything else 0)
        rest = [rules.get("items", {"type": "string"})] * max(0, least - len(first))
        return [self.make(part, depth + 1) for part in (*first, *rest)]

    def _number(self, rules: JsonDict, kind: str) -> float:
        low, high = rules.get("minimum", rules.get("exclusiveMinimum")), rules.get("maximum")
        value = self._expected_number(kind)
        if value is None:
            value = low if isinstance(low, int | float) else min(1, high) if isinstance(high, int | float) else 1
            value += 1 if "exclusiveMinimum" in rules else 0
        step = rules.get("multipleOf")
        if isinstance(step, int | float) and step:
            value = -(-value // step) * step
        return int(value) if kind == "integer" else value

    def _expected_number(self, kind: str) -> float | None:
        try:
            number = json.loads(self._text or "")
        except ValueError:
            return None
        wanted = int if kind == "integer" else int | float
        return number if isinstance(number, wanted) and not isinstance(number, bool) else None

    def _string(self, rules: JsonDict) -> str:
        text = "text" if self._text is None else self._text
        return text + "." * max(0, int(rules.get("minLength") or 0) - len(text))
