"""Reasons why requests to an endpoint wait, for the live display and for `status.json`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delay:
    """A reason why requests wait although fewer are in flight than requested."""

    reason: str
    """Text such as `3 backing off (rate_limit), the next`."""
    seconds: float | None = None
    """Seconds until the reason ends; None if unknown."""

    def __str__(self) -> str:
        return self.reason if self.seconds is None else f"{self.reason} for {max(0.0, self.seconds):.0f} s more"


def note_of(delays: Iterable[Delay]) -> str:
    """Join the reasons to one text; "" without reasons."""
    return ", ".join(map(str, delays))
