"""How slow this machine is just now: a bound on processor time that is multiplied by it means the same everywhere."""

from __future__ import annotations

import time

LOOP = 1_000_000
"""Additions that are timed."""

QUICK = 0.05
"""Seconds of processor time that these took on the machine for which the tests' bounds were written."""


def pace() -> float:
    """How many times slower than that machine this one is, the best of three tries; never less than 1."""
    return max(1.0, min(_seconds() for _ in range(3)) / QUICK)


def _seconds() -> float:
    total, started = 0, time.process_time()
    for number in range(LOOP):
        total += number
    return time.process_time() - started
