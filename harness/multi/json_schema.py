"""Validation by JSON Schema with the library `jsonschema`, which is imported only when needed: choice of the draft,
references (only within the schema), and error messages for unusable schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Any, TypeAlias, cast

import orjson

from harness.core.errors import ConfigError
from harness.core.types import JsonDict

Check: TypeAlias = Callable[[object], list[str]]
"""A function that validates a value: returns its errors in the order found, or an empty list."""

_MOST = 10
"""Maximum number of schema errors reported per output."""

_LONGEST = 300
"""Maximum length of a schema error in characters, since the library quotes the value."""

_PROBES: tuple[object, ...] = (None, True, 0, "", list[object](), dict[str, object]())
"""Values of every type. A schema that recurses endlessly on one of them is rejected before any request."""

TOO_DEEP = "Output is nested too deeply to be checked"


def checker(schema: JsonDict) -> Check:
    """Return a function that validates values against a JSON Schema of the draft that `$schema` names (by default
    2020-12). `format` is not checked.

    Raises:
        ConfigError: the schema is invalid, or refers outside itself or endlessly to itself; the message says where.
    """
    try:
        text = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise ConfigError(f"JSON cannot represent the schema: {error}") from error
    return _checker(text)


@lru_cache(maxsize=1024)
def _checker(text: bytes) -> Check:
    schema = cast(JsonDict, orjson.loads(text))
    try:
        return _made(schema)
    except RecursionError as error:
        raise ConfigError("the schema has circular references, or is nested too deeply") from error


def _made(schema: JsonDict) -> Check:
    library, referencing, drafts = _library()
    kind = library.validators.validator_for(schema, default=library.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except library.SchemaError as error:
        raise ConfigError(f"the schema is not a valid JSON Schema: {_describe(error)}") from error
    # An explicit registry, since without one the library would fetch references from the network.
    registry = referencing.Registry()
    resource = referencing.Resource.from_contents(
        schema, default_specification=drafts.specification_with(kind.META_SCHEMA["$schema"])
    )
    _follow_references(resource, registry)
    validator = library.validators.extend(kind, {"multipleOf": _not_multiple})(schema, registry=registry)

    def check(value: object) -> list[str]:
        try:
            return [_describe(error) for error in islice(validator.iter_errors(value), _MOST)]
        except RecursionError:
            return [TOO_DEEP]

    for probe in _PROBES:
        for _ in validator.iter_errors(probe):
            break
    return check


def _not_multiple(validator: Any, step: Any, value: Any, _: Any) -> Iterator[Any]:
    """Check `multipleOf` with decimal numbers instead of doubles, so that 19.99 is a multiple of 0.01."""
    if validator.is_type(value, "number") and not _is_multiple(value, step):
        from jsonschema import ValidationError

        yield ValidationError(f"{value!r} is not a multiple of {step}")


def _is_multiple(value: float, step: float) -> bool:
    try:
        return (Fraction(str(value)) / Fraction(str(step))).denominator == 1
    except ValueError:  # infinite
        return False


def _follow_references(resource: Any, registry: Any) -> None:
    """Reject a reference that leads out of the schema, even if no value would use it."""
    from referencing.exceptions import Unresolvable

    resolver = registry.with_resource(resource.id() or "", resource).crawl().resolver_with_root(resource)
    for where, reference in _references(resource, resolver):
        try:
            where.lookup(reference)
        except Unresolvable as error:
            raise ConfigError(
                f"the schema refers to {reference!r}, which is not part of it; put the definition under $defs, since "
                "nothing is fetched from the network"
            ) from error


def _references(resource: Any, resolver: Any) -> Iterator[tuple[Any, str]]:
    contents = resource.contents
    if isinstance(contents, Mapping):
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = cast("Mapping[str, object]", contents).get(name)
            if isinstance(reference, str):
                yield resolver, reference
    for part in resource.subresources():
        yield from _references(part, resolver.in_subresource(part))


def _describe(error: Any) -> str:
    text = f"{error.json_path}: {error.message}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _library() -> tuple[Any, Any, Any]:
    try:
        import jsonschema
        import referencing
        import referencing.jsonschema as drafts
    except ImportError as error:
        raise ConfigError(
            f"schema_mode = \"jsonschema\" needs the package jsonschema: pip install 'jsonschema>=4.23' ({error})"
        ) from error
    return cast("tuple[Any, Any, Any]", (jsonschema, referencing, drafts))
