"""JavaScript's text functions, on which the documented scoring depends: `String(value)`, `trim()`, lower case, and
lengths in UTF-16 units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import cast

SPACE = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
    "\u205f\u3000\ufeff"
)
r"""Characters that `trim()` removes and `\s` matches. Python's white space differs: it includes U+001C to U+001F and
U+0085, and lacks U+FEFF."""

_INDEXES = 2**32 - 1
"""Smallest integer that is not an array index in JavaScript if it is an object key."""

_EXACT = 2**53
"""Largest integer that JavaScript does not round; all its numbers are doubles."""


def text_of(value: object) -> str:
    """Return JavaScript's `String(value)` of a JSON value, including infinities and NaN."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return number_text(value)
    if isinstance(value, Mapping):
        return "[object Object]"
    if isinstance(value, Sequence):
        parts = cast("Sequence[object]", value)
        return ",".join("" if part is None else text_of(part) for part in parts)
    return str(value)


def number_text(number: float) -> str:
    """Format a number as JavaScript's `String` does: the fewest digits that parse to the same double."""
    if isinstance(number, int) and abs(number) <= _EXACT:
        return str(number)
    try:
        value = float(number)
    except OverflowError:
        return "Infinity" if number > 0 else "-Infinity"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    return ("-" if value < 0 else "") + _digits(abs(value))


def is_truthy(value: object) -> bool:
    """Return whether a JSON value is truthy in JavaScript, where empty arrays and objects are."""
    return isinstance(value, Mapping | list) or bool(value)


def entries(fields: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return JavaScript's `Object.entries(fields)`: keys that are array indexes come first, in numeric order."""
    indexes = sorted((name for name in fields if index_of(name) is not None), key=int)
    return [(name, fields[name]) for name in (*indexes, *(name for name in fields if index_of(name) is None))]


def index_of(name: str) -> int | None:
    """Return the array index that an object key represents in JavaScript; None for other keys."""
    if not (name.isascii() and name.isdigit() and len(name) <= len(str(_INDEXES))):
        return None
    index = int(name)
    return index if str(index) == name and index < _INDEXES else None


def trimmed(text: str) -> str:
    """Return JavaScript's `text.trim()`."""
    return text.strip(SPACE)


def folded(text: str) -> str:
    """Return JavaScript's `text.trim().toLowerCase()`."""
    return trimmed(text).lower()


def length(text: str) -> int:
    """Return JavaScript's `text.length`: the number of UTF-16 units, of which a character beyond U+FFFF has two."""
    return len(text) + sum(1 for letter in text if letter > "\uffff")


def words(text: str) -> int:
    r"""Return the number of non-empty parts of `text.split(/\s+/)`."""
    return sum(1 for part in text.translate(_SPACES).split(" ") if part)


_SPACES = {ord(letter): " " for letter in SPACE}


def _digits(value: float) -> str:
    """Format a positive double with its shortest digits, as JavaScript does."""
    shortest = Decimal(repr(value)).normalize()
    _, parts, exponent = shortest.as_tuple()
    digits = "".join(map(str, parts))
    count, point = len(digits), len(digits) + int(exponent)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if count > 1 else ""
    return f"{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"
