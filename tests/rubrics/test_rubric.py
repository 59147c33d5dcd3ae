"""Rubrics: what a rollout is worth, and what becomes of functions that fail."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_chat import state_of

from harness.core.errors import EnvironmentFault
from harness.core.records import Generated, Score
from harness.core.state import State
from harness.core.types import Messages
from harness.rubrics import Rubric, RubricGroup
from harness.rubrics.parser import Parser
from harness.rubrics.xml_parser import XMLParser
from harness.usercode.threads import offload


def score(rubric: Rubric, *states: State) -> list[Score]:
    return asyncio.run(rubric.score(list(states) or [state_of()]))


def named(name: str, give: Callable[[], Any]) -> Callable[..., Any]:
    def function(completion: Any) -> Any:
        return give()

    function.__name__ = name
    return function


def test_the_reward_is_the_weighted_sum_and_metrics_do_not_count() -> None:
    rubric = Rubric([named("a", lambda: 1), named("b", lambda: 0.5)], [1.0, 0.5])
    rubric.add_metric(named("c", lambda: 7))
    rubric.add_reward_func(named("d", lambda: True), weight=-0.25)
    state = state_of()
    (result,) = score(rubric, state)
    assert result == Score(1.0, {"a": 1.0, "b": 0.5, "c": 7.0, "d": 1.0}, {})
    assert state["reward"] == 1.0
    assert state["metrics"] == result.metrics
    assert rubric.metric_names == ("a", "b", "c", "d")
    assert rubric.reward_range == (-0.25, 1.5)


def test_functions_get_what_they_name() -> None:
    seen: dict[str, Any] = {}

    def some(completion: Messages, answer: str, parser: Parser, tool: str, limit: int = 3) -> float:
        seen.update(completion=completion, answer=answer, parser=parser, tool=tool, limit=limit)
        return 1.0

    def everything(**kwargs: Any) -> float:
        seen.update(everything=sorted(kwargs))
        return 1.0

    parser = XMLParser(["answer"])
    state = state_of(answer="4", task="t", info={"a": 1})
    score(Rubric([some, everything], parser=parser, class_objects={"tool": "hammer"}), state)
    assert seen["completion"] is state["completion"]
    assert (seen["answer"], seen["parser"], seen["tool"], seen["limit"]) == ("4", parser, "hammer", 3)
    assert seen["everything"] == sorted(
        ["prompt", "completion", "answer", "state", "task", "info", "parser", "tool"],
    )


def test_an_empty_rubric_gives_nothing() -> None:
    assert score(Rubric()) == [Score(0.0, {}, {})]
    assert Rubric().reward_range == (0, 0)


def raises() -> float:
    raise ValueError("could not read '12a'")


@pytest.mark.parametrize(
    ("give", "reason"),
    [
        (raises, "raised ValueError: could not read '12a' (in raises, test_rubric.py:79)"),
        (lambda: math.nan, "returned nan"),
        (lambda: math.inf, "returned inf"),
        (lambda: None, "returned None"),
        (lambda: "1", "returned str: '1'"),
        (lambda: [1.0], "returned list: [1.0]"),
    ],
)
def test_a_failed_reward_is_no_zero(give: Callable[[], Any], reason: str) -> None:
    good, bad = named("good", lambda: 1.0), named("bad", give)
    assert score(Rubric([good, bad])) == [Score(None, {"good": 1.0, "bad": None}, {"bad": reason})]
    assert score(Rubric([good, bad], [1, 0])) == [Score(1.0, {"good": 1.0, "bad": None}, {"bad": reason})]


def test_the_first_reason_is_one_that_cost_the_reward() -> None:
    rubric = Rubric([named("metric", lambda: None), named("judged", raises)], [0, 1])
    (result,) = score(rubric)
    assert list(result.reasons) == ["judged", "metric"]


def test_functions_run_in_order_and_may_read_what_earlier_ones_left() -> None:
    def first(state: State) -> float:
        state["trace"] = ["first"]
        return 1.0

    async def second(state: State) -> float:
        await asyncio.sleep(0)
        state["trace"].append("second")
        return 1.0

    def third(state: State) -> float:
        state["trace"].append("third")
        return float(len(state["trace"]))

    (result,) = score(Rubric([first, second, third], [0, 0, 1]))
    assert result.reward == 3.0


def test_sync_functions_of_a_rollout_share_one_thread_off_the_loop() -> None:
    threads: list[int] = []

    def a(completion: Any) -> float:
        threads.append(threading.get_ident())
        return 0.0

    def b(completion: Any) -> float:
        threads.append(threading.get_ident())
        return 0.0

    async def c(completion: Any) -> float:
        threads.append(threading.get_ident())
        return 0.0

    score(Rubric([a, b, c]))
    assert threads[0] == threads[1] != threading.get_ident()
    assert threads[2] == threading.get_ident()


def test_an_awaitable_from_a_sync_function_is_awaited() -> None:
    async def later() -> float:
        return 0.5

    async def broken() -> float:
        raise OSError("gone")

    (result,) = score(Rubric([named("later", later), named("broken", broken)], [1, 0]))
    assert (result.reward, result.reasons) == (0.5, {"broken": "raised OSError: gone (in broken, test_rubric.py:148)"})


def test_async_functions_run_for_all_rollouts_at_once() -> None:
    async def main() -> None:
        everyone = asyncio.Barrier(3)

        async def together(completion: Any) -> float:
            async with asyncio.timeout(60):
                await everyone.wait()
            return 1.0

        async def half(answer: str) -> float:
            if answer == "1":
                raise RuntimeError("just this one")
            return 1.0

        scores = await Rubric([together, half]).score([state_of(answer=str(i)) for i in range(3)])
        assert [s.reward for s in scores] == [2.0, None, 2.0]
        assert scores[1].reasons == {"half": "raised RuntimeError: just this one (in half, test_rubric.py:165)"}

    asyncio.run(main())


# Groups


def best(completions: list[Messages], answers: list[str]) -> list[float]:
    longest = max(len(c[0]["content"]) for c in completions)
    return [float(len(c[0]["content"]) == longest) for c in completions]


def replies(*texts: str) -> list[State]:
    return [state_of([{"role": "assistant", "content": text}]) for text in texts]


def test_a_group_function_sees_all_rollouts() -> None:
    rubric = Rubric([best, named("one", lambda: 0.5)])
    assert rubric.is_group
    assert not Rubric([named("one", lambda: 0.5)]).is_group
    assert [s.reward for s in score(rubric, *replies("a", "aaa", "aa"))] == [0.5, 1.5, 0.5]


def test_a_group_function_may_be_async_and_take_everything() -> None:
    async def count(states: list[State], **kwargs: Any) -> list[int]:
        assert sorted(kwargs) == ["answers", "completions", "infos", "parser", "prompts", "tasks"]
        return [len(states)] * len(states)

    assert [s.reward for s in score(Rubric([count]), *replies("a", "b"))] == [2.0, 2.0]


def test_a_group_of_the_wrong_length_leaves_all_unscored() -> None:
    def short(states: list[State]) -> list[float]:
        return [1.0]

    for result in score(Rubric([short]), *replies("a", "b")):
        assert result == Score(None, {"short": None}, {"short": "returned 1 values for 2 rollouts"})


def test_one_bad_value_of_a_group_costs_one_rollout() -> None:
    def uneven(states: list[State]) -> list[Any]:
        return [1.0, math.nan]

    assert [s.reward for s in score(Rubric([uneven]), *replies("a", "b"))] == [1.0, None]


def test_a_group_function_that_raises_leaves_all_unscored() -> None:
    def broken(states: list[State]) -> list[float]:
        raise KeyError("x")

    reason = "raised KeyError: 'x' (in broken, test_rubric.py:219)"
    assert [s.reasons["broken"] for s in score(Rubric([broken]), *replies("a", "b"))] == [reason] * 2


# Construction


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(EnvironmentFault, match="two reward functions are called 'a'"):
        Rubric([named("a", raises), named("a", raises)])


def test_as_many_weights_as_functions() -> None:
    with pytest.raises(EnvironmentFault, match="2 weights for 1 functions"):
        Rubric([raises], [1, 2])


def test_a_wrong_parameter_fails_at_construction() -> None:
    def exact(completons: Any) -> float:
        return 0.0

    with pytest.raises(EnvironmentFault, match=r"'exact', parameter 'completons'.*did you mean 'completion"):
        Rubric([exact])


def test_class_objects_have_names_of_their_own() -> None:
    with pytest.raises(EnvironmentFault, match="class object 'state'"):
        Rubric(class_objects={"state": 1})
    rubric = Rubric()
    rubric.add_class_object("judge", lambda: 0.25)
    rubric.add_reward_func(lambda judge: judge())
    assert score(rubric)[0].reward == 0.25


def test_a_rubric_may_declare_its_range() -> None:
    assert Rubric([best], reward_range=(-1, 10)).reward_range == (-1.0, 10.0)
    for wrong in ((1, 0), (0, math.nan)):
        with pytest.raises(EnvironmentFault, match="reward_range"):
            Rubric([best], reward_range=wrong)


def test_the_environments_parser_is_adopted_only_where_there_is_none() -> None:
    own, other = Parser(str.lower), Parser(str.upper)
    rubric = Rubric(parser=own)
    rubric.use_parser(other)
    assert rubric.parser is own
    rubric = Rubric()
    rubric.use_parser(other)
    assert rubric.parser is other
    with pytest.raises(EnvironmentFault, match="parser must be a Parser"):
        Rubric(parser="xml")  # pyright: ignore[reportArgumentType]


def test_live_state_is_declared() -> None:
    assert not Rubric().needs_live_state
    assert Rubric(needs_live_state=True).needs_live_state
    assert RubricGroup([Rubric(), Rubric(needs_live_state=True)]).needs_live_state


# Rubric groups


def test_a_group_of_rubrics_adds_rewards_and_keeps_all_metrics() -> None:
    group = RubricGroup([Rubric([named("a", lambda: 1.0)], [0.5]), Rubric([named("b", lambda: 1.0)], [-1])])
    group.add_metric(named("c", lambda: 3))
    assert group.metric_names == ("a", "c", "b")
    assert group.reward_range == (-1, 0.5)
    assert not group.is_group
    state = state_of()
    assert score(group, state) == [Score(-0.5, {"a": 1.0, "c": 3.0, "b": 1.0}, {})]
    assert state["reward"] == -0.5
    assert state["metrics"] == {"a": 1.0, "c": 3.0, "b": 1.0}


def test_a_rubric_without_a_reward_leaves_the_group_without_one() -> None:
    parts = [Rubric([named("metric", lambda: None)], [0]), Rubric([named("bad", raises)]), Rubric([named("ok", int)])]
    (result,) = score(RubricGroup(parts))
    assert result.reward is None
    assert list(result.reasons) == ["bad", "metric"]
    assert result.metrics == {"metric": None, "bad": None, "ok": 0.0}


def test_a_group_passes_on_what_concerns_its_rubrics() -> None:
    parser = Parser(str.upper)
    group = RubricGroup([Rubric(), Rubric([best])])
    group.use_parser(parser)
    group.add_class_object("tool", 1)
    group.add_reward_func(named("a", lambda: 1))
    group.add_reward_func(lambda tool: tool)
    assert group.is_group
    assert group.parser is parser
    assert [rubric.parser for rubric in group.rubrics] == [parser, parser]
    assert group.rubrics[0].metric_names == ("a", "<lambda>")


def test_rubrics_that_share_a_function_name_are_refused() -> None:
    one, other = Rubric([named("a", raises)]), Rubric([named("a", raises)])
    with pytest.raises(EnvironmentFault, match="function called 'a'"):
        RubricGroup([one, other])
    with pytest.raises(EnvironmentFault, match="function called 'b'"):
        RubricGroup([Rubric(), Rubric([named("b", raises)])]).add_reward_func(named("b", raises))
    with pytest.raises(EnvironmentFault, match="at least one"):
        RubricGroup([])
    with pytest.raises(EnvironmentFault, match="takes rubrics"):
        RubricGroup([raises])  # pyright: ignore[reportArgumentType, reportListItemType]


# After a crash, and when functions hang


def restored(state: State) -> State:
    assert state.example is not None
    exported, lost = state.export()
    line = Generated("key", "k", 0, state["completion"], state=orjson.loads(orjson.dumps(exported)), lost=lost)
    return State.restore(state.example, line, "m", {})


def test_a_restored_rollout_scores_the_same() -> None:
    def judged(state: State, answer: str, completion: Messages) -> float:
        return state["won"] * 0.5 + (completion[-1]["content"] == answer) * 0.25 + len(state["trajectory"])

    live = state_of(answer="yes")
    live["won"] = True
    live["trajectory"] = [{}]
    assert score(Rubric([judged]), restored(live)) == score(Rubric([judged]), live)


def test_a_lost_value_leaves_the_rollout_unscored_and_says_so() -> None:
    def reads_sandbox(state: State) -> float:
        return 1.0 if state.get("sandbox") else 0.0

    live = state_of()
    live["sandbox"] = object()
    assert score(Rubric([reads_sandbox]), live)[0].reward == 1.0
    (result,) = score(Rubric([reads_sandbox]), restored(live))
    assert result.reward is None
    assert result.reasons["reads_sandbox"].startswith("state lost: state['sandbox']")


def test_a_lost_input_field_is_a_reason_too() -> None:
    live = state_of(info={"a": 1})
    live["info"]["b"] = object()
    (result,) = score(Rubric([lambda info: 1.0]), restored(live))
    assert result.reasons["<lambda>"].startswith("state lost: state['info']")


def test_a_hanging_function_is_abandoned_and_the_next_rollout_scores() -> None:
    started, release = threading.Event(), threading.Event()

    def hangs(answer: str) -> float:
        if answer == "hang":
            started.set()
            release.wait(30)
        return 1.0

    async def main() -> None:
        rubric = Rubric([hangs])
        before = offload.abandoned
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await rubric.score([state_of(answer="hang")])
            assert started.is_set()
            assert offload.abandoned == before + 1
            assert "reward function hangs" in offload.hung
            assert (await rubric.score([state_of()]))[0].reward == 1.0
        finally:
            release.set()

    asyncio.run(main())


def test_an_abandoned_thread_ends_with_the_function_it_is_in() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def hangs(completion: Any) -> float:
        started.set()
        release.wait(30)
        return 1.0

    def later(completion: Any) -> float:
        ran.append("later")
        return 1.0

    async def main() -> None:
        task = asyncio.ensure_future(Rubric([hangs, later]).score([state_of()]))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        release.set()
        async with asyncio.timeout(60):
            while "reward function hangs" in offload.hung:  # noqa: ASYNC110 - a thread's end sets no event
                await asyncio.sleep(0.001)
        ended.set()

    asyncio.run(main())
    assert ended.is_set()
    assert ran == []


def test_no_rollouts_no_scores() -> None:
    assert asyncio.run(Rubric([raises]).score([])) == []
    assert asyncio.run(RubricGroup([Rubric([raises])]).score([])) == []


numbers = st.none() | st.floats() | st.integers(-9, 9) | st.booleans() | st.text(max_size=2)


@given(st.lists(st.tuples(numbers, st.sampled_from([0.0, 0.5, 1.0, -1.0])), max_size=5))
def test_a_reward_is_finite_or_has_a_reason(parts: list[tuple[Any, float]]) -> None:
    functions = [named(f"f{index}", lambda v=value: v) for index, (value, _) in enumerate(parts)]
    (result,) = score(Rubric(functions, [weight for _, weight in parts]))
    failed = {name for name, value in result.metrics.items() if value is None}
    assert failed == set(result.reasons) - {"*"}
    weighted = {f"f{index}" for index, (_, weight) in enumerate(parts) if weight}
    assert (result.reward is None) == bool(failed & weighted) or result.reasons["*"]
    assert result.reward is None or math.isfinite(result.reward)


def test_a_sum_beyond_all_numbers_is_no_reward() -> None:
    (result,) = score(Rubric([named("a", lambda: 1e308), named("b", lambda: 1e308)], [1, 1]))
    assert result.reward is None
    assert result.reasons == {"*": "the weighted sum is inf"}


WEIGHTS = [[0.7, 0.2, 0.1], [0.7, 0.29, 0.01], [0.1] * 10, [1 / 49] * 49, [1 / 3] * 3, [1.4, 0.58, 0.02]]


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_a_right_answer_gets_the_sum_of_the_weights(weights: list[float]) -> None:
    """In one rubric, in a group of rubrics and of groups, in any order: exactly the top of the range."""
    functions = [named(f"f{n}", lambda: 1.0) for n in range(len(weights))]
    apart = [Rubric([function], [weight]) for function, weight in zip(functions, weights, strict=True)]
    nested = RubricGroup([RubricGroup(apart[:2]), *apart[2:]])
    for rubric in (Rubric(functions, weights), Rubric(functions[::-1], weights[::-1]), RubricGroup(apart), nested):
        [found] = score(rubric)
        assert found.reward == rubric.reward_range[1] == round(math.fsum(weights), 9)


def test_one_value_is_the_reward_to_the_last_bit() -> None:
    almost = math.nextafter(1.0, 0.0)
    assert score(Rubric([named("a", lambda: almost), named("b", lambda: 0)]))[0].reward == almost
    assert score(RubricGroup([Rubric([named("a", lambda: almost)])]))[0].reward == almost
