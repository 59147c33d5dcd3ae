"""The event loop that code of environments shares with us: it goes on when a task of theirs ends the process, and it
ends although they leave tasks and threads behind. Owns no task of ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from harness.usercode.exceptions import describe, should_propagate, where

T = TypeVar("T")

logger = logging.getLogger(__name__)

THREADS = 256
"""Of `asyncio.to_thread`, for environments and for us."""

PATIENCE = 3.0
"""Seconds that tasks which are left behind get to end, once they are cancelled."""


def run(runner: asyncio.Runner, main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end, as `runner.run` does, and survive what environments do.

    A task that ends by `sys.exit` ends the event loop, and so everything that is under way: the loop goes on, and
    whoever awaits the task gets its error. A task that does not end when it is cancelled is left where it is, and so is
    a thread of `asyncio.to_thread` that never returns: the runner would wait for either for ever.
    """
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
            # `loop.stop()` in code that shares the loop: it is what the loop ends by that is missing, and nothing else.
            if task is None or task.done() or runner.get_loop().is_closed():
                raise
            logger.warning("something in an environment has stopped the event loop (loop.stop()); it goes on")
            part = go_on()


def tell_lost_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception handler of event loops: says in one line what a task raised that nobody awaits."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        logger.warning("%s: %s", context.get("message"), describe(error))
    else:
        loop.default_exception_handler(context)


async def _whole(main: Coroutine[Any, Any, T], ours: set[asyncio.Task[Any] | None]) -> T:
    loop = asyncio.get_running_loop()
    # Python's own has a few threads for each core. Calls that never return would take them all, and ours would wait.
    executor = ThreadPoolExecutor(THREADS, "asyncio")
    loop.set_default_executor(executor)
    try:
        return await main
    finally:
        await _end_tasks(asyncio.all_tasks() - ours)
        executor.shutdown(wait=False, cancel_futures=True)
        loop.set_default_executor(ThreadPoolExecutor(1))  # which the runner will find with nothing to do


async def _end_tasks(left: set[asyncio.Task[Any]]) -> None:
    for task in left:
        task.cancel()
    if not left:
        return
    _, stubborn = await asyncio.wait(left, timeout=PATIENCE)
    for task in stubborn:
        logger.warning("a task of an environment does not end when it is cancelled: %s", _where(task))
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is said above
        asyncio.tasks._unregister_task(task)  # pyright: ignore[reportPrivateUsage]  # so that nobody waits for it


def _where(task: asyncio.Task[Any]) -> str:
    """`FUNCTION (FILE:LINE)` of where a task waits."""
    [*_, frame] = task.get_stack() or [None]
    return str(task.get_coro()) if frame is None else where(frame)
