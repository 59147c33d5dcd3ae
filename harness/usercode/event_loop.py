"""The event loop that environments' code shares with the engine. It continues when a task of an environment calls
`sys.exit`, and it ends even if such tasks or threads are still running."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from harness.core.errors import EnvironmentFault
from harness.usercode.exceptions import describe, should_propagate, where

T = TypeVar("T")

logger = logging.getLogger(__name__)

THREADS = 256
"""Maximum threads of `asyncio.to_thread`."""

PATIENCE = 3.0
"""Seconds that leftover tasks have to end after they were cancelled."""

BLOCKED_SECONDS = 30.0
"""Time without a response after which the event loop of a run counts as blocked."""


def run(runner: asyncio.Runner, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to completion like `runner.run`, but tolerate misbehaving environments.

    If a task calls `sys.exit`, the loop continues, and the code that awaits the task gets the exception. A task that
    does not end when it is cancelled is abandoned, and so is a thread of `asyncio.to_thread` that never returns; the
    runner would wait for them forever."""
    task: asyncio.Task[T] | None = None
    ours: set[asyncio.Task[Any] | None] = set()

    async def begin() -> T:
        nonlocal task
        ours.update(asyncio.all_tasks())
        task = asyncio.ensure_future(_whole(main, ours))
        ours.add(task)
        return await task

    async def go_on() -> T:
        assert task is not None
        ours.add(asyncio.current_task())
        return await task

    part = begin()
    while True:
        try:
            return runner.run(part)
        except (SystemExit, KeyboardInterrupt) as error:
            if task is None or task.done() or should_propagate(error):
                raise
            part = go_on()
        except RuntimeError:
            # `loop.stop()` was called by an environment: only the loop's own callback is missing.
            if task is None or task.done() or runner.get_loop().is_closed():
                raise
            logger.warning("code of an environment stopped the event loop (loop.stop()); the loop was started again")
            part = go_on()


async def in_loop(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], patience: float = BLOCKED_SECONDS
) -> T:
    """Await `work` in `loop`, which runs in another thread, and return its result. Code of environments may run an
    event loop of its own, while models and judges can be called only in the loop of the run.

    Args:
        loop: The event loop of the run.
        work: What to await.
        patience: Seconds within which `loop` must respond.

    Raises:
        EnvironmentFault: `loop` is closed, so the run has ended; or it is blocked, perhaps by code that waits for this
            call, which would then wait for ever.
    """
    responds: Future[None] = Future()
    try:
        loop.call_soon_threadsafe(responds.set_result, None)
        await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(responds)), patience)
        future = asyncio.run_coroutine_threadsafe(work, loop)
    except TimeoutError as error:
        work.close()
        raise EnvironmentFault(
            f"a model was called from another event loop, and that of the run was blocked for {patience:g} s, perhaps "
            "by code that waits for this call in the thread of the run; await it there instead"
        ) from error
    except RuntimeError as error:
        work.close()
        raise EnvironmentFault("a model was called after its run had ended") from error
    except asyncio.CancelledError:
        work.close()
        raise
    return await asyncio.wrap_future(future)


def tell_lost_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Exception handler of event loops: log in one line an exception that no task awaits."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        logger.warning("%s: %s", context.get("message"), describe(error))
    else:
        loop.default_exception_handler(context)


async def _whole(main: Coroutine[Any, Any, T], ours: set[asyncio.Task[Any] | None]) -> T:
    loop = asyncio.get_running_loop()
    # The default executor has a few threads per core. Calls that never return would use up all of them.
    executor = ThreadPoolExecutor(THREADS, "asyncio")
    loop.set_default_executor(executor)
    try:
        return await main
    finally:
        await _end_tasks(asyncio.all_tasks() - ours)
        executor.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor(1))  # an idle executor for the runner to shut down


async def _end_tasks(left: set[asyncio.Task[Any]]) -> None:
    for task in left:
        task.cancel()
    if not left:
        return
    _, stubborn = await asyncio.wait(left, timeout=PATIENCE)
    for task in stubborn:
        logger.warning("a task of an environment did not end when it was cancelled: %s", _where(task))
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # already logged above
        asyncio.tasks._unregister_task(task)  # pyright: ignore[reportPrivateUsage]  # so that the runner does not wait


def _where(task: asyncio.Task[Any]) -> str:
    """Return `FUNCTION (FILE:LINE)` of the line where a task waits."""
    [*_, frame] = task.get_stack() or [None]
    return str(task.get_coro()) if frame is None else where(frame)


@contextmanager
def stop_signals() -> Generator[asyncio.Event]:
    """Context manager with an event that SIGINT and SIGTERM set; call it in a running event loop. At the end, the
    signals have their usual effect again, also after an error: uvloop would leave its own handler."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
