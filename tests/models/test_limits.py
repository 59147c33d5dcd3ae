"""Slots, turns, pace and adaptive concurrency of the limiter."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models.clock import ManualClock
from harness.models.delays import note_of
from harness.models.limits import Limiter


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def queue(limiter: Limiter, order: list[str], *requests: tuple[str, bool]) -> list[asyncio.Task[None]]:
    """Queue requests one by one; each notes its lane when it gets its slot, and keeps it."""

    async def one(lane: str, urgent: bool) -> None:
        await limiter.acquire(lane, urgent)
        order.append(lane)

    tasks: list[asyncio.Task[None]] = []
    for lane, urgent in requests:
        tasks.append(asyncio.ensure_future(one(lane, urgent)))
        await settle()
    return tasks


def test_the_bound_is_never_exceeded_and_slots_come_back() -> None:
    async def main() -> None:
        limiter = Limiter(3)
        peak = 0

        async def one() -> None:
            nonlocal peak
            await limiter.acquire()
            peak = max(peak, limiter.in_flight)
            await asyncio.sleep(0)
            limiter.release()

        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(one())
        assert (peak, limiter.peak, limiter.in_flight, limiter.queued) == (3, 3, 0, 0)

    asyncio.run(main())


def test_lanes_take_turns_and_a_lane_is_served_in_order() -> None:
    async def main() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        order: list[str] = []
        tasks = await queue(limiter, order, *[("a", False)] * 4, *[("b", False)] * 2, ("c", False))
        for _ in tasks:
            limiter.release()
            await settle()
        assert order == ["a", "b", "c", "a", "b", "a", "a"]

    asyncio.run(main())


def test_urgent_requests_go_first() -> None:
    async def main() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        order: list[str] = []
        tasks = await queue(limiter, order, ("a", False), ("b", False), ("judge", True), ("judge", True))
        for _ in tasks:
            limiter.release()
            await settle()
        assert order == ["judge", "judge", "a", "b"]

    asyncio.run(main())


def test_a_slot_granted_to_a_cancelled_request_goes_to_the_next() -> None:
    async def main() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        order: list[str] = []
        first, second = await queue(limiter, order, ("a", False), ("b", False))
        limiter.release()  # grants the slot to `first`, whose task has not run yet
        first.cancel()
        await settle()
        assert first.cancelled()
        assert second.done()
        assert (order, limiter.in_flight, limiter.queued) == (["b"], 1, 0)

    asyncio.run(main())


Step = tuple[str, int]


@pytest.mark.slow
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["start", "urgent", "cancel", "finish", "tick", "429"]), st.integers(0, 7))),
)
@settings(max_examples=200, deadline=None)
def test_no_order_of_events_leaks_a_slot(bound: int, steps: list[Step]) -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = Limiter(bound, clock=clock)
        tasks: list[asyncio.Task[None]] = []
        finish: list[asyncio.Event] = []

        async def one(lane: str, urgent: bool, done: asyncio.Event) -> None:
            await limiter.acquire(lane, urgent)
            try:
                assert limiter.in_flight <= bound
                await done.wait()
            finally:
                limiter.release()

        for name, number in steps:
            if name in ("start", "urgent"):
                finish.append(asyncio.Event())
                tasks.append(asyncio.ensure_future(one(f"lane{number % 3}", name == "urgent", finish[-1])))
            elif name == "tick":
                await settle()
            elif name == "429":
                limiter.refused(clock.now(), None)
                await clock.advance(2.0)
            elif tasks and name == "cancel":
                tasks[number % len(tasks)].cancel()
            elif tasks:
                finish[number % len(finish)].set()
        for event in finish:
            event.set()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert (limiter.in_flight, limiter.queued) == (0, 0)
        async with asyncio.timeout(60):
            await limiter.acquire("later")

    asyncio.run(main())


def test_a_429_halves_the_window_once_a_backoff_window() -> None:
    clock = ManualClock()
    limiter = Limiter(16, clock=clock)
    assert limiter.window == 16

    async def main() -> None:
        for _ in range(5):  # five requests of the same burst are refused together
            limiter.refused(clock.now(), None)
        assert limiter.window == 8
        await clock.advance(0.5)
        limiter.refused(clock.now(), None)
        assert limiter.window == 8  # still within the first cut's window
        await clock.advance(0.6)
        limiter.refused(sent_at=-1.0, retry_after=None)
        assert limiter.window == 8  # sent before the cut: says nothing about the new window
        limiter.refused(clock.now(), retry_after=10.0)
        assert limiter.window == 4
        await clock.advance(9.0)
        limiter.refused(clock.now(), None)
        assert limiter.window == 4  # Retry-After has lengthened the back-off window

    asyncio.run(main())


def test_the_window_never_falls_below_one_and_recovers_to_the_bound() -> None:
    clock = ManualClock()
    limiter = Limiter(64, clock=clock)

    async def main() -> None:
        for _ in range(20):
            limiter.refused(clock.now(), None)
            await clock.advance(5.0)
        assert limiter.window == 1
        successes = 0
        while limiter.window < 64:
            limiter.succeeded()
            successes += 1
        assert limiter.window == 64
        # About twenty rounds, not the 2,000 replies that +1 a round would take.
        assert 300 < successes < 1000

    asyncio.run(main())


def test_a_cut_window_bounds_requests_and_growth_admits_waiters() -> None:
    clock = ManualClock()

    async def main() -> None:
        limiter = Limiter(4, clock=clock)
        for _ in range(2):
            await limiter.acquire()
        limiter.refused(clock.now(), None)
        order: list[str] = []
        tasks = await queue(limiter, order, ("a", False), ("b", False))
        assert (limiter.window, order) == (2, [])
        limiter.succeeded()
        limiter.succeeded()
        limiter.succeeded()
        await settle()
        assert order == ["a"]
        limiter.release()
        await settle()
        assert all(task.done() for task in tasks)

    asyncio.run(main())


def test_without_a_bound_a_429_cuts_what_is_in_flight() -> None:
    clock = ManualClock()

    async def main() -> None:
        limiter = Limiter(math.inf, clock=clock)
        for _ in range(40):
            await limiter.acquire()
        limiter.refused(clock.now(), None)
        assert limiter.window == 20
        limiter.succeeded()
        assert limiter.window > 20

    asyncio.run(main())


def test_the_bound_is_the_largest_asked_for() -> None:
    async def main() -> None:
        limiter = Limiter(1)
        await limiter.acquire()
        order: list[str] = []
        await queue(limiter, order, ("a", False), ("b", False))
        limiter.widen(2)
        await settle()
        assert order == ["a"]
        limiter.widen(1)
        assert limiter.bound == 2
        limiter.release()
        limiter.release()
        await settle()
        limiter.widen(math.inf)
        assert limiter.window == math.inf

    asyncio.run(main())


async def granted(limiter: Limiter, clock: ManualClock, seconds: float, ask: Callable[[], Awaitable[None]]) -> int:
    """How many of endless requests get their slot in `seconds`."""
    count = 0

    async def one() -> None:
        nonlocal count
        await ask()
        count += 1
        limiter.release()

    tasks = [asyncio.ensure_future(one()) for _ in range(int(limiter.bound) * 50)]
    await clock.advance(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return count


@pytest.mark.parametrize("rpm", [6, 60, 600])
def test_rpm_paces_requests(rpm: int) -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = Limiter(100, rpm=rpm, clock=clock)
        count = await granted(limiter, clock, 60.0, limiter.acquire)
        assert rpm <= count <= rpm + max(1, rpm / 60) + 1
        assert limiter.in_flight == 0

    asyncio.run(main())


def test_a_paced_request_waits_its_turn_not_longer() -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = Limiter(10, rpm=60, clock=clock)
        order: list[str] = []
        await queue(limiter, order, ("a", False), ("b", False), ("c", False))
        assert order == ["a"]
        await clock.advance(0.99)
        assert order == ["a"]
        await clock.advance(0.02)
        assert order == ["a", "b"]
        assert "60 rpm" in note_of(limiter.delays())
        await clock.advance(1.0)
        assert order == ["a", "b", "c"]
        assert note_of(limiter.delays()) == ""

    asyncio.run(main())


def test_tpm_counts_the_estimate_and_corrects_it_by_usage() -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = Limiter(10, tpm=60_000, clock=clock)  # 1,000 tokens a second
        await limiter.acquire(tokens=5000)  # larger than the burst: goes, and leaves a debt of 4,000
        limiter.release()
        order: list[str] = []

        async def second() -> None:
            await limiter.acquire(tokens=1000)
            order.append("second")

        task = asyncio.ensure_future(second())
        await clock.advance(4.9)
        assert order == []
        await clock.advance(0.2)
        assert order == ["second"]
        limiter.release()

        third = asyncio.ensure_future(second())
        await clock.advance(0.1)
        limiter.used(1000, usage_input=50, usage_output=50)  # 900 tokens of the estimate were not needed
        await clock.advance(0.01)
        assert order == ["second", "second"]
        await asyncio.gather(task, third)

    asyncio.run(main())


def test_an_urgent_small_request_is_not_held_by_the_timer_of_a_large_one() -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = Limiter(10, tpm=600, clock=clock)  # 10 tokens a second, burst 10
        await limiter.acquire(tokens=15)
        order: list[str] = []

        async def ask(lane: str, urgent: bool, tokens: int) -> None:
            await limiter.acquire(lane, urgent, tokens)
            order.append(lane)

        async with asyncio.TaskGroup() as group:
            group.create_task(ask("large", False, 10))  # due when the burst is full: 1.5 s
            await clock.advance(0.0)
            group.create_task(ask("small", True, 1))  # due at level 1: 0.6 s
            await clock.advance(0.7)
            assert order == ["small"]
            await clock.advance(2.0)
        assert order == ["small", "large"]

    asyncio.run(main())


def test_cancelling_a_paced_request_gives_its_charge_back() -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = Limiter(1, rpm=60, clock=clock)
        await limiter.acquire()
        await clock.advance(5.0)
        order: list[str] = []
        first, second = await queue(limiter, order, ("a", False), ("b", False))
        limiter.release()
        first.cancel()  # granted, but never sent
        await settle()
        assert order == ["b"]
        assert second.done()

    asyncio.run(main())


def test_a_withdrawn_request_costs_nothing() -> None:
    async def main() -> None:
        clock = ManualClock()
        limiter = Limiter(5, rpm=60, clock=clock)
        await limiter.acquire()
        limiter.withdraw(0)
        assert limiter.in_flight == 0
        async with asyncio.timeout(60):
            await limiter.acquire()
        assert limiter.in_flight == 1

    asyncio.run(main())


def test_rates_of_sharers_are_the_lowest() -> None:
    limiter = Limiter(5, rpm=100)
    limiter.slow_down(50, None)
    limiter.slow_down(80, 1000)
    assert limiter.counts_tokens


def test_the_note_says_what_holds_requests_up() -> None:
    clock = ManualClock()
    limiter = Limiter(8, clock=clock)
    assert note_of(limiter.delays()) == ""
    with limiter.sleeping("rate_limit", 60.0), limiter.sleeping("rate_limit", 30.0):
        limiter.refused(clock.now(), None)
        says = "2 backing off (rate_limit), the next for 30 s more, limited to 4 of 8 slots after status 429"
        assert note_of(limiter.delays()) == says
    assert note_of(limiter.delays()) == "limited to 4 of 8 slots after status 429"


def test_a_limiter_without_slots_is_refused() -> None:
    with pytest.raises(ValueError, match="the number of concurrent requests must be at least 1"):
        Limiter(0)
