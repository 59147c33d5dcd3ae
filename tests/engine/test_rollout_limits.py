"""Limits of one rollout: calls are counted exactly, tokens are exceeded by at most the requests in flight, and
code that catches every refusal still comes to an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent_parts import ROW, Agent, item_of
from engine_parts import items_of
from scripted_chat import ScriptedChat
from tables import for_each_row

from harness import MultiTurnEnv, SingleTurnEnv, State
from harness.agents.environment import AgentEnv
from harness.agents.loop import RolloutContext
from harness.core.errors import BudgetSpent, LimitReached, ModelError, ProviderError, RolloutLimitError
from harness.core.records import Failed, Generated, Item
from harness.core.types import Messages, ModelResponse, Usage
from harness.engine import rollout
from harness.engine.rollout_limits import RolloutLimits

ROWS = [{"question": "q", "answer": "yes"}]


def reply(inward: int = 7, outward: int = 3, text: str = "yes", unreported: int = 0) -> ModelResponse:
    usage = Usage(inward, outward, requests=1, unreported=unreported)
    return ModelResponse({"role": "assistant", "content": text}, "stop", usage)


class Talk(MultiTurnEnv):
    """Goes on for ever."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dataset=ROWS, **options)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Messages:
        return [{"role": "user", "content": "and?"}]


class Plays(SingleTurnEnv):
    """Does what it is told instead."""

    def __init__(self, how: Callable[[Plays, State], Any]) -> None:
        super().__init__(dataset=ROWS)
        self.how = how

    async def play(self, state: State) -> None:
        state.transcript, state.start = list(state["prompt"]), len(state["prompt"])
        await self.how(self, state)

    async def ask(self, state: State, **sampling: Any) -> ModelResponse:
        return await self.get_model_response(state, state["prompt"], sampling_args=sampling)


async def catches_all(env: Plays, state: State) -> None:
    while True:
        try:
            await env.ask(state)
        except Exception:
            continue


async def lets_through(env: Plays, state: State) -> None:
    while True:
        await env.ask(state)


async def raises_another(env: Plays, state: State) -> None:
    while True:
        try:
            await env.ask(state)
        except ModelError:
            raise RuntimeError("no answer") from None


async def gathers(env: Plays, state: State) -> None:
    await asyncio.gather(*(env.ask(state) for _ in range(50)), return_exceptions=True)


async def in_groups(env: Plays, state: State) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(env.ask(state))


def make(
    env: Any, chat: ScriptedChat, *, item: Item | None = None, retries: int = 0, sampling: Any = None, **limits: Any
) -> Any:
    attempt = asyncio.run(
        rollout.generate(
            env,
            item or items_of(0)[0],
            chat,
            sampling_args=sampling or {},
            timeout=None,
            max_retries=retries,
            limits=RolloutLimits(**limits),
        )
    )
    return attempt.record


@for_each_row("play", [catches_all, lets_through, raises_another, gathers, in_groups])
def test_calls_are_counted_exactly_whatever_the_code_makes_of_a_refusal(play: Any) -> None:
    chat = ScriptedChat([reply()])
    record = make(Plays(play), chat, message_limit=10)
    assert isinstance(record, Generated)
    assert (len(chat.asked), record.stop_condition, record.is_truncated) == (10, "message_limit", True)
    # A group of tasks cancels its members at the first refusal: these were sent and their replies are lost.
    assert record.usage.requests == (10 if play is not in_groups else record.usage.requests)


def test_a_call_that_fails_counts_and_each_attempt_begins_anew() -> None:
    chat = ScriptedChat([ModelError("HTTP 500", status=500, retryable=True, reason="server_error")])
    record = make(Plays(lets_through), chat, message_limit=1, retries=2)
    assert (len(chat.asked), record.reason, record.attempts) == (3, "server_error", 3)
    chat = ScriptedChat([ModelError("HTTP 500", status=500)])
    assert make(Plays(catches_all), chat, message_limit=4).stop_condition == "message_limit"
    assert len(chat.asked) == 4


