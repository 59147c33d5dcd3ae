"""Validate single values, and parse them from command-line text."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from typing import NoReturn, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness.core.errors import ConfigError
from harness.core.redact import redactor
from harness.settings.checks import NONE_WORD
from harness.settings.layers import KeyPath
from harness.settings.schema import Kind, Setting, adapter
from harness.settings.wording import shown

_UNSHOWN = (("model", "api_key_var"), ("model", "api_base_url"), ("model", "extra_headers"))
"""Settings that users sometimes set to a secret by mistake, so that messages do not repeat their values."""

_EXPECTED: dict[Kind, str] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list of strings",
    "counts": "a list of integers, such as 1,3,5",
    "table": "a table",
    "headers": "a table of strings",
}

_PROBLEMS = {
    "value_error": "{error}",
    "greater_than": "must be greater than {gt:g}",
    "less_than": "must be less than {lt}",
    "greater_than_equal": "must be at least {ge}",
    "finite_number": "must be a finite number",
}
"""Templates of messages by pydantic's type of error. All other errors mean that a value has the wrong type."""


def check(setting: Setting, value: object, where: str) -> object:
    """Validate a value and convert it to the setting's type.

    Args:
        setting: The setting.
        value: Value from TOML, JSON or a caller. For a table, also a string with a JSON object; for headers, also a
            list of `Name: Value` strings.
        where: File and key, or option, with which the message begins.

    Raises:
        ConfigError: the type of the value is wrong, or the value is out of bounds.
    """
    if setting.is_table and isinstance(value, str):
        if not value.lstrip().startswith("{"):
            raise ConfigError(f"{where}: must be a table, or a JSON object in a string")
        value = json_object(value, where)
    if setting.door.kind == "headers" and isinstance(value, list):
        if not all(isinstance(each, str) for each in cast("list[object]", value)):
            raise ConfigError(f"{where}: must be a list of 'Name: Value' strings")
        value = headers(cast("list[str]", value), where)
    if setting.door.kind == "string" and value == "" and setting.key not in ("api_key_var", "cluster_key"):
        raise ConfigError(f"{where}: must not be empty")
    try:
        return adapter(setting.path).validate_python(value)
    except ValidationError as exc:
        raise ConfigError(_refusal(setting, value, where, exc.errors(include_url=False)[0])) from None


def _refusal(setting: Setting, value: object, where: str, error: ErrorDetails) -> str:
    subject = "" if ": " in where else f"{setting.key} "
    between = " = " if ": " in where else "=" if where.startswith("--set ") else " "
    words = shown(value)
    if between == " " and where.startswith("-") and isinstance(value, list):
        texts = [each for each in cast("list[object]", value) if isinstance(each, str)]
        words = redactor.text(",".join(texts)) or words  # as they were typed
    given = "" if setting.path in _UNSHOWN else f"{between}{words}"
    if error["type"] in _PROBLEMS:
        return f"{where}{given}: {subject}{_PROBLEMS[error['type']].format(**error.get('ctx', {}))}"
    kind = setting.door.kind
    optional = f', or "{NONE_WORD}"' if kind in ("integer", "number") and takes_none(setting) else ""
    inner = "".join(f"[{part}]" if isinstance(part, int) else f' at "{part}"' for part in error["loc"])
    return f"{where}{given}: {subject}must be {_EXPECTED[kind]}{optional}{f' (wrong{inner})' if inner else ''}"


def takes_none(setting: Setting) -> bool:
    """Return whether the setting accepts the value "none", which means no limit."""
    try:
        return adapter(setting.path).validate_python(NONE_WORD) is None
    except ValidationError:
        return False


def json_object(text: str, where: str) -> dict[str, object]:
    """Parse a JSON object; NaN, infinities and repeated keys are rejected.

    Raises:
        ConfigError: the text is not such an object.
    """
    try:
        value: object = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except ValueError as exc:
        raise ConfigError(f'{where}: not valid JSON: {exc}; write it like \'{{"key": "value"}}\'') from None
    if not isinstance(value, dict):
        raise ConfigError(f'{where}: must be a JSON object such as \'{{"key": "value"}}\', not {shown(value)}')
    return cast("dict[str, object]", value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a valid JSON value")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in names if names.count(key) > 1)!r} occurs twice")
    return table


def table_texts(texts: Iterable[str], where: str) -> list[dict[str, object]]:
    """Parse the values of one option for a table, in order. Each value is a JSON object or one `key=value`.

    Raises:
        ConfigError: a value is neither.
    """
    return [_table_text(text.strip(), where) for text in texts]


def _table_text(text: str, where: str) -> dict[str, object]:
    name, equals, value = text.partition("=")
    if text.startswith(("{", "[", '"')):
        return json_object(text, where)
    if not equals or not name.strip():
        raise ConfigError(f'{where}: must be KEY=VALUE, or a JSON object such as \'{{"key": "value"}}\'')
    path = key_path(name, where)
    try:
        table: dict[str, object] = {path[-1]: toml_or_text(value)}
    except ConfigError as error:
        error.place = f"{where} {name.strip()}"
        raise
    for part in reversed(path[:-1]):
        table = {part: table}
    return table


def key_path(text: str, where: str) -> KeyPath:
    """Parse a dotted key, with parts quoted as in TOML if they contain a dot.

    Raises:
        ConfigError: the text is not a valid key.
    """
    try:
        found: object = tomllib.loads(f"{text.strip()} = 0")
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"{where}: {text.strip()!r} is not a valid key") from None
    parts: list[str] = []
    while isinstance(found, dict):
        [(part, found)] = cast("dict[str, object]", found).items()
        parts.append(part)
    return tuple(parts)


def toml_or_text(text: str) -> object:
    """Parse `text` as a TOML value, or else return it unchanged. Dates stay strings, since JSON has no dates.

    Raises:
        ConfigError: the text begins like a list but is not a valid list.
    """
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        if text.lstrip().startswith("["):
            raise ConfigError(f"{text}: not a valid TOML list; strings in it need quotes") from None
        return text
    value: object = parsed["value"]
    return text if len(parsed) > 1 or isinstance(value, datetime | date | time) else value


def for_setting(setting: Setting, text: str) -> object:
    """Parse `text` as the value of `setting`. A string needs no quotes, and a list may be separated by commas."""
    value = toml_or_text(text)
    kind = setting.door.kind
    if kind == "string" and not isinstance(value, str):
        return text
    return names(value) if kind in ("list", "counts") and isinstance(value, str) else value


def number(value: object) -> object:
    """Parse the text of an option as a number. Other text is returned unchanged, so that the validator rejects it."""
    if isinstance(value, str):
        for read in (int, float):
            with contextlib.suppress(ValueError):
                return read(value)
    return value


def names(text: str) -> list[str]:
    """Split a comma-separated list of names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def headers(texts: Sequence[str], where: str) -> dict[str, str]:
    """Parse headers from `Name: Value` strings. A later header replaces an earlier one of the same name.

    Raises:
        ConfigError: a string has another form. The message does not show it, since it may contain a credential.
    """
    table: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"{where}: must be 'Name: Value'")
        for other in [key for key in table if key.casefold() == name.strip().casefold()]:
            del table[other]
        table[name.strip()] = value.strip()
    return table
