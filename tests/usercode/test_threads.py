"""Threads for blocking code: results, errors, context, bounds, and calls that never come back."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from tables import for_each_row

from harness.core.errors import EnvironmentFault, ThreadsHung
from harness.usercode.threads import MAX_ABANDONED, Offload, offload

name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what a thread does sets no asyncio event
            await asyncio.sleep(0.001)


def test_a_call_runs_in_another_thread_and_returns_its_value() -> None:
    async def main() -> None:
        def work(a: int, b: int = 0) -> tuple[int, bool]:
            return a + b, threading.current_thread() is threading.main_thread()

        assert await Offload().run(work, 1, b=2) == (3, False)

    asyncio.run(main())


def test_an_exception_arrives_with_the_line_that_raised_it() -> None:
    def broken() -> None:
        raise ValueError("no")

    async def main() -> None:
        with pytest.raises(ValueError, match="no") as caught:
            await Offload().run(broken)
        assert caught.traceback[-1].name == "broken"

    asyncio.run(main())


@for_each_row("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_would_end_the_process_is_the_environments_fault(error: BaseException) -> None:
    def leave() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(EnvironmentFault, match="leave"):
            await Offload().run(leave)

    asyncio.run(main())


def test_stop_iteration_is_told_like_any_other_error() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await Offload().run(next, iter(()))

    asyncio.run(main())


def test_context_variables_are_seen_and_not_changed() -> None:
    def greet() -> str:
        seen = name.get()
        name.set("thread")
        return seen

    async def main() -> None:
        name.set("rollout")
        assert await Offload().run(greet) == "rollout"
        assert name.get() == "rollout"

    asyncio.run(main())


def test_no_more_threads_than_allowed_work_at_once_and_all_calls_are_done() -> None:
    pool = Offload(max_workers=3)
    lock = threading.Lock()
    together = threading.Barrier(3)
    busy = peak = 0

    def work(number: int) -> int:
        nonlocal busy, peak
        with lock:
            busy += 1
            peak = max(peak, busy)
        if number < 3:
            together.wait(60)  # three do run side by side
        with lock:
            busy -= 1
        return number

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(pool.run(work, number)) for number in range(200)]
        assert [call.result() for call in calls] == list(range(200))

    asyncio.run(main())
    assert peak == 3


def test_reserve_only_ever_raises_the_bound() -> None:
    pool = Offload(max_workers=4)
    pool.reserve(2)
    assert pool.max_workers == 4
    pool.reserve(9)
    assert pool.max_workers == 9


def test_a_cancelled_call_is_abandoned_and_its_place_is_taken() -> None:
    pool = Offload(max_workers=1)
    started, release = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait(30)

    async def main() -> None:
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await pool.run(stuck)
            assert started.is_set()
            assert (pool.abandoned, pool.hung) == (1, (stuck.__qualname__,))
            assert await pool.run(lambda: "next") == "next"
        finally:
            release.set()
        await until(lambda: pool.hung == ())
        assert pool.abandoned == 1
        assert await pool.run(lambda: "still there") == "still there"

    asyncio.run(main())


def test_a_call_that_was_waiting_when_cancelled_never_runs() -> None:
    pool = Offload(max_workers=1)
    started, release = threading.Event(), threading.Event()
    ran: list[str] = []

    def hold() -> None:
        started.set()
        release.wait(30)

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pool.run(hold))
            waiting = tasks.create_task(pool.run(ran.append, "waiting"))
            last = tasks.create_task(pool.run(ran.append, "last"))
            await until(started.is_set)
            waiting.cancel()
            await asyncio.sleep(0)
            release.set()
            await last
        assert ran == ["last"]
        assert pool.abandoned == 0

    asyncio.run(main())


def test_calls_that_wait_behind_a_hung_one_get_a_new_thread() -> None:
    pool = Offload(max_workers=1)
    started, release = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait(30)

    async def main() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                hung = tasks.create_task(pool.run(stuck))
                await until(started.is_set)
                waiting = tasks.create_task(pool.run(lambda: "served"))
                await asyncio.sleep(0)
                hung.cancel()
                assert await waiting == "served"
        finally:
            release.set()

    asyncio.run(main())


def test_too_many_hung_calls_refuse_the_next_and_name_the_culprit() -> None:
    pool = Offload()
    release = threading.Event()

    class Batch:
        def __init__(self) -> None:
            self.started = threading.Event()

        def __call__(self) -> None:
            self.started.set()
            release.wait(30)

        def running(self) -> str:
            return "reward function slow_judge"

    async def main() -> None:
        try:
            for _ in range(MAX_ABANDONED):
                batch = Batch()
                task = asyncio.ensure_future(pool.run(batch))
                await until(batch.started.is_set)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            with pytest.raises(ThreadsHung, match=r"slow_judge.*fine was not called"):
                await pool.run(fine)
        finally:
            release.set()
        await until(lambda: pool.hung == ())
        assert await pool.run(fine) == "fine"

    def fine() -> str:
        return "fine"

    asyncio.run(main())


def test_the_pool_serves_one_event_loop_after_another() -> None:
    pool = Offload()
    for number in range(3):
        assert asyncio.run(pool.run(lambda n=number: n)) == number


def test_a_result_for_a_closed_loop_is_dropped() -> None:
    pool = Offload(max_workers=1)
    started, release, done = threading.Event(), threading.Event(), threading.Event()

    def late() -> None:
        started.set()
        release.wait(30)
        done.set()

    async def leave() -> None:
        call = asyncio.ensure_future(pool.run(late))
        await until(started.is_set)
        call.cancel()

    asyncio.run(leave())
    release.set()
    assert done.wait(60)
    assert asyncio.run(pool.run(lambda: "next loop")) == "next loop"


def test_a_hung_thread_does_not_keep_the_interpreter_alive() -> None:
    program = """
import asyncio, threading
from harness.usercode.threads import offload
async def main():
    try:
        async with asyncio.timeout(0.05):
            await offload.run(threading.Event().wait)
    except TimeoutError:
        print("left behind:", offload.abandoned)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "left behind: 1\n"


def test_a_finished_call_keeps_nothing_alive() -> None:
    import gc
    import weakref

    class Thing:
        pass

    pool = Offload()

    async def main() -> weakref.ref[Thing]:
        thing = Thing()
        alive = weakref.ref(thing)
        await pool.run(id, thing)
        return alive

    def is_gone() -> bool:
        gc.collect()
        return alive() is None

    alive = asyncio.run(main())
    asyncio.run(until(is_gone))  # its thread may come to wait for the next call later than we come here


def test_the_process_has_one_pool() -> None:
    assert isinstance(offload, Offload)


NO_MEMORY = """
import asyncio, resource, threading
from harness.usercode.threads import Offload

async def main():
    offload, release = Offload(), threading.Event()
    first = asyncio.create_task(offload.run(release.wait))
    await asyncio.sleep(0)
    status = open("/proc/self/status").read()
    used = int(status.partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + (2 << 20),) * 2)  # a thread's stack is 8 MB
    others = [asyncio.create_task(offload.run(lambda n=n: n)) for n in range(4)]
    await asyncio.sleep(0)
    release.set()
    print(await first, [await other for other in others])

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_where_no_further_thread_can_be_started_those_that_there_are_do_the_work() -> None:
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "True [0, 1, 2, 3]\n", done.stderr
