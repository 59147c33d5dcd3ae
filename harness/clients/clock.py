"""The time that clients live by: now, sleep and timers behind one protocol, so that a test can turn the clock by hand.
Owns no waiting logic."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not call after all."""
        ...


class Clock(Protocol):
    """Seconds on a scale that only goes forward, and waiting on it."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wall(self) -> float:
        """Unix time, for comparison with dates in headers."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return `seconds` later."""
        ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call `call` in `seconds`."""
        ...


class LoopClock:
    """The running event loop's clock."""

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix time."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the event loop."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """A timer of the running loop."""
        return asyncio.get_running_loop().call_later(seconds, call)


class ManualClock:
    """A clock that stands still until it is turned, for tests of whatever waits."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._now = 0.0
        self._wall = wall
        self._due: list[tuple[float, int, _Call]] = []
        self._count = 0

    def now(self) -> float:
        """Seconds turned so far."""
        return self._now

    def wall(self) -> float:
        """Unix time at the start plus seconds turned so far."""
        return self._wall + self._now

    async def sleep(self, seconds: float) -> None:
        """Return when the clock has been turned that far."""
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call when the clock has been turned that far."""
        timer = _Call(call)
        self._count += 1
        heapq.heappush(self._due, (self._now + seconds, self._count, timer))
        return timer

    async def advance(self, seconds: float) -> None:
        """Turn the clock, making the calls on the way in order and letting woken tasks run after each."""
        end = self._now + seconds
        await self._let_run()
        while self._due and self._due[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._due)
            timer.fire()
            await self._let_run()
        self._now = end

    async def _let_run(self) -> None:
        # A woken task may wake others: a few rounds of the loop reach them all in the small worlds of tests.
        for _ in range(20):
            await asyncio.sleep(0)


class _Call:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not call after all."""
        self._call = None

    def fire(self) -> None:
        """Call, unless cancelled."""
        call, self._call = self._call, None
        if call is not None:
            call()
