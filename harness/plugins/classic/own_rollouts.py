"""Support for classic environments whose authors define `rollout` or `get_model_response` themselves. Wraps these
methods so that the engine still calls bench's own methods first; creates the input of an author's `rollout`, and copies
its result into the engine's state. Also calls authors' sync and async functions."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from harness.core.state import State
from harness.core.types import JsonDict
from harness.plugins.classic.responses import Response, as_response
from harness.usercode.functions import is_async
from harness.usercode.threads import offload

Method = Callable[..., Awaitable[Any]]


async def awaited(value: Any) -> Any:
    """Await a value if it is awaitable, and return the result."""
    return await value if inspect.isawaitable(value) else value


async def call_author(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function written by an environment's author and return its result. A sync function runs in a thread."""
    if is_async(function):
        return await function(*args, **kwargs)
    return await awaited(await offload.run(function, *args, **kwargs))


class Input(dict[str, Any]):
    """Input of a `rollout` method written by an author: a dict with the dataset row, and a reference to the engine's
    state, which `init_state` uses."""

    def __init__(self, state: State) -> None:
        super().__init__(copy.deepcopy(dict(state["input"])))
        self.state = state

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)


def is_engine(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the given arguments are those with which the engine calls `rollout`: a state and a chat."""
    return len(args) == 2 and not kwargs and isinstance(args[0], State)


def dispatching(own: Method, ours: Method) -> Method:
    """Wrap an author's `rollout` so that calls by the engine run bench's method `ours` instead."""

    @functools.wraps(own)
    async def rollout(self: object, *args: Any, **kwargs: Any) -> Any:
        if is_engine(args, kwargs):
            return await ours(self, *args)
        return await own(self, *args, **kwargs)

    setattr(rollout, "own", own)  # noqa: B010
    return rollout


def reading(own: Method) -> Method:
    """Wrap an author's `get_model_response`, sync or async, to convert any kind of reply to a `Response`."""

    @functools.wraps(own)
    async def get_model_response(self: object, *args: Any, **kwargs: Any) -> Response:
        return as_response(await call_author(own, self, *args, **kwargs))

    setattr(get_model_response, "own", own)  # noqa: B010
    return get_model_response


def wrap_own(cls: type, name: str, wrap: Callable[[Method], Method]) -> None:
    """Wrap a method of a class, if an author has defined it there or in a base class outside of bench."""
    found = getattr(cls, name)
    if not getattr(found, "__module__", "harness.").startswith("harness.") and not hasattr(found, "own"):
        setattr(cls, name, wrap(found))


def take_over(state: State, made: JsonDict) -> None:
    """Copy the result of an author's `rollout` into the engine's state."""
    state["input"].update(made.get("input") or {})
    for name, value in made.items():
        if name not in ("input", "client", "tools", "timing"):
            state[name] = value
