"""Eval functions as the rubric of a run: what they see live and after a resume, their mean, and what becomes of one
that fails."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from agent_parts import PROMPT, ROW, Agent, attempt, item_of, tool_call
from scripted_chat import ScriptedChat

from harness.agents.environment import AgentEnv
from harness.agents.eval_functions import EvalFn, EvalFnWrapper
from harness.agents.loop import RolloutContext
from harness.agents.scoring import EvalRubric
from harness.core.errors import EnvironmentFault
from harness.core.records import Generated, Score
from harness.core.state import State
from harness.store.codec import decode, encode


def environment(*functions: EvalFn, play: Any = None, row: dict[str, Any] | None = None) -> AgentEnv:
    wrappers = [EvalFnWrapper(function, f"f:{number}") for number, function in enumerate(functions)]
    return AgentEnv([ROW if row is None else row], Agent(play) if play else Agent(), wrappers)


def score(env: AgentEnv, *replies: object) -> Score:
    """The score of one rollout; the same one as after a way through the journal."""

    async def main() -> tuple[Score, Score]:
        attempted = await attempt(env, ScriptedChat(replies or ("4",)))
        assert isinstance(attempted.record, Generated), attempted.record
        [live] = await env.rubric.score([attempted.state])
        line = decode(encode(attempted.record))
        assert isinstance(line, Generated)
        restored = State.restore(item_of(env).example, line, "scripted", {})
        [later] = await env.rubric.score([restored])
        assert (attempted.state["reward"], attempted.state["metrics"]) == (live.reward, live.metrics)
        return live, later

    live, later = asyncio.run(main())
    assert live == later
    return live


def exact(solution_str: str, ground_truth: str, extra_info: object) -> float:
    return float(solution_str == ground_truth)


async def said(messages: list[Any], ground_truth: str, metadata: object) -> float:
    await asyncio.sleep(0)
    return len(messages) / 4


def test_the_reward_is_the_mean() -> None:
    assert score(environment(exact, said)) == Score(0.875, {"f:0": 1.0, "f:1": 0.75}, {})
    assert score(environment(exact, said), "5") == Score(0.375, {"f:0": 0.0, "f:1": 0.75}, {})


def test_the_mean_of_equal_scores_is_that_score() -> None:
    env = environment(*[exact] * 10)
    assert score(env).reward == 1.0
    assert env.rubric.reward_range == (0.0, 1.0)
    assert env.rubric.metric_names == tuple(f"f:{n}" for n in range(10))
    assert set(env.rubric.weights.values()) == {0.1}


def test_functions_see_the_whole_row_and_the_whole_conversation() -> None:
    seen: list[object] = []

    def full(messages: object, ground_truth: object, metadata: object) -> float:
        seen.append([messages, ground_truth, metadata])
        return 1.0

    def simple(solution_str: object, ground_truth: object, extra_info: object) -> float:
        seen.append([solution_str, ground_truth, extra_info])
        return 1.0

    row = {**ROW, "tags": ["a"]}
    score(environment(full, simple, row=row))
    whole = [*PROMPT, {"role": "assistant", "content": "4"}]
    assert seen == [[whole, "4", row], ["4", "4", row]] * 2


def test_a_conversation_that_the_agent_rewrote_is_seen_as_it_was_left() -> None:
    seen: list[object] = []

    def full(messages: object, ground_truth: object, metadata: object) -> float:
        seen.append(messages)
        return 1.0

    async def rewrites(ctx: RolloutContext) -> object:
        messages = [{"role": "user", "content": "short"}]
        messages.append((await ctx.chat(messages)).message)
        return ctx.complete(messages)

    score(environment(full, play=rewrites))
    assert seen == [[{"role": "user", "content": "short"}, {"role": "assistant", "content": "4"}]] * 2


def test_what_a_function_does_to_its_copies_no_other_sees() -> None:
    def spoil(messages: list[Any], ground_truth: str, metadata: dict[str, Any]) -> float:
        messages[-1]["content"] = "5"
        metadata["tags"].append("b")
        return 1.0

    def looks(messages: list[Any], ground_truth: str, metadata: dict[str, Any]) -> float:
        return float(messages[-1]["content"] == "4" and metadata["tags"] == ["a"])

    assert score(environment(spoil, looks, row={**ROW, "tags": ["a"]})).reward == 1.0


def test_plain_functions_run_in_a_thread_and_async_ones_on_the_loop() -> None:
    main = threading.current_thread()

    def plain(solution_str: str, ground_truth: str, extra_info: object) -> float:
        return float(threading.current_thread() is not main)

    async def on_loop(solution_str: str, ground_truth: str, extra_info: object) -> float:
        return float(threading.current_thread() is main)

    async def inner() -> float:
        return await on_loop("", "", None)

    def coroutine(solution_str: str, ground_truth: str, extra_info: object) -> object:
        return inner()

    assert score(environment(plain, on_loop, coroutine)).metrics == {"f:0": 1.0, "f:1": 1.0, "f:2": 1.0}


def test_a_function_that_raises_leaves_the_run_unscored_and_the_others_in_place() -> None:
    def fails(solution_str: str, ground_truth: str, extra_info: object) -> float:
        raise KeyError("topic")

    async def gives_none(solution_str: str, ground_truth: str, extra_info: object) -> object:
        return None

    def says_nan(solution_str: str, ground_truth: str, extra_info: object) -> float:
        return float("nan")

    assert score(environment(exact, fails, gives_none, says_nan)) == Score(
        None,
        {"f:0": 1.0, "f:1": None, "f:2": None, "f:3": None},
        {
            "f:1": "raised KeyError: 'topic' (in fails, test_scoring.py:135)",
            "f:2": "returned None",
            "f:3": "returned nan",
        },
    )


def test_scores_whose_mean_is_no_number() -> None:
    def huge(solution_str: str, ground_truth: str, extra_info: object) -> float:
        return 1.7e308

    result = score(environment(huge, huge))
    assert (result.reward, result.metrics) == (None, {"f:0": 1.7e308, "f:1": 1.7e308})
    assert result.reasons == {"*": "the mean of the scores is too large for a float"}


def test_without_functions_the_agents_own_word_counts_or_nothing() -> None:
    async def sure(ctx: RolloutContext) -> object:
        return ctx.complete([], reward=0.25)

    async def odd(ctx: RolloutContext) -> object:
        return ctx.complete([], reward=float("nan"))

    assert score(environment(play=sure)) == Score(0.25, {}, {})
    unscored = Score(None, {}, {"*": "there are no eval functions, and the agent reported no reward"})
    assert score(environment()) == unscored
    assert score(environment(play=odd)) == unscored
    assert asyncio.run(EvalRubric([]).score([])) == []


def test_the_last_text_counts_where_the_last_turn_only_calls_a_tool() -> None:
    async def stops_early(ctx: RolloutContext) -> object:
        messages = list(ctx.request.messages)
        for _ in range(2):
            messages.append((await ctx.chat(messages)).message)
        return ctx.complete(messages, "max_turns")

    assert score(environment(exact, play=stops_early), "4", tool_call()).reward == 1.0


@pytest.mark.parametrize("name", ["reward", "error", "prompt"])
def test_a_name_that_is_a_column_already_is_refused(name: str) -> None:
    with pytest.raises(
        EnvironmentFault, match=f"reward function '{name}': results already have a column with this name"
    ):
        AgentEnv([ROW], Agent(), [EvalFnWrapper(exact, name)])
