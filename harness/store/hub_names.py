"""What a run's dataset repository is called on the Hub. Owns the rules for names and nothing else: it asks no
server, so that a name can be refused before a run has cost anything.

The Hub takes `namespace/name`, ASCII letters, digits, `-`, `_` and `.`, at most 96 characters a name; a name starts and
ends with a letter, a digit or `_`, holds neither `--` nor `..`, and does not end in `.git`."""

from __future__ import annotations

import hashlib
import re

from harness.core.errors import ConfigError

MAX_NAME = 96
"""Characters that the Hub allows in a repository's name, its namespace apart."""

DIGEST_DIGITS = 8
"""Hex digits that keep two names apart once both are cut: 32 bits, for a handful of repositories of one account."""

_PART = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?(?<!\.git)")


def default_name(env_id: str, model: str) -> str:
    """`{env_id}_{model}` made valid for the Hub; `/` becomes `_`, anything else that the Hub forbids `-`.

    Args:
        env_id: The environment's id, as the user wrote it.
        model: The model's name at its endpoint.

    Returns:
        A name without namespace. Names that had to be cut, or of which nothing was left, end in a digest of the
        original, so that two models never share a repository by accident of length.
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
    """`repo` itself, when the Hub would take it as `name` or `namespace/name`.

    Raises:
        ConfigError: it would not.
    """
    parts = repo.split("/")
    if len(parts) > 2 or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigError(
            f"{repo!r} is no name of a Hub repository: give NAME or NAMESPACE/NAME of ASCII letters, digits, `-`, `_` "
            f"and `.` (at most {MAX_NAME} characters, no `-` or `.` at either end, no `--`, `..` or final `.git`)"
        )
    return repo
