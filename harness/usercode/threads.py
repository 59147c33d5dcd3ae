"""A thread pool for blocking environment code, so that it does not block the event loop. It has no timeout of its own:
callers cancel the await.

A thread cannot be killed. If the await is cancelled while the call runs, the call is abandoned: its thread no longer
counts, a new thread may replace it, and its result is discarded. If too many calls hang at once, the environment is
broken, and further calls are rejected."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

from harness.core.errors import EnvironmentFault, ThreadsHung
from harness.usercode.exceptions import describe
from harness.usercode.scope import scope

P = ParamSpec("P")
T = TypeVar("T")

MAX_WORKERS = 32
"""Default number of threads. Enough for blocking calls of all concurrent scorings; more would only contend for the
interpreter lock."""

MAX_ABANDONED = 8
"""Number of hung calls at which the pool rejects further ones. One or two may be chance; eight are a bug that would use
up a thread per rollout."""

QUICK_SECONDS = 0.0002
"""Duration below which a call counts as quick: waking a thread for it would take about as long."""

QUICK_CALLS = 32
"""Number of consecutive quick calls after which one thread serves all calls."""

PATIENCE_SECONDS = 0.01
"""Time without progress after which one thread no longer serves all calls."""

_WAITING, _RUNNING, _DONE, _ABANDONED = range(4)


class _Outbox:
    """Finished calls to deliver to an event loop; several are delivered in one wake-up."""

    __slots__ = ("_calls", "_scheduled", "is_watched", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[_PooledCall[Any]] = deque()
        self._scheduled = False
        self.is_watched = False
        """Whether the loop will check that waiting calls make progress."""

    def put(self, call: _PooledCall[Any]) -> None:
        self._calls.append(call)
        # If two threads both see False, the loop is woken once more than needed, but never too rarely.
        if not self._scheduled:
            self._scheduled = True
            try:
                self.loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._calls.clear()  # the loop is closed, so no task waits

    def _deliver(self) -> None:
        self._scheduled = False
        while self._calls:
            future = self._calls.popleft().future
            if not future.done():
                future.set_result(None)


@dataclass(eq=False, slots=True)
class _PooledCall(Generic[T]):
    """One function call in the pool."""

    function: Callable[[], T]
    outbox: _Outbox
    future: asyncio.Future[None]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    status: int = _WAITING
    value: T | None = None
    error: BaseException | None = None


class Offload:
    """A bounded pool of daemon threads that are started on demand. While all calls are quick, one thread serves them
    one after the other, since waking a thread for each would take most of the time. As soon as a call is slow, each
    call gets a thread of its own again.

    Args:
        max_workers: Maximum number of working threads, not counting abandoned ones.
    """

    def __init__(self, max_workers: int = MAX_WORKERS) -> None:
        self.abandoned = 0
        """Number of calls abandoned so far, including those that returned later."""
        self.max_workers = max_workers
        self._forget()

    def _forget(self) -> None:
        """Forget all threads, since a forked child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._calls: deque[_PooledCall[Any]] = deque()
        self._turns: SimpleQueue[None] = SimpleQueue()  # one entry wakes one thread
        self._outbox: _Outbox | None = None
        self._threads = 0
        self._awake = 0  # threads that work, or for which an entry in `_turns` waits
        self._taken = 0  # calls begun so far
        self._streak = 0  # quick calls since the last slow one
        self._demand = 0  # calls waiting or running, without abandoned ones
        self._hung: dict[_PooledCall[Any], str] = {}

    @property
    def hung(self) -> tuple[str, ...]:
        """Names of the functions that were abandoned and have not returned."""
        return tuple(self._hung.values())

    def reserve(self, max_workers: int) -> None:
        """Raise the maximum number of working threads to at least `max_workers`."""
        self.max_workers = max(self.max_workers, max_workers)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in a thread, with the caller's context variables, and return its result.

        Cancelling the await abandons the call. A callable object may have a method `running() -> str` that names its
        current work, for the message about hung calls.

        Raises:
            ThreadsHung: too many earlier calls hang.
            EnvironmentFault: the function tried to end the process or the thread.
            Exception: any exception of the function.
        """
        call = self._submit(function, lambda: function(*args, **kwargs))
        try:
            await call.future
        except asyncio.CancelledError:
            self._withdraw(call, function)
            raise
        if call.error is None:
            return call.value  # type: ignore[return-value]  # set together with `error`
        try:
            if not isinstance(call.error, Exception):
                raise EnvironmentFault(f"{_name(function)} raised {describe(call.error)}") from call.error
            raise call.error
        finally:
            del call  # the error's traceback refers to this frame; a reference cycle would keep the rollout's state

    def _submit(self, function: Callable[..., T], bound: Callable[[], T]) -> _PooledCall[T]:
        hung = list(self._hung.items()) if self._hung else ()
        mine = [name for call, name in hung if scope(call.context).run == scope().run]
        if len(mine) >= MAX_ABANDONED:
            raise ThreadsHung(
                f"{len(mine)} calls to blocking environment code are hanging ({', '.join(sorted(set(mine)))}), so "
                f"{_name(function)} was not called; make them return (give network calls and subprocesses a timeout), "
                "or make them async"
            )
        loop = asyncio.get_running_loop()
        outbox = self._outbox
        if outbox is None or outbox.loop is not loop:
            outbox = self._outbox = _Outbox(loop)
        call = _PooledCall(bound, outbox, loop.create_future())
        with self._lock:
            self._demand += 1
            self._calls.append(call)
            grow = self._wake()
        if self._streak >= QUICK_CALLS:
            self._watch(outbox)
        if grow:
            try:
                self._start()
            except RuntimeError:
                self._withdraw(call, function)
                raise
        return call

    def _wake(self) -> bool:
        """Wake a thread for a waiting call, unless enough are awake. Returns whether the caller must start a thread
        after it has released the lock."""
        enough = 1 if self._streak >= QUICK_CALLS else min(self._demand, self.max_workers)
        if self._awake >= enough:
            return False
        self._awake += 1
        self._turns.put(None)
        is_new = self._awake > self._threads
        self._threads += is_new
        return is_new

    def _watch(self, outbox: _Outbox) -> None:
        if not outbox.is_watched:
            outbox.is_watched = True
            outbox.loop.call_later(PATIENCE_SECONDS, self._check_progress, outbox, self._taken)

    def _check_progress(self, outbox: _Outbox, taken: int) -> None:
        """Wake threads for the waiting calls if the thread that serves all of them is held up by one."""
        outbox.is_watched = False
        for _ in range(len(self._calls)):
            with self._lock:
                if self._taken == taken:
                    self._streak = 0
                grow = self._wake()
            if self._streak >= QUICK_CALLS:
                self._watch(outbox)
                return
            if grow:
                self._start()

    def _start(self) -> None:
        for is_last in (False, True):
            try:
                threading.Thread(target=self._work, name="bench-offload", daemon=True).start()
                return
            except RuntimeError:  # no memory for its stack; a failed rollout in a reference cycle may still use it
                gc.collect()
                with self._lock:
                    self._threads -= is_last
                    self._awake -= is_last
                    if is_last and not self._threads:
                        raise
        # The existing threads will take the call in turn.

    def _withdraw(self, call: _PooledCall[Any], function: Callable[..., object]) -> None:
        """Cancel a call: remove it if it waits, abandon its thread if it runs."""
        grow = False
        with self._lock:
            if call.status == _DONE:
                return
            running, call.status = call.status == _RUNNING, _ABANDONED
            self._demand -= 1
            if running:
                self.abandoned += 1
                self._threads -= 1
                self._awake -= 1
                self._hung[call] = _name(function)
                grow = bool(self._calls) and self._wake()
        if grow:
            self._start()

    def _work(self) -> None:
        """Thread function: run calls until one of them was abandoned."""
        while True:
            self._turns.get()
            while (call := self._next()) is not None:  # an idle thread keeps no call, and so no rollout's state, alive
                started = time.monotonic()
                try:
                    call.value = call.context.run(call.function)
                except BaseException as error:  # passed on to the task that awaits the call
                    call.error = error
                is_quick = time.monotonic() - started < QUICK_SECONDS
                with self._lock:
                    if call.status == _ABANDONED:
                        self._hung.pop(call, None)
                        return  # another thread has replaced this one
                    call.status = _DONE
                    self._demand -= 1
                    self._streak = self._streak + 1 if is_quick else 0
                call.outbox.put(call)

    def _next(self) -> _PooledCall[Any] | None:
        """Return the next call for this thread; None if none waits, so that the thread must sleep."""
        with self._lock:
            while self._calls:
                call = self._calls.popleft()
                if call.status != _ABANDONED:
                    call.status = _RUNNING
                    self._taken += 1
                    return call
            self._awake -= 1
            return None


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(function: Callable[..., object]) -> str:
    running = getattr(function, "running", None)
    if callable(running):
        return str(running())
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


offload = Offload()
"""The thread pool of this process."""

os.register_at_fork(after_in_child=offload._forget)  # pyright: ignore[reportPrivateUsage]
