"""Dicts with attribute access: the base class of messages, replies, tools and time spans of the classic API. They have
the method names of pydantic models, but are stored and sent as plain JSON objects."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from harness.core.types import JsonDict


class Record(dict[str, Any]):
    """A dict with attributes: `record["x"]`, `record.get("x")` and `record.x` are the same."""

    declared: ClassVar[tuple[str, ...]] = ()
    """Fields that are None if they are missing, as in a typed object."""
    defaults: ClassVar[Mapping[str, object]] = {}
    """Default values of a new record's fields."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        for name, value in self.defaults.items():
            if not super().__contains__(name):
                super().__setitem__(name, copy.copy(value))

    def __missing__(self, name: str) -> Any:
        if name in self.declared:
            return None
        if isinstance(getattr(type(self), name, None), property):
            return getattr(self, name)
        raise KeyError(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return `record[name]`, or `default` if the field is missing."""
        if super().__contains__(name):
            return super().__getitem__(name)
        if name in self.declared:
            return default
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self) -> Self:
        """Return a shallow copy of the same class."""
        return copy.copy(self)

    # pydantic's methods

    @classmethod
    def model_validate(cls, value: Any, **_: Any) -> Self:
        """Create a record from a mapping or an object, as the pydantic method of the same name does."""
        return value if isinstance(value, cls) else cls(**plain(value))

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> JsonDict:
        """Convert to plain dicts and values. Missing declared fields become None, unless `exclude_none` is set."""
        fields: JsonDict = {} if exclude_none else dict.fromkeys(self.declared)
        fields.update(plain(dict(self)))
        return {name: value for name, value in fields.items() if not (exclude_none and value is None)}

    def model_dump_json(self, *, exclude_none: bool = False, indent: int | None = None, **_: Any) -> str:
        """Return the result of `model_dump` as JSON text."""
        return json.dumps(self.model_dump(exclude_none=exclude_none), indent=indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed."""
        made = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            made[name] = value
        return made


def plain(value: Any) -> Any:
    """Convert a value to plain dicts and lists, including pydantic objects."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in cast("list[object]", value)]
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return plain(dump(exclude_none=True))
    return value


def recorded(value: Any) -> Any:
    """Convert each dict in a value, at any depth, to a record with attribute access."""
    if isinstance(value, Record):
        return value
    if isinstance(value, Mapping):
        return Record({name: recorded(part) for name, part in cast("Mapping[str, object]", value).items()})
    if isinstance(value, list | tuple):
        return [recorded(part) for part in cast("list[object]", value)]
    return value
