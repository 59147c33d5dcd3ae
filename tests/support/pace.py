"""A check that work grows with the length of its input and not with its square, independent of the machine's speed."""

from __future__ import annotations

import time
from collections.abc import Callable

LEAST = 0.01
"""Seconds of processor time below which nothing is compared."""


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Whether four times the size takes about four times the processor time; quadratic work takes sixteen times."""
    few = min(_seconds(work, size) for _ in range(3))
    return any(_seconds(work, 4 * size) < 10 * max(few, LEAST) for _ in range(3))


def _seconds(work: Callable[[int], object], size: int) -> float:
    started = time.process_time()
    work(size)
    return time.process_time() - started
