"""Parse the target of `bench run`: a suite file, or environments by name."""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from harness.core.errors import ConfigError
from harness.core.size_limits import read_text
from harness.settings.agent_evals import KEYS as AGENT_KEYS
from harness.settings.agent_evals import read_agent_eval
from harness.settings.budget import BOUNDS, BUDGET, NO_RUN, Bound, Written, WrittenBound, read_table
from harness.settings.classic_keys import Translated, translate
from harness.settings.endpoints import Registry, read_tables
from harness.settings.layers import KeyPath, Layer, Origin, dotted, flatten, merge
from harness.settings.layers import LayerValue as LayerEntry
from harness.settings.schema import BY_FLAT_NAME, BY_PATH, Setting
from harness.settings.sections import Place, Rules, entry_for, read_section
from harness.settings.values import check
from harness.settings.wording import nearest, shown, shown_path, suggestion

# Sweeps: `[[ablation]]` with `[ablation.sweep]`, one run for every combination of the listed values.


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


ENV_ID = BY_PATH["env", "env_id"]

_MISPLACED: dict[str, str] = {
    key: "this key belongs in the [[eval]] table of an agent evaluation, or in env_args of an environment"
    for key in AGENT_KEYS
}
_TOP = ("eval", "ablation", "endpoint", "endpoints_path", BUDGET)
_OF_NO_RUN: dict[str, str] = {**_MISPLACED, **dict.fromkeys((*BOUNDS, BUDGET), NO_RUN)}
_DEFAULTS = Rules("defaults", also=_TOP, barred={**_MISPLACED, **dict.fromkeys(BOUNDS, NO_RUN)})
_EVAL = Rules("eval", also=AGENT_KEYS, barred={"sweep": "a sweep belongs in [[ablation]]", **_OF_NO_RUN})
_ABLATION = Rules("eval", also=("sweep", *AGENT_KEYS), barred=_OF_NO_RUN)


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """One run of a suite, as the suite file defines it."""

    layer: Layer
    place: Place
    label: str = ""
    """Suffix of the run's name in a sweep, which consists of the swept values."""
    swept: Layer = field(default_factory=merge)
    """Settings of a sweep, which override `layer`."""
    endpoints_path: Path | None = None
    """Endpoint registry of this run only."""
    env_dir_path: LayerEntry | None = None
    """Folder of environments that results are written to, with its origin."""


@dataclass(frozen=True, slots=True)
class SuiteRequest:
    """Runs and settings that a target requests, before flags and defaults are merged."""

    entries: tuple[SuiteEntry, ...]
    defaults: Layer = field(default_factory=merge)
    endpoints: Registry = field(default_factory=Registry)
    endpoints_path: Path | None = None
    path: Path | None = None
    """The suite file; None if the target is not a file."""
    budget: Written = field(default_factory=dict[Bound, WrittenBound])
    """Limits from the table `[budget]`."""
    notes: tuple[str, ...] = ()
    """Notices about keys without effect."""


def read_target(target: str, cwd: Path, command: str) -> SuiteRequest:
    """Parse a target into runs.

    Args:
        target: A `.toml` file, or environments separated by commas.
        cwd: Base of relative paths.
        command: The command, or the argument of a Python call, that names the target in messages.

    Raises:
        ConfigError: the file does not exist or is invalid, or the target has no name.
    """
    path = cwd / target
    if target.endswith(".toml") and ("," not in target or path.is_file()):
        return _read_file(path, cwd)
    names = [name.strip() for name in target.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{target!r} is not a valid target; give environments separated by commas, or a .toml file")
    if (file := next((name for name in names if name.endswith(".toml")), None)) is not None:
        raise ConfigError(f"{file}: a suite file must be the only target; it cannot be in a list of environments")
    for name in names:
        if name == target.strip() and (suffix := Path(name).suffix) and suffix != ".py" and not (cwd / name).exists():
            raise ConfigError(f"{name}: no such file; a suite file ends in .toml{_similar_file(cwd / name, cwd)}")
    entries = [
        SuiteEntry(
            entry_for(ENV_ID, check(ENV_ID, name, command), Origin("cli", f"{command} {target}")), Place(command, name)
        )
        for name in names
    ]
    return SuiteRequest(tuple(entries))


def _read_file(path: Path, cwd: Path) -> SuiteRequest:
    file = shown_path(path, cwd)
    try:
        document: dict[str, object] = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file{_similar_file(path, cwd)}") from None
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{file}: cannot be read: {exc}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise ConfigError(f"{file}: not valid TOML: {exc}") from None
    place = Place(file)
    top = translate(document, place, "defaults", path.parent)
    defaults = merge(top.low, read_section(top.table, place, _DEFAULTS), top.high)
    notes: list[str] = [*top.notes]
    entries = [
        entry
        for name in ("eval", "ablation")
        for index, table in enumerate(_tables(document, name, place))
        for entry in _entries(table, Place(file, f"{name}[{index}]"), top, notes, path.parent)
    ]
    if not entries and ENV_ID.path not in defaults:
        raise ConfigError(f'{file}: no environment to run; add [[eval]] with env_id = "…"')
    return SuiteRequest(
        tuple(entries) or (SuiteEntry({}, place, env_dir_path=top.env_dir_path),),
        defaults,
        Registry(read_tables(document.get("endpoint", []), place), file if "endpoint" in document else ""),
        _endpoints_path(document, place, path),
        path,
        read_table(document.get(BUDGET), place),
        tuple(notes),
    )


def _similar_file(path: Path, cwd: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f" (and no folder {shown_path(folder, cwd)})"
    found = nearest(path.stem, [each.stem for each in folder.glob("*.toml")])
    return f"; did you mean {shown_path(folder / f'{found}.toml', cwd)}?" if found else ""


def _endpoints_path(document: Mapping[str, object], place: Place, path: Path) -> Path | None:
    value = document.get("endpoints_path")
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{place.of('endpoints_path')} = {shown(value)}: must be a path, relative to this file")
    return path.parent / value


def _tables(document: Mapping[str, object], name: str, place: Place) -> list[dict[str, object]]:
    value = document.get(name, [])
    if not isinstance(value, list):
        raise ConfigError(f"{place.of(name)}: must be a list of tables: write [[{name}]] for each run")
    tables = cast("list[object]", value)
    for index, table in enumerate(tables):
        if not isinstance(table, dict):
            raise ConfigError(f"{place.file}: {name}[{index}]: must be a table")
    return cast("list[dict[str, object]]", tables)


def _entries(
    table: Mapping[str, object], at: Place, top: Translated, notes: list[str], folder: Path
) -> Iterator[SuiteEntry]:
    """Yield the runs of one `[[eval]]` or `[[ablation]]`."""
    found = translate(table, at, "eval", folder)
    notes += found.notes
    is_sweep = at.at.startswith("ablation")
    base = merge(found.low, _section(found.table, at, _ABLATION if is_sweep else _EVAL), found.high)
    of_run = (found.endpoints_path, found.env_dir_path or top.env_dir_path)
    if not is_sweep:
        yield SuiteEntry(base, at, "", {}, *of_run)
        return
    for layer, label in combinations(table.get("sweep"), at):
        yield SuiteEntry(base, at, label, layer, *of_run)


def _section(table: Mapping[str, object], place: Place, rules: Rules) -> Layer:
    settings = read_section(table, place, rules)
    agent = read_agent_eval(table, place)
    for path in agent:
        if path in settings:
            both = f"{settings[path].origin.source}: means the same as {agent[path].origin.source}"
            raise ConfigError(f"{both}; keep only one of them")
    return merge(agent, settings)
