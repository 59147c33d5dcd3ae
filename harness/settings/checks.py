"""Validators of single settings, called by pydantic. Each raises ValueError with a message that follows the setting's
name. The settings are defined in `schema`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import cast
from urllib.parse import unquote, urlsplit

from harness.core.loopback import litellm_provider, plugin_provider
from harness.core.records import FIXED_COLUMNS
from harness.core.redact import REDACTED, hidden, redactor
from harness.core.types import JsonDict
from harness.settings.paths import looks_like_path

NONE_WORD = "none"
"""Value for "no limit" in a file, since TOML has no null."""

MOST_ATTEMPTS = 100_000
"""Largest k of pass@k."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9_-]*")
_REPOSITORY = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_KEY_PARAMETER = re.compile(r"(?:.*[-_])?(?:api)?key|.*token|sig(?:nature)?|.*secret|.*password", re.IGNORECASE)
"""Pattern of the names of URL parameters that may contain an API key."""
_VERSION = re.compile(r"v[0-9]+\w*")
_KEY_SHAPE = re.compile(r"(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9]{24,}")
"""Pattern of API keys in a URL's path, which does not match names of accounts and projects."""
_ENV_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)*[A-Za-z_][\w-]*", re.ASCII)
_HUB_NAME_LIMIT = 96
"""Maximum length of a repository name on the Hub."""


def at_least_one_or(minus_one: str) -> Callable[[int], int]:
    """Return a validator for a count that may also be -1.

    Args:
        minus_one: Meaning of -1, for the message.
    """

    def validate(value: int) -> int:
        if value != -1 and value < 1:
            raise ValueError(f"must be -1 ({minus_one}) or at least 1")
        return value

    return validate


def none_word(value: object) -> object:
    """Convert the word for "no limit" to None."""
    return None if value == NONE_WORD else value


def auto_word(value: object) -> object:
    """Convert the word for "as many as there are" to -1."""
    return -1 if value == "auto" else value


def as_tuple(value: object) -> object:
    """Convert a list from TOML or JSON to a tuple, since settings are immutable."""
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


def as_counts(value: object) -> object:
    """Convert a number, or a list of numbers or of their digits from the command line, to a tuple of integers."""
    if type(value) is int:
        return (value,)
    if not isinstance(value, list | tuple):
        return value
    listed = cast("list[object]", value)
    return tuple(int(each) if isinstance(each, str) and each.isascii() and each.isdigit() else each for each in listed)


def attempts(value: tuple[int, ...]) -> tuple[int, ...]:
    """Validate numbers of attempts."""
    for k in value:
        if not 0 < k <= MOST_ATTEMPTS:
            raise ValueError(f"contains {k}, but a number of attempts is 1 to {MOST_ATTEMPTS:,}")
    if len(set(value)) != len(value):
        raise ValueError("contains a number twice")
    return tuple(sorted(value))


def no_clusters(value: object) -> object:
    """Convert the word for "no clusters" to the empty key; None stands for the key that the environment declares."""
    return "" if value == NONE_WORD else value


def as_ids(value: object) -> object:
    """Convert a list of example ids from TOML or JSON, which may be integers, to a tuple of texts."""
    if not isinstance(value, list):
        return value
    ids = (str(each) if type(each) is int else each for each in cast("list[object]", value))
    return tuple(dict.fromkeys(ids))


def printable(value: str) -> str:
    """Validate text for tables and file names, which must not contain control characters."""
    if not value.isprintable():
        raise ValueError("must not contain control characters")
    return value


def run_name(value: str | None) -> str | None:
    """Validate the name of a run, which must not be empty."""
    if value is not None and not value.strip():
        raise ValueError("must be the name of a run")
    return None if value is None else printable(value)


def env_id(value: str) -> str:
    """Validate the name or the path of an environment. The last part of a name must be usable as a module name."""
    if looks_like_path(value):
        return printable(value)
    if not _ENV_ID.fullmatch(value):
        raise ValueError('must be an environment\'s name, such as "gsm8k" or "alphabet-sort", or a path: "./my_env.py"')
    return value


def columns(value: tuple[str, ...]) -> tuple[str, ...]:
    """Validate names of additional dataset columns."""
    for name in value:
        if not name:
            raise ValueError("must not contain an empty name")
        if name in FIXED_COLUMNS:
            raise ValueError(f"contains {name!r}, a column that every dataset already has")
    if len(set(value)) != len(value):
        raise ValueError("contains a column twice")
    return value


