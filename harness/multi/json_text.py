"""Outputs as JSON: read as strictly as `JSON.parse` does, with or without a code fence. Owns the reading; checks
nothing."""

from __future__ import annotations

import json
from typing import cast

from harness.multi import javascript

NOT_JSON = "Output is not valid JSON"

_FENCES = ("```", "~~~")


class NotJsonError(Exception):
    """The text is no JSON."""


def read_json(text: str) -> object:
    """The value that a text is, nothing but white space around it.

    Raises:
        NotJsonError: it is none; or it is nested so deeply that nothing here reads it.
    """
    try:
        return cast(object, json.loads(text, parse_constant=_refuse, parse_int=_number))
    except (ValueError, RecursionError) as error:
        raise NotJsonError(NOT_JSON) from error


def read_fenced_json(text: str) -> object:
    """As `read_json`; the text may be one fenced code block.

    Raises:
        NotJsonError: as above.
    """
    block = javascript.trimmed(text)
    first, newline, rest = block.partition("\n")
    if newline and block.startswith(_FENCES) and rest.endswith(block[:3]) and "{" not in first and "[" not in first:
        return read_json(rest.rstrip(block[0]))
    return read_json(text)


def _refuse(name: str) -> object:
    raise ValueError(name)  # NaN and infinities, which Python would read


def _number(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:  # longer than Python takes; a double is what JavaScript makes of it anyway
        return float(digits)
