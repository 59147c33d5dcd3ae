"""Eval functions: found by path, told apart by their first parameter, called off the event loop, believed if they say a
number."""

from __future__ import annotations

import asyncio
import decimal
import functools
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import for_each_row

from harness.agents.eval_functions import EvalFn, EvalFnWrapper, load_eval_fns, load_with_files, solution_of
from harness.core.errors import EvalFnError

MESSAGES = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "u"},
    {"role": "assistant", "content": "answer"},
]
ROW = {"ground_truth": "g", "user_prompt": "u", "system_prompt": "s", "tags": ["a"]}


def call(fn: EvalFn, messages: list[dict[str, Any]] | None = None) -> float:
    async def main() -> float:
        return await EvalFnWrapper(fn, "mine")(MESSAGES if messages is None else messages, "g", ROW)

    return asyncio.run(main())


# What they are called with


def test_simple_mode() -> None:
    seen: list[Any] = []

    def simple(solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **kwargs: Any) -> float:
        seen.append((solution_str, ground_truth, extra_info, kwargs))
        return 0.5

    assert call(simple) == 0.5
    assert seen == [("answer", "g", ROW, {})]
    assert EvalFnWrapper(simple, "a:b").mode == "simple"
    assert repr(EvalFnWrapper(simple, "a:b")) == "EvalFnWrapper('a:b', simple mode)"


def test_full_mode() -> None:
    seen: list[Any] = []

    def full(messages: list[Any], ground_truth: str, metadata: dict[str, Any], **kwargs: Any) -> float:
        seen.append((messages, ground_truth, metadata, kwargs))
        return 1

    assert call(full) == 1.0
    assert seen == [(MESSAGES, "g", ROW, {})]
    assert EvalFnWrapper(full, "a:b").mode == "full"


def test_functions_get_copies() -> None:
    def spoil(messages: list[Any], ground_truth: str, metadata: dict[str, Any]) -> float:
        messages[0]["content"] = "changed"
        messages.clear()
        metadata["tags"].append("b")
        metadata.clear()
        return 1.0

    def spoil_row(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> float:
        extra_info["tags"].append("b")
        return 1.0

    assert call(spoil) + call(spoil_row) == 2.0
    assert MESSAGES[0]["content"] == "s"
    assert len(MESSAGES) == 3
    assert ROW["tags"] == ["a"]


@for_each_row(
    ("said", "solution"),
    [
        ([], ""),
        ([{"role": "user", "content": "u"}], ""),
        ([{"role": "assistant", "content": ""}], ""),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [1]}], "a"),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "tool_calls": [1]}], "a"),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": ""}], ""),
        ([{"role": "assistant", "content": "a"}, {"role": "tool", "content": "t"}], "a"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}, "b"]}], "ab"),
        ([{"role": "assistant", "content": 4}], "4"),
    ],
)
def test_the_solution_is_the_last_assistant_text(said: list[dict[str, Any]], solution: str) -> None:
    assert solution_of(said) == solution


# How they are called


def test_a_plain_function_runs_in_a_thread() -> None:
    def where(solution_str: str, ground_truth: str, extra_info: object) -> bool:
        return threading.current_thread() is not threading.main_thread()

    assert call(where) == 1.0
    assert not EvalFnWrapper(where, "a").is_async


class AsyncCall:
    async def __call__(self, solution_str: str, ground_truth: str, extra_info: object) -> float:
        await asyncio.sleep(0)
        return 0.25


async def _async(solution_str: str, ground_truth: str, extra_info: object, weight: float = 1.0) -> float:
    await asyncio.sleep(0)
    return 0.25 * weight


def _returns_coroutine(solution_str: str, ground_truth: str, extra_info: object) -> Any:
    return _async(solution_str, ground_truth, extra_info)


@functools.wraps(_async)
def _hidden(*args: Any, **kwargs: Any) -> Any:
    return _async(*args, **kwargs)


@for_each_row(
    ("fn", "is_async"),
    [
        (_async, True),
        (functools.partial(_async, weight=1.0), True),
        (functools.partial(functools.partial(_async), weight=1.0), True),
        (AsyncCall(), True),
        (AsyncCall().__call__, True),
        (_returns_coroutine, False),
        (_hidden, False),
    ],
)
def test_whatever_is_awaitable_is_awaited(fn: EvalFn, is_async: bool) -> None:
    assert call(fn) == 0.25
    assert EvalFnWrapper(fn, "a").is_async is is_async


def test_what_a_function_raises_comes_through() -> None:
    def fails(solution_str: str, ground_truth: str, extra_info: object) -> float:
        raise KeyError("topic")

    with pytest.raises(KeyError, match="topic"):
        call(fails)


# What they return


@for_each_row(
    ("value", "score"),
    [(1, 1.0), (True, 1.0), (False, 0.0), (-2.5, -2.5), (np.float32(0.5), 0.5), (np.int64(3), 3.0),
     (np.array(0.5), 0.5), (np.bool_(True), 1.0), (decimal.Decimal("0.5"), 0.5)],
)  # fmt: skip
def test_numbers_are_scores(value: object, score: float) -> None:
    result = call(lambda solution_str, ground_truth, extra_info: value)
    assert (result, type(result)) == (score, float)


@for_each_row(
    ("value", "what"),
    [(None, "NoneType"), ("1.0", "str"), (float("nan"), "nan"), (float("inf"), "inf"), ([1.0], "list"),
     (np.array([1.0]), "ndarray"), (1j, "complex")],
)  # fmt: skip
def test_anything_else_is_not(value: object, what: str) -> None:
    with pytest.raises(EvalFnError) as error:
        call(lambda solution_str, ground_truth, extra_info: value)
    assert str(error.value) == f"Eval function 'mine' returned {what}, expected float"


