"""Import, signature detection and calls of eval functions, which score an agent's run. The module `scoring` computes
the reward from their values."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from harness.agents.loading import import_function
from harness.agents.messages import text_of_parts
from harness.core.errors import EvalFnError
from harness.core.state import own
from harness.core.types import Message
from harness.rubrics.functions import read
from harness.usercode.functions import is_async
from harness.usercode.threads import offload

EvalFn: TypeAlias = Callable[..., Any]
"""An eval function. It is called with the keyword arguments of its mode, and returns a number or an awaitable."""

Mode: TypeAlias = Literal["simple", "full"]

_FIRST: dict[str, Mode] = {"solution_str": "simple", "messages": "full"}
"""The mode of an eval function, by the name of its first parameter."""

KEYWORDS: dict[Mode, tuple[str, ...]] = {
    "simple": ("solution_str", "ground_truth", "extra_info"),
    "full": ("messages", "ground_truth", "metadata"),
}
"""The keyword arguments with which eval functions are called, by the functions' mode. A `full` function may name
`metadata` as in the other mode, or leave it out."""


class EvalFnWrapper:
    """Wrapper through which eval functions of both modes are called with the same arguments.

    Args:
        fn: A sync or async function, a `functools.partial`, or an object with `__call__`.
        name: The name of the function's scores in results.

    Raises:
        EvalFnError: the first parameter matches no mode, the function does not accept a keyword of its mode, or it
            requires other arguments.
    """

    def __init__(self, fn: EvalFn, name: str) -> None:
        self.fn = fn
        self.name = name
        try:
            signature = inspect.signature(fn)
        except (TypeError, ValueError) as error:
            raise EvalFnError(f"Cannot inspect eval function signature: {error}") from error
        wanted = "'solution_str' (simple mode) or 'messages' (full mode)"
        first = next(iter(signature.parameters), None)
        if first is None:
            raise EvalFnError(f"Eval function has no parameters. Expected {wanted} as the first one")
        if first not in _FIRST:
            raise EvalFnError(
                f"Cannot detect eval function mode: first parameter is {first!r}. Expected {wanted}. "
                "Note: only the name of the first parameter determines the mode"
            )
        self.mode: Mode = _FIRST[first]
        """`simple`: the function gets the last answer; `full`: the whole conversation."""
        keywords = _keywords(signature, self.mode)
        self._row = keywords[2] if len(keywords) > 2 else ""
        try:  # every run would fail for a function that cannot be called like this
            signature.bind(**dict.fromkeys(keywords))
        except TypeError as error:
            raise EvalFnError(
                f"Eval function {name!r} cannot be called with the arguments of {self.mode} mode, "
                f"{', '.join(keywords)} (all by name): {error}; "
                "accept unused ones with **kwargs, and give other parameters a default"
            ) from error
        self.is_async = is_async(fn)
        """Whether the function is called on the event loop. Other functions are called in a thread."""

    async def __call__(self, messages: Sequence[Message], ground_truth: str, metadata: Mapping[str, object]) -> float:
        """Score one run of the agent with the eval function.

        Args:
            messages: The whole conversation, which is copied for the function.
            ground_truth: The row's expected answer.
            metadata: The whole row, which is copied for the function.

        Raises:
            EvalFnError: the function did not return a finite number.
            Exception: an error that the function raised.
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
        """Call the eval function with copies of the arguments, and return its value, which may be an awaitable."""
        row = own(dict(metadata))
        if self.mode == "simple":
            return self.fn(solution_str=solution_of(messages), ground_truth=ground_truth, extra_info=row)
        rest = {self._row: row} if self._row else {}
        return self.fn(messages=own(list(messages)), ground_truth=ground_truth, **rest)

    def __repr__(self) -> str:
        return f"EvalFnWrapper({self.name!r}, {self.mode} mode)"


def _keywords(signature: inspect.Signature, mode: Mode) -> tuple[str, ...]:
    """Return the keyword arguments with which a function is called: those of its mode. A function without `metadata`
    gets `extra_info` instead, as rubric functions of conversations do, or neither."""
    keywords, parameters = KEYWORDS[mode], signature.parameters
    if mode == "simple" or any(p.name == keywords[2] or p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return keywords
    return (*keywords[:2], *(name for name in KEYWORDS["simple"][2:] if name in parameters))


def load_eval_fns(paths: Iterable[str]) -> list[EvalFnWrapper]:
    """Import eval functions given as `module:function`.

    Args:
        paths: Paths as `module:function`. Each path is also the name of the function's scores. Modules are looked up in
            the working directory first.

    Raises:
        EvalFnError: a path is given twice or does not name a function; see also `EvalFnWrapper`.
    """
    return load_with_files(paths)[0]


def load_with_files(paths: Iterable[str]) -> tuple[list[EvalFnWrapper], tuple[Path, ...]]:
    """Import eval functions as `load_eval_fns` does, and return them with the source files of their code."""
    functions: list[EvalFnWrapper] = []
    files: dict[Path, None] = {}
    for path in paths:
        if any(path == function.name for function in functions):
            raise EvalFnError(f"Duplicate eval function path: {path!r}")
        function, sources = import_function(path, "eval function path", "rewards:compute_reward")
        functions.append(EvalFnWrapper(function, path))
        files.update(dict.fromkeys(sources))
    return functions, tuple(files)


def solution_of(messages: Sequence[Message]) -> str:
    """Return the text of the last assistant message that has content; "" if no such message exists.

    Messages without content, such as those with only tool calls, are skipped. If the content is a list of parts, the
    texts of the parts are joined."""
    for message in reversed(messages):
        content: object = message.get("content")
        if message.get("role") == "assistant" and content is not None:
            return text_of_parts(cast("list[object]", content)) if isinstance(content, list) else str(content)
    return ""
