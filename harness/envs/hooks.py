"""Methods that an author marks to be called at the right time: `@stop`, `@cleanup`, `@teardown`. Owns the marks and how
they are found; `environment` and `multi_turn` own when they are called.

A marked method that a subclass overrides keeps its mark: overriding `max_turns_reached` changes the condition, and does
not remove it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

from harness.core.errors import EnvironmentFault
from harness.usercode.threads import offload

F = TypeVar("F", bound=Callable[..., Any])

Kind: TypeAlias = Literal["stop", "cleanup", "teardown"]

_MARK = "__bench_hooks__"

_ARGUMENTS: dict[Kind, tuple[str, ...]] = {"stop": ("state",), "cleanup": ("state",), "teardown": ()}
"""What a hook of each kind is called with, beside `self`."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A marked method of one environment."""

    name: str
    function: Callable[..., Any]
    is_async: bool

    async def __call__(self, *arguments: object) -> Any:
        """Call it: awaited if it is async, else in a thread."""
        if self.is_async:
            return await self.function(*arguments)
        return await offload.run(self.function, *arguments)


@overload
def stop(function: F, /) -> F: ...
@overload
def stop(function: int | None = None, /, *, priority: int = 0) -> Callable[[F], F]: ...
def stop(function: F | int | None = None, /, *, priority: int = 0) -> F | Callable[[F], F]:
    """Mark a method `(self, state) -> bool` as a condition that ends a rollout when it is true.

    Its name becomes the rollout's `stop_condition`. Conditions are tried at the start and after every reply of the
    model, before the environment answers it.

    Args:
        function: The method; or the priority.
        priority: Higher ones are tried first; equal ones by name.
    """
    return _marked("stop", function, priority)


@overload
def cleanup(function: F, /) -> F: ...
@overload
def cleanup(function: int | None = None, /, *, priority: int = 0) -> Callable[[F], F]: ...
def cleanup(function: F | int | None = None, /, *, priority: int = 0) -> F | Callable[[F], F]:
    """Mark a method `(self, state)` to be called after every rollout, also one that failed or was cancelled.

    Args:
        function: The method; or the priority.
        priority: Higher ones are called first; equal ones by name.
    """
    return _marked("cleanup", function, priority)


@overload
def teardown(function: F, /) -> F: ...
@overload
def teardown(function: int | None = None, /, *, priority: int = 0) -> Callable[[F], F]: ...
def teardown(function: F | int | None = None, /, *, priority: int = 0) -> F | Callable[[F], F]:
    """Mark a method `(self)` to be called when the run is over.

    Args:
        function: The method; or the priority.
        priority: Higher ones are called first; equal ones by name.
    """
    return _marked("teardown", function, priority)


def hooks_of(owner: object, kind: Kind) -> tuple[Hook, ...]:
    """The marked methods of an object, in the order in which they are called.

    Raises:
        EnvironmentFault: a marked method does not take what it will be called with.
    """
    found: list[tuple[int, str]] = []
    for name in dir(type(owner)):
        for base in type(owner).__mro__:
            marks = cast("dict[Kind, int]", getattr(base.__dict__.get(name), _MARK, {}))
            if kind in marks:
                found.append((-marks[kind], name))
                break
    hooks: list[Hook] = []
    for _, name in sorted(found):
        function = getattr(owner, name)
        if not callable(function):
            continue  # a subclass took the hook away: `max_turns_reached = None`
        check_signature(function, _ARGUMENTS[kind], f"@{kind} {type(owner).__name__}.{name}")
        hooks.append(Hook(name, function, inspect.iscoroutinefunction(function)))
    return tuple(hooks)


def check_signature(function: Callable[..., Any], arguments: tuple[str, ...], where: str) -> None:
    """Refuse a function that cannot be called with these positional arguments.

    Raises:
        EnvironmentFault: it takes more or fewer.
    """
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        wanted = ", ".join(("self", *arguments))
        raise EnvironmentFault(f"{where} must take ({wanted}): {error}") from error


def _marked(kind: Kind, function: F | int | None, priority: int) -> F | Callable[[F], F]:
    if callable(function):
        marks: dict[Kind, int] = getattr(function, _MARK, {})
        setattr(function, _MARK, {**marks, kind: priority})
        return function
    chosen = priority if function is None else function

    def mark(method: F) -> F:
        return cast(F, _marked(kind, method, chosen))

    return mark
