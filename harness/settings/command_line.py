"""Convert command-line options and `--set` to layers of settings. The options are declared in `schema`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from harness.core.errors import ConfigError
from harness.settings import values
from harness.settings.budget import BOUNDS, BUDGET, Bound, Written, WrittenBound, read_set, read_table
from harness.settings.layers import KeyPath, Layer, Origin, dotted, flatten, merge
from harness.settings.packages import module_name
from harness.settings.schema import (
    BY_FLAT_NAME,
    BY_PATH,
    GROUPS,
    SHARED,
    SHORTCUT_BY_KEY,
    Setting,
    Shortcut,
    keys_of,
)
from harness.settings.sections import Place
from harness.settings.wording import shown, suggestion

ENDPOINTS_PATH = "endpoints_path"
ENV_DIR_PATH = "env_dir_path"

_SET = re.compile(r"(?:(?P<env>[^:=\"']+):)?(?P<path>[^=]+)=(?P<value>.*)", re.DOTALL)


def command_line(flags: Mapping[str, object], *, is_call: bool = False) -> Layer:
    """Convert command-line values to one layer of settings.

    Args:
        flags: Values by setting key (`num_examples`), dotted path (`env.num_examples`) or shortcut key (`temperature`).
            None or an empty sequence means that the option was not given. Tables may be mappings or strings of `-a`;
            headers may be a mapping or `Name: Value` strings; lists may be sequences or comma-separated text.
        is_call: Whether the values are arguments of a Python call; messages then spell them as `num_examples=3`.

    Raises:
        ConfigError: a value is invalid for its setting.
    """
    low: list[Layer] = []
    high: list[Layer] = []
    for name, value in flags.items():
        if value is None or value == () or value == []:
            continue
        shortcut = SHORTCUT_BY_KEY.get(name)
        if shortcut is None:
            setting = BY_FLAT_NAME.get(name) or BY_PATH.get(cast("tuple[str, str]", tuple(name.split(".", 1))))
            if setting is None:
                raise ConfigError(f"{name}: unknown setting; {suggestion(name, BY_FLAT_NAME)}")
            high.append(_flag(setting, value, is_call))
        elif len(shortcut.path) > len(("group", "key")):  # the resolver reads the others
            low.append(_shortcut(shortcut, value))
    return merge(*low, *high)  # -S wins over -t and -T


def shared_options(given: object, where: str) -> dict[str, object]:
    """Validate, by their TOML names, the options that every command and Python function for evaluations accepts.

    Args:
        given: Values by name, such as `message_limit`; None for no options.
        where: Name of the argument, for messages.

    Raises:
        ConfigError: `given` is not a mapping, or a name or value is invalid.
    """
    if not isinstance(given, Mapping | None):
        raise ConfigError(f"{where}: must be a dict, not {type(given).__name__}")
    found = dict(cast("Mapping[str, object]", given or {}))
    for name, value in found.items():
        if name not in SHARED:
            raise ConfigError(f"{where}: {name}: unknown setting; {suggestion(str(name), SHARED)}")
        if name in BY_FLAT_NAME:
            values.check(BY_FLAT_NAME[name], value, f"{where}: {name}")
    read_table({name: value for name, value in found.items() if name in BOUNDS}, Place(where))
    return found


def _flag(setting: Setting, value: object, is_call: bool) -> Layer:
    flag = setting.key if is_call else setting.flag or setting.key
    parsed = [values.check(setting, each, flag) for each in _given(setting, value, flag)]

    def origin_of(path: KeyPath) -> Origin:
        if is_call:
            key = dotted(path[1:])
            return Origin("cli", key if setting.door.kind == "headers" else f"{key}={shown(parsed[-1])}")
        return Origin("cli", _spelled(setting, parsed[-1], path))

    return merge(*(flatten(setting.path, each, origin_of) for each in parsed))


def _given(setting: Setting, value: object, flag: str) -> list[object]:
    """Return the values of one option, lowest precedence first. Only options for tables can have several values."""
    if setting.is_table:
        if isinstance(value, Mapping):
            return [dict(cast("Mapping[str, object]", value))]
        texts = [value] if isinstance(value, str) else cast("Sequence[str]", value)
        if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnnecessaryIsInstance]
            return [value]  # refused by the validator
        return [values.headers(texts, flag)] if setting.door.kind == "headers" else [*values.table_texts(texts, flag)]
    if setting.door.kind in ("list", "counts"):
        if isinstance(value, str):
            return [values.names(value)]
        return [list(cast("Iterable[object]", value)) if isinstance(value, Iterable) else value]
    return [values.number(value) if setting.door.kind in ("integer", "number") else value]


def _spelled(setting: Setting, value: object, path: KeyPath) -> str:
    """Return the option as typed for one value, for messages, without header values, which may be secret."""
    flag = setting.flag or setting.key
    rest = path[len(setting.path) :]
    if setting.door.kind == "headers":
        return f"{flag} {path[-1]}" if rest else flag
    if rest:
        return f"{flag} {dotted(rest)}" if flag else dotted(rest)
    if isinstance(value, bool):
        return flag if value else setting.off_flag or f"{setting.key} = false"
    return f"{flag} {typed(value)}"


def _shortcut(shortcut: Shortcut, value: object) -> Layer:
    setting = BY_PATH[cast("tuple[str, str]", shortcut.path[:2])]
    if shortcut.kind != "string":
        value = values.number(value)
        allowed = int if shortcut.kind == "integer" else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed):
            raise ConfigError(f"{shortcut.flag} {typed(value)}: {shortcut.key} must be a number")
    values.check(setting, {shortcut.path[2]: value}, shortcut.flag)
    return flatten(shortcut.path, value, lambda _: Origin("cli", f"{shortcut.flag} {typed(value)}"))


def typed(value: object) -> str:
    """Return a value as text for the command line, quoted for a shell if necessary."""
    if isinstance(value, str):
        text = value if value and values.toml_or_text(value) == value else json.dumps(value, ensure_ascii=False)
    elif isinstance(value, list | tuple) and all(isinstance(each, str | int) for each in cast("list[object]", value)):
        text = ",".join(map(str, cast("list[str | int]", value)))
    else:
        text = json.dumps(value, ensure_ascii=False)
    return shlex.quote(text)


@dataclass(frozen=True, slots=True)
class Override:
    """One parsed option `--set`."""

    text: str
    """The text of the option as typed."""
    layer: Layer
    env_id: str | None = None
    """Environment, or name of a run, to which the option applies; None for all."""
    endpoints_path: str | None = None
    budget: Written = field(default_factory=dict[Bound, WrittenBound])

    def applies_to(self, env_id: str, name: str) -> bool:
        """Return whether the option `--set` applies to a run."""
        if self.env_id is None or self.env_id in (env_id, name):
            return True
        return module_name(self.env_id) == module_name(env_id) and "/" not in self.env_id


def parse_set(text: str) -> Override:
    """Parse one `PATH=VALUE` or `ENV_ID:PATH=VALUE`.

    Args:
        text: `PATH` is dotted (`env.num_examples`, `model.sampling_args.temperature`) or a flat key; `VALUE` is a TOML
            value, otherwise plain text.

    Raises:
        ConfigError: the form is wrong, the setting is unknown, or the value is invalid.
    """
    match = _SET.fullmatch(text)
    if match is None:
        raise ConfigError(f"--set {text}: must be PATH=VALUE, such as env.num_examples=5, or ENV_ID:PATH=VALUE")
    where = f"--set {text.partition('=')[0]}"
    env_id = match["env"].strip() if match["env"] else None
    path = values.key_path(match["path"], where)
    if path == (ENDPOINTS_PATH,) and env_id is None:
        return Override(text, {}, endpoints_path=match["value"])
    if path[0] == BUDGET:
        if env_id is not None:
            raise ConfigError(f"{where}: a budget applies to all runs of the invocation together; remove {env_id}:")
        return Override(text, {}, budget=read_set(path, match["value"], where))
    setting, rest = _target(path, where)
    value = _value(setting, rest, match["value"])
    for part in reversed(rest):
        value = {part: value}
    checked = values.check(setting, value, where)
    source = where if setting.door.kind == "headers" else f"--set {text}"
    return Override(text, flatten(setting.path, checked, lambda _: Origin("set", source)), env_id)


def _target(path: KeyPath, where: str) -> tuple[Setting, KeyPath]:
    head, *rest = path
    if head in GROUPS and (rest or head not in BY_FLAT_NAME):
        setting = BY_PATH.get((head, rest[0])) if rest else None
        if setting is None:
            raise ConfigError(f"{where}: unknown setting; {suggestion(rest[0] if rest else head, keys_of(head))}")
        rest = rest[1:]
    elif (setting := BY_FLAT_NAME.get(head)) is None:
        raise ConfigError(f"{where}: unknown setting; {suggestion(head, [*BY_FLAT_NAME, *GROUPS])}")
    if setting.key == "env_id":
        raise ConfigError(
            f"{where}: the environment of a run cannot be changed; give it on the command line or in the suite file"
        )
    if rest and not setting.is_table:
        raise ConfigError(f"{where}: {setting.dotted} is not a table, so it has no keys below it")
    return setting, tuple(rest)


def _value(setting: Setting, rest: KeyPath, text: str) -> object:
    if not rest:
        return values.for_setting(setting, text)
    value = values.toml_or_text(text)
    return text if setting.door.kind == "headers" and not isinstance(value, str) else value
