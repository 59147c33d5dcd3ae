"""The time that clients live by: now, sleep and timers behind one protocol, so that a test can turn the clock by hand,
and how much of it this process has lost. Owns no waiting logic but `within`."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

BEAT = 0.25
"""Seconds between two looks at how late the event loop is, while somebody waits for a reply."""

HICCUP = 0.05
"""Seconds by which a look may come late unnoticed: a loop with much to do always is."""

MOST_EXTENDED = 3.0
"""How many times its seconds `within` lasts at most: a machine that never catches up must not wait for ever."""


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

    def lost(self) -> float:
        """Seconds so far in which this process could not look at the network: code held up its event loop, or it got no
        core. Noticed while somebody is `within`, and later than that only as differences."""
        ...

    def watch(self) -> None:
        """Somebody waits: notice what is lost from now on."""
        ...

    def unwatch(self) -> None:
        """They do not wait any more."""
        ...


class LoopClock:
    """The running event loop's clock. Of one loop at a time."""

    def __init__(self) -> None:
        self._lost = 0.0
        self._waiting = 0
        """How many watch."""
        self._look_at: asyncio.TimerHandle | None = None
        """The next look, due at `_due`."""
        self._due = 0.0

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

    def lost(self) -> float:
        """Seconds in which the loop was late, up to now."""
        if self._look_at is None:
            return self._lost
        late = time.monotonic() - self._due
        return self._lost + (late if late > HICCUP else 0.0)

    def watch(self) -> None:
        """Look at the loop from now on."""
        self._waiting += 1
        if self._waiting == 1:
            self._look_later()

    def unwatch(self) -> None:
        """Look no more, if this was the last who waited."""
        self._waiting -= 1
        if not self._waiting and self._look_at is not None:
            self._lost = self.lost()
            self._look_at.cancel()
            self._look_at = None

    def _look_later(self) -> None:
        self._due = time.monotonic() + BEAT
        self._look_at = asyncio.get_running_loop().call_later(BEAT, self._look)

    def _look(self) -> None:
        self._lost = self.lost()
        self._look_later()


class within:
    """A timeout whose seconds are those in which this process could look at the network.

    What comes while an environment's code holds up the event loop is still unread when that ends: a reply in time must
    not be taken for none, and a healthy endpoint for a dead one.

    Args:
        clock: Whose `lost` is not counted.
        seconds: How long the `async with` block may take; `MOST_EXTENDED` times that at most, however much is lost.

    Raises:
        TimeoutError: on leaving the block, the seconds are over.
    """

    __slots__ = ("_began", "_bound", "_clock", "_granted", "_seconds", "_timer")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._granted = 0.0
        self._bound = asyncio.timeout(None)

    async def __aenter__(self) -> None:
        self._began = self._clock.lost()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._check)
        self._clock.watch()
        await self._bound.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._clock.unwatch()
        self._timer.cancel()
        return await self._bound.__aexit__(kind, error, trace)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        lost = min(self._clock.lost() - self._began, (MOST_EXTENDED - 1.0) * self._seconds)
        more, self._granted = lost - self._granted, lost
        if more > HICCUP:
            self._timer = loop.call_later(more, self._check)
        else:
            self._bound.reschedule(loop.time())


class ManualClock:
    """A clock that stands still until it is turned, for tests of whatever waits."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self.seconds_lost = 0.0
        self._now = 0.0
        self._wall = wall
        self._due: list[tuple[float, int, _Timer]] = []
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
        timer = _Timer(call)
        self._count += 1
        heapq.heappush(self._due, (self._now + seconds, self._count, timer))
        return timer

    def lost(self) -> float:
        """`seconds_lost`."""
        return self.seconds_lost

    def watch(self) -> None:
        """Nothing: nothing is lost but what a test says."""

    def unwatch(self) -> None:
        """As `watch`."""

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


class _Timer:
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
