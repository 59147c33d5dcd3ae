"""Verdicts on an endpoint, with a clock turned by hand."""

from __future__ import annotations

import asyncio

import pytest

from harness.core.errors import SystemicError
from harness.core.messages import Message
from harness.models.clock import ManualClock
from harness.models.delays import note_of
from harness.models.health import Health, HealthPolicy

POLICY = HealthPolicy(refusals=3, connect_deadline=10.0, grace=60.0, probe_gap=1.0, probe_gap_cap=4.0, strikes=3)


async def never(seconds: float) -> bool:
    raise AssertionError("no probe expected")


def admit(health: Health, model: str = "m") -> None:
    asyncio.run(health.admit(model, never))


def test_three_refusals_of_an_endpoint_that_never_answered() -> None:
    health = Health("host:1", POLICY, ManualClock())
    health.begin()
    for _ in range(2):
        health.unreachable("host:1 refuses connections")
        admit(health)
    health.unreachable("host:1 refuses connections")
    assert health.blocked
    for model in ("m", "other"):
        with pytest.raises(SystemicError, match="host:1 refuses connections, and it has never answered") as caught:
            admit(health, model)
        assert caught.value.reason == "connection"


def test_ten_seconds_without_a_connection_are_enough() -> None:
    async def main() -> None:
        clock = ManualClock()
        health = Health("h", POLICY, clock)
        health.begin()
        await clock.advance(10.0)
        health.unreachable("no connection in time")
        with pytest.raises(SystemicError, match="no connection in time"):
            await health.admit("m", never)

    asyncio.run(main())


def test_a_refused_key_before_the_first_answer_is_final_for_its_model() -> None:
    health = Health("h", POLICY, ManualClock())
    with pytest.raises(SystemicError, match="bad key") as caught:
        health.denied("m", Message("h: bad key"), 401, "auth")
    assert (caught.value.status, caught.value.reason) == (401, "auth")
    with pytest.raises(SystemicError, match="bad key"):
        admit(health)
    admit(health, "another model")


def test_a_model_that_has_answered_gets_three_strikes_in_a_row() -> None:
    health = Health("h", POLICY, ManualClock())
    health.answered("m")
    health.denied("m", Message("no"), 403, "auth")
    health.denied("m", Message("no"), 403, "auth")
    health.answered("m")
    health.denied("m", Message("no"), 403, "auth")
    health.denied("m", Message("no"), 403, "auth")
    admit(health)
    with pytest.raises(SystemicError):
        health.denied("m", Message("no"), 403, "auth")


def test_while_an_endpoint_is_away_one_probes_and_all_resume() -> None:
    async def main() -> None:
        clock = ManualClock()
        health = Health("h", POLICY, clock)
        health.answered("m")
        health.unreachable("refused")
        probes: list[float] = []
        probing = 0
        back = False

        async def probe(seconds: float) -> bool:
            nonlocal probing
            probing += 1
            assert probing == 1, "two probes at a time"
            probes.append(clock.now())
            await asyncio.sleep(0)
            probing -= 1
            return back

        waiting = [asyncio.ensure_future(health.admit("m", probe)) for _ in range(20)]
        await clock.advance(10.0)
        assert probes == [1.0, 3.0, 7.0]
        assert "cannot be reached" in note_of(health.delays())
        assert not any(task.done() for task in waiting)
        back = True
        await clock.advance(4.0)
        assert probes == [1.0, 3.0, 7.0, 11.0]
        assert all(task.done() and task.exception() is None for task in waiting)
        assert not health.blocked
        assert note_of(health.delays()) == ""

    asyncio.run(main())


def test_when_the_prober_is_cancelled_another_takes_over() -> None:
    async def main() -> None:
        clock = ManualClock()
        health = Health("h", POLICY, clock)
        health.answered("m")
        health.unreachable("refused")

        async def probe(seconds: float) -> bool:
            return True

        first, *others = [asyncio.ensure_future(health.admit("m", probe)) for _ in range(3)]
        await clock.advance(0.5)
        first.cancel()
        await clock.advance(1.1)
        assert first.cancelled()
        assert all(task.done() for task in others)

    asyncio.run(main())


def test_after_the_grace_period_everybody_is_told() -> None:
    async def main() -> None:
        clock = ManualClock()
        health = Health("h", POLICY, clock)
        health.answered("m")
        health.unreachable("refused")

        async def probe(seconds: float) -> bool:
            return False

        waiting = [asyncio.ensure_future(health.admit("m", probe)) for _ in range(5)]
        await clock.advance(59.0)
        assert not any(task.done() for task in waiting)
        await clock.advance(2.0)
        errors = [task.exception() for task in waiting]
        assert all(isinstance(error, SystemicError) for error in errors)
        assert len({str(error) for error in errors}) == 1
        assert "not for the last 60 s" in str(errors[0])

    asyncio.run(main())


def test_a_silence_is_asked_about_once_and_only_where_nothing_was_heard() -> None:
    """Whoever waits for the answer sends nothing; one that has come meanwhile is answer enough."""

    async def main() -> None:
        clock, asked = ManualClock(), 0
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def probe(seconds: float) -> bool:
            nonlocal asked
            asked += 1
            assert seconds == POLICY.connect_deadline
            return await answer

        health = Health("h", POLICY, clock)
        await clock.advance(1.0)
        health.got_answer()
        assert not await health.is_gone("silence", 0.5, never), "an error came after it was sent"
        await clock.advance(600.0)
        doubts = [asyncio.ensure_future(health.is_gone("silence", 2.0 + number, probe)) for number in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (asked, health.blocked, health.admits("m")) == (1, True, False)
        waiting = asyncio.ensure_future(health.admit("m", never))
        await asyncio.sleep(0)
        assert not waiting.done()
        health.answered("m")
        answer.set_result(False)
        assert await asyncio.gather(*doubts) == [False] * 5
        await waiting
        assert (asked, health.blocked, health.admits("m"), note_of(health.delays())) == (1, False, True, "")

    asyncio.run(main())


def test_people_are_told_when_nothing_comes_back() -> None:
    async def main() -> None:
        clock = ManualClock()
        health = Health("h", POLICY, clock)
        await clock.advance(100.0)
        assert note_of(health.delays()) == "", "nothing is asked"
        health.sent(1, "m", clock.now())
        await clock.advance(19.0)
        assert note_of(health.delays()) == ""
        health.sent(2, "m", clock.now())
        await clock.advance(2.0)
        assert note_of(health.delays()) == "endpoint silent for 21 s"
        health.got_answer()
        assert note_of(health.delays()) == ""
        await clock.advance(30.0)
        assert note_of(health.delays()) == "endpoint silent for 30 s"
        health.ended(2)
        health.ended(1)
        assert note_of(health.delays()) == ""

    asyncio.run(main())
