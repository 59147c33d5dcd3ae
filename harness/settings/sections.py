"""Parse one table of settings into a layer: grouped (`[env]`, `[model]`, `[save]`), flat, or both. Unknown names are
rejected. The files are read in `suite`, `packages` and `endpoints`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import cast

from harness.core.errors import ConfigError
from harness.settings.layers import KeyPath, Layer, LayerName, LayerValue, Origin, dotted, flatten
from harness.settings.schema import BY_FLAT_NAME, BY_PATH, GROUPS, SETTINGS, Setting, keys_of
from harness.settings.values import check
from harness.settings.wording import shown, suggestion


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a table in a file, for messages."""

    file: str
    """Path of the file, for messages."""
    at: str = ""
    """Key path inside the file, such as `eval[0]`; empty at the top."""

    def key(self, *parts: str) -> str:
        """Return the dotted key path of an entry of the table, without the file."""
        return ".".join(part for part in (self.at, dotted(parts)) if part)

    def of(self, *parts: str) -> str:
        """Return the file and the dotted key path of an entry of the table."""
        key = self.key(*parts)
        return f"{self.file}: {key}" if key else self.file


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for the keys that are allowed in one kind of table."""

    layer: LayerName
    also: Collection[str] = ()
    """Further allowed names, which the caller reads itself."""
    groups: Collection[str] = GROUPS
    """Groups whose settings are allowed."""
    grouped: bool = True
    """Whether settings may be in tables named after their group, such as `[env]`."""
    barred: Mapping[str, str] | None = None
    """Names that are not allowed, with the reason."""


def read_section(table: Mapping[str, object], place: Place, rules: Rules) -> Layer:
    """Parse and validate the settings of `table`.

    Raises:
        ConfigError: an unknown name, an invalid value, or one setting under two names; the message has the location.
    """
    entries: dict[KeyPath, LayerValue] = {}
    first: dict[KeyPath, str] = {}
    for setting, spelled, value in _settings(table, place, rules):
        where = place.of(*spelled)
        if (other := first.setdefault(setting.path, where)) != where:
            raise ConfigError(f"{where}: means the same as {other}; keep only one of them")
        skip = len(setting.path)

        def origin_of(path: KeyPath, spelled: KeyPath = spelled, skip: int = skip) -> Origin:
            return Origin(rules.layer, place.of(*spelled, *path[skip:]))

        entries.update(flatten(setting.path, check(setting, value, where), origin_of))
    return entries


def _settings(table: Mapping[str, object], place: Place, rules: Rules) -> list[tuple[Setting, KeyPath, object]]:
    found: list[tuple[Setting, KeyPath, object]] = []
    for name, value in table.items():
        if name in rules.also:
            continue
        if rules.barred and name in rules.barred:
            raise ConfigError(f"{place.of(name)}: {rules.barred[name]}")
        if _is_group(name, value, rules):
            found += [(setting, (name, key), item) for key, setting, item in _group(name, value, place, rules)]
        elif name in BY_FLAT_NAME and BY_FLAT_NAME[name].group in rules.groups:
            found.append((BY_FLAT_NAME[name], (name,), value))
        else:
            raise ConfigError(f"{place.of(name)}: {_unknown(name, value, rules)}")
    return found


def _is_group(name: str, value: object, rules: Rules) -> bool:
    # Whether a name is a group. `model` is a group if its value is a table, otherwise the setting of that name.
    return rules.grouped and name in rules.groups and (name not in BY_FLAT_NAME or isinstance(value, dict))


def _group(name: str, value: object, place: Place, rules: Rules) -> list[tuple[str, Setting, object]]:
    if isinstance(value, list):
        raise ConfigError(f"{place.of(name)}: [[{name}]] cannot be a list; write [[eval]] with [eval.{name}] below it")
    if not isinstance(value, dict):
        is_environment = name == "env" and isinstance(value, str)
        hint = f"; to select an environment, write env_id = {shown(value)}" if is_environment else ""
        raise ConfigError(f"{place.of(name)}: must be a table of {name} settings{hint}")
    found: list[tuple[str, Setting, object]] = []
    for key, item in cast("dict[str, object]", value).items():
        if rules.barred and key in rules.barred:
            raise ConfigError(f"{place.of(name, key)}: {rules.barred[key]}")
        setting = BY_PATH.get((name, key))
        if setting is None:
            raise ConfigError(f"{place.of(name, key)}: unknown key; {_right_key(name, key)}")
        found.append((key, setting, item))
    return found


def _right_key(group: str, key: str) -> str:
    meant = BY_FLAT_NAME.get(key)
    if meant is not None and meant.group == group:
        return f'did you mean "{meant.key}"?'
    if meant is not None:
        return f'"{meant.key}" belongs in [{meant.group}]'
    return suggestion(key, keys_of(group))


def _unknown(name: str, value: object, rules: Rules) -> str:
    flat = [key for key, setting in BY_FLAT_NAME.items() if setting.group in rules.groups]
    tables = [*(rules.groups if rules.grouped else ()), *rules.also]
    kind = "table" if isinstance(value, dict | list) and rules.grouped else "key"
    if kind == "table":
        flat = [key for key in flat if BY_FLAT_NAME[key].is_table]
    valid = [key for key in (*tables, *flat) if key in rules.also or key not in (rules.barred or {})]
    return f"unknown {kind}; {suggestion(name, valid)}"


def entry_for(setting: Setting, value: object, origin: Origin) -> Layer:
    """Return the layer of one setting whose value has already been validated."""
    return flatten(setting.path, value, lambda _: origin)


def builtins() -> Layer:
    """Return the lowest layer, which has the constant default of every setting."""
    entries: dict[KeyPath, LayerValue] = {}
    for setting in SETTINGS:
        if setting.key != "env_id" and (
            not setting.door.derived or setting.key in ("hf_hub_dataset_name", "cluster_key")
        ):
            entries.update(entry_for(setting, setting.default, Origin("builtin", "built-in")))
    return entries
