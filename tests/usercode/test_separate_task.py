"""What an agent or an eval function does to its own task stays its own matter; one that will not end is left behind."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Any

import pytest
from agent_parts import PROMPT, ROW, Agent, answer, attempt, played
from scripted_chat import ScriptedChat

from harness.agents.environment import AgentEnv
from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.loop import RolloutContext
from harness.core.errors import ModelError, ProviderError, SystemicError
from harness.core.records import Failed, Generated, Score
from harness.usercode.separate_task import OwnTask

DEAD = SystemicError("the key is refused", status=401, reason="auth")
WRONG = ModelError("400: no such parameter", status=400, reason="bad_request")


def own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancels_itself(ctx: RolloutContext) -> object:
    own_task().cancel()
    await asyncio.sleep(3600)
    return await answer(ctx)


async def cancels_itself_at_the_end(ctx: RolloutContext) -> object:
    own_task().cancel()
    return ctx.complete([])


@pytest.mark.parametrize("play", [cancels_itself, cancels_itself_at_the_end])
def test_an_agent_that_cancels_itself_has_failed(play: Any) -> None:
    record = played(play).record
    assert isinstance(record, Failed)
    assert (record.reason, record.error.partition(" ")[0], record.retryable) == ("agent_error", "CancelledError", False)


def test_a_cancellation_that_an_agent_aims_at_itself_and_catches_is_none_of_ours() -> None:
    async def times_out(ctx: RolloutContext) -> object:
        # How timeouts were written before `asyncio.timeout`: nothing takes the request to cancel back.
        asyncio.get_running_loop().call_soon(own_task().cancel)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(3600)
        return await answer(ctx)

    async def main() -> None:
        env = AgentEnv([ROW], Agent(times_out))
        for run in range(2):
            record = (await attempt(env, ScriptedChat(["4"]), run=run)).record
            assert isinstance(record, Generated), record
        assert own_task().cancelling() == 0

    asyncio.run(main())


def test_context_variables_of_one_run_are_not_the_next_ones() -> None:
    seen: list[int] = []
    number: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)

    async def counts(ctx: RolloutContext) -> object:
        seen.append(number.get())
        number.set(number.get() + 1)
        return await answer(ctx)

    async def main() -> None:
        env = AgentEnv([ROW], Agent(counts))
        for run in range(3):
            await attempt(env, ScriptedChat(["4"]), run=run)

    asyncio.run(main())
    assert seen == [0, 0, 0]


def test_generator_exit_is_an_error_like_any_other() -> None:
    async def leaves(ctx: RolloutContext) -> object:
        raise GeneratorExit

    record = played(leaves).record
    assert isinstance(record, Failed)
    assert (record.reason, record.error) == (
        "agent_error",
        "RuntimeError: code raised GeneratorExit, which is reserved for generators "
        "(in leaves, test_separate_task.py:87)",
    )


def test_an_agent_that_asks_a_dead_endpoint_for_ever_is_ended() -> None:
    async def asks_on(ctx: RolloutContext) -> object:
        while True:
            try:
                return await answer(ctx)
            except Exception:
                refused.append(1)

    refused: list[int] = []
    chat = ScriptedChat([DEAD])
    with pytest.raises(SystemicError) as raised:
        played(asks_on, chat)
    assert (raised.value, len(chat.asked), len(refused)) == (DEAD, 1, 101)


def test_an_agent_that_repeats_a_wrong_request_for_ever_meets_its_timeout() -> None:
    async def asks_on(ctx: RolloutContext) -> object:
        while True:
            try:
                return await answer(ctx)
            except ProviderError:
                continue

    record = played(asks_on, ScriptedChat([WRONG]), timeout=0.05).record
    assert isinstance(record, Failed)
    assert (record.reason, record.error) == ("timeout", "the rollout took longer than 0.05 s")


def test_nothing_is_asked_after_the_timeout() -> None:
    async def asks_late(ctx: RolloutContext) -> object:
        await ctx.chat(PROMPT)
        try:
            await asyncio.sleep(3600)
        finally:
            await ctx.chat([*PROMPT, {"role": "user", "content": "Quick, what was it?"}])

    chat = ScriptedChat(["4"])
    record = played(asks_late, chat, timeout=0.5).record
    assert isinstance(record, Failed)
    assert (record.reason, len(chat.asked)) == ("timeout", 1)


def test_an_eval_function_that_cancels_itself_has_failed_alone() -> None:
    async def cancels(solution_str: str, ground_truth: str, extra_info: object) -> float:
        own_task().cancel()
        await asyncio.sleep(3600)
        return 1.0

    def one(solution_str: str, ground_truth: str, extra_info: object) -> float:
        return 1.0

    async def main() -> Score:
        env = AgentEnv([ROW], Agent(), [EvalFnWrapper(cancels, "cancels"), EvalFnWrapper(one, "one")])
        [score] = await env.rubric.score([(await attempt(env, ScriptedChat(["4"]))).state])
        return score

    score = asyncio.run(main())
    assert (score.reward, score.metrics) == (None, {"cancels": None, "one": 1.0})
    assert score.reasons["cancels"].startswith("raised CancelledError")


def test_what_will_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    cancelled: list[int] = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(1)

    async def main() -> None:
        own = OwnTask[None]("the agent", grace=0.02)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await own.run(stubborn())

    with caplog.at_level(logging.WARNING, logger="harness.usercode.separate_task"):
        asyncio.run(main())  # its end would wait for every task that it knows of
    assert len(cancelled) == 1
    [said] = [record.getMessage() for record in caplog.records if record.name == "harness.usercode.separate_task"]
    assert said.startswith("the agent still runs after it was cancelled, and is abandoned: do not catch CancelledError")


def test_what_ends_in_time_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    steps: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.02)
            steps.append("tidied up")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await OwnTask[None]("the agent", grace=60.0, on_end=lambda: steps.append("told")).run(tidy())

    asyncio.run(main())
    assert steps == ["told", "tidied up"]
    assert not caplog.records


def test_a_run_that_was_completed_after_a_failed_call_is_no_silent_zero(caplog: pytest.LogCaptureFixture) -> None:
    async def gives_in(ctx: RolloutContext) -> object:
        said = list(ctx.request.messages)
        for _ in range(2):
            try:
                said.append((await ctx.chat(said)).message)
            except ProviderError:
                said.append({"role": "assistant", "content": "sorry"})
        return ctx.complete(said)

    def state(*replies: object) -> Any:
        record = played(gives_in, ScriptedChat(replies)).record
        assert isinstance(record, Generated)
        return record.state

    assert state("4", WRONG)["num_failed_llm_calls"] == 1
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "eval-0-run-0: the agent completed the run although its latest model call failed; this may affect the "
            "score: 400: no such parameter",
        )
    ]
    caplog.clear()
    assert state(WRONG, "4")["num_failed_llm_calls"] == 1
    assert "num_failed_llm_calls" not in state("4", "4")
    assert not caplog.records  # the agent got over it
