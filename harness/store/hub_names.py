"""Repository names on the Hub: validation and defaults. Makes no request. A name is `namespace/name` of ASCII letters,
digits, `-`, `_` and `.`, with at most 96 characters per part; each part starts and ends with a letter, a digit or `_`,
has neither `--` nor `..`, and does not end in `.git`."""

from __future__ import annotations

import hashlib
import re

from harness.core.errors import ConfigError

MAX_NAME = 96
"""Maximum characters of a repository name, without the namespace."""

DIGEST_DIGITS = 8
"""Hex digits of the hash that keeps shortened names unique: 32 bits, enough for the repositories of one account."""

_PART = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?(?<!\.git)")


def default_name(env_id: str, model: str) -> str:
    """Default repository name `{env_id}_{model}`, made valid: `/` becomes `_`, other invalid characters become `-`.

    Args:
        env_id: The environment's id, as the user wrote it.
        model: The model's name at its endpoint.

    Returns:
        A name without namespace. A name that was cut, or became empty, ends in a hash of the original, so that two
        models never share a repository by accident.
    """
    wanted = f"{env_id}_{model}"
    name = re.sub(r"[^A-Za-z0-9._-]", "-", wanted.replace("/", "_"))
    name = re.sub(r"-{2,}", "-", re.sub(r"\.{2,}", ".", name)).strip("-.")
    digest = hashlib.sha256(wanted.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_DIGITS]
    if not re.search(r"[A-Za-z0-9]", name):
        return f"bench_{digest}"
    if len(name) > MAX_NAME or name.endswith(".git"):
        name = f"{name[: MAX_NAME - DIGEST_DIGITS - 1].rstrip('-.')}-{digest}"
    return name


def check_repo(repo: str) -> str:
    """Validate a repository name of the form `name` or `namespace/name`, and return it.

    Raises:
        ConfigError: the name is invalid.
    """
    parts = repo.split("/")
    if len(parts) > 2 or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigError(
            f"{repo!r} is not a valid name of a Hub repository: give NAME or NAMESPACE/NAME of ASCII letters, digits, "
            f"`-`, `_` and `.` (at most {MAX_NAME} characters, no `-` or `.` at either end, no `--`, `..` or final "
            "`.git`)"
        )
    return repo
