"""Files of tasks: parsers for JSON, JSON Lines and TOML, with their error texts; `tasks` validates the tasks."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from harness.core import size_limits
from harness.core.errors import ConfigError
from harness.multi.tasks import Task, read_tasks
from harness.settings.wording import listed, suggestion

_KEYS = ("tasks", "task")

_RECORD = ("runId", "tasks", "modelConfigs")
"""Keys that identify the record of an evaluation, whose tasks can be evaluated again."""


def load_tasks(path: str | Path) -> list[Task]:
    """Read a file of tasks.

    Args:
        path: A .json file (an array of tasks, or an object with the array as `tasks`), a .jsonl file with one task per
            line, or a .toml file of `[[task]]` or `[[tasks]]`. The record of an evaluation is accepted as well.

    Raises:
        ConfigError: the file is missing or not valid in its format, or a task is invalid; names the file and the task.
    """
    file = Path(path)
    read = _FORMATS.get(file.suffix.lower())
    if read is None:
        kinds = ", ".join(_FORMATS)
        raise ConfigError(f"{path}: tasks are read from files that end with {kinds}, and this one does not")
    return read_tasks(read(read_text(file, "tasks", tuple(_FORMATS)), str(path)), str(path))


def read_text(file: Path, of: str, endings: Sequence[str]) -> str:
    """The text of a file, without a byte order mark.

    Args:
        file: The file.
        of: The expected content, for messages.
        endings: Endings of suitable files, for suggestions.

    Raises:
        ConfigError: the file is missing, cannot be read or is not UTF-8.
    """
    try:
        return size_limits.read_text(file, size_limits.ROWS)
    except FileNotFoundError as error:
        beside = [str(file.with_name(name)) for name in _siblings(file, endings)]
        near = suggestion(str(file), beside) if beside else f"there are no files of {of} beside it"
        raise ConfigError(f"{file}: there is no such file; {near}") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not the UTF-8 text that it should be: {error}") from error


def _siblings(file: Path, endings: Sequence[str]) -> list[str]:
    try:
        return sorted(each.name for each in file.parent.iterdir() if each.suffix.lower() in endings)
    except OSError:
        return []


def _json(text: str, where: str) -> object:
    try:
        value: object = json.loads(text, parse_constant=_refuse, object_pairs_hook=partial(_object, where))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is no JSON: {error}") from error
    if isinstance(value, dict):
        document = cast("Mapping[str, object]", value)
        if all(key in document for key in _RECORD):
            document = {"tasks": document["tasks"]}
        return _listed(document, ("tasks",), where)
    if not isinstance(value, list):
        raise ConfigError(f"{where} must hold an array of tasks, not {_kind(value)}")
    return cast("list[object]", value)


def _json_lines(text: str, where: str) -> object:
    rows: list[object] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            at = partial(_object, f"{where}: line {number}")
            rows.append(json.loads(line, parse_constant=_refuse, object_pairs_hook=at))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{where}: line {number} is no JSON: {error}") from error
    return rows


def _toml(text: str, where: str) -> object:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{where} is no TOML: {error}") from error
    return _listed(document, _KEYS, where)


_FORMATS: Mapping[str, Callable[[str, str], object]] = {".json": _json, ".jsonl": _json_lines, ".toml": _toml}


def _listed(document: Mapping[str, object], keys: tuple[str, ...], where: str) -> object:
    """The list of tasks in a document, under one of `keys`."""
    unknown = [key for key in document if key not in keys]
    if unknown:
        hint = suggestion(unknown[0], keys)
        raise ConfigError(f"{where}: a file of tasks holds nothing else, but this has {listed(unknown)}; {hint}")
    found = [key for key in keys if key in document]
    if len(found) != 1:
        words = " and ".join(found) if found else "no tasks"
        raise ConfigError(f"{where} has {words}; it must have one list called {keys[0]}")
    value = document[found[0]]
    if not isinstance(value, list):
        raise ConfigError(f"{where}: {found[0]} must be a list of tasks, not {_kind(value)}")
    return cast("list[object]", value)


def _kind(value: object) -> str:
    kinds: dict[type, str] = {dict: "an object", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def _object(where: str, fields: Sequence[tuple[str, object]]) -> object:
    """Build an object of the file, refusing duplicate names, which would silently drop a value."""
    table: dict[str, object] = {}
    for name, value in fields:
        if name in table:
            raise ConfigError(f"{where}: {name!r} stands twice in one object; leave one out")
        table[name] = value
    return table


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON value")
