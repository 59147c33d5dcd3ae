"""The decorators of reward functions: what they ask of a signature, and what they make of a value."""

import asyncio
import textwrap
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Optional

import numpy as np
import pytest

from harness.agents.eval_functions import EvalFnWrapper
from harness.agents.reward import osmosis_reward, osmosis_rubric

REWARD = "def f(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs):\n    return 1"


def define(source: str, decorator: Any = osmosis_reward, *, lazy: bool = False) -> Any:
    """A decorated function out of source text, as a module of a user's would define it."""
    names: dict[str, Any] = {"Optional": Optional, "Any": Any, "Mapping": Mapping, "np": np}
    future = "from __future__ import annotations\n" if lazy else ""
    code = compile(future + textwrap.dedent(source), "rewards.py", "exec", dont_inherit=True)
    exec(code, names)
    return decorator(names["f"])


@pytest.mark.parametrize("lazy", [False, True], ids=["types", "texts"])
@pytest.mark.parametrize("kind", ["dict", "dict[str, Any]", "dict | None", "Optional[dict]", "None | dict"])
def test_a_classic_reward_function_is_taken(kind: str, lazy: bool) -> None:
    f = define(REWARD.replace("dict", kind), lazy=lazy)
    assert (f("a", "b"), type(f("a", "b"))) == (1.0, float)
    assert f.__name__ == "f"


def test_annotations_are_read_even_if_another_one_names_what_is_not_there() -> None:
    source = "def f(solution_str: str, ground_truth: str, extra_info: dict | None = None) -> Missing:\n    return 0.5"
    assert define(source, lazy=True)("a", "b") == 0.5
    with pytest.raises(TypeError, match="must be annotated as str, got int"):
        define(source.replace("solution_str: str", "solution_str: int"), lazy=True)


@pytest.mark.parametrize("lazy", [False, True], ids=["types", "texts"])
@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("solution_str: str", "Function f must have at least 3 parameters, got 1"),
        ("solution_str: int, ground_truth: str, extra_info: dict = None",
         "First parameter 'solution_str' must be annotated as str, got int"),
        ("solution_str, ground_truth: str, extra_info: dict = None",
         "First parameter 'solution_str' must be annotated as str, got no annotation"),
        ("solution_str: str, truth: str, extra_info: dict = None",
         "Second parameter must be named 'ground_truth', got 'truth'"),
        ("solution_str: str, ground_truth: Optional[str], extra_info: dict = None",
         "Second parameter 'ground_truth' must be annotated as str, got "),
        ("solution_str: str, ground_truth: str, extra_info: list = None",
         "Third parameter 'extra_info' must be annotated as dict, got list"),
        ("solution_str: str, ground_truth: str, extra_info: dict",
         "Third parameter 'extra_info' must have a default value of None"),
    ],
)  # fmt: skip
def test_another_signature_is_refused(signature: str, words: str, lazy: bool) -> None:
    with pytest.raises(TypeError) as error:
        define(f"def f({signature}):\n    return 1.0", lazy=lazy)
    assert str(error.value).startswith(words)


def test_a_function_of_another_kind_is_left_as_it_is() -> None:
    def full(messages: Any, ground_truth: Any, metadata: Any) -> str:
        return "whatever"

    assert osmosis_reward(full) is full


@pytest.mark.parametrize(
    ("value", "score"), [("1", 1.0), ("np.bool_(1)", 1.0), ("True", 1.0), ("0.5", 0.5), ("float('nan')", None)]
)
def test_numbers_become_floats(value: str, score: float | None) -> None:
    result = define(REWARD.replace("return 1", f"return {value}"))("a", "b")
    assert type(result) is float
    assert result == score if score is not None else result != result


@pytest.mark.parametrize(("value", "kind"), [("None", "NoneType"), ("'1'", "str"), ("1j", "complex")])
def test_anything_else_is_refused(value: str, kind: str) -> None:
    with pytest.raises(TypeError, match=f"Function f must return a float, got {kind}"):
        define(REWARD.replace("return 1", f"return {value}"))("a", "b")


