"""Scoring hooks: how they are found and called, and what their answers mean."""

from __future__ import annotations

import asyncio
import functools
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from tables import for_each_row
from workplace import here

from harness.core.errors import EvalFnError
from harness.multi.schemas import SchemaRegistry
from harness.multi.scoring_hook import HookCall, ScoringHook, hook_of, read_score
from harness.multi.tasks import Task, TaskScore

__all__ = ["here"]

TASK = Task(id="t", prompt="p", expected="hello", metadata={"level": 3})

REGISTRY = SchemaRegistry()


def call(function: Callable[..., Any]) -> TaskScore:
    return asyncio.run(ScoringHook(function)(HookCall(TASK, "hello", "m", REGISTRY)))


def test_what_a_hook_gets() -> None:
    got = HookCall(TASK, "hello", "m", REGISTRY)
    assert list(got) == ["task", "output", "modelId", "SchemaRegistry"]
    assert got["task"] is got.task is TASK
    assert got["output"] == got.output == "hello"
    assert got["modelId"] == got["model_id"] == got.modelId == got.model_id == "m"
    assert got["SchemaRegistry"] is got.schema_registry is REGISTRY
    assert got.task["expected"] == got.task.expected == "hello"
    with pytest.raises(KeyError):
        got["ouput"]
    with pytest.raises(
        AttributeError,
        match="a scoring hook has no argument 'ouput'; it has task, output, modelId, SchemaRegistry",
    ):
        _ = got.ouput


class Holder:
    def method(self, task: Task, output: str) -> float:
        return float(output == task.expected)

    async def __call__(self, call: HookCall) -> float:
        return float(call.output == call.task.expected)


def whole(call: HookCall) -> float:
    return float(call["output"] == call["task"]["expected"])


def whole_with_default(context: Any, threshold: float = 1.0) -> float:
    return threshold * (context.output == "hello")


def positional_only(task: Any, /) -> float:
    return float(task.output == "hello")


def any_position(*args: Any) -> float:
    [call] = args
    return float(call.output == "hello")


def by_name(task: Task, output: str, modelId: str, SchemaRegistry: SchemaRegistry) -> float:
    return float((task, output, modelId, SchemaRegistry) == (TASK, "hello", "m", REGISTRY))


def by_python_name(*, output: str, model_id: str, schema_registry: SchemaRegistry, weight: float = 1.0) -> float:
    return weight * ((output, model_id, schema_registry) == ("hello", "m", REGISTRY))


def by_keywords(**given: Any) -> float:
    return float(list(given) == ["task", "output", "modelId", "SchemaRegistry"])


def some_and_keywords(model_id: str, **given: Any) -> float:
    return float(model_id == "m" and sorted(given) == ["SchemaRegistry", "modelId", "output", "task"])


def bound(output: str, modelId: str) -> float:
    return float((output, modelId) == ("hello", "mine"))


async def asynchronous(output: str) -> float:
    await asyncio.sleep(0)
    return float(output == "hello")


def returns_awaitable(output: str) -> Any:
    return asynchronous(output)


@for_each_row(
    "function",
    [
        whole,
        whole_with_default,
        positional_only,
        any_position,
        by_name,
        by_python_name,
        by_keywords,
        some_and_keywords,
        asynchronous,
        returns_awaitable,
        Holder(),
        Holder().method,
        lambda output: output == "hello",
        functools.partial(bound, modelId="mine"),
        functools.partial(asynchronous),
        functools.partial(whole_with_default, threshold=1.0),
    ],
)
def test_every_usual_signature_is_called(function: Callable[..., Any]) -> None:
    assert call(function) == TaskScore(1.0, True)


def test_a_plain_hook_runs_in_a_thread_and_an_async_one_on_the_loop() -> None:
    seen: list[bool] = []

    def plain(output: str) -> float:
        seen.append(threading.current_thread() is threading.main_thread())
        return 1.0

    async def on_loop(output: str) -> float:
        seen.append(threading.current_thread() is threading.main_thread())
        return 1.0

    call(plain)
    call(on_loop)
    assert seen == [False, True]


@for_each_row(
    ("function", "words"),
    [
        (
            lambda: 1,
            "the function must take either one argument (an object with the attributes task, output, modelId",
        ),
        (lambda task, answer: 1, "but 'answer' gets no value"),
        (lambda one, two: 1, "but none of its parameters has such a name"),
        (lambda *, context: 1, "but none of its parameters has such a name"),
        (5, "scoring hook 'scoreOutput' must be a function, not int"),
        (type, "scoring hook 'scoreOutput': its signature cannot be read; wrap the function in a def"),
    ],
)
def test_a_hook_that_cannot_be_called_is_refused_before_the_run(function: Any, words: str) -> None:
    with pytest.raises(EvalFnError) as refused:
        ScoringHook(function)
    assert words in str(refused.value)


