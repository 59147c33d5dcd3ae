r"""Extraction of an answer that is marked by `\boxed{…}` or `#### …`."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
"""Pattern of a brace or an escaped character."""


def extract_boxed_answer(text: str, strict: bool = False) -> str:
    r"""Return the content of the last `\boxed{…}` in `text`. Braces may be nested; `\{` and `\}` count as ordinary
    characters.

    Args:
        text: The model's reply.
        strict: Whether to return "" instead of the whole text if there is no box, or if the last box is not closed
            (truncated answer).
    """
    start = -1
    for match in _BOX.finditer(text):
        start = match.end()
    end = _closing_brace(text, start) if start >= 0 else -1
    if end < 0:
        return "" if strict else text
    return text[start:end]


def extract_hash_answer(text: str) -> str:
    """Return the stripped text between the first `####` and the next one or the end; if there is no `####`, the whole
    text."""
    parts = text.split("####", 2)
    return parts[1].strip() if len(parts) > 1 else text


def _closing_brace(text: str, start: int) -> int:
    """Return the index of the brace that closes the one before `start`, or -1."""
    depth = 1
    for found in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    return -1
