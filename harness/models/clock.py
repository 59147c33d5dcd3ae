"""Clocks with the current time, sleep and timers, for clients of endpoints; tests use a manual clock. Clocks also
measure for how long this process was blocked. `within` is a timeout that does not count that time."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable

from harness.usercode.deadline import Expiry

BEAT = 0.25
"""Seconds between two measurements of the event loop's lag, which are made while a reply is awaited."""

HICCUP = 0.05
"""Lag in seconds that is ignored, because a busy event loop is always a little late."""

MOST_EXTENDED = 3.0
"""Maximum duration of a `within` block, as a multiple of its timeout, so that a process that is often blocked does not
wait forever."""


class Clock:
    """Monotonic clock of the running event loop. One object must not be used by two event loops at the same time."""

    def __init__(self) -> None:
        self._blocked = 0.0
        self._waiting = 0
        """Number of calls of `watch` that were not followed by `unwatch` yet."""
        self._look_at: asyncio.TimerHandle | None = None
        """Timer of the next measurement, due at `_due`."""
        self._due = 0.0

    def now(self) -> float:
        """Return the current time, in monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `call` after `seconds`, on the running event loop."""
        return asyncio.get_running_loop().call_later(seconds, call)

    def blocked_seconds(self) -> float:
        """Return the total seconds in which this process could not read from the network, because its event loop was
        blocked or it got no CPU. Measured only between `watch` and `unwatch`; use differences, not absolute values."""
        if self._look_at is None:
            return self._blocked
        late = time.monotonic() - self._due
        return self._blocked + (late if late > HICCUP else 0.0)

    def watch(self) -> None:
        """Start measuring `blocked_seconds`; calls may nest."""
        self._waiting += 1
        if self._waiting == 1:
            self._look_later()

    def unwatch(self) -> None:
        """Stop measuring `blocked_seconds` if `unwatch` was called as often as `watch`."""
        self._waiting -= 1
        if not self._waiting and self._look_at is not None:
            self._blocked = self.blocked_seconds()
            self._look_at.cancel()
            self._look_at = None

    def _look_later(self) -> None:
        self._due = time.monotonic() + BEAT
        self._look_at = asyncio.get_running_loop().call_later(BEAT, self._look)

    def _look(self) -> None:
        self._blocked = self.blocked_seconds()
        self._look_later()


class within(Expiry):
    """A timeout that does not count time in which this process could not read from the network.

    While an environment's code blocks the event loop, replies that have arrived are not read. Such replies must not
    count as late, and their endpoint must not be considered dead.

    Args:
        clock: Clock whose `blocked_seconds` are not counted.
        seconds: Timeout of the `with` block, which may take at most `MOST_EXTENDED` times as long in total.

    Raises:
        TimeoutError: the timeout has expired; raised at the end of the block.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__()
        self._clock = clock
        self._seconds = seconds
        self._granted = 0.0

    def __enter__(self) -> None:
        self._loop = self.begin()
        self._began = self._clock.blocked_seconds()
        self._timer = self._loop.call_later(self._seconds, self._check)
        self._clock.watch()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._clock.unwatch()
        self._timer.cancel()
        self.end(kind, error)

    def _check(self) -> None:
        blocked = min(self._clock.blocked_seconds() - self._began, (MOST_EXTENDED - 1.0) * self._seconds)
        more, self._granted = blocked - self._granted, blocked
        if more > HICCUP:
            self._timer = self._loop.call_later(more, self._check)
        else:
            self.expire()


class ManualClock(Clock):
    """A clock for tests, which moves only when `advance` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds_blocked = 0.0
        self._now = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Callable[[], None]]] = []
        self._count = 0

    def now(self) -> float:
        """Return the seconds by which the clock was advanced so far."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has advanced by `seconds`."""
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `call` when the clock has advanced by `seconds`."""
        timer = asyncio.TimerHandle(self._now + seconds, call, (), asyncio.get_running_loop())
        self._count += 1
        heapq.heappush(self._timers, (timer.when(), self._count, timer, call))
        return timer

    def blocked_seconds(self) -> float:
        """Return the seconds for which a test says that the process was blocked: `seconds_blocked`."""
        return self.seconds_blocked

    def watch(self) -> None:
        """Do nothing: a test sets `seconds_blocked`."""

    def unwatch(self) -> None:
        """Do nothing: a test sets `seconds_blocked`."""

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and run the timers that are due, each followed by the tasks that it wakes."""
        end = self._now + seconds
        await self._let_run()
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer, call = heapq.heappop(self._timers)
            if not timer.cancelled():
                call()
            await self._let_run()
        self._now = end

    async def _let_run(self) -> None:
        # Run the event loop a few times, since a woken task may wake others.
        for _ in range(20):
            await asyncio.sleep(0)
