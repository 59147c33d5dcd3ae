"""Helpers for messages about settings: suggestions, shortened values and file names."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.core.redact import hidden, redactor

_SHOWN = 60
"""Maximum number of characters of a value in a message."""

_LISTED = 4
"""Maximum number of names that are listed in a message."""

_SECRET_WORDS = ("authorization", "cookie", "token", "secret", "password", "key")
"""Words in the names of headers whose values are never shown or recorded."""

MASK = "***"

SET_FLAG = "--set"


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to `name`; None if no candidate is similar."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return a hint with the most similar valid name (`did you mean "x"?`) or, without one, with all valid names."""
    names = list(dict.fromkeys(candidates))
    found = nearest(name, names)
    return f'did you mean "{found}"?' if found else f"valid here: {', '.join(names)}"


def shown(value: object) -> str:
    """Format a value for a message as one short line, and redact secrets in it before it is cut."""
    text = redactor.text(json.dumps(hidden(value), ensure_ascii=False, default=str))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def shown_path(path: Path, cwd: Path) -> str:
    """Return a path for messages, relative to `cwd` if it is inside that folder."""
    try:
        return str(path.resolve().relative_to(cwd.resolve()))
    except ValueError:
        return str(path)


def listed(names: Sequence[str]) -> str:
    """Join names in one line. Beyond a maximum number, the rest are only counted: `a, b, c and 4 more`."""
    unlike = list(dict.fromkeys(names))
    shown_names = unlike if len(unlike) <= _LISTED else unlike[: _LISTED - 1]
    more = len(unlike) - len(shown_names)
    return ", ".join(shown_names) + (f" and {more} more" if more else "")


def use_set(path: str, value: object) -> str:
    """Return advice to override a file with `--set`."""
    return f"use {SET_FLAG} {path}={value}"


def is_secret_header(name: str) -> bool:
    """Return whether the value of a header may be a credential, according to the header's name."""
    folded = name.casefold()
    return any(word in folded for word in _SECRET_WORDS) or "auth" in re.split("[-_]", folded)
