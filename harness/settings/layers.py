"""Layers of settings, which are flat maps from a path to a value and its origin, and the merging of layers. Apart from
header names, which are case-insensitive, this module does not depend on which settings exist."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast

KeyPath: TypeAlias = tuple[str, ...]
"""Path of a setting: group, key and, inside tables, further keys, such as `("env", "env_args", "split")`."""

LayerName: TypeAlias = Literal["set", "eval", "defaults", "cli", "registry", "package", "builtin"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_HEADERS: KeyPath = ("model", "extra_headers")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the value of a setting comes from."""

    layer: LayerName
    source: str
    """Description for messages: an option, a file and key, or a reason."""


@dataclass(frozen=True, slots=True)
class LayerValue:
    """One value of a layer: a scalar, a list or an empty table. Other tables are split into their entries."""

    path: KeyPath
    """Path of the setting, as spelled in the layer."""
    value: object
    origin: Origin
    cuts: bool = True
    """Whether the value replaces tables of lower layers at this path. False for an empty table: tables are merged."""


Layer: TypeAlias = Mapping[KeyPath, LayerValue]
"""Values by normalized path. If a higher layer replaced a scalar by a table, the layer has both: the scalar has no
effect any more, but it still hides tables of lower layers. This makes merging associative."""


def fold(path: KeyPath) -> KeyPath:
    """Normalize a path for comparison: header names are case-insensitive."""
    return (*_HEADERS, path[2].casefold(), *path[3:]) if len(path) > 2 and path[:2] == _HEADERS else path


def dotted(path: KeyPath) -> str:
    """Return the path in TOML notation, such as `model.extra_headers."X.Y"`."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in path)


def flatten(path: KeyPath, value: object, origin_of: Callable[[KeyPath], Origin]) -> dict[KeyPath, LayerValue]:
    """Convert a setting's value to a layer. A table becomes one entry for each of its keys, at any depth.

    Args:
        path: Path of the setting.
        value: The value.
        origin_of: Returns the origin of the entry at a path.
    """
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
    """Merge layers, lowest first: tables are merged key by key at every depth, and other values are replaced.
    Associative: `merge(a, b, c)`, `merge(merge(a, b), c)` and `merge(a, merge(b, c))` are equal."""
    merged: dict[KeyPath, LayerValue] = {}
    for layer in layers:
        merged = _over(merged, layer)
    return merged


def _over(low: Layer, high: Layer) -> dict[KeyPath, LayerValue]:
    cutting = {path for path, entry in high.items() if entry.cuts}
    result = {path: entry for path, entry in low.items() if not any(above in cutting for above in _above(path))}
    for path, entry in high.items():
        below = result.get(path)  # not from `low`: a removed entry hides nothing
        hides = below is not None and below.cuts and not entry.cuts
        result[path] = replace(entry, cuts=True) if hides else entry
    return result


def _above(path: KeyPath) -> Iterator[KeyPath]:
    return (path[:length] for length in range(1, len(path)))


def below(layer: Layer, path: KeyPath) -> list[LayerValue]:
    """Return the entries of a setting in a layer: one for each key of a table, or a single one for another value."""
    under = {key: entry for key, entry in layer.items() if len(key) > len(path) and key[: len(path)] == path}
    if under:
        covered = {above for key in under for above in _above(key)}
        return [entry for key, entry in under.items() if key not in covered]
    return [layer[path]] if path in layer else []


def value_at(layer: Layer, path: KeyPath) -> object:
    """Return a copy of the value at `path`, with tables rebuilt from their entries.

    Raises:
        KeyError: the layer has no entry at or below `path`.
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
    """Return a copy of `layer` without the values at `paths`."""
    return {key: entry for key, entry in layer.items() if not any(key[: len(path)] == path for path in paths)}
