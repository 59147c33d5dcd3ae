"""Sweeps: `[[ablation]]` with `[ablation.sweep]`, one run for every combination of the listed values."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from harness.core.errors import ConfigError
from harness.settings.agent_evals import KEYS as AGENT_KEYS
from harness.settings.layers import KeyPath, Layer, Origin, dotted, flatten, merge
from harness.settings.schema import BY_FLAT_NAME, BY_PATH, Setting
from harness.settings.sections import Place
from harness.settings.values import check
from harness.settings.wording import shown, suggestion


@dataclass(frozen=True, slots=True)
class _Axis:
    """A setting, or a key of a table, whose values are varied in a sweep."""

    path: KeyPath
    values: tuple[object, ...]
    where: str

    def layer(self, value: object) -> Layer:
        index = self.values.index(value)
        return flatten(self.path, value, lambda _: Origin("eval", f"{self.where}[{index}]"))

    def label(self, value: object, axes: list[_Axis]) -> str:
        """Return the text of a swept value in the run's name, with the setting's key unless that is the model."""
        if self.path == ("env", "env_id"):
            return ""
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if self.path == ("model", "model"):
            return text
        alone = sum(axis.path[-1] == self.path[-1] for axis in axes) == 1
        return f"{self.path[-1] if alone else dotted(self.path[1:])}={text}"


def combinations(sweep: object, place: Place) -> Iterator[tuple[Layer, str]]:
    """Yield all combinations of the swept values, of which the last key varies fastest.

    Args:
        sweep: The table `[ablation.sweep]`.
        place: Location of the `[[ablation]]`.

    Yields:
        The layer of one combination, and its label.

    Raises:
        ConfigError: a key is unknown, a value is not a list, or a value is invalid for its setting.
    """
    axes = _axes(sweep, place)
    for values in itertools.product(*(axis.values for axis in axes)):
        chosen = list(zip(axes, values, strict=True))
        label = ", ".join(text for axis, value in chosen if (text := axis.label(value, axes)))
        yield merge(*(axis.layer(value) for axis, value in chosen)), label


def _axes(sweep: object, place: Place) -> list[_Axis]:
    where = place.of("sweep")
    if sweep is None:
        raise ConfigError(
            f"{where}: missing; add [ablation.sweep] with lists of values, or write [[eval]] for a single run"
        )
    if not isinstance(sweep, dict) or not sweep:
        raise ConfigError(f'{where}: must be a table of lists, such as "sampling_args.temperature" = [0.0, 1.0]')
    axes: list[_Axis] = []
    for spelled, values in _lists(cast("dict[str, object]", sweep), ()):
        axis = _axis(spelled, values, place.of("sweep", *spelled))
        if any(other.path[: len(axis.path)] == axis.path[: len(other.path)] for other in axes):
            raise ConfigError(f"{axis.where}: another key of this sweep already varies this setting")
        axes.append(axis)
    return axes


def _axis(spelled: KeyPath, values: object, where: str) -> _Axis:
    setting, path = _swept(tuple(part for key in spelled for part in key.split(".")), where)
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{where} = {shown(cast('object', values))}: must be a list of values to try")
    checked = tuple(
        _value(setting, path, value, f"{where}[{index}]") for index, value in enumerate(cast("list[object]", values))
    )
    if any(value in checked[:index] for index, value in enumerate(checked)):
        raise ConfigError(f"{where}: the list contains a value twice")
    return _Axis(path, checked, where)


def _lists(table: dict[str, object], above: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    # Lists by key path. An unquoted `a.b = [..]` is a table in TOML, a quoted one a key with a dot: both are accepted.
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _lists(cast("dict[str, object]", value), (*above, key))
        else:
            yield (*above, key), value


def _swept(parts: KeyPath, where: str) -> tuple[Setting, KeyPath]:
    """Return the setting of a key in a sweep, and the full path of the key."""
    if parts in (("max_tokens",), ("temperature",)):
        parts = ("sampling_args", *parts)
    head, *rest = parts
    if rest and (setting := BY_PATH.get((head, rest[0]))):
        rest = rest[1:]
    elif (setting := BY_FLAT_NAME.get(head)) is None:
        meant = f'did you mean "env_args.{head}"?' if head in AGENT_KEYS else suggestion(head, BY_FLAT_NAME)
        raise ConfigError(f"{where}: unknown key; {meant}")
    if setting.key == "name":
        raise ConfigError(f"{where}: cannot be swept, because the runs of a sweep are named after their values")
    if rest and not setting.is_table:
        raise ConfigError(f"{where}: {setting.key} is not a table, so it has no keys below it")
    return setting, (*setting.path, *rest)


def _value(setting: Setting, path: KeyPath, value: object, where: str) -> object:
    rest = path[2:]
    if not rest:
        return check(setting, value, where)
    table: object = value
    for part in reversed(rest):
        table = {part: table}
    check(setting, table, where)
    return value
