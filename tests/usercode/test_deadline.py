"""A rollout's time does not run while its requests wait in our own queues. The clock of these loops goes on only where
everybody waits: no machine is too busy for them."""

from __future__ import annotations

import asyncio

import pytest
import quick_time

from harness.usercode.deadline import Deadline, Relay, waiting


def test_without_waiting_time_is_up_when_it_is_up() -> None:
    async def main() -> Deadline:
        deadline = Deadline(0.01)
        with pytest.raises(TimeoutError), deadline:
            await asyncio.Event().wait()
        return deadline

    deadline = quick_time.run(main())
    assert deadline.expired()
    assert deadline.waited == 0.0


def test_waiting_does_not_count() -> None:
    async def main() -> Deadline:
        deadline = Deadline(0.05)
        with deadline, waiting():
            await asyncio.sleep(0.2)
        return deadline

    deadline = quick_time.run(main())
    assert not deadline.expired()
    assert deadline.waited >= 0.2


def test_after_waiting_what_is_left_is_left() -> None:
    async def main() -> Deadline:
        deadline = Deadline(0.05)
        with pytest.raises(TimeoutError), deadline:
            with waiting():
                await asyncio.sleep(0.1)
            await asyncio.Event().wait()
        return deadline

    assert quick_time.run(main()).expired()


def test_the_clock_goes_on_when_the_last_of_several_has_waited() -> None:
    async def main() -> Deadline:
        deadline = Deadline(0.05)
        first, second = asyncio.Event(), asyncio.Event()

        async def wait(event: asyncio.Event) -> None:
            with waiting():
                await event.wait()

        with deadline:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(wait(first))
                tasks.create_task(wait(second))
                await asyncio.sleep(0)
                first.set()
                with waiting():
                    await asyncio.sleep(0.1)
                second.set()
        return deadline

    assert not quick_time.run(main()).expired()


def test_a_task_that_outlives_its_rollout_may_wait_on() -> None:
    async def main() -> float:
        deadline, event = Deadline(5.0), asyncio.Event()

        async def wait() -> None:
            with waiting():
                await event.wait()

        async with asyncio.TaskGroup() as tasks:
            with deadline:
                tasks.create_task(wait())
                await asyncio.sleep(0)
                await asyncio.sleep(0.1)
            event.set()
        return deadline.waited

    assert quick_time.run(main()) > 0.0


def test_while_a_request_waits_an_outer_deadline_stands_still_as_well() -> None:
    async def main() -> tuple[Deadline, Deadline]:
        outer, inner = Deadline(0.05), Deadline(0.05)
        with outer:
            with inner, waiting():
                await asyncio.sleep(0.2)
            with waiting():
                await asyncio.sleep(0.1)
        return outer, inner

    outer, inner = quick_time.run(main())
    assert not outer.expired()
    assert not inner.expired()
    assert 0.2 <= inner.waited < outer.waited
    assert outer.waited >= 0.3


def test_an_inner_deadline_may_be_up_before_the_outer_one() -> None:
    async def main() -> tuple[Deadline, Deadline]:
        outer, inner = Deadline(20.0), Deadline(0.01)
        with outer:
            with pytest.raises(TimeoutError), inner:
                await asyncio.Event().wait()
            with waiting():
                await asyncio.sleep(0.1)
        return outer, inner

    outer, inner = quick_time.run(main())
    assert inner.expired()
    assert not outer.expired()
    assert inner.waited == 0.0
    assert outer.waited > 0.0


def test_an_outer_deadline_goes_on_when_an_inner_one_has_waited() -> None:
    async def main() -> Deadline:
        outer = Deadline(0.05)
        with pytest.raises(TimeoutError), outer, Deadline(None):
            with waiting():
                await asyncio.sleep(0.1)
            await asyncio.Event().wait()
        return outer

    outer = quick_time.run(main())
    assert outer.expired()
    assert outer.waited >= 0.1


def test_a_task_left_behind_in_an_inner_deadline_frees_the_outer_one() -> None:
    async def main() -> Deadline:
        outer, event = Deadline(0.05), asyncio.Event()

        async def wait() -> None:
            with waiting():
                await event.wait()

        with pytest.raises(TimeoutError), outer:
            with Deadline(5.0):
                task = asyncio.ensure_future(wait())
                await asyncio.sleep(0)
            event.set()
            await task
            await asyncio.Event().wait()
        return outer

    assert quick_time.run(main()).expired()


def test_outside_of_a_rollout_waiting_is_nothing() -> None:
    async def main() -> str:
        with waiting():
            await asyncio.sleep(0)
        return "done"

    assert quick_time.run(main()) == "done"


def test_a_wait_is_told_to_whoever_keeps_the_clock_in_another_process() -> None:
    told: list[bool] = []

    async def main() -> None:
        with Relay(told.append):
            with waiting():
                pass  # over within the same turn of the loop: nothing to be told
            await asyncio.sleep(0)
            assert told == []
            with waiting():
                with waiting():
                    await asyncio.sleep(0)
                    assert told == [True]
                assert told == [True]  # one of the two still waits
            assert told == [True, False]
            with waiting():
                await asyncio.sleep(0)
        with waiting():  # nobody's
            await asyncio.sleep(0)

    quick_time.run(main())
    assert told == [True, False, True, False]
