"""The decorators `@stop`, `@cleanup` and `@teardown`, which mark methods as hooks.

A subclass that overrides a marked method keeps the mark: overriding `max_turns_reached` changes the condition but does
not remove it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from harness.core.errors import EnvironmentFault
from harness.usercode.threads import offload

F = TypeVar("F", bound=Callable[..., Any])

Kind: TypeAlias = Literal["stop", "cleanup", "teardown"]

MARK = "__bench_hooks__"
"""Attribute of a marked method: its priority by the kind of hook."""

ARGUMENTS: dict[Kind, tuple[str, ...]] = {"stop": ("state",), "cleanup": ("state",), "teardown": ()}
"""Arguments of a hook of each kind, besides `self`."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A marked method of an environment."""

    name: str
    function: Callable[..., Any]
    is_async: bool

    async def __call__(self, *arguments: object) -> Any:
        """Call the method; a sync method runs in a thread."""
        if self.is_async:
            return await self.function(*arguments)
        return await offload.run(self.function, *arguments)


class HookDecorator:
    """A decorator that marks methods as hooks: `@stop`, `@stop(10)` or `@stop(priority=10)`.

    Args:
        kind: `stop`, `cleanup` or `teardown`.
    """

    def __init__(self, kind: Kind) -> None:
        self.__name__ = kind
        self._kind: Kind = kind

    @overload
    def __call__(self, function: F, /) -> F: ...
    @overload
    def __call__(self, function: int | None = None, /, *, priority: int = 0) -> Callable[[F], F]: ...
    def __call__(self, function: F | int | None = None, /, *, priority: int = 0) -> F | Callable[[F], F]:
        """Mark a method.

        Args:
            function: The method, or the priority as in `@stop(10)`.
            priority: Higher priorities are called first, equal ones in the order of their names.
        """
        if not callable(function):
            return cast("Callable[[F], F]", partial(self.__call__, priority=priority if function is None else function))
        marks: dict[Kind, int] = getattr(function, MARK, {})
        setattr(function, MARK, {**marks, self._kind: priority})
        return function


stop = HookDecorator("stop")
"""Mark a method `(self, state) -> bool` as a stop condition, which ends a rollout when it is true.

Its name becomes the rollout's `stop_condition`. Conditions are checked at the start and after every model reply, before
the environment responds."""

cleanup = HookDecorator("cleanup")
"""Mark a method `(self, state)` to be called after every rollout, including failed and cancelled ones."""

teardown = HookDecorator("teardown")
"""Mark a method `(self)` to be called at the end of the run."""


def hooks_of(owner: object, kind: Kind) -> tuple[Hook, ...]:
    """Return the methods of an object that are marked as hooks of a kind, in the order in which they are called.

    Raises:
        EnvironmentFault: a marked method has a wrong signature.
    """
    found: list[tuple[int, str]] = []
    for name in dir(type(owner)):
        for base in type(owner).__mro__:
            marks = cast("dict[Kind, int]", getattr(base.__dict__.get(name), MARK, {}))
            if kind in marks:
                found.append((-marks[kind], name))
                break
    hooks: list[Hook] = []
    for _, name in sorted(found):
        function = getattr(owner, name)
        if not callable(function):
            continue  # a subclass removed the hook: `max_turns_reached = None`
        check_signature(function, ARGUMENTS[kind], f"@{kind} {type(owner).__name__}.{name}")
        hooks.append(Hook(name, function, inspect.iscoroutinefunction(function)))
    return tuple(hooks)


def check_signature(function: Callable[..., Any], arguments: tuple[str, ...], where: str) -> None:
    """Check that a function accepts these positional arguments.

    Raises:
        EnvironmentFault: the function takes more or fewer arguments.
    """
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        wanted = ", ".join(("self", *arguments))
        raise EnvironmentFault(f"{where} must take the arguments ({wanted}): {error}") from error
