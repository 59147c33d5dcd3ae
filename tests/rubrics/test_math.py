r"""The math rubric: whose box counts, what a comparison without a verdict becomes, and what it says at construction."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from scripted_chat import state_of
from tables import for_each_row

import harness
from harness.core.errors import EnvironmentFault, VerificationError
from harness.core.records import Score
from harness.core.state import State
from harness.rubrics import Rubric
from harness.rubrics.extract import extract_boxed_answer
from harness.rubrics.math import REASON, MathRubric, boxed_answer, verify_math
from harness.rubrics.parser import MaybeThinkParser, Parser, ThinkParser
from harness.rubrics.xml_parser import XMLParser


def reply(text: str, answer: Any = "18") -> State:
    state = state_of(answer=answer)
    state["completion"] = [{"role": "assistant", "content": text}]
    return state


def score(rubric: Rubric, *states: State) -> list[Score]:
    async def main() -> list[Score]:
        return [(await rubric.score([state]))[0] for state in states]

    return asyncio.run(main())


def test_the_reward_is_the_boxed_answer() -> None:
    texts = [r"So \boxed{18}.", r"\boxed{36/2}", r"\boxed{17}", "18", "The answer is 18.", r"\boxed{18", ""]
    scores = score(MathRubric(), *[reply(text) for text in texts])
    assert [s.reward for s in scores] == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert [s.reasons for s in scores] == [{}] * 7


@for_each_row("gold", ["18", r"\boxed{18}", r"So we get \boxed{18}.", "$18$", 18, 18.0, r"\frac{36}{2}"])
def test_the_expected_answer_may_be_boxed_bare_or_a_number(gold: Any) -> None:
    (result,) = score(MathRubric(), reply(r"\boxed{18}", gold))
    assert result == Score(1.0, {"correct_answer": 1.0}, {})


@for_each_row(
    ("parser", "text", "found"),
    [
        (Parser(), r"\boxed{1} and \boxed{2}", "2"),
        (Parser(), "2", ""),
        (Parser(), r"<think>\boxed{1}</think> I do not know", ""),
        (Parser(), r"<think>\boxed{1}", ""),
        (Parser(extract_boxed_answer), "no box, but 5", ""),
        (Parser(extract_boxed_answer), r"\boxed{5}", "5"),
        (ThinkParser(extract_boxed_answer), r"\boxed{5}", ""),
        (ThinkParser(extract_boxed_answer), r"<think>\boxed{4}</think>\boxed{5}", "5"),
        (MaybeThinkParser(extract_boxed_answer), r"<think>\boxed{4}</think> so", ""),
        (XMLParser(["think", "answer"]), "<think>4</think><answer>5</answer>", "5"),
        (XMLParser(["think", "answer"]), r"<answer>\boxed{5}</answer>", "5"),
        (XMLParser(["answer"], extract_fn=extract_boxed_answer), "<answer>5</answer>", ""),
        (Parser(lambda text: text.split("=")[-1]), "x=5", "5"),
    ],
)
def test_only_a_box_counts_unless_the_parser_looks_elsewhere(parser: Parser, text: str, found: str) -> None:
    assert boxed_answer(parser, [{"role": "assistant", "content": text}]) == found


def test_a_parser_that_finds_no_text_leaves_the_rollout_unscored() -> None:
    (result,) = score(MathRubric(parser=Parser(lambda text: [text])), reply("5"))  # type: ignore[arg-type,return-value]
    assert result.reward is None
    assert result.reasons["correct_answer"].startswith("raised EnvironmentFault: the parser must return a string")


@for_each_row("gold", ["", "  ", None, r"\boxed{}"])
def test_an_empty_expected_answer_is_no_wrong_answer(gold: Any) -> None:
    (result,) = score(MathRubric(), reply(r"\boxed{18}", gold))
    assert result.reward is None
    assert "the expected answer must be LaTeX or a number" in result.reasons["correct_answer"]


def test_further_functions_add_to_the_reward_in_the_classic_order() -> None:
    def short(completion: Any) -> float:
        return 1.0

    def watched(completion: Any) -> float:
        return 0.5

    rubric = MathRubric([short, watched], [0.25, 0.0], Parser(extract_boxed_answer), 10, 5)
    (result,) = score(rubric, reply(r"\boxed{18}"))
    assert result == Score(1.25, {"short": 1.0, "watched": 0.5, "correct_answer": 1.0}, {})
    assert rubric.reward_range == (0.0, 1.25)


def test_a_loop_of_letters_is_a_wrong_answer_and_takes_no_time() -> None:
    texts = [f"\\boxed{{{part * 5000}}}" for part in ("9", "(", "-", "1+", "x^", r"\text{a}")]
    scores = score(MathRubric(timeout_seconds=1), *[reply(text) for text in texts])
    assert [(s.reward, s.reasons) for s in scores] == [(0.0, {})] * len(texts)


TOO_MUCH = r"\binom{10^9}{5\cdot 10^8}"


@pytest.mark.parametrize("answer", [TOO_MUCH, r"\prod_{k=1}^{10^7} k", "9" * 1900 + "^{9999}"])
def test_an_answer_that_is_too_much_to_compare_is_wrong_and_says_why(answer: str) -> None:
    state = reply(f"\\boxed{{{answer}}}")
    (result,) = score(MathRubric(timeout_seconds=0.5), state)
    assert (result.reward, result.metrics, result.reasons) == (0.0, {"correct_answer": 0.0}, {})
    assert state.get(REASON, "the answer is too complex").startswith("the answer is too complex")


def test_the_reason_of_a_wrong_answer_goes_into_the_state() -> None:
    state = reply(f"\\boxed{{{TOO_MUCH}}}")
    score(MathRubric(timeout_seconds=0.5), state)
    assert "comparing '\\\\binom{10^9}" in state[REASON] and "was stopped after 0.5 s of CPU time" in state[REASON]
    state["completion"] = reply(r"\boxed{5}")["completion"]
    score(MathRubric(), state)
    assert REASON not in state


def test_an_expected_answer_that_is_too_much_leaves_the_rollout_unscored() -> None:
    (result,) = score(MathRubric(timeout_seconds=0.5), reply(r"\boxed{5}", TOO_MUCH))
    assert (result.reward, result.metrics) == (None, {"correct_answer": None})
    assert "was stopped after 0.5 s of CPU time" in result.reasons["correct_answer"]


def test_the_helper_takes_both_forms_and_raises_without_a_verdict() -> None:
    async def main() -> None:
        assert harness.verify_math is verify_math
        assert await verify_math(r"so \boxed{\frac{1}{2}}", 0.5) is True
        assert await verify_math("x = 4", r"\boxed{5}") is False
        assert await verify_math(r"\prod_{k=1}^{10^7} k", "5", timeout_seconds=0.3) is False
        with pytest.raises(VerificationError, match=r"stopped after 0\.3 s"):
            await verify_math("5", r"\prod_{k=1}^{10^7} k", timeout_seconds=0.3)
        with pytest.raises(EnvironmentFault, match="expected answer"):
            await verify_math("5", "")

    asyncio.run(main())


@for_each_row(
    ("arguments", "named"),
    [
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": float("inf")}, "timeout_seconds"),
        ({"max_workers": 0}, "max_workers"),
        ({"max_workers": 2.5}, "max_workers"),
        ({"funcs": [lambda completion: 1.0], "weights": [1.0, 2.0]}, "2 weights for 1 functions"),
    ],
)
def test_a_bad_argument_is_refused_at_construction(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(EnvironmentFault, match=named):
        MathRubric(**arguments)


def test_a_function_may_not_take_the_reward_s_name() -> None:
    def correct_answer(completion: Any) -> float:
        return 1.0

    with pytest.raises(EnvironmentFault, match="two reward functions are called 'correct_answer'"):
        MathRubric([correct_answer])


def test_without_the_library_construction_says_what_to_install() -> None:
    program = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        return None if name == "math_verify" else self.finder.find_spec(name, *rest)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from harness import EnvironmentFault, MathRubric
try:
    MathRubric()
except EnvironmentFault as error:
    print(error)
"""
    bare = [sys.executable, "-c", program]
    done = subprocess.run(bare, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "MathRubric needs math-verify (math_verify is missing): pip install 'bench-harness[math]'\n"


def test_constructing_it_loads_no_mathematics_and_starts_nothing() -> None:
    program = """
import sys, threading
from harness import MathRubric
from harness.rubrics.math_pool import math_pool
MathRubric()
print(sorted({"sympy", "math_verify", "antlr4"} & set(sys.modules)), math_pool.pids, threading.active_count())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[] () 1\n"
