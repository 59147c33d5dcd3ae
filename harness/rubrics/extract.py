r"""Extract the answer from a text by its marker: `\boxed{…}` or `#### …`."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\boxed\s*\{")


def extract_boxed_answer(text: str, strict: bool = False) -> str:
    r"""The content of the last `\boxed{…}` in a text. Braces may be nested; `\{` and `\}` count as ordinary characters.

    Args:
        text: The model's reply.
        strict: Result if there is no box or the last box is not closed (truncated answer): "" if true, the whole text
            if false.
    """
    start = -1
    for match in _BOX.finditer(text):
        start = match.end()
    end = _closing_brace(text, start) if start >= 0 else -1
    if end < 0:
        return "" if strict else text
    return text[start:end]


def extract_hash_answer(text: str) -> str:
    """The stripped text between the first `####` and the next one or the end; the whole text if there is no `####`."""
    parts = text.split("####", 2)
    return parts[1].strip() if len(parts) > 1 else text


def _closing_brace(text: str, start: int) -> int:
    """Index of the brace that closes the one before `start`, or -1."""
    depth = 1
    index = start
    while index < len(text):
        letter = text[index]
        if letter == "\\":
            index += 1  # the next character is escaped
        elif letter == "{":
            depth += 1
        elif letter == "}":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return -1
