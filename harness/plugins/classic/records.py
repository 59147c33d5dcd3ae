"""Dicts whose values can be read as attributes: what the classic API's messages, replies, tools and spans are made of
here. Owns the two ways to the same value and pydantic's method names; a record is its own JSON, so that it goes through
journal, dataset and wire as it is."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Self, cast

from harness.core.types import JsonDict


class Record(dict[str, Any]):
    """A dict with attributes: `record["x"]`, `record.get("x")` and `record.x` are the same."""

    declared: ClassVar[tuple[str, ...]] = ()
    """Fields that read as None where they are absent, as a typed object's do."""
    defaults: ClassVar[Mapping[str, object]] = {}
    """Fields that a new record has unless it is given others."""

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
        """`record[name]`, or `default` where there is nothing of that name."""
        if super().__contains__(name):
            return super().__getitem__(name)
        if name in self.declared:
            return default
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self) -> Self:
        """A shallow copy of the same kind."""
        return copy.copy(self)

    # What pydantic calls it

    @classmethod
    def model_validate(cls, value: Any, **_: Any) -> Self:
        """A record of `value`."""
        return value if isinstance(value, cls) else cls(**plain(value))

    def model_dump(self, *, exclude_none: bool = False, **_: Any) -> JsonDict:
        """A plain dict of plain values, with the declared fields that are absent unless `exclude_none`."""
        fields: JsonDict = {} if exclude_none else dict.fromkeys(self.declared)
        fields.update(plain(dict(self)))
        return {name: value for name, value in fields.items() if not (exclude_none and value is None)}

    def model_dump_json(self, *, exclude_none: bool = False, indent: int | None = None, **_: Any) -> str:
        """`model_dump` as JSON."""
        return json.dumps(self.model_dump(exclude_none=exclude_none), indent=indent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values for some fields."""
        made = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            made[name] = value
        return made


def plain(value: Any) -> Any:
    """The same value of plain dicts and lists; pydantic objects become dicts."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in cast("list[object]", value)]
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return plain(dump(exclude_none=True))
    return value


def recorded(value: Any) -> Any:
    """The same value with a record for each dict."""
    if isinstance(value, Record):
        return value
    if isinstance(value, Mapping):
        return Record({name: recorded(part) for name, part in cast("Mapping[str, object]", value).items()})
    if isinstance(value, list | tuple):
        return [recorded(part) for part in cast("list[object]", value)]
    return value
