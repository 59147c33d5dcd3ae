r"""Answers marked inside a text: `\boxed{…}` and `#### …`. Owns the search for the mark; compares nothing."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\boxed\s*\{")


def extract_boxed_answer(text: str, strict: bool = False) -> str:
    r"""The content of the last `\boxed{…}` of a text. Braces nest; `\{` and `\}` are letters, not braces.

    Args:
        text: What the model said.
        strict: What to do without a box, or with a last box that is never closed (a truncated answer): return "" if
            true, the whole text if false.
    """
    start = -1
    for match in _BOX.finditer(text):
        start = match.end()
    end = _closing_brace(text, start) if start >= 0 else -1
    if end < 0:
        return "" if strict else text
    return text[start:end]


def extract_hash_answer(text: str) -> str:
    """What follows the first `####`, up to the next one, without surrounding space; without `####`, the whole text."""
    parts = text.split("####", 2)
    return parts[1].strip() if len(parts) > 1 else text


def _closing_brace(text: str, start: int) -> int:
    """Index of the brace that closes the one before `start`, or -1."""
    depth = 1
    index = start
    while index < len(text):
        letter = text[index]
        if letter == "\\":
            index += 1  # the next letter is escaped
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return -1
