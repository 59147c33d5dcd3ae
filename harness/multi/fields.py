"""Functions that read dicts and dataclasses with camelCase or snake_case keys by field name, and validate the types of
their values."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError, ValidationError
from harness.core.messages import Labels
from harness.core.types import JsonDict
from harness.settings.wording import shown, suggestion

FILES = (".json", ".jsonl", ".toml")
"""File name endings of files of tasks or models."""

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_MAY_BE_SECRET = ("api_key", "api_keys", "headers")
"""Fields whose values are not shown in messages."""

MODEL_LABELS = Labels({
    "model": "modelId", "api_base_url": "baseUrl", "api_key_var": "apiKeyVar", "api_key": "apiKey",
    "rollouts_per_example": "the number of times that a task is listed",
})  # fmt: skip
"""Names of settings in models files and in Python, for messages."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """The valid values of a field, such as "an integer of at least 1"."""

    accepts: Callable[[object], bool]
    words: str
    """Description of the valid values, for messages."""
    choices: tuple[str, ...] = ()
    """All valid values, if they are a fixed list."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def choice(*values: str) -> FieldType:
    """Return the type of a field whose value must be one of the given strings."""
    return FieldType(lambda value: value in values, f"one of {', '.join(values)}", values)


TEXT = FieldType(lambda value: isinstance(value, str), "a string")
FLAG = FieldType(lambda value: isinstance(value, bool), "true or false")
INTEGER = FieldType(lambda value: isinstance(value, int) and not isinstance(value, bool), "an integer")
COUNT = FieldType(lambda value: INTEGER.accepts(value) and cast(int, value) >= 0, "an integer of at least 1")
NUMBER = FieldType(_is_number, "a finite number")
AMOUNT = FieldType(lambda value: _is_number(value) and cast(float, value) >= 0, "a finite number, 0 or more")
TABLE = FieldType(lambda value: isinstance(value, Mapping), "a table of keys and values")
LIST = FieldType(lambda value: isinstance(value, list | tuple), "a list")
PATH = FieldType(lambda value: isinstance(value, str | Path) and bool(str(value)), "a path")
FUNCTION = FieldType(callable, "a function")


def check_fields(
    values: Mapping[str, object], types: Mapping[str, FieldType], where: str = "", *, is_camel: bool = True
) -> None:
    """Check that the values of an object's fields have the right types.

    Args:
        values: Values by field name.
        types: Types by field name; other fields are not checked.
        where: Description of the object that has the fields, for messages.
        is_camel: Whether messages name fields in camelCase.

    Raises:
        ConfigError: a value is of another type; the message names the field.
    """
    for name, value in values.items():
        kind = types.get(name)
        if kind is None or kind.accepts(value):
            continue
        words = f"must be {kind.words}"
        if kind.choices and isinstance(value, str):
            words = suggestion(value, kind.choices)
        given = "" if name in _MAY_BE_SECRET else f" = {shown(value)}"
        raise ConfigError(f"{where}{': ' if where else ''}{camel(name) if is_camel else name}{given}: {words}")


def plain_json(value: object, where: str) -> object:
    """Copy a JSON value in the form in which it is read back from a file.

    Raises:
        ConfigError: the value cannot be written as JSON.
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    try:
        return cast(object, json.loads(json.dumps(value, allow_nan=False)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: must be a JSON value ({error})") from error


def snake(name: str) -> str:
    """Convert a name such as `modelConcurrency` to `model_concurrency`; a name in snake_case is unchanged."""
    return _HUMP.sub("_", name).lower()


def camel(name: str) -> str:
    """Convert a name such as `model_concurrency` to `modelConcurrency`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def read_fields(
    value: object, known: Iterable[str], where: str, *, aliases: Mapping[str, str] | None = None, hint: str = ""
) -> JsonDict:
    """Return the values of a dict or dataclass by field name; a field that is None is left out.

    Args:
        value: A mapping, or an instance of any dataclass.
        known: Names of the fields.
        where: Description of the value, for messages.
        aliases: Alternative names, in snake_case → field names.
        hint: Advice in the message about an unknown key.

    Raises:
        ConfigError: the value has no fields, or a name is unknown or duplicate.
    """
    names = list(known)
    spelled = {**{name: name for name in names}, **(aliases or {})}
    found: JsonDict = {}
    first: dict[str, str] = {}
    for name, item in fields_of(value, where).items():
        field = spelled.get(snake(name)) if isinstance(name, str) else None
        if field is None:
            near = suggestion(str(name), [*map(camel, names), *names])
            raise ConfigError(f"{where}: unknown key {name!r}; {near}{hint}")
        if item is None:
            continue
        if field in found:
            raise ConfigError(f"{where}: {name!r} means the same as {first[field]!r}; keep one of them")
        found[field], first[field] = item, cast(str, name)
    return found


def file_of(value: object) -> Path | None:
    """Return the path of a task file or models file; None if the value is not such a path."""
    if isinstance(value, Path):
        return value
    return Path(value) if isinstance(value, str) and value.lower().endswith(FILES) else None


def items_of(value: object, problem: str) -> Sequence[object]:
    """Return the items of a list of tasks or models.

    Args:
        value: The list.
        problem: The error message for any other value and for an empty list.

    Raises:
        ValidationError: the value is not a list, or is empty.
    """
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if items := cast("Sequence[object]", value):
            return items
    elif value is not None:
        given = shown(value) if isinstance(value, str) else f"a {type(value).__name__}"
        problem += f": {given} is neither a list, nor the path of a file that ends with {', '.join(FILES)}"
    raise ValidationError(problem)


def fields_of(value: object, where: str) -> Mapping[object, object]:
    """Return the items of a mapping, or the fields of a dataclass.

    Raises:
        ConfigError: the value is neither.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: must be a dict or a dataclass, not {type(value).__name__}")
    return cast("Mapping[object, object]", value)


def as_dict(value: object) -> object:
    """Convert a mapping to a plain dict; other values are returned unchanged."""
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value