# What is refused before it is called


def test_a_function_without_parameters() -> None:
    with pytest.raises(EvalFnError, match="Eval function has no parameters"):
        EvalFnWrapper(lambda: 1.0, "a")


@for_each_row(
    ("fn", "name"),
    [(lambda answer, ground_truth, extra_info: 1.0, "answer"), (lambda *args: 1.0, "args"),
     (lambda ground_truth, solution_str, extra_info: 1.0, "ground_truth")],
)  # fmt: skip
def test_a_first_parameter_that_tells_no_mode(fn: EvalFn, name: str) -> None:
    with pytest.raises(EvalFnError) as error:
        EvalFnWrapper(fn, "a")
    assert str(error.value).startswith(
        f"Cannot detect eval function mode: first parameter is {name!r}. Expected 'solution_str' (simple mode) or "
        "'messages' (full mode). Note: "
    )


def test_what_has_no_signature() -> None:
    with pytest.raises(EvalFnError, match="Cannot inspect eval function signature: "):
        EvalFnWrapper(3, "a")  # type: ignore[arg-type]  # what a caller may get wrong


def _positional(solution_str: str, /, ground_truth: str, extra_info: object) -> float:
    return 1.0


@for_each_row(
    ("fn", "words"),
    [
        (lambda messages: 1.0, "got an unexpected keyword argument 'ground_truth'; accept unused"),
        (lambda solution_str, ground_truth: 1.0, "got an unexpected keyword argument 'extra_info'; accept unused"),
        (lambda messages, ground_truth, metadata, judge: 1.0, "missing a required argument: 'judge'; accept"),
        (_positional, "'solution_str'"),
    ],
)
def test_a_function_that_cannot_be_called_with_its_keywords(fn: EvalFn, words: str) -> None:
    with pytest.raises(EvalFnError) as error:
        EvalFnWrapper(fn, "m:f")
    assert str(error.value).startswith("Eval function 'm:f' cannot be called with the arguments of ")
    assert words in str(error.value)


def test_keywords_may_be_taken_together_and_further_parameters_have_defaults() -> None:
    assert call(lambda messages, **rest: float(sorted(rest) == ["ground_truth", "metadata"])) == 1.0
    assert call(lambda solution_str, *rest, ground_truth, extra_info, more=2: more) == 2.0


@for_each_row(
    ("fn", "row"),
    [
        (lambda messages, ground_truth: [messages[-1]["content"], ground_truth], None),
        (lambda messages, ground_truth, extra_info: [messages[-1]["content"], ground_truth, extra_info], ROW),
        (lambda messages, ground_truth, extra_info=None: [messages[-1]["content"], ground_truth, extra_info], ROW),
        (lambda messages, ground_truth, system_message=None: [messages[-1]["content"], ground_truth], None),
        (lambda messages, ground_truth, extra_info=None, **rest: [*rest.values()], ROW),
    ],
)
def test_a_function_of_messages_may_name_the_row_otherwise_or_leave_it_out(fn: EvalFn, row: object) -> None:
    found: Any = EvalFnWrapper(fn, "mine").call(MESSAGES, "g", ROW)
    assert found == ([row] if len(found) == 1 else ["answer", "g"] if row is None else ["answer", "g", row])


# By path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A working directory whose modules are forgotten afterwards."""
    path, modules = list(sys.path), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_functions_by_path(folder: Path) -> None:
    (folder / "b_helpers.py").write_text("FULL = 1.0\n")
    (folder / "b_rewards.py").write_text(
        "import b_helpers\n"
        "def exact(solution_str, ground_truth, extra_info=None):\n    return b_helpers.FULL\n"
        "class Deep:\n    @staticmethod\n    def full(messages, ground_truth, metadata):\n        return 0\n"
        "full = Deep.full\n"
    )
    functions, files = load_with_files(["b_rewards:exact", "b_rewards:full"])
    assert [(function.name, function.mode) for function in functions] == [
        ("b_rewards:exact", "simple"), ("b_rewards:full", "full"),
    ]  # fmt: skip
    assert sorted(file.name for file in files) == ["b_helpers.py", "b_rewards.py"]
    assert asyncio.run(functions[0](MESSAGES, "g", ROW)) == 1.0
    assert [function.name for function in load_eval_fns(["b_rewards:exact"])] == ["b_rewards:exact"]


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["c_rewards"], "Invalid eval function path 'c_rewards'. Expected format: 'module:function' (e.g., "
         "'rewards:compute_reward')"),
        (["c_rewards:"], "Invalid eval function path 'c_rewards:'. Expected format: "),
        (["c_rewards:exact", "c_rewards:exact"], "Duplicate eval function path: 'c_rewards:exact'"),
        (["c_reward:exact"], "Cannot import module 'c_reward': "),
        (["c_rewards:exakt"], "Module 'c_rewards' has no attribute 'exakt'. Did you mean 'exact'? Available: "),
        (["c_rewards:NUMBER"], "'NUMBER' in 'c_rewards' is not callable"),
        (["c_broken:exact"], "Cannot import module 'c_broken': SyntaxError: "),
        (["c_rewards:odd"], "Cannot detect eval function mode: first parameter is 'x'."),
    ],
)  # fmt: skip
def test_paths_that_lead_to_no_function(folder: Path, paths: list[str], words: str) -> None:
    (folder / "c_rewards.py").write_text(
        "NUMBER = 3\n"
        "def exact(solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
        "def odd(x):\n    return 1\n"
    )
    (folder / "c_broken.py").write_text("def exact(:\n")
    with pytest.raises(EvalFnError) as error:
        load_eval_fns(paths)
    assert str(error.value).startswith(words)
    assert error.value.exit_code == 2
