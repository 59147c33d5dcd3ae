"""Timeouts of rollouts. The time that a request waits for a slot, for pacing or for a retry does not count; otherwise
the concurrency and the other runs of a suite would decide which rollouts time out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from harness.usercode.scope import CURRENT, Scope, scope


class Expiry:
    """Base class of timeouts: cancels a block of the current task, as `asyncio.timeout` does, but with less work."""

    def __init__(self) -> None:
        self._has_expired = False

    def begin(self) -> asyncio.AbstractEventLoop:
        """Begin the block in the current task, and return the running event loop."""
        task = asyncio.current_task()
        assert task is not None, "a timeout needs a task"
        self._task, self._cancelling = task, task.cancelling()
        return task.get_loop()

    def expire(self) -> None:
        """Cancel the block, since its time is up."""
        self._has_expired = True
        self._task.cancel()

    def end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """End the block; a cancellation by the timeout becomes a TimeoutError.

        Raises:
            TimeoutError: the timeout has expired, and the task was not cancelled for another reason too.
        """
        if self._has_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expired(self) -> bool:
        """Return whether the timeout has expired."""
        return self._has_expired


class Deadline(Expiry):
    """Timeout of one attempt at a rollout: `with` raises TimeoutError when the time is up, like `asyncio.timeout`.

    Deadlines can be nested, with the inner one for a part of the attempt. All are paused while a request waits.

    Args:
        seconds: Timeout in seconds; None for no timeout.
    """

    def __init__(self, seconds: float | None) -> None:
        super().__init__()
        self.waited = 0.0
        """Seconds that the rollout's requests have waited in queues."""
        self._waiting = 0
        self._since = 0.0
        self._left = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._outer: Deadline | None = None

    def __enter__(self) -> Deadline:
        outside = scope()
        self._outer = outside.deadline
        self._token = CURRENT.set(Scope(outside.run, outside.rollout, self, outside.held))
        if self._left is not None:
            self._timer = self.begin().call_later(self._left, self.expire)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        CURRENT.reset(self._token)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._left = None  # a task that the rollout left running may still wait
        if self._has_expired:
            self.end(kind, error)

    def stop(self) -> None:
        """Pause the clock: a request starts waiting."""
        if self._outer is not None:
            self._outer.stop()
        self._waiting += 1
        if self._waiting > 1:
            return
        self._since = asyncio.get_running_loop().time()
        if self._timer is not None and not self._has_expired:
            self._left = self._timer.when() - self._since
            self._timer.cancel()
            self._timer = None

    def go_on(self) -> None:
        """End the wait of one request. The clock resumes when no request waits any more."""
        if self._outer is not None:
            self._outer.go_on()
        self._waiting -= 1
        if self._waiting:
            return
        loop = asyncio.get_running_loop()
        self.waited += loop.time() - self._since
        if self._timer is None and self._left is not None:
            self._timer = loop.call_later(self._left, self.expire)


@contextmanager
def waiting() -> Generator[None]:
    """Pause the rollout's clock inside the block."""
    deadline = scope().deadline
    if deadline is None:
        yield
        return
    deadline.stop()
    try:
        yield
    finally:
        deadline.go_on()


class Relay(Deadline):
    """Forwards pauses to the deadline of a rollout in another process, for requests inside a `with` block.

    Args:
        tell: Called with True when a request starts waiting, and with False when it stops. Not called for waits that
            end in the same iteration of the event loop.
    """

    def __init__(self, tell: Callable[[bool], None]) -> None:
        super().__init__(None)
        self._tell = tell
        self._told = False

    def stop(self) -> None:
        """Register a waiting request."""
        self._waiting += 1
        if self._waiting == 1:
            asyncio.get_running_loop().call_soon(self._tell_if_waiting)

    def go_on(self) -> None:
        """Unregister a waiting request."""
        self._waiting -= 1
        if not self._waiting and self._told:
            self._told = False
            self._tell(False)

    def _tell_if_waiting(self) -> None:
        if self._waiting and not self._told:
            self._told = True
            self._tell(True)


def was_cancelled() -> bool:
    """Whether the current task was cancelled from outside. False if its own code raised `CancelledError`, for example
    by awaiting a task that it had cancelled itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
