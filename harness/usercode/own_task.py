"""User code in a task of its own. Owns the border between that task and the engine's: the engine's go from run to run,
so a cancellation that an agent aims at itself, or swallows, or a context variable that it sets, must stay on its side.

A task cannot be killed. One that goes on after it was cancelled is left behind, as `usercode.threads` does with
threads: it no longer holds up its run, nor the end of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""How long code that was cancelled may take to end: it may have a container to stop."""

_Outcome = tuple[T | None, BaseException | None]


class OwnTask(Generic[T]):
    """One call of user code.

    Args:
        what: How a warning names it.
        grace: Seconds that it has to end after it was cancelled.
        on_end: Called before it is cancelled.
    """

    def __init__(self, what: str, grace: float = GRACE_SECONDS, *, on_end: Callable[[], object] | None = None) -> None:
        self._what = what
        self._grace = grace
        self._on_end = on_end
        self._stop: asyncio.Future[None] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`; cancelling the caller cancels it.

        Raises:
            StoppedError: `stop` was called.
            CancelledError: the caller was cancelled; or `work` ended so of itself, and `was_cancelled` is False.
            BaseException: whatever `work` raised.
        """
        self._stop = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(_outcome(work))  # not in a group, which could not leave it behind
        try:
            await asyncio.wait({task, self._stop}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end(task)
            raise
        if not task.done():
            await self._end(task)
            raise StoppedError
        value, error = task.result()
        if error is None:
            return value  # type: ignore[return-value]  # set together with `error`
        try:
            if isinstance(error, GeneratorExit):
                raise RuntimeError("GeneratorExit was raised, which only the interpreter should do") from error
            raise error
        finally:
            del error, task  # its traceback holds this frame: no cycle, or the rollout's state would stay

    def stop(self) -> None:
        """End it; for `work` itself to call, which should then only wait."""
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)

    async def _end(self, task: asyncio.Task[_Outcome[T]]) -> None:
        """Cancel it, and leave it behind if it goes on."""
        if self._on_end is not None:
            self._on_end()
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=self._grace)
        finally:
            if not task.done():
                logger.warning(
                    "%s goes on after it was cancelled, and is left behind: let CancelledError through "
                    "(a bare `except:` and `except BaseException:` catch it)",
                    self._what,
                )
                # Or the event loop would wait for it when it closes. The name is documented, for makers of tasks.
                asyncio._unregister_task(task)  # pyright: ignore[reportPrivateUsage]
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # all is said, as where asyncio sets it


class StoppedError(Exception):
    """`OwnTask.stop` was called."""


async def _outcome(work: Coroutine[Any, Any, T]) -> _Outcome[T]:
    # As a value: a task that ends by SystemExit or KeyboardInterrupt would end the event loop.
    try:
        return await work, None
    except BaseException as error:
        return None, error
