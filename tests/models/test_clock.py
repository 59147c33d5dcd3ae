"""What this process loses itself is no patience with others: a blocked event loop and the time-outs around it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from dead_ports import listening
from fault_server import FaultServer

from harness.core.errors import SystemicError
from harness.core.types import ModelCall
from harness.models.chat import ChatClient
from harness.models.clock import BEAT, Clock, ManualClock, within
from harness.models.health import Health, HealthPolicy
from harness.models.limits import Limiter
from harness.models.target import RequestTarget
from harness.plugins.faults.rules import Fault

ASK = ModelCall("some-model", [{"role": "user", "content": "hello"}])


def block(seconds: float) -> None:
    """What an environment does that keeps the event loop to itself."""
    time.sleep(seconds)


def test_only_what_the_loop_loses_while_somebody_waits_is_counted() -> None:
    async def main() -> None:
        clock = Clock()
        block(2 * BEAT)
        assert clock.blocked_seconds() == 0.0, "nobody waits"
        clock.watch()
        await asyncio.sleep(0)
        block(4 * BEAT)
        assert clock.blocked_seconds() >= 3 * BEAT, "known at once, before the loop goes on"
        before = clock.blocked_seconds()
        await asyncio.sleep(0)
        assert clock.blocked_seconds() >= before
        clock.unwatch()

    asyncio.run(main())


def test_a_time_out_comes_when_it_should_and_not_for_what_the_loop_lost() -> None:
    async def main() -> None:
        clock = Clock()
        began = time.monotonic()
        with pytest.raises(TimeoutError), within(clock, 0.3):
            await asyncio.Event().wait()
        assert time.monotonic() - began >= 0.3
        with within(clock, 0.5):
            await asyncio.sleep(0.01)
            block(2.0)
            await asyncio.sleep(0.2)  # in time, had the loop run
        assert clock.blocked_seconds() >= 1.5
        lost = clock.blocked_seconds()
        with pytest.raises(TimeoutError), within(clock, 0.5):
            await asyncio.sleep(0.01)
            block(1.0)
            await asyncio.Event().wait()
        assert clock.blocked_seconds() > lost, "and what never comes is not waited for"

    asyncio.run(main())


def test_a_clock_outlives_its_event_loop() -> None:
    clock = Clock()

    async def main() -> None:
        with within(clock, 5.0):
            await asyncio.sleep(0)

    asyncio.run(main())
    lost = clock.blocked_seconds()
    asyncio.run(main())
    assert clock.blocked_seconds() - lost < BEAT


def test_a_reply_that_came_while_the_loop_was_blocked_is_not_asked_for_again() -> None:
    async def main(server: FaultServer) -> None:
        clock = Clock()
        health = Health("endpoint", HealthPolicy(), clock)
        client = ChatClient(
            RequestTarget(server.url, label="endpoint"),
            Limiter(8, clock=clock),
            health=health,
            clock=clock,
            request_timeout=1.0,
        )
        try:
            asked = asyncio.ensure_future(client.request(ASK))
            assert await asyncio.to_thread(late.asked.wait, 30)
            block(3.0)
            reply = await asked
        finally:
            await client.close()
        assert (reply.attempts, server.server.stats.requests) == (1, 1), "a second one would be paid for"

    late = _Late()
    with FaultServer(source=late) as server:
        asyncio.run(main(server))


def test_no_connection_while_the_loop_was_blocked_says_nothing_of_the_endpoint() -> None:
    async def main(port: int) -> None:
        clock = Clock()
        policy = HealthPolicy(refusals=1, connect_deadline=0.5)
        health = Health("endpoint", policy, clock)
        client = ChatClient(
            RequestTarget(f"http://127.0.0.1:{port}/v1", label="endpoint"),
            Limiter(8, clock=clock),
            health=health,
            clock=clock,
        )
        try:
            asked = asyncio.ensure_future(client.request(ASK))
            await asyncio.sleep(0.1)
            block(2.0)
            await asyncio.sleep(0.05)
            assert not health.blocked, "one refusal would be enough, and this was none"
            with pytest.raises(SystemicError, match="no connection in time, and it has never answered"):
                await asked
        finally:
            await client.close()

    with listening(full=True) as port:
        asyncio.run(main(port))


def test_the_deadline_for_a_first_connection_counts_no_lost_time() -> None:
    async def never(seconds: float) -> bool:
        raise AssertionError("no probe expected")

    async def main() -> None:
        clock = ManualClock()
        health = Health("endpoint", HealthPolicy(connect_deadline=10.0), clock)
        health.begin()
        await clock.advance(12.0)
        clock.seconds_blocked = 5.0
        health.unreachable("refused")
        await health.admit("m", never)
        await clock.advance(3.5)
        health.unreachable("refused")
        with pytest.raises(SystemicError, match="refused, and it has never answered"):
            await health.admit("m", never)

    asyncio.run(main())


class _Late:
    """Answers after a fifth of a second."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def next(self, asked: object = None) -> Fault:
        self.asked.set()
        return Fault(latency=0.2)