@for_each_row(
    ("value", "score"),
    [
        (0.5, TaskScore(0.5, True)),
        (1, TaskScore(1.0, True)),
        (0, TaskScore(0.0, False)),
        (-2.5, TaskScore(-2.5, False)),
        (7, TaskScore(7.0, True)),
        (True, TaskScore(1.0, True)),
        (False, TaskScore(0.0, False)),
        ({"score": 0.3, "valid": False, "errors": ["bad"]}, TaskScore(0.3, False, ["bad"])),
        ({"score": 0.3}, TaskScore(0.3, True)),
        ({"score": False}, TaskScore(0.0, False)),
        ({"score": 0, "valid": 1, "errors": None}, TaskScore(0.0, True)),
        (
            {"score": 1, "valid": True, "errors": ("a", {"expertId": "m", "errors": ["b"]}, 5), "more": 1},
            TaskScore(1.0, True, ["a", {"expertId": "m", "errors": ["b"]}, "5"]),
        ),
        ({"score": 1, "errors": "one"}, TaskScore(1.0, True, ["one"])),
        ({"score": 1, "errors": [{"a": {2}}, {"b": (1,)}]}, TaskScore(1.0, True, ["{'a': {2}}", {"b": [1]}])),
        ({"score": 1, "errors": [{"a": math.nan}]}, TaskScore(1.0, True, ["{'a': nan}"])),
        ({"score": 1, "valid": numpy.bool_(False)}, TaskScore(1.0, False)),
        (TaskScore(0.2, False, ["x"], schema_valid=True), TaskScore(0.2, False, ["x"])),
    ],
)
def test_what_an_answer_means(value: object, score: TaskScore) -> None:
    assert read_score(value) == score
    assert call(lambda output: value) == score


@for_each_row(
    ("value", "words"),
    [
        (None, "returned None"),
        ("0.5", "returned str: '0.5'"),
        (float("nan"), "returned nan"),
        ([1], "returned list: [1]"),
        ({}, "returned a dict without 'score'; its keys: none"),
        ({"valid": True, "points": 1}, "returned a dict without 'score'; its keys: valid, points"),
        ({"score": None}, "returned None as 'score'"),
        ({"score": "high"}, "returned str as 'score': 'high'"),
        ({"score": float("inf")}, "returned inf as 'score'"),
        ({"score": 1, "valid": "yes"}, "returned a dict whose 'valid' is not true or false, but str"),
        (TaskScore(float("nan"), True), "returned nan as 'score'"),
    ],
)
def test_what_is_no_answer(value: object, words: str) -> None:
    with pytest.raises(EvalFnError) as refused:
        call(lambda output: value)
    assert str(refused.value) == words


def test_what_a_hook_raises_comes_through() -> None:
    def broken(output: str) -> float:
        raise KeyError(output)

    with pytest.raises(KeyError):
        call(broken)
    with pytest.raises(EvalFnError, match=r"^raised SystemExit: 3$"):
        call(lambda output: sys.exit(3))


def test_a_hook_is_loaded_by_its_path(here: Path) -> None:
    (here / "my_hooks.py").write_text("import my_parts\ndef score(output): return my_parts.worth(output)\nnumber = 5\n")
    (here / "my_parts.py").write_text("def worth(output): return len(output) / 10\n")
    hook = hook_of("my_hooks:score")
    assert hook is not None
    assert hook.name == "my_hooks:score"
    assert [file.name for file in hook.files] == ["my_hooks.py", "my_parts.py"]
    assert asyncio.run(hook(HookCall(TASK, "hello", "m", REGISTRY))) == TaskScore(0.5, True)
    for path, words in {
        "my_hooks": "Invalid scoring hook 'my_hooks'. Expected format: 'module:function'",
        ":score": "Invalid scoring hook ':score'",
        "my_hooks:": "Invalid scoring hook 'my_hooks:'",
        "my_hooks:scor": "Module 'my_hooks' has no attribute 'scor'. Did you mean 'score'?",
        "my_hoks:score": "did you mean 'my_hooks'?",
        "my_hooks:number": "'number' in 'my_hooks' is not callable",
    }.items():
        with pytest.raises(EvalFnError) as refused:
            hook_of(path)
        assert words in str(refused.value)


def test_a_function_is_a_hook_with_its_file() -> None:
    hook = hook_of(whole)
    assert hook is not None
    assert (hook.name, hook.files) == ("whole", (Path(__file__),))
    assert hook_of(None) is None
    assert hook_of(hook) is hook
    made = hook_of(Holder())
    assert made is not None
    assert (made.name, made.files) == ("Holder", (Path(__file__),))
    bound = hook_of(functools.partial(whole))
    assert bound is not None
    assert bound.files == (Path(__file__),)
