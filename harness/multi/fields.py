"""Named values given as dicts or dataclasses, with camelCase or snake_case keys: reads them by field name and refuses
unknown or duplicate names. The caller validates the values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import cast

from harness.core.errors import ConfigError
from harness.core.messages import Labels
from harness.core.types import JsonDict
from harness.settings.wording import suggestion

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

MODEL_LABELS = Labels({
    "model": "modelId", "api_base_url": "baseUrl", "api_key_var": "apiKeyVar", "api_key": "apiKey",
    "rollouts_per_example": "the number of times that a task is listed",
})  # fmt: skip
"""How models, in files and in Python, spell settings."""


def snake(name: str) -> str:
    """Convert `modelConcurrency` to `model_concurrency`; a name in snake_case is unchanged."""
    return _HUMP.sub("_", name).lower()


def camel(name: str) -> str:
    """Convert `model_concurrency` to `modelConcurrency`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def read_fields(
    value: object, known: Iterable[str], where: str, *, aliases: Mapping[str, str] | None = None
) -> JsonDict:
    """The values of `value` by field name; None counts as not given.

    Args:
        value: A mapping, or an instance of any dataclass.
        known: Names of the fields.
        where: Description of the value, for messages.
        aliases: Alternative names, in snake_case → field names.

    Raises:
        ConfigError: the value has no fields, or a name is unknown or duplicate.
    """
    names = list(known)
    spelled = {**{name: name for name in names}, **(aliases or {})}
    found: JsonDict = {}
    first: dict[str, str] = {}
    for name, item in _items(value, where):
        field = spelled.get(snake(name))
        if field is None:
            raise ConfigError(f"{where}: unknown key {name!r}; {suggestion(name, [*map(camel, names), *names])}")
        if item is None:
            continue
        if field in found:
            raise ConfigError(f"{where}: {name!r} means the same as {first[field]!r}; keep one of them")
        found[field], first[field] = item, name
    return found


def as_dict(value: object) -> object:
    """A mapping as a plain dict; other values unchanged."""
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else value


def _items(value: object, where: str) -> list[tuple[str, object]]:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value) if field.init]
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: must be a dict or a dataclass, not {type(value).__name__}")
    table = cast("Mapping[object, object]", value)
    if (odd := next((name for name in table if not isinstance(name, str)), None)) is not None:
        raise ConfigError(f"{where}: {odd!r} must be a string, as the name of a key is")
    return list(cast("Mapping[str, object]", table).items())