def test_an_async_reward_function_stays_async() -> None:
    f = define("async " + REWARD)
    assert asyncio.iscoroutinefunction(f)
    assert asyncio.run(f("a", "b")) == 1.0


def test_data_source_is_dropped_where_it_is_not_taken() -> None:
    assert define(REWARD.replace(", **kwargs", ""))("a", "b", data_source="d") == 1.0
    kept = define(REWARD.replace("return 1", "return len(kwargs)"))
    assert kept("a", "b", data_source="d") == 1.0
    assert kept("a", "b", split="d") == 1.0
    with pytest.raises(TypeError, match="split"):
        define(REWARD.replace(", **kwargs", ""))("a", "b", split="d")


def test_a_decorated_function_is_an_eval_function() -> None:
    wrapper = EvalFnWrapper(define(REWARD), "rewards:f")
    assert wrapper.mode == "simple"
    assert asyncio.run(wrapper([{"role": "assistant", "content": "a"}], "g", {})) == 1.0


RUBRIC = (
    "def f(solution_str: str, ground_truth: Optional[str], extra_info: dict, **kwargs):\n"
    "    return len(solution_str) + (ground_truth is None)"
)


def test_a_rubric_function_checks_what_it_gets() -> None:
    f = define(RUBRIC, osmosis_rubric)
    assert f("ab", None, {}) == 3.0
    assert f("ab", ground_truth="g", extra_info={}) == 2.0
    for arguments, words in [
        ((1, "g", {}), "Function f: 'solution_str' must be str, got int"),
        (("a", 1, {}), "Function f: 'ground_truth' must be str or None, got int"),
        (("a", "g", None), "Function f: 'extra_info' must be dict, got NoneType"),
    ]:
        with pytest.raises(TypeError, match=words):
            f(*arguments)
    wrapper = EvalFnWrapper(f, "rubrics:f")
    assert asyncio.run(wrapper([{"role": "assistant", "content": "abc"}], "g", {})) == 3.0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("extra_info: dict", "extra_info: dict = None", "Third parameter 'extra_info' must not have a default value"),
        ("extra_info: dict", "extra_info: str | None", "Third parameter 'extra_info' must be annotated as dict"),
        ("solution_str: str", "answer: str", "First parameter must be named 'solution_str', got 'answer'"),
    ],
)
def test_another_signature_is_no_rubric_function(old: str, new: str, words: str) -> None:
    with pytest.raises(TypeError, match=words.replace("|", r"\|")):
        define(RUBRIC.replace(old, new, 1).replace(", **kwargs", ""), osmosis_rubric)


@pytest.mark.parametrize(
    "kind",
    ["dict | None", "Optional[dict]", "'dict | None'", "'Optional[dict[str, X]]'",
     "Optional[Mapping[str, Any]]", "'typing.Optional[Mapping[str, X]]'"],
)  # fmt: skip
def test_a_rubric_function_may_take_no_extra_info(kind: str) -> None:
    assert define(RUBRIC.replace("extra_info: dict", f"extra_info: {kind}"), osmosis_rubric)("ab", None, None) == 3.0


def test_a_rubric_function_of_messages_is_left_as_it_is() -> None:
    f = define("def f(messages, ground_truth, extra_info=None):\n    return len(messages)", osmosis_rubric)
    assert f([{"role": "user", "content": "a"}], "g") == 1.0


def test_an_async_rubric_function_and_one_that_says_a_fraction() -> None:
    f = define("async " + RUBRIC, osmosis_rubric)
    assert asyncio.run(f("a", None, {})) == 2.0
    assert osmosis_reward(_half)("a", "b") == 0.5


def _half(solution_str: str, ground_truth: str, extra_info: dict | None = None) -> Any:  # type: ignore[type-arg]
    return Fraction(1, 2)
