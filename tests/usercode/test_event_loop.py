"""The event loop goes on whatever tasks of environments do, and ends whatever they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import Callable

import pytest
import uvloop

from harness.core.errors import EnvironmentFault
from harness.usercode import event_loop, exceptions

LOOPS = [uvloop.new_event_loop, asyncio.new_event_loop]


async def leaves() -> None:
    sys.exit(3)


async def interrupts() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("new", LOOPS)
def test_work_for_a_loop_that_has_ended_is_refused(new: Callable[[], asyncio.AbstractEventLoop]) -> None:
    loop = new()
    loop.close()
    with pytest.raises(EnvironmentFault, match="a model was called after its run had ended"):
        asyncio.run(event_loop.in_loop(loop, asyncio.sleep(0)))


@pytest.mark.parametrize("new", LOOPS)
@pytest.mark.parametrize(("work", "kind"), [(leaves, SystemExit), (interrupts, KeyboardInterrupt)])
def test_who_awaits_a_task_gets_its_error_and_the_others_go_on(
    new: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], object], kind: type[BaseException]
) -> None:
    async def main() -> list[str]:
        told: list[str] = []
        goes_on = asyncio.Event()

        async def other() -> None:
            await goes_on.wait()
            told.append("the other is done")

        going = asyncio.create_task(other())
        for _ in range(2):
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(work())  # type: ignore[arg-type]
            except kind:
                told.append("caught")
        goes_on.set()
        await going
        return told

    with exceptions.interrupts_recorded(), asyncio.Runner(loop_factory=new) as runner:
        assert event_loop.run(runner, main()) == ["caught", "caught", "the other is done"]
    exceptions.forget_interrupt()


def test_the_end_of_main_itself_is_the_end() -> None:
    with asyncio.Runner() as runner, pytest.raises(SystemExit) as ended:
        event_loop.run(runner, leaves())
    assert ended.value.code == 3


def test_a_task_that_does_not_end_is_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    async def stays() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def main() -> str:
        task = asyncio.create_task(stays())
        await asyncio.sleep(0)
        assert not task.done()
        return "done"

    with caplog.at_level(logging.WARNING), asyncio.Runner() as runner:
        assert event_loop.run(runner, main()) == "done"
    line = stays.__code__.co_firstlineno + 3
    assert caplog.messages == [
        f"a task of an environment did not end when it was cancelled: stays (test_event_loop.py:{line})"
    ]


def test_a_thread_that_never_returns_is_not_waited_for() -> None:
    released = threading.Event()

    async def main() -> str:
        task = asyncio.create_task(asyncio.to_thread(released.wait))
        await asyncio.sleep(0)
        assert not task.done()
        return "done"

    with asyncio.Runner() as runner:
        assert event_loop.run(runner, main()) == "done"
    released.set()  # or Python would wait for it at its end


def test_what_nobody_awaits_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("lost")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(event_loop.tell_lost_error)
        task = asyncio.create_task(fails())
        await asyncio.sleep(0)
        assert task.done()

    with caplog.at_level(logging.WARNING), asyncio.Runner() as runner:
        event_loop.run(runner, main())
    [record] = caplog.records
    line = fails.__code__.co_firstlineno + 1
    words = "Task exception was never retrieved: ValueError: lost"
    assert record.getMessage() == f"{words} (in fails, test_event_loop.py:{line})"
    assert record.exc_info is None


@pytest.mark.parametrize("new", LOOPS)
def test_a_loop_that_is_stopped_goes_on(
    new: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "done"

    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=new) as runner:
        assert event_loop.run(runner, main()) == "done"
    assert caplog.messages == [
        "code of an environment stopped the event loop (loop.stop()); the loop was started again"
    ]


def test_code_that_blocks_the_loop_with_a_call_of_its_own_is_told() -> None:
    async def blocked() -> str:
        call = event_loop.in_loop(asyncio.get_running_loop(), asyncio.sleep(0), patience=0.2)
        errors: list[str] = []

        def other() -> None:
            try:
                asyncio.run(call)
            except EnvironmentFault as error:
                errors.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        [error] = errors
        return error

    assert "blocked for 0.2 s" in asyncio.run(blocked())
