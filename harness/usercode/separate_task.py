"""Running user code in a separate task. The engine's tasks are reused for many rollouts; a cancellation that user code
causes or suppresses, or a context variable that it sets, must not affect them.

A task cannot be killed. One that continues after it was cancelled is abandoned, like threads in `usercode.threads`: it
delays neither its run nor the end of the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""Default time for code to end after it was cancelled, in seconds; it may have to stop a container."""

_Outcome = tuple[T | None, BaseException | None]


class OwnTask(Generic[T]):
    """One call of user code in its own task.

    Args:
        what: Name for a warning.
        grace: Seconds that the task has to end after it was cancelled.
        on_end: Called before the task is cancelled.
    """

    def __init__(self, what: str, grace: float = GRACE_SECONDS, *, on_end: Callable[[], object] | None = None) -> None:
        self._what = what
        self._grace = grace
        self._on_end = on_end
        self._stop: asyncio.Future[None] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` in its own task. If the caller is cancelled, so is `work`.

        Raises:
            StoppedError: `stop` was called.
            CancelledError: the caller was cancelled; or `work` itself raised it, and `was_cancelled` is False.
            BaseException: any exception of `work`.
        """
        self._stop = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(_outcome(work))  # not in a task group, which would wait for it
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
                raise RuntimeError("code raised GeneratorExit, which is reserved for generators") from error
            raise error
        finally:
            del error, task  # its traceback refers to this frame; a reference cycle would keep the rollout's state

    def stop(self) -> None:
        """End the call. Meant for `work` itself, which must only wait afterwards."""
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)

    async def _end(self, task: asyncio.Task[_Outcome[T]]) -> None:
        """Cancel the task, and abandon it if it does not end."""
        if self._on_end is not None:
            self._on_end()
        task.cancel()
        try:
            await asyncio.wait({task}, timeout=self._grace)
        finally:
            if not task.done():
                logger.warning(
                    "%s still runs after it was cancelled, and is abandoned: do not catch CancelledError "
                    "(a bare `except:` and `except BaseException:` catch it)",
                    self._what,
                )
                # Else the event loop would wait for it on closing. This function is documented for authors of tasks.
                asyncio._unregister_task(task)  # pyright: ignore[reportPrivateUsage]
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was logged already


class StoppedError(Exception):
    """Error for user code that ended itself by `OwnTask.stop`; raised by `OwnTask.run`."""


async def _outcome(work: Coroutine[Any, Any, T]) -> _Outcome[T]:
    # Returned as a value, since a task that ends by SystemExit or KeyboardInterrupt would end the event loop.
    try:
        return await work, None
    except BaseException as error:
        return None, error