def json_table(value: JsonDict) -> JsonDict:
    """Validate a table that JSON can represent without loss."""
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
        raise ValueError(f"contains {value} at {where}, which JSON cannot represent; write it as a string")
    elif not (value is None or isinstance(value, str | int | float | bool)):
        raise ValueError(
            f"contains a {type(value).__name__} at {where}, which JSON cannot represent; write it as a string"
        )


def header_table(value: dict[str, str]) -> dict[str, str]:
    """Validate HTTP header names and values."""
    seen: dict[str, str] = {}
    for name, text in value.items():
        if not _TOKEN.fullmatch(name):
            raise ValueError(f"contains {name!r}, which is not a valid HTTP header name")
        if any(ord(char) < 32 or ord(char) == 127 for char in text):
            raise ValueError(f"contains a control character in the value of {name!r}")
        if (first := seen.setdefault(name.casefold(), name)) != name:
            raise ValueError(
                f"contains {first!r} and {name!r}, which are the same header, because header names are case-insensitive"
            )
    return value


def url(value: str) -> str:
    """Validate a base URL, and remove its trailing slash, so that equal endpoints have equal URLs."""
    if not value:  # empty: the embedded reference server, with its address known later
        return value
    provider = litellm_provider(value)
    if provider is not None:
        if not _PROVIDER.fullmatch(provider):
            raise ValueError(
                'must be litellm:// followed by the name of a litellm provider only, such as "litellm://anthropic"'
            )
        return value.rstrip("/")
    try:
        parts = urlsplit(value)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as exc:
        raise ValueError(f"is not a valid URL: {exc}") from exc
    scheme = parts.scheme.removeprefix(f"{plugin_provider(value).lower()}+")
    if scheme not in ("http", "https") or not parts.hostname or not port_ok or " " in value:
        raise ValueError('must be an http or https URL, such as "http://localhost:8000/v1"')
    if parts.username or parts.password:
        redactor.add(parts.password or parts.username or "")  # the error message repeats the URL
        raise ValueError(
            "must not contain a user or password, since run folders record the URL; use a key variable or a "
            "header instead"
        )
    if behind := re.search("[;#](.*)", value, re.DOTALL):
        redactor.add(behind[1])  # the error message repeats the URL
        raise ValueError("must not contain ; or #, since run folders record the URL; remove it and the text after it")
    if keys := [*_keys_in(parts.path), *_keys_in(parts.query)]:
        for key in keys:
            redactor.add(key)  # the error message repeats the URL
        raise ValueError(
            "must not contain a key, since run folders record the URL; use a key variable or a header instead"
        )
    return value.rstrip("/")


def _keys_in(part: str) -> list[str]:
    """Return API keys in the path or query of a URL, recognized by name (`key=…`, `/token/…`) or by pattern."""
    pieces = [piece for piece in re.split("[/;&?#]", unquote(part)) if piece]
    pairs = [(name, text) for name, equals, text in (piece.partition("=") for piece in pieces) if equals and text]
    pairs += [(name, text) for name, text in pairwise(pieces) if not _VERSION.fullmatch(text)]
    named = [text for name, text in pairs if _KEY_PARAMETER.fullmatch(name) or hidden(text, name) == REDACTED]
    shaped = [text for text in (piece.rpartition("=")[2] for piece in pieces) if text]
    return named + [text for text in shaped if _KEY_SHAPE.fullmatch(text) or redactor.text(text) != text]


def variable(value: str) -> str:
    """Validate the name of an environment variable; may be empty."""
    if value and not _VARIABLE.fullmatch(value):
        raise ValueError("must be the name of an environment variable, never the key itself")
    return value


def variables(value: tuple[str, ...]) -> tuple[str, ...]:
    """Validate names of environment variables."""
    for name in value:
        if not name or not _VARIABLE.fullmatch(name):
            raise ValueError("must be names of environment variables, never a key itself")
    return value


def repository(value: str | None) -> str | None:
    """Validate a repository name for the Hub."""
    if value is None:
        return value
    wrong = not _REPOSITORY.fullmatch(value) or value[-1] in ".-" or "--" in value or ".." in value
    if wrong or len(value.rpartition("/")[2]) > _HUB_NAME_LIMIT:
        raise ValueError('must be the name of a Hub repository, such as "my-results" or "me/my-results"')
    return value
