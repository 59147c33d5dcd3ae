"""Reward functions, as they are read: their parameters, their names, and what they return."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import EnvironmentFault
from harness.core.records import FIXED_COLUMNS
from harness.rubrics.functions import plan, read, read_group


def test_a_function_takes_what_it_names() -> None:
    def judge_it(completion: Any, answer: Any, parser: Any, judge: Any, threshold: float = 0.5, *rest: Any) -> float:
        return 0.0

    planned = plan(judge_it, 2, ("judge",))
    assert planned.takes == ("completion", "answer", "parser", "judge")
    assert (planned.name, planned.weight, planned.is_group, planned.is_async) == ("judge_it", 2.0, False, False)


def test_kwargs_take_everything() -> None:
    def judge_it(completion: Any, **kwargs: Any) -> float:
        return 0.0

    assert plan(judge_it, 1, ()).takes is None


@for_each_row("name", ["states", "prompts", "completions", "answers", "tasks", "infos"])
def test_a_plural_name_makes_a_group_function(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def judge_it({name}, parser): ...", namespace)
    planned = plan(namespace["judge_it"], 1, ())
    assert planned.is_group
    assert planned.takes == (name, "parser")


def test_async_functions_are_known_as_such() -> None:
    async def judge_it(completion: Any) -> float:
        return 0.0

    class Judge:
        async def __call__(self, completion: Any) -> float:
            return 0.0

    assert plan(judge_it, 1, ()).is_async
    assert plan(functools.partial(judge_it), 1, ()).is_async
    assert plan(Judge(), 1, ()).is_async
    assert plan(Judge(), 1, ()).name == "Judge"


def test_a_partial_keeps_the_name_of_its_function() -> None:
    def within(completion: Any, limit: int, anser: str) -> float:
        return 0.0

    planned = plan(functools.partial(within, limit=3, anser="x"), 1, ())
    assert (planned.name, planned.takes) == ("within", ("completion",))


def wrong_name(completion: Any, anser: Any) -> float:
    return 0.0


def wrong_default(completion: Any, anwser: str = "") -> float:
    return 0.0


def no_such_thing(completion: Any, zebra: Any) -> float:
    return 0.0


def mixed(states: Any, completion: Any) -> list[float]:
    return []


def positional(completion: Any, /) -> float:
    return 0.0


@for_each_row(
    ("function", "words"),
    [
        (wrong_name, r"'wrong_name', parameter 'anser'.*did you mean 'answer'\?"),
        (wrong_default, r"'wrong_default', parameter 'anwser'.*did you mean 'answer'\?"),
        (no_such_thing, r"'no_such_thing', parameter 'zebra'.*rename it.*prompt, completion, answer"),
        (mixed, r"'mixed', parameter 'completion'.*did you mean 'completions'\?"),
        (positional, r"'positional', parameter 'completion'.*positional-only"),
        (3, "must be callable, not 3"),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        plan(function, 1, ())


@for_each_row("name", FIXED_COLUMNS)
def test_the_name_of_a_fixed_column_is_refused(name: str) -> None:
    def judge_it(completion: Any) -> float:
        return 0.0

    judge_it.__name__ = name
    with pytest.raises(EnvironmentFault, match=f"'{name}': results already have a column with this name"):
        plan(judge_it, 1, ())


@for_each_row("weight", [math.nan, math.inf, "1", None])
def test_a_weight_is_a_finite_number(weight: Any) -> None:
    with pytest.raises(EnvironmentFault, match="weight must be a finite number"):
        plan(lambda completion: 0.0, weight, ())


class Scalar:
    """What a scalar of numpy or of a tensor library looks like."""

    ndim = 0

    def __init__(self, value: object) -> None:
        self.value = value

    def item(self) -> object:
        return self.value


@for_each_row(
    ("value", "number"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (True, 1.0),
        (False, 0.0),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (Scalar(0.5), 0.5),
        (Scalar(True), 1.0),
    ],
)
def test_numbers_of_every_kind_are_numbers(value: object, number: float) -> None:
    read_value, reason = read(value)
    assert (read_value, reason) == (number, "")
    assert type(read_value) is float


def test_numpy_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    for value in (numpy.float32(0.5), numpy.float64(0.5), numpy.array(0.5), numpy.float16(0.5)):
        assert read(value) == (0.5, "")
    assert read(numpy.int64(3)) == (3.0, "")
    assert read(numpy.bool_(True)) == (1.0, "")
    assert read(numpy.float32("nan")) == (None, "returned nan")
    assert read(numpy.array([0.5]))[0] is None
    assert read_group(numpy.array([0.5, 1.0]), 2) == [(0.5, ""), (1.0, "")]


@for_each_row(
    ("value", "reason"),
    [
        (math.nan, "returned nan"),
        (math.inf, "returned inf"),
        (-math.inf, "returned -inf"),
        (None, "returned None"),
        ("1.0", "returned str: '1.0'"),
        ([1.0], "returned list: [1.0]"),
        ({"score": 1}, "returned dict: {'score': 1}"),
        (1j, "returned complex: 1j"),
        (10**400, "returned int: int too large to convert to float"),
        (Scalar("x"), "returned str: 'x'"),
        ("x" * 99, "returned str: '" + "x" * 56 + "…"),
    ],
)
def test_what_is_no_number_says_why(value: object, reason: str) -> None:
    assert read(value) == (None, reason)


def test_a_group_result_is_read_entry_by_entry() -> None:
    assert read_group([1, None, 0.5], 3) == [(1.0, ""), (None, "returned None"), (0.5, "")]
    assert read_group((1.0,), 1) == [(1.0, "")]
    assert read_group([1.0], 2) == [(None, "returned 1 values for 2 rollouts")] * 2
    assert read_group(1.0, 2) == [(None, "returned float: a group function must return a list of numbers")] * 2
    assert read_group("ab", 2)[0][0] is None
