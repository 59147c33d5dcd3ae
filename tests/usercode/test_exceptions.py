"""Which exceptions stop at the boundary around environments, and what is said of them."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pytest

from harness.core.errors import EnvironmentFault
from harness.usercode import exceptions
from harness.usercode.threads import offload


def caught(function: Callable[[], object]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def at(function: FunctionType) -> str:
    """A function whose first line raises."""
    return f"in {function.__name__}, {Path(__file__).name}:{function.__code__.co_firstlineno + 1}"


def breaks() -> None:
    raise ValueError("no")


def breaks_in_the_library() -> None:
    json.loads("{")


def test_the_place_is_the_authors_line() -> None:
    assert exceptions.place(caught(breaks)) == at(breaks)
    assert exceptions.place(caught(breaks_in_the_library)) == at(breaks_in_the_library)
    assert exceptions.place(ValueError("never raised")) == ""


def test_the_place_of_what_we_raise_on_account_of_another_is_the_others() -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def main() -> None:
        await offload.run(leave)

    error = caught(lambda: asyncio.run(main()))
    assert type(error) is EnvironmentFault and exceptions.place(error) == at(leave)
    assert str(error).endswith(f"leave raised SystemExit: 3 ({at(leave)})")
    assert exceptions.describe(error) == str(error), "the place is said once"


def test_an_error_is_told_with_its_type_and_a_fault_in_its_own_words() -> None:
    assert exceptions.describe(caught(breaks)) == f"ValueError: no ({at(breaks)})"
    assert exceptions.describe(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert exceptions.describe(EnvironmentFault("row 3 is wrong")) == "row 3 is wrong"


def test_an_interrupt_is_the_users_where_ctrl_c_may_have_raised_it() -> None:
    error = KeyboardInterrupt()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert exceptions.should_propagate(error)
    assert not exceptions.should_propagate(SystemExit()) and not exceptions.should_propagate(ValueError())
    told: list[bool] = []
    thread = threading.Thread(target=lambda: told.append(exceptions.should_propagate(error)))
    thread.start()
    thread.join()
    assert told == [False], "signals interrupt the main thread alone"


def test_a_handler_of_ours_tells_the_users_interrupt_from_one_that_code_raises() -> None:
    before = signal.signal(signal.SIGINT, exceptions.on_interrupt)
    try:
        exceptions.forget_interrupt()
        assert not exceptions.should_propagate(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt) as pressed:
            signal.raise_signal(signal.SIGINT)
        assert exceptions.should_propagate(pressed.value)
    finally:
        signal.signal(signal.SIGINT, before)
        exceptions.forget_interrupt()


def test_a_cancellation_passes_if_it_comes_from_outside() -> None:
    async def main() -> list[bool]:
        told: list[bool] = []

        async def waits() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                told.append(exceptions.should_propagate(error))

        told.append(exceptions.should_propagate(asyncio.CancelledError()))
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        await task
        return told

    assert asyncio.run(main()) == [False, True]
