"""Files of tasks and of models: parsers for JSON, JSON Lines and TOML. `tasks` and `models` validate the entries."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

from harness.core import size_limits
from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.multi.fields import FILES
from harness.multi.tasks import Task, read_tasks
from harness.settings.wording import shown, suggestion

_RECORD = ("runId", "tasks", "modelConfigs")
"""Keys that identify the record of an evaluation, whose tasks can be evaluated again."""


def load_tasks(path: str | Path) -> list[Task]:
    """Read and validate a task file.

    Args:
        path: A .json file (an array of tasks, or an object with the array as `tasks`), a .jsonl file with one task per
            line, or a .toml file of `[[task]]` or `[[tasks]]`. The record of an evaluation is accepted as well.

    Raises:
        ConfigError: the file is missing or not valid in its format, or a task is invalid; the message names both.
    """
    return read_tasks(read_list(path, ("tasks", "task"))[1], str(path))


def read_list(path: str | Path, keys: tuple[str, str]) -> tuple[str, list[object]]:
    """Read the list of tasks or models in a file.

    Args:
        path: The file; its extension selects the format.
        keys: Keys of the list in an object or a TOML file: the plural and the singular of its entries.

    Returns:
        The key, and the entries.

    Raises:
        ConfigError: the file is missing, has another extension, or has no such list.
    """
    kind, what = Path(path).suffix.lower(), keys[0]
    if kind not in FILES:
        raise ConfigError(f"{path}: the name of a file with {what} must end in {', '.join(FILES)}")
    text = _read_text(Path(path), what)
    if kind == ".jsonl":
        lines = enumerate(text.split("\n"), 1)
        return keys[1], [_parsed(line, f"{path}: line {number}") for number, line in lines if line.strip()]
    document = _parsed(text, str(path), is_toml=kind == ".toml")
    if isinstance(document, list):
        return what, cast("list[object]", document)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must contain a list of {what}, not {shown(document)}")
    table = cast(JsonDict, document)
    if what == "tasks" and all(key in table for key in _RECORD):
        table = {what: table[what]}
    for name in table:
        if name not in keys:
            raise ConfigError(f"{path}: {name}: unknown key; {suggestion(name, keys)}")
    if len(table) > 1:
        raise ConfigError(f"{path}: {keys[0]} and {keys[1]} mean the same; keep one of them")
    key, values = next(iter(table.items()), (what, list[object]()))
    if not isinstance(values, list):
        raise ConfigError(f"{path}: {key}: must be a list of {what}")
    return key, cast("list[object]", values)


def _read_text(file: Path, what: str) -> str:
    try:
        return size_limits.read_text(file, size_limits.ROWS)
    except FileNotFoundError as error:
        beside = [str(each) for each in sorted(file.parent.glob("*")) if each.suffix.lower() in FILES]
        near = suggestion(str(file), beside) if beside else f"its folder has no files of {what}"
        raise ConfigError(f"{file} does not exist; {near}") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error}") from error


def _parsed(text: str, where: str, *, is_toml: bool = False) -> object:
    try:
        if is_toml:
            return tomllib.loads(text)
        return cast(object, json.loads(text, parse_constant=_refuse, object_pairs_hook=partial(_object, where)))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not valid {'TOML' if is_toml else 'JSON'}: {error}") from error


def _object(where: str, fields: Sequence[tuple[str, object]]) -> object:
    """Build a dict from a JSON object. Duplicate keys are rejected, since one of the values would be lost."""
    table: dict[str, object] = {}
    for name, value in fields:
        if name in table:
            raise ConfigError(f"{where}: the key {name!r} occurs twice in an object; remove one")
        table[name] = value
    return table


def _refuse(name: str) -> object:
    raise ValueError(f"JSON does not allow {name}")
