"""Functions that read single JSON values that are not validated yet, for example from a `summary.json` edited by hand
or from another program's reply. A value of the wrong type counts as missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from harness.core.types import JsonDict


def table(value: object) -> JsonDict:
    """Return a JSON object; empty if the value is not an object."""
    return cast(JsonDict, value) if isinstance(value, dict) else {}


def number(value: object) -> float | None:
    """Return a finite number as float; None if the value is not a finite number."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return known if math.isfinite(known) else None


def count(value: object) -> int:
    """Return an integer; 0 if the value is not an integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def ends(value: object) -> tuple[float, float] | None:
    """Return both ends of an interval; None unless the value is a list of two finite numbers."""
    both = [number(end) for end in cast("Sequence[object]", value)] if isinstance(value, list | tuple) else []
    known = [end for end in both if end is not None]
    return (known[0], known[1]) if len(known) == len(both) == 2 else None
