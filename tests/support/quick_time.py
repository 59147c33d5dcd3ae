"""An event loop whose time passes only where everybody waits: seconds cost nothing, and a busy machine none either."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Waits(selectors.DefaultSelector):
    """Looks what is ready, and lets the time pass if nothing is."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # only another thread or a file can wake the loop
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.passed += max(timeout, 0.0)
        return ready


class QuickLoop(asyncio.SelectorEventLoop):
    """For code that waits by its loop's clock alone: no thread, no child, no `time.monotonic`."""

    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        """Seconds that were waited for."""
        return self._waits.passed


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        return runner.run(main)
