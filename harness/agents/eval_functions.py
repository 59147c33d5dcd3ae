"""Eval functions, which score an agent's run: import by path, detection of the two signatures, and the call; `scoring`
makes a reward of their values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from harness.agents.loading import import_object
from harness.core.errors import EvalFnError
from harness.core.state import own
from harness.core.types import JsonDict, Message
from harness.rubrics.functions import read
from harness.usercode.threads import offload

EvalFn: TypeAlias = Callable[..., Any]
"""An eval function: takes the keywords of its mode; returns a number, or an awaitable of one."""

Mode: TypeAlias = Literal["simple", "full"]

_FIRST: dict[str, Mode] = {"solution_str": "simple", "messages": "full"}
"""The mode by the name of the first parameter."""

KEYWORDS: dict[Mode, tuple[str, ...]] = {
    "simple": ("solution_str", "ground_truth", "extra_info"),
    "full": ("messages", "ground_truth", "metadata"),
}
"""The keyword arguments of each mode; functions are called with exactly these."""


class EvalFnWrapper:
    """An eval function of either signature, with a uniform call.

    Args:
        fn: Sync or async; a `functools.partial` or an object with `__call__` is accepted.
        name: The name of its scores.

    Raises:
        EvalFnError: the first parameter matches no mode, a keyword of the mode is not accepted, or more are required.
    """

    def __init__(self, fn: EvalFn, name: str) -> None:
        self.fn = fn
        self.name = name
        parameters = _parameters(fn)
        self.mode: Mode = _mode_of(parameters)
        """`simple`: the function gets the last answer; `full`: the whole conversation."""
        _check_keywords(parameters, KEYWORDS[self.mode], f"Eval function {name!r} ({self.mode} mode)")
        self.is_async = _is_async(fn)
        """Whether the function is called on the event loop; others are called in a thread."""

    async def __call__(self, messages: Sequence[Message], ground_truth: str, metadata: Mapping[str, object]) -> float:
        """Score one run.

        Args:
            messages: The whole conversation. The function gets a copy.
            ground_truth: The row's expected answer.
            metadata: The whole row. The function gets a copy.

        Raises:
            EvalFnError: the function did not return a finite number.
            Exception: any error that the function raised.
        """
        if self.is_async:
            value = self.call(messages, ground_truth, metadata)
        else:
            value = await offload.run(self.call, messages, ground_truth, metadata)
        if inspect.isawaitable(value):
            value = cast(object, await value)
        number, _ = read(value)
        if number is None:
            found = repr(value) if isinstance(value, float) else type(value).__name__
            raise EvalFnError(f"Eval function {self.name!r} returned {found}, expected float")
        return number

    def call(self, messages: Sequence[Message], ground_truth: str, metadata: Mapping[str, object]) -> object:
        """Call the function with copies of the arguments; the returned value may still be awaitable."""
        if self.mode == "simple":
            return self.fn(solution_str=solution_of(messages), ground_truth=ground_truth, extra_info=_copy(metadata))
        return self.fn(messages=own(list(messages)), ground_truth=ground_truth, metadata=_copy(metadata))

    def __repr__(self) -> str:
        return f"EvalFnWrapper({self.name!r}, {self.mode} mode)"


def load_eval_fns(paths: Iterable[str]) -> list[EvalFnWrapper]:
    """Import eval functions.

    Args:
        paths: Each `module:function`, which is also the name of its scores. Modules of the working directory can be
            used.

    Raises:
        EvalFnError: a path is duplicate or leads to no function; see also `EvalFnWrapper`.
    """
    return load_with_files(paths)[0]


def load_with_files(paths: Iterable[str]) -> tuple[list[EvalFnWrapper], tuple[Path, ...]]:
    """Import eval functions as `load_eval_fns` does; returns also the source files of their code."""
    functions: list[EvalFnWrapper] = []
    files: dict[Path, None] = {}
    for path in paths:
        if any(path == function.name for function in functions):
            raise EvalFnError(f"Duplicate eval function path: {path!r}")
        function, sources = _import(path)
        functions.append(EvalFnWrapper(function, path))
        files.update(dict.fromkeys(sources))
    return functions, tuple(files)


def solution_of(messages: Sequence[Message]) -> str:
    """The text of the last assistant message with a content; "" if there is no such message. A last turn with tool
    calls alone has no content, so an earlier text counts; the texts of a content in parts are joined."""
    for message in reversed(messages):
        content: object = message.get("content")
        if message.get("role") == "assistant" and content is not None:
            return _text_of(content)
    return ""


def _text_of(content: object) -> str:
    if not isinstance(content, list):
        return str(content)
    texts: list[str] = []
    for part in cast("list[object]", content):
        text = cast("Mapping[str, object]", part).get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)


def _copy(row: Mapping[str, object]) -> JsonDict:
    return {name: own(value) for name, value in row.items()}


def _import(path: str) -> tuple[EvalFn, tuple[Path, ...]]:
    module, _, name = path.rpartition(":")
    if not module or not name:
        raise EvalFnError(
            f"Invalid eval function path {path!r}. Expected format: 'module:function' (e.g., 'rewards:compute_reward')"
        )
    found, files = import_object(path, EvalFnError)
    if not callable(found):
        raise EvalFnError(f"{name!r} in {module!r} is not callable")
    return found, files


def _parameters(fn: EvalFn) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as error:
        raise EvalFnError(f"Cannot inspect eval function signature: {error}") from error


def _mode_of(parameters: Sequence[inspect.Parameter]) -> Mode:
    wanted = "'solution_str' (simple mode) or 'messages' (full mode)"
    if not parameters:
        raise EvalFnError(f"Eval function has no parameters. Expected {wanted} as the first one")
    first = parameters[0].name
    if first not in _FIRST:
        raise EvalFnError(
            f"Cannot detect eval function mode: first parameter is {first!r}. Expected {wanted}. "
            "Note: the mode is told by the first parameter's name alone"
        )
    return _FIRST[first]


def _check_keywords(parameters: Sequence[inspect.Parameter], passed: Sequence[str], where: str) -> None:
    """Refuse a function that cannot be called with exactly these keywords, since every run would fail."""
    by_name = {parameter.name: parameter for parameter in parameters}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    gets = f"it is called with {', '.join(passed)}"
    for name in passed:
        parameter = by_name.get(name)
        if parameter is not None and parameter.kind is parameter.POSITIONAL_ONLY:
            raise EvalFnError(f"{where}: {gets}, each by name, so {name!r} must not be positional-only")
        if parameter is None and not takes_all:
            raise EvalFnError(f"{where}: {gets}, and does not take {name!r}; add that parameter, or **kwargs")
    for parameter in parameters:
        is_variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.name not in passed and not is_variable and parameter.default is parameter.empty:
            raise EvalFnError(f"{where}: {gets}, so nothing fills {parameter.name!r}; give it a default")


def _is_async(fn: object) -> bool:
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