@for_each_row(
    ("turns", "limit", "ended_by"),
    [
        (3, 5, "max_turns_reached"),
        (3, 3, "max_turns_reached"),
        (5, 3, "message_limit"),
        (-1, 3, "message_limit"),
    ],
)
def test_of_the_environments_turns_and_the_limit_the_lower_ends_it(turns: int, limit: int, ended_by: str) -> None:
    env, chat = Talk(max_turns=turns), ScriptedChat([reply()])
    record = make(env, chat, message_limit=limit)
    assert (record.stop_condition, len(chat.asked), record.state.get("error")) == (ended_by, 3, None)
    assert [message["role"] for message in record.completion][:3] == ["assistant", "user", "assistant"]


def test_max_tokens_is_cut_to_what_is_left() -> None:
    chat = ScriptedChat([reply(20, 10)])
    record = make(Talk(), chat, token_limit=100, sampling={"max_tokens": 50})
    assert [asked.sampling_args["max_tokens"] for asked in chat.asked] == [50, 50, 40, 10]
    assert (record.stop_condition, record.usage.input_tokens + record.usage.output_tokens) == ("token_limit", 120)


@for_each_row(
    ("given", "sent"),
    [
        ({}, {"max_tokens": 100}),
        ({"max_tokens": None}, {"max_tokens": 100}),
        ({"max_completion_tokens": 500}, {"max_completion_tokens": 100}),
        ({"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
        ({"extra_body": {"max_tokens": 500, "top_k": 1}}, {"extra_body": {"max_tokens": 100, "top_k": 1}}),
        ({"max_tokens": 20, "max_completion_tokens": 500}, {"max_tokens": 20, "max_completion_tokens": 20}),
    ],
)
def test_every_name_of_the_limit_of_a_reply_is_cut(given: dict[str, Any], sent: dict[str, Any]) -> None:
    chat = ScriptedChat([reply(90, 10)])
    make(Talk(), chat, token_limit=100, sampling=given)
    [asked] = chat.asked
    assert asked.sampling_args == sent


def test_requests_in_parallel_share_what_is_left() -> None:
    seen: list[int] = []

    async def play(env: Plays, state: State) -> None:
        await asyncio.gather(*(env.ask(state, max_tokens=30) for _ in range(50)), return_exceptions=True)

    class Slow(ScriptedChat):
        in_flight = 0

        async def __call__(self, prompt: Any, **how: Any) -> ModelResponse:
            self.in_flight += 1
            seen.append(self.in_flight)
            await asyncio.sleep(0)
            self.in_flight -= 1
            return await super().__call__(prompt, **how)

    chat = Slow([reply(0, 30)])
    record = make(Plays(play), chat, token_limit=100)
    assert [asked.sampling_args["max_tokens"] for asked in chat.asked] == [30, 30, 30, 10]
    assert (max(seen), record.stop_condition) == (3, "token_limit")


def test_what_is_left_may_be_more_than_the_model_can_reply_with() -> None:
    def strict(prompt: Any) -> object:
        asked = chat.asked[-1].sampling_args.get("max_tokens", 0)
        return ModelError("max_tokens is too large", status=400) if asked > 16_000 else reply(20_000, 10_000)

    chat = ScriptedChat([strict])
    record = make(Talk(), chat, token_limit=100_000, message_limit=20)
    assert record.stop_condition == "token_limit"
    sent = [asked.sampling_args.get("max_tokens") for asked in chat.asked]
    assert sent == [100_000, None, None, 40_000, None, 10_000]
    assert record.usage.requests == 4, "a request without it is no further call"


@for_each_row("usage", [Usage(requests=1, unreported=1), Usage(requests=1)])
def test_tokens_that_are_not_reported_are_estimated(usage: Usage) -> None:
    chat = ScriptedChat([ModelResponse({"role": "assistant", "content": "x" * 400}, "stop", usage)])
    record = make(Plays(catches_all), chat, token_limit=1000)
    assert record.stop_condition == "token_limit" and 5 <= len(chat.asked) <= 10


def test_tokens_of_replies_that_could_not_be_used_count() -> None:
    error = ModelError("no choices", reason="bad_response")
    error.wasted = Usage(50, 50, requests=1)
    chat = ScriptedChat([error])
    record = make(Plays(catches_all), chat, token_limit=250)
    assert (record.stop_condition, len(chat.asked), record.usage.requests) == ("token_limit", 3, 3)


def test_the_cost_of_replies_is_counted_also_of_those_that_could_not_be_used() -> None:
    def costly(cost: float | None) -> ModelResponse:
        return replace(reply(), usage=Usage(7, 3, requests=1, cost=cost))

    chat = ScriptedChat([costly(0.1)])
    record = make(Talk(), chat, cost_limit=0.3)
    assert (record.stop_condition, len(chat.asked)) == ("cost_limit", 3), "0.1 + 0.1 + 0.1 is slightly more than 0.3"
    chat = ScriptedChat([replace(costly(0.1), wasted=Usage(7, 0, requests=1, cost=0.2))])
    assert (make(Talk(), chat, cost_limit=0.3).stop_condition, len(chat.asked)) == ("cost_limit", 1)
    chat = ScriptedChat([costly(None), costly(0.1)])
    assert (make(Talk(), chat, cost_limit=5.0).stop_condition, len(chat.asked)) == ("cost_limit", 1)


def test_a_spent_budget_leaves_the_rollout_without_an_outcome_even_if_its_code_carries_on() -> None:
    async def carries_on(env: Plays, state: State) -> None:
        try:
            await lets_through(env, state)
        except ModelError:
            state["is_completed"] = True

    for play in (carries_on, lets_through, catches_all, raises_another):
        chat = ScriptedChat([reply(), BudgetSpent("the budget is reached", reason="budget")])
        record = make(Plays(play), chat, is_refusable=True, retries=3)
        assert isinstance(record, Failed)
        assert (record.reason, record.retryable, record.attempts, record.usage.requests) == ("budget", True, 1, 1)


async def returns(ctx: RolloutContext) -> object:
    messages: list[Any] = list(ctx.request.messages)
    try:
        while True:
            messages.append((await ctx.chat(messages)).message)
    except RolloutLimitError:
        return ctx.complete([*messages, {"role": "assistant", "content": "enough"}])


async def passes_on(ctx: RolloutContext) -> object:
    messages: list[Any] = list(ctx.request.messages)
    while True:
        messages.append((await ctx.chat(messages)).message)


async def repeats(ctx: RolloutContext) -> object:
    while True:
        try:
            await ctx.chat(list(ctx.request.messages))
        except ProviderError:
            continue


async def gives_up(ctx: RolloutContext) -> object:
    try:
        return await passes_on(ctx)
    except Exception as error:
        return ctx.error(str(error))


@for_each_row(
    ("play", "words"),
    [(returns, ["yes", "yes", "yes", "enough"]), (passes_on, ["yes"] * 3), (repeats, ["yes"]), (gives_up, ["yes"] * 3)],
)
def test_an_agent_is_scored_on_the_conversation_so_far(play: Any, words: list[str]) -> None:
    env = AgentEnv([ROW], Agent(play, ()))
    chat = ScriptedChat([reply()])
    record = make(env, chat, item=item_of(env), message_limit=3)
    assert isinstance(record, Generated) and isinstance(record.completion, list)
    assert [message["content"] for message in record.completion] == words
    assert (len(chat.asked), record.stop_condition, record.state["num_llm_calls"]) == (3, "message_limit", 3)
    assert "num_failed_llm_calls" not in record.state


def test_a_refused_call_says_which_limit() -> None:
    told: list[str] = []

    async def asks(env: Plays, state: State) -> None:
        try:
            await lets_through(env, state)
        except LimitReached as error:
            told.append(f"{error.reason}: {error}")

    make(Plays(asks), ScriptedChat([reply()]), message_limit=2)
    make(Plays(asks), ScriptedChat([reply(1000, 500)]), token_limit=1200)
    assert told == [
        "message_limit: the rollout has made the 2 model calls that message_limit allows",
        "token_limit: the rollout has used 1,500 of the 1,200 tokens that token_limit allows",
    ]
