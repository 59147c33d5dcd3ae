"""Parsing of outputs as JSON, as strictly as `JSON.parse`, with or without a code fence."""

from __future__ import annotations

import json
from typing import cast

from harness.multi import javascript

NOT_JSON = "Output is not valid JSON"

_FENCES = ("```", "~~~")


class NotJsonError(Exception):
    """A text is not JSON."""


def read_json(text: str) -> object:
    """Parse a text that is a JSON value, optionally surrounded by white space.

    Raises:
        NotJsonError: the text is not JSON, or is nested too deeply to be parsed.
    """
    try:
        return cast(object, json.loads(text, parse_constant=_refuse, parse_int=_number))
    except (ValueError, RecursionError) as error:
        raise NotJsonError(NOT_JSON) from error


def read_fenced_json(text: str) -> object:
    """Parse JSON as `read_json` does; the text may be one fenced code block.

    Raises:
        NotJsonError: see `read_json`.
    """
    block = javascript.trimmed(text)
    first, newline, rest = block.partition("\n")
    if newline and block.startswith(_FENCES) and rest.endswith(block[:3]) and "{" not in first and "[" not in first:
        return read_json(rest.rstrip(block[0]))
    return read_json(text)


def _refuse(name: str) -> object:
    raise ValueError(name)  # NaN and infinities, which Python accepts


def _number(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:  # longer than Python accepts; JavaScript uses a double anyway
        return float(digits)
