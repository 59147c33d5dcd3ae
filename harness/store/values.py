"""Values of a `summary.json` or a manifest, which anybody may have edited: what is not of its kind is as good as not
there. Owns these readings; knows no keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from harness.core.types import JsonDict


def table(value: object) -> JsonDict:
    """An object; empty if it is none."""
    return cast(JsonDict, value) if isinstance(value, dict) else {}


def number(value: object) -> float | None:
    """A finite number; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return known if math.isfinite(known) else None


def count(value: object) -> int:
    """A whole number; 0 if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def ends(value: object) -> tuple[float, float] | None:
    """Both ends of an interval; None unless both are known."""
    both = [number(end) for end in cast("Sequence[object]", value)] if isinstance(value, list | tuple) else []
    known = [end for end in both if end is not None]
    return (known[0], known[1]) if len(known) == len(both) == 2 else None
