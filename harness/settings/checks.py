"""The bounds of single settings, as functions that pydantic calls. Owns what a value may be and how a refusal is put;
owns no setting's name and no place where a value came from. A refusal is a ValueError whose text follows a key path."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import cast
from urllib.parse import unquote, urlsplit

from harness.core.loopback import litellm_provider
from harness.core.records import FIXED_COLUMNS
from harness.core.redact import REDACTED, hidden, redactor
from harness.core.types import JsonDict
from harness.settings.paths import looks_like_path

NONE_WORD = "none"
"""How a file says "no limit": TOML has no null."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9_-]*")
_REPOSITORY = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_KEY_PARAMETER = re.compile(r"(?:.*[-_])?(?:api)?key|.*token|sig(?:nature)?|.*secret|.*password", re.IGNORECASE)
"""Parameters that hold a key where a service takes it in the URL."""
_VERSION = re.compile(r"v[0-9]+\w*")
_KEY_SHAPE = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9]{24,}")
"""Accounts and projects, which belong into a path, have no such names."""
_ENV_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)*[A-Za-z_][\w-]*", re.ASCII)
_HUB_NAME_LIMIT = 96
"""The Hub refuses longer repository names."""


def all_or_some(value: int) -> int:
    """A count of examples."""
    if value != -1 and value < 1:
        raise ValueError("must be -1 (all of them) or at least 1")
    return value


def unlimited_or_some(value: int) -> int:
    """A bound on what runs at once."""
    if value != -1 and value < 1:
        raise ValueError("must be -1 (unlimited) or at least 1")
    return value


def end_or_some(value: int) -> int:
    """An interval in rollouts."""
    if value != -1 and value < 1:
        raise ValueError("must be -1 (only at the end) or at least 1")
    return value


def at_least_one(value: int) -> int:
    """A count that cannot be zero."""
    if value < 1:
        raise ValueError("must be at least 1")
    return value


def positive(value: float | int | None) -> float | int | None:
    """A duration or a rate; None passes."""
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise ValueError("must be greater than 0")
    return value


def not_negative(value: int) -> int:
    """A count that may be zero."""
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


def finite(value: float) -> float:
    """A number that can be compared."""
    if not math.isfinite(value):
        raise ValueError("must be a finite number")
    return value


def none_word(value: object) -> object:
    """Read the word for "no limit"."""
    return None if value == NONE_WORD else value


def as_tuple(value: object) -> object:
    """TOML and JSON have lists; settings are frozen."""
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def printable(value: str) -> str:
    """Text that tables and file names can show."""
    if not value.isprintable():
        raise ValueError("must not hold control characters")
    return value


def env_id(value: str) -> str:
    """A name whose last part can be a module, or a path."""
    if looks_like_path(value):
        return printable(value)
    if not _ENV_ID.fullmatch(value):
        raise ValueError('must be an environment\'s name, such as "gsm8k" or "alphabet-sort", or a path: "./my_env.py"')
    return value


def columns(value: tuple[str, ...]) -> tuple[str, ...]:
    """Names of dataset columns beside the fixed ones."""
    for name in value:
        if not name:
            raise ValueError("must not hold an empty name")
        if name in FIXED_COLUMNS:
            raise ValueError(f"names {name!r}, a column that every dataset already has")
    if len(set(value)) != len(value):
        raise ValueError("names a column twice")
    return value


def json_table(value: JsonDict) -> JsonDict:
    """A table that the run's files can hold without loss."""
    _require_json(value, "")
    return value


def _require_json(value: object, where: str) -> None:
    if isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            _require_json(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            _require_json(item, f"{where}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"holds {value} at {where}, which JSON cannot hold; write it as a string")
    elif not (value is None or isinstance(value, str | int | float | bool)):
        raise ValueError(f"holds a {type(value).__name__} at {where}, which JSON cannot hold; write it as a string")


def header_table(value: dict[str, str]) -> dict[str, str]:
    """HTTP header names and values that can be sent as they are."""
    seen: dict[str, str] = {}
    for name, text in value.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"holds {name!r}, which is no HTTP header name")
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise ValueError(f"holds a control character in the value of {name!r}")
        if (first := seen.setdefault(name.casefold(), name)) != name:
            raise ValueError(f"holds {first!r} and {name!r}: header names are the same whatever their case")
    return value


def url(value: str) -> str:
    """A base URL without a trailing slash, so that the same endpoint is the same string."""
    if not value:  # the embedded reference server: its address is not known before it listens
        return value
    provider = litellm_provider(value)
    if provider is not None:
        if not _PROVIDER.fullmatch(provider):
            raise ValueError('must name a provider of litellm and nothing else, such as "litellm://anthropic"')
        return value.rstrip("/")
    try:
        parts = urlsplit(value)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as exc:
        raise ValueError(f"is no URL: {exc}") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok or " " in value:
        raise ValueError('must be an http or https URL, such as "http://localhost:8000/v1"')
    if parts.username or parts.password:
        redactor.add(parts.password or parts.username or "")  # the refusal repeats the URL
        raise ValueError("must not hold a user or password: runs record it; name a key variable or a header instead")
    if behind := re.search("[;#](.*)", value, re.DOTALL):
        redactor.add(behind[1])  # as above
        raise ValueError("must not hold a part behind ; or #: runs record it, and no endpoint needs it")
    if keys := [*_keys_in(parts.path), *_keys_in(parts.query)]:
        for key in keys:
            redactor.add(key)  # as above
        raise ValueError("must not hold a key: runs record it; name a key variable or a header instead")
    return value.rstrip("/")


def _keys_in(part: str) -> list[str]:
    """The keys in the path or query of a URL: known by a name (`key=…`, `/token/…`) or by their shape."""
    pieces = [piece for piece in re.split("[/;&?#]", unquote(part)) if piece]
    pairs = [(name, text) for name, equals, text in (piece.partition("=") for piece in pieces) if equals and text]
    pairs += [(name, text) for name, text in pairwise(pieces) if not _VERSION.fullmatch(text)]
    named = [text for name, text in pairs if _KEY_PARAMETER.fullmatch(name) or hidden(text, name) == REDACTED]
    shaped = [text for text in (piece.rpartition("=")[2] for piece in pieces) if text]
    return named + [text for text in shaped if _KEY_SHAPE.fullmatch(text) or redactor.text(text) != text]


def variable(value: str) -> str:
    """The name of an environment variable; empty for none."""
    if value and not _VARIABLE.fullmatch(value):
        raise ValueError("must be the name of an environment variable, never the key itself")
    return value


def variables(value: tuple[str, ...]) -> tuple[str, ...]:
    """Names of environment variables."""
    for name in value:
        if not name or not _VARIABLE.fullmatch(name):
            raise ValueError("must hold names of environment variables, never a key itself")
    return value


def repository(value: str | None) -> str | None:
    """A repository name that the Hub accepts."""
    if value is None:
        return value
    wrong = not _REPOSITORY.fullmatch(value) or value[-1] in ".-" or "--" in value or ".." in value
    if wrong or len(value.rpartition("/")[2]) > _HUB_NAME_LIMIT:
        raise ValueError('must be a Hub repository, such as "my-results" or "me/my-results"')
    return value
