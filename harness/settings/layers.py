"""Layers of settings as flat maps from path to value and origin, and how one is laid over another. Owns merging; does
not know which settings exist (apart from header names, whose case does not matter) nor where a layer was read."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

KeyPath: TypeAlias = tuple[str, ...]
"""`("env", "env_args", "split")`: group, key and, inside tables, the keys below."""

LayerName: TypeAlias = Literal["set", "eval", "defaults", "cli", "registry", "package", "builtin"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADERS: KeyPath = ("model", "extra_headers")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from."""

    layer: LayerName
    source: str
    """For people: a flag, a file with key path, or why it is so."""


@dataclass(frozen=True, slots=True)
class LayerValue:
    """One value of a layer: a scalar, a list or an empty table (other tables are the entries below them)."""

    path: KeyPath
    """As the layer spells it."""
    value: object
    origin: Origin
    cuts: bool = True
    """Whether tables of lower layers at this path are gone. An empty table leaves them, since tables merge."""


Layer: TypeAlias = Mapping[KeyPath, LayerValue]
"""Entries by folded path. A scalar may stand above entries of a table that a higher layer put in its place; it is
hidden but kept, so that merging is associative: it still cuts what lies below."""


def fold(path: KeyPath) -> KeyPath:
    """The path under which two spellings of the same key meet: header names compare without case."""
    return (*_HEADERS, path[2].casefold(), *path[3:]) if len(path) > 2 and path[:2] == _HEADERS else path


def dotted(path: KeyPath) -> str:
    """The path as TOML writes it: `model.extra_headers."X.Y"`."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path)


def flatten(path: KeyPath, value: object, origin_of: Callable[[KeyPath], Origin]) -> dict[KeyPath, LayerValue]:
    """The entries of one value; `origin_of` is asked for every leaf's path."""
    if not isinstance(value, dict):
        return {fold(path): LayerValue(path, value, origin_of(path))}
    table = cast("dict[str, object]", value)
    if not table:
        return {fold(path): LayerValue(path, {}, origin_of(path), cuts=False)}
    entries: dict[KeyPath, LayerValue] = {}
    for key, item in table.items():
        entries.update(flatten((*path, key), item, origin_of))
    return entries


def merge(*layers: Layer) -> Layer:
    """Lay `layers` over each other, lowest first: tables merge key by key at every depth, the rest replaces.

    Associative: `merge(a, b, c)`, `merge(merge(a, b), c)` and `merge(a, merge(b, c))` are equal.
    """
    merged: dict[KeyPath, LayerValue] = {}
    for layer in layers:
        merged = _over(merged, layer)
    return merged


def _over(low: Layer, high: Layer) -> dict[KeyPath, LayerValue]:
    cutting = {path for path, entry in high.items() if entry.cuts}
    result = {path: entry for path, entry in low.items() if not any(above in cutting for above in _above(path))}
    for path, entry in high.items():
        below = result.get(path)  # not of `low`: what is cut anyway hides nothing
        hides = below is not None and below.cuts and not entry.cuts
        result[path] = replace(entry, cuts=True) if hides else entry
    return result


def _above(path: KeyPath) -> Iterator[KeyPath]:
    return (path[:length] for length in range(1, len(path)))


def below(layer: Layer, path: KeyPath) -> list[LayerValue]:
    """The entries that make up the value at `path`: those under it, else the one at it, else none."""
    under = {key: entry for key, entry in layer.items() if len(key) > len(path) and key[: len(path)] == path}
    if under:
        covered = {above for key in under for above in _above(key)}
        return [entry for key, entry in under.items() if key not in covered]
    return [layer[path]] if path in layer else []


def value_at(layer: Layer, path: KeyPath) -> object:
    """The value at `path`, tables rebuilt; a copy, so that runs never share one.

    Raises:
        KeyError: no entry at or below `path`.
    """
    entries = below(layer, path)
    if not entries:
        raise KeyError(path)
    if len(entries) == 1 and fold(entries[0].path) == path:
        return copy.deepcopy(entries[0].value)
    table: dict[str, object] = {}
    for entry in entries:
        here = table
        *inner, last = entry.path[len(path) :]
        for part in inner:
            here = cast("dict[str, object]", here.setdefault(part, {}))
        here[last] = copy.deepcopy(entry.value)
    return table


def without(layer: Layer, *paths: KeyPath) -> Layer:
    """`layer` without the values at `paths`."""
    return {key: entry for key, entry in layer.items() if not any(key[: len(path)] == path for path in paths)}
