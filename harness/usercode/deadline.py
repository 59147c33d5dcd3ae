"""The time that a rollout may take, not counting what it waits for in our own queues. Owns the clock that stops while
a request waits for a slot, for pacing or for a back-off: else a suite's other runs, or `-c`, would decide who times
out."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType


class Deadline:
    """Bounds one attempt at a rollout: `async with` raises TimeoutError when its time is up, as `asyncio.timeout` does.

    One inside another bounds a part of the attempt; while a request waits, both stand still.

    Args:
        seconds: None for no bound.
    """

    def __init__(self, seconds: float | None) -> None:
        self._bound = asyncio.timeout(seconds)
        self.waited = 0.0
        """Seconds that the rollout's requests waited in our queues."""
        self._waiting = 0
        self._since = 0.0
        self._left: float | None = None
        self._open = False
        self._outer: Deadline | None = None

    async def __aenter__(self) -> Deadline:
        self._outer = _current.get()
        self._token = _current.set(self)
        await self._bound.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False  # a task that the rollout left behind may still wait
        _current.reset(self._token)
        await self._bound.__aexit__(kind, error, trace)

    def expired(self) -> bool:
        """Whether the time was up."""
        return self._bound.expired()

    def stop(self) -> None:
        """A request begins to wait."""
        if self._outer is not None:
            self._outer.stop()
        self._waiting += 1
        if self._waiting > 1:
            return
        self._since = asyncio.get_running_loop().time()
        if self._open and not self._bound.expired() and (when := self._bound.when()) is not None:
            self._left = when - self._since
            self._bound.reschedule(None)

    def go_on(self) -> None:
        """It waits no more; with the last one that waited, the clock goes on."""
        if self._outer is not None:
            self._outer.go_on()
        self._waiting -= 1
        if self._waiting:
            return
        now = asyncio.get_running_loop().time()
        self.waited += now - self._since
        if self._open and self._left is not None:
            self._bound.reschedule(now + self._left)
            self._left = None


_current: contextvars.ContextVar[Deadline | None] = contextvars.ContextVar("deadline", default=None)
"""Of the rollout that the current task works for."""


@contextmanager
def waiting() -> Generator[None]:
    """What happens inside is our own queue: the rollout's clock stands still."""
    deadline = _current.get()
    if deadline is None:
        yield
        return
    deadline.stop()
    try:
        yield
    finally:
        deadline.go_on()


def current() -> Deadline | None:
    """The clock of the rollout that the current task works for."""
    return _current.get()


class Relay(Deadline):
    """Stands for the clock of a rollout in another process.

    Args:
        tell: Called with True when a request begins to wait, and with False when it goes on. Waits that end within the
            same turn of the loop are not told.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        super().__init__(None)
        self._tell = tell
        self._told = False

    def stop(self) -> None:
        """A request begins to wait."""
        self._waiting += 1
        if self._waiting == 1:
            asyncio.get_running_loop().call_soon(self._tell_if_waiting)

    def go_on(self) -> None:
        """It waits no more."""
        self._waiting -= 1
        if not self._waiting and self._told:
            self._told = False
            self._tell(False)

    def _tell_if_waiting(self) -> None:
        if self._waiting and not self._told:
            self._told = True
            self._tell(True)


@contextmanager
def relayed(tell: Callable[[bool], None]) -> Generator[None]:
    """What waits inside is told to `tell`, which knows whose clock stands still for it; see `Relay`."""
    token = _current.set(Relay(tell))
    try:
        yield
    finally:
        _current.reset(token)


def was_cancelled() -> bool:
    """Whether somebody has cancelled the current task, and not its own code raised `CancelledError`: awaiting a task
    that the code itself has cancelled does that, and would otherwise look like our own stop."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
