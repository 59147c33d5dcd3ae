"""One rollout in this process: whatever goes wrong in it becomes a record, and only what is not about it passes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from engine_parts import items_of
from scripted_chat import ScriptedChat
from tables import for_each_row

from harness import MultiTurnEnv, Rubric, SingleTurnEnv, State, cleanup
from harness.core.errors import EnvironmentFault, ModelError, SystemicError, ThreadsHung, ToolServerError
from harness.core.records import Failed, Generated, Item, Score
from harness.core.types import Messages, ModelResponse, Prompt, Usage
from harness.engine import rollout
from harness.engine.executors import Finished
from harness.engine.executors.local import LocalExecutor
from harness.engine.model_source import RunClient
from harness.envs import Environment

ROWS = [{"question": "q", "answer": "yes"}]
ITEM = items_of(0)[0]


def reply(text: str = "yes", seconds: float = 0.5) -> ModelResponse:
    return ModelResponse({"role": "assistant", "content": text}, "stop", Usage(7, 3, requests=1), seconds=seconds)


class Talk(MultiTurnEnv):
    """Asks on until the model has spoken three times."""

    def __init__(self, answer: Callable[[State], Any] = lambda state: None, **options: Any) -> None:
        super().__init__(max_turns=3, dataset=ROWS, **options)
        self.answer = answer
        self.cleaned = 0

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        result = self.answer(state)
        if asyncio.iscoroutine(result):
            await result
        return [{"role": "user", "content": "and?"}]

    @cleanup
    async def count(self, state: State) -> None:
        self.cleaned += 1


async def made(environment: Environment, *replies: object, timeout: float | None = None, retries: int = 0) -> Any:
    attempt = await rollout.generate(
        environment, ITEM, ScriptedChat(replies), sampling_args={"temperature": 1}, timeout=timeout, max_retries=retries
    )
    return attempt.record


def make(environment: Environment, *replies: object, timeout: float | None = None, retries: int = 0) -> Any:
    return asyncio.run(made(environment, *replies, timeout=timeout, retries=retries))


def said(record: Generated | Failed) -> list[str]:
    return [message["content"] for message in cast(Messages, record.completion)]


# Generating


def test_a_rollout_is_what_was_said_what_it_cost_and_what_scoring_reads() -> None:
    def remember(state: State) -> None:
        state["seen"] = {"turns": len(state["trajectory"])}
        state["socket"] = object()

    record = make(Talk(remember), reply(), reply("more"), reply("done"))
    assert isinstance(record, Generated)
    assert said(record) == ["yes", "and?", "more", "and?", "done"]
    assert (record.key, record.example_key, record.rollout_index) == (ITEM.key, ITEM.example.key, 0)
    assert (record.stop_condition, record.is_truncated, record.attempts) == ("max_turns_reached", False, 1)
    assert record.usage == Usage(21, 9, requests=3)
    assert record.timing.model == 1.5 and record.timing.generation > 0
    assert (record.state["seen"], record.lost) == ({"turns": 2}, ("socket",))


@for_each_row(
    ("error", "reason", "retryable"),
    [
        (ModelError("gave up: HTTP 500", status=500, retryable=True, reason="server_error"), "server_error", True),
        (ModelError("HTTP 400", status=400, reason="bad_request"), "bad_request", False),
    ],
)
def test_a_failed_call_keeps_what_was_said_and_paid_for(error: ModelError, reason: str, retryable: bool) -> None:
    record = make(Talk(), reply("first"), error)
    assert isinstance(record, Failed)
    assert (record.reason, record.retryable, record.stage, record.error) == (
        reason,
        retryable,
        "generation",
        str(error),
    )
    assert said(record) == ["first", "and?"]
    assert record.usage == Usage(7, 3, requests=1)


def test_the_model_is_called_in_the_loop_of_the_run_also_from_another_loop() -> None:
    threads: list[int] = []

    def answer(_: Prompt) -> ModelResponse:
        threads.append(threading.get_ident())
        return reply()

    async def elsewhere(state: State) -> None:
        def ask() -> ModelResponse:
            assert state.chat is not None
            return asyncio.run(cast("Any", state.chat([{"role": "user", "content": "?"}])))

        assert (await asyncio.to_thread(ask)).message["content"] == "yes"

    record = make(Talk(elsewhere), answer)
    assert isinstance(record, Generated), record.error
    assert (threads, record.usage.requests) == ([threading.get_ident()] * 5, 5)


def test_an_environments_bug_names_the_authors_line() -> None:
    def bug(state: State) -> None:
        state["no such key"]

    record = make(Talk(bug), reply())
    assert isinstance(record, Failed)
    assert (record.reason, record.retryable) == ("environment_error", False)
    assert record.error.startswith("KeyError: 'no such key' (in bug, test_rollout.py:")


@for_each_row("error", [EnvironmentFault("the sandbox is gone"), asyncio.InvalidStateError(), ValueError("")])
def test_whatever_an_environment_raises_is_its_rollouts_failure(error: Exception) -> None:
    def bug(state: State) -> None:
        raise error

    environment = Talk(bug)
    record = make(environment, reply())
    assert isinstance(record, Failed)
    assert record.reason == "environment_error"
    words = "the sandbox is gone" if isinstance(error, EnvironmentFault) else type(error).__name__
    assert record.error.startswith(f"{words} (in bug, test_rollout.py:")
    assert environment.cleaned == 1


def test_a_server_of_tools_that_failed_may_be_well_at_the_next_try() -> None:
    tries = iter([ToolServerError("it died"), ToolServerError("it died again"), None])

    def flaky(state: State) -> None:
        if error := next(tries, None):
            raise error

    environment = Talk(flaky)
    record = make(environment, *[reply()] * 6, retries=1)
    assert isinstance(record, Failed)
    assert (record.reason, record.retryable, record.attempts) == ("environment_error", True, 2)
    assert record.error.startswith("it died again (in flaky, test_rollout.py:")
    record = make(environment, *[reply()] * 6, retries=1)
    assert isinstance(record, Generated) and record.attempts == 1


def test_a_rollouts_timeout_cancels_it_and_cleans_up() -> None:
    async def hang(state: State) -> None:
        await asyncio.Event().wait()

    environment = Talk(lambda state: hang(state))
    record = make(environment, reply(), timeout=0.05)
    assert isinstance(record, Failed)
    assert (record.reason, record.retryable) == ("timeout", True)
    assert record.error == "the rollout took longer than 0.05 s"
    assert environment.cleaned == 1


def test_an_environments_own_timeout_error_is_its_bug() -> None:
    def bug(state: State) -> None:
        raise TimeoutError("the sandbox did not answer")

    record = make(Talk(bug), reply(), timeout=60)
    assert (record.reason, record.retryable) == ("environment_error", False)
    assert "TimeoutError: the sandbox did not answer" in record.error


@for_each_row("error", [SystemicError("dead"), ThreadsHung("8 hang")])
def test_what_is_not_about_this_rollout_passes(error: Exception) -> None:
    environment = Talk()
    with pytest.raises(type(error)):
        make(environment, error, retries=3)
    assert environment.cleaned == 1


def test_a_rollout_starts_again_after_what_may_heal() -> None:
    flaky = ModelError("HTTP 503", retryable=True, reason="server_error")
    environment = Talk()
    record = make(environment, reply("lost"), flaky, reply("a"), flaky, reply("b"), retries=2)
    assert isinstance(record, Generated)
    assert said(record)[0] == "b"
    assert (record.attempts, environment.cleaned) == (3, 3)
    assert record.usage.requests == 5, "what the lost attempts cost is in the bill"


@for_each_row(("retryable", "attempts"), [(True, 3), (False, 1)])
def test_the_last_attempt_is_the_record(retryable: bool, attempts: int) -> None:
    record = make(Talk(), ModelError("no", retryable=retryable, reason="server_error"), retries=2)
    assert isinstance(record, Failed)
    assert record.attempts == attempts


def test_a_state_that_is_no_json_at_all_is_no_failure() -> None:
    def odd(state: State) -> None:
        state["self"] = state
        state["lock"] = threading.Lock()

    record = make(Talk(odd), reply())
    assert isinstance(record, Generated)
    assert set(record.lost) == {"self", "lock"}


# Scoring


async def rate(rubric: Rubric, timeout: float | None = None, count: int = 1) -> list[Score]:
    states = [State.begin(ITEM.example, number, "m", {}) for number in range(count)]
    return await rollout.score(rubric, states, timeout)


def test_scoring_takes_no_longer_than_its_timeout() -> None:
    async def judge() -> float:
        await asyncio.Event().wait()
        return 1.0

    score = asyncio.run(rate(Rubric([judge]), 0.05))
    assert score == [Score(None, {}, {"*": "scoring timeout: scoring took longer than 0.05 s"})]


def test_a_rubric_that_breaks_leaves_its_rollouts_unscored() -> None:
    class Broken(Rubric):
        async def score(self, states: Any) -> list[Score]:
            raise RuntimeError("no judge")

    class Short(Rubric):
        async def score(self, states: Any) -> list[Score]:
            return []

    first, second = asyncio.run(rate(Broken(), count=2))
    assert first == second
    assert first.reward is None and first.reasons["*"].startswith("RuntimeError: no judge (in score, test_rollout.py:")
    [short] = asyncio.run(rate(Short()))
    assert short.reasons == {"*": "the rubric returned 0 scores for 1 rollouts"}


def test_hung_threads_are_not_about_this_rollout() -> None:
    class Hung(Rubric):
        async def score(self, states: Any) -> list[Score]:
            raise ThreadsHung("8 calls hang")

    with pytest.raises(ThreadsHung):
        asyncio.run(rate(Hung()))


@for_each_row("count", [1, 3])
@for_each_row("is_nested", [False, True])
def test_threads_that_hang_in_async_functions_are_not_about_these_rollouts(count: int, is_nested: bool) -> None:
    async def look(completion: Messages) -> float:
        raise ThreadsHung("8 calls hang")

    async def look_twice(completion: Messages) -> float:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(look(completion))
            tasks.create_task(look(completion))
        return 1.0

    with pytest.raises(ThreadsHung, match="8 calls hang"):
        asyncio.run(rate(Rubric([look_twice if is_nested else look]), count=count))


# The executor of this process


class OpenLane:
    """A lane to a scripted model."""

    model = "scripted"

    def __init__(self, *replies: object) -> None:
        self.sampling_args: dict[str, Any] = {"top_p": 1}
        self.replies = replies
        self.open: list[str] = []
        self.closed: list[str] = []

    def chat(self, item: Item) -> ScriptedChat:
        self.open.append(item.key)
        return ScriptedChat(self.replies)

    def close(self, item: Item) -> None:
        self.closed.append(item.key)


def executor(environment: Environment, *replies: object) -> tuple[LocalExecutor, OpenLane]:
    lane = OpenLane(*replies)
    return LocalExecutor(environment, cast(RunClient, lane)), lane


def test_the_state_lives_from_the_last_message_to_the_score() -> None:
    def same(state: State) -> float:
        state["verdict"] = {"judge": "fine"}
        return 1.0 if state["socket"] is not None else 0.0

    class Live(SingleTurnEnv):
        async def setup_state(self, state: State) -> None:
            state["socket"] = object()

    async def main() -> None:
        local, lane = executor(Live(dataset=ROWS, rubric=Rubric([same])), reply())
        record = await local.generate(ITEM)
        assert isinstance(record, Generated)
        assert (lane.open, lane.closed) == ([ITEM.key], [ITEM.key])
        [score] = await local.score([Finished(ITEM.example, record)])
        assert (score.outcome, score.reward, score.metrics) == ("scored", 1.0, {"same": 1.0})
        assert score.extra == {"verdict": {"judge": "fine"}}, "what scoring adds is part of the record"
        # In another process there is only the journal.
        [lost] = await local.score([Finished(ITEM.example, record)])
        assert (lost.outcome, lost.reward, lost.reason) == ("unscored", None, "same state lost")

    asyncio.run(main())


def test_a_rollout_is_scored_from_the_journal_as_it_would_have_been_live() -> None:
    def turns(state: State) -> float:
        return float(len(state["trajectory"]))

    def told(state: State) -> float:
        return float(state["seen"])

    def remember(state: State) -> None:
        state["seen"] = len(state["trajectory"])

    async def main() -> None:
        local, _ = executor(Talk(remember, rubric=Rubric([turns, told])), reply())
        record = await local.generate(ITEM)
        assert isinstance(record, Generated)
        [live] = await local.score([Finished(ITEM.example, record)])
        [read] = await local.score([Finished(ITEM.example, record)])
        assert live.metrics == read.metrics == {"turns": 3.0, "told": 2.0, "num_turns": 3.0}

    asyncio.run(main())


def test_a_rubric_that_needs_live_state_says_what_is_lost() -> None:
    async def main() -> None:
        called: list[str] = []

        def look(state: State) -> float:
            called.append("look")
            return 1.0

        local, _ = executor(SingleTurnEnv(dataset=ROWS, rubric=Rubric([look], needs_live_state=True)), reply())
        record = await local.generate(ITEM)
        assert isinstance(record, Generated)
        local.forget(ITEM.key)
        [score] = await local.score([Finished(ITEM.example, record)])
        assert (score.outcome, score.reason, called) == ("unscored", "state lost", [])

    asyncio.run(main())


def test_a_failed_rollout_leaves_no_state_behind() -> None:
    async def main() -> None:
        local, lane = executor(Talk(), SystemicError("dead"))
        with pytest.raises(SystemicError):
            await local.generate(ITEM)
        assert lane.closed == [ITEM.key], "whoever plays the example may forget it"

    asyncio.run(main())
