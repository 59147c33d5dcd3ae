"""One function of a rubric: what part of it runs alone, and how its value is added to those on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_chat import ScriptedChat, state_of

from harness import JudgeRubric, Parser, RubricGroup
from harness.agents.eval_functions import load_eval_fns
from harness.agents.scoring import EvalRubric
from harness.core.errors import UsageError
from harness.core.records import JUDGEMENTS, Score, Scored
from harness.core.state import State
from harness.envs.env_group import GroupedRubric
from harness.envs.single_turn import SingleTurnEnv
from harness.plugins.classic.rubric import Rubric as ClassicRubric
from harness.rubrics.functions import Value
from harness.rubrics.judge_port import judged_by
from harness.rubrics.rubric import Rubric
from harness.rubrics.single_function import NOT_RECORDED, OneFunction, require_recorded


def gives(name: str, value: object, calls: list[str] | None = None) -> Callable[..., Any]:
    async def function(completion: Any) -> Any:
        if calls is not None:
            calls.append(name)
        if isinstance(value, Exception):
            raise value
        return value

    function.__name__ = name
    return function


def score(rubric: Rubric, *states: State) -> list[Score]:
    return asyncio.run(rubric.score(list(states) or [state_of()]))


def on_record(
    metrics: Mapping[str, float | None], reasons: Mapping[str, str] | None = None, **extra: Any
) -> Callable[[State], Scored]:
    line = Scored("key", "scored", 0.0, dict(metrics), dict(reasons or {}), extra=extra)
    return lambda _state: line


def test_only_that_function_runs() -> None:
    calls: list[str] = []
    rubric = Rubric([gives(name, 0.5, calls) for name in "abc"], [1.0, 2.0, 0.0])
    assert score(rubric.only("b")) == [Score(1.0, {"b": 0.5}, {})]
    assert calls == ["b"]
    assert rubric.metric_names == ("a", "b", "c")
    assert rubric.only("b").reward_range == (0.0, 2.0)
    assert score(rubric) == [Score(1.5, {"a": 0.5, "b": 0.5, "c": 0.5}, {})], "the whole is as it was"


def test_the_part_keeps_parser_and_class_objects_and_live_state() -> None:
    seen: list[object] = []

    def asks(parser: Any, tool: str) -> float:
        seen.extend([parser, tool])
        return 1.0

    parser = Parser()
    rubric = Rubric([gives("a", 1), asks], parser=parser, class_objects={"tool": "hammer"}, needs_live_state=True)
    score(rubric.only("asks"))
    assert seen == [parser, "hammer"]
    assert rubric.only("a").needs_live_state
    assert not Rubric([gives("a", 1)]).only("a").needs_live_state


def test_a_group_function_alone_makes_a_group_and_another_does_not() -> None:
    def share(completions: Any) -> list[float]:
        return [1.0 / len(completions)] * len(completions)

    rubric = Rubric([gives("a", 1.0), share])
    assert rubric.is_group and rubric.only("share").is_group and not rubric.only("a").is_group
    whole = OneFunction(rubric, "share", on_record({"a": 0.25, "share": 9.0}))
    assert whole.is_group
    assert score(whole, state_of(), state_of()) == [Score(0.75, {"a": 0.25, "share": 0.5}, {})] * 2
    assert not OneFunction(rubric, "a", on_record({})).is_group


class OwnScoring(Rubric):
    async def score(self, states: Sequence[State]) -> list[Score]:
        return [Score(1.0, {"a": 1.0}) for _ in states]


class OwnWeights(Rubric):
    @property
    def weights(self) -> dict[str, float]:
        return {}


@pytest.mark.parametrize(
    ("rubric", "name", "words"),
    [
        (Rubric([gives("correct", 1), gives("format", 1)]), "corect", 'has no such function; did you mean "correct"?'),
        (Rubric([gives("correct", 1), gives("format", 1)]), "zzz", "no such function; valid here: correct, format"),
        (Rubric(), "a", "'a': the rubric has no functions"),
        (OwnScoring([gives("a", 1)]), "a", "OwnScoring overrides the computation of the reward"),
        (OwnWeights([gives("a", 1)]), "a", "OwnWeights overrides the computation of the reward"),
        (ClassicRubric([gives("a", 1)]), "a", "Rubric overrides the computation of the reward"),
        (
            RubricGroup([Rubric([gives("b", 1)]), OwnWeights([gives("a", 1)])]),
            "b",
            "RubricGroup overrides the computation of the reward",
        ),
    ],
)
def test_what_cannot_be_run_alone_is_refused_with_words(rubric: Rubric, name: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        rubric.only(name)
    assert words in str(refused.value)
    with pytest.raises(UsageError):
        OneFunction(rubric, name, on_record({}))


def test_the_rubric_of_a_group_of_environments_scores_in_its_own_way() -> None:
    environment = SingleTurnEnv(dataset=[{"question": "?"}], rubric=Rubric([gives("a", 1)]))
    with pytest.raises(UsageError, match="GroupedRubric overrides the computation of the reward"):
        GroupedRubric({"one": environment}).only("a")


def test_a_group_takes_the_part_of_the_rubric_that_has_the_function() -> None:
    group = RubricGroup([Rubric([gives("a", 0.5)]), Rubric([gives("b", 0.25), gives("c", 1.0)], [2.0, 0.0])])
    assert score(group.only("c")) == [Score(0.0, {"c": 1.0}, {})]
    one = OneFunction(group, "b", on_record({"a": 0.5, "b": 0.0, "c": 7.0}))
    assert (one.metric_names, one.weights, one.reward_range) == (
        ("a", "b", "c"), {"a": 1.0, "b": 2.0, "c": 0.0}, (0.0, 3.0),
    )  # fmt: skip
    assert score(one) == [Score(1.0, {"a": 0.5, "b": 0.25, "c": 7.0}, {})]


def test_the_other_values_are_those_on_record() -> None:
    calls: list[str] = []
    rubric = Rubric([gives(name, 1.0, calls) for name in "abc"], [1.0, 1.0, 0.0])
    state = state_of()
    one = OneFunction(rubric, "b", on_record({"a": 0.25, "b": 0.0, "c": 3.0}, trace=["left by a"]))
    assert score(one, state) == [Score(1.25, {"a": 0.25, "b": 1.0, "c": 3.0}, {})]
    assert calls == ["b"]
    assert (state["reward"], state["metrics"], state["trace"]) == (
        1.25, {"a": 0.25, "b": 1.0, "c": 3.0}, ["left by a"],
    )  # fmt: skip


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-10, 10)), min_size=1, max_size=8), st.data())
def test_a_function_that_says_the_same_leaves_the_reward_to_the_last_bit(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    names = [f"f{number}" for number in range(len(pairs))]
    rubrics = [Rubric([gives(name, value)], [weight]) for name, (value, weight) in zip(names, pairs, strict=True)]
    half = data.draw(st.integers(0, len(pairs)))
    halves = [
        Rubric([gives(names[i], pairs[i][0]) for i in part], [pairs[i][1] for i in part])
        for part in (range(half), range(half, len(pairs)))
    ]
    for whole in (RubricGroup(rubrics), RubricGroup(halves)):
        [before] = score(whole)
        one = OneFunction(whole, data.draw(st.sampled_from(names)), on_record(before.metrics))
        assert score(one) == [before]


def test_what_failed_on_record_still_costs_the_reward() -> None:
    rubric = Rubric([gives("a", 1.0), gives("b", 1.0), gives("c", 1.0)], [1.0, 1.0, 0.0])
    one = OneFunction(rubric, "b", on_record({"a": None, "b": None, "c": None}, {"a": "judge refused", "c": "nan"}))
    assert score(one) == [Score(None, {"a": None, "b": 1.0, "c": None}, {"a": "judge refused", "c": "nan"})]
    late = OneFunction(rubric, "b", on_record({}, {"*": "scoring timeout: scoring took longer than 1 s"}))
    timeout = "scoring timeout: scoring took longer than 1 s"
    assert score(late) == [Score(None, {"a": None, "b": 1.0, "c": None}, {"a": timeout, "c": timeout})]
    nothing = OneFunction(rubric, "b", lambda _state: None)
    assert score(nothing) == [Score(None, {"a": None, "b": 1.0, "c": None}, {"a": NOT_RECORDED, "c": NOT_RECORDED})]


def test_a_function_that_fails_today_costs_the_reward_of_today() -> None:
    rubric = Rubric([gives("a", 1.0), gives("b", ValueError("no"))])
    one = OneFunction(rubric, "b", on_record({"a": 1.0, "b": 1.0}))
    assert score(one) == [
        Score(None, {"a": 1.0, "b": None}, {"b": "raised ValueError: no (in function, test_single_function.py:34)"})
    ]


def test_eval_functions_are_averaged_as_ever(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tenths_of_test_only.py").write_text(
        "\n".join(f"def f{n}(solution_str, ground_truth, extra_info=None):\n    return 1.0\n" for n in range(10))
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    rubric = EvalRubric(load_eval_fns([f"tenths_of_test_only:f{n}" for n in range(10)]))
    names = rubric.metric_names
    state = state_of([{"role": "assistant", "content": "x"}], prompt=[
        {"role": "system", "content": "s"}, {"role": "user", "content": "u"},
    ])  # fmt: skip
    one = OneFunction(rubric, names[3], on_record(dict.fromkeys(names, 1.0)))
    assert score(one, state) == [Score(1.0, dict.fromkeys(names, 1.0), {})], "and not 0.9999999999999999"


class Panel:
    """One scripted judge."""

    def __init__(self, *replies: object) -> None:
        self.chat_ = ScriptedChat(replies, model="judge-model")

    def chat(self, spec: object, state: object) -> ScriptedChat:
        return self.chat_


async def judged(judge: Any, prompt: Any, completion: Any, answer: str, state: State) -> float:
    return float(len(await judge(prompt, completion, answer, state)))


def test_only_the_function_that_asks_a_judge_needs_one() -> None:
    rubric = JudgeRubric([judged, gives("exact", 1.0)])
    whole = RubricGroup([Rubric([gives("a", 1.0)]), rubric])
    assert rubric.only("exact").judges == () and whole.only("a").judges == ()
    assert rubric.only("judged").judges == rubric.judges == whole.only("judged").judges != ()
    assert OneFunction(whole, "exact", on_record({})).judges == ()


def test_a_judge_is_asked_anew_and_what_it_said_before_goes() -> None:
    rubric, panel = JudgeRubric([judged, gives("exact", 1.0)]), Panel("four")
    old = [{"model": "old", "text": "said before"}]
    known = on_record({"judged": 9.0, "exact": 0.5}, judgements=old)
    state = state_of()

    async def main() -> list[Score]:
        with judged_by(panel):  # type: ignore[arg-type]
            return await OneFunction(rubric, "judged", known).score([state])

    assert asyncio.run(main()) == [Score(4.5, {"judged": 4.0, "exact": 0.5}, {})]
    assert [entry["text"] for entry in state[JUDGEMENTS]] == ["four"]
    other = state_of()
    [kept] = score(OneFunction(rubric, "exact", known), other)
    assert (kept.reward, other[JUDGEMENTS], len(panel.chat_.asked)) == (10.0, old, 1)


def test_a_function_that_was_never_run_cannot_be_added_up() -> None:
    rubric = Rubric([gives(name, 1.0) for name in "abcd"], [1.0, 1.0, 0.0, 0.5])
    require_recorded(rubric, "a", ["b", "d"])
    with pytest.raises(UsageError, match="the reward also needs recorded values of b, d, which the run does not have"):
        require_recorded(rubric, "a", ["a", "c"])


def test_add_up_is_the_sum_of_any_values() -> None:
    rubric = Rubric([gives("a", 1.0), gives("b", 1.0)], [1.0, -0.5])
    values: dict[str, Value] = {"a": (0.5, ""), "b": (1.0, "")}
    assert rubric.add_up(values) == Score(0.0, {"a": 0.5, "b": 1.0}, {})
    values["a"] = (None, "gone")
    assert rubric.add_up(values) == Score(None, {"a": None, "b": 1.0}, {"a": "gone"})
