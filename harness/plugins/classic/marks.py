"""Lookup of the methods that authors mark with `@vf.stop`, `@vf.cleanup` and `@vf.teardown`, the decorators of
`harness.envs.hooks`. If a subclass overrides a marked method without the decorator, the method is no longer a hook."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from harness.envs.hooks import ARGUMENTS, MARK, Hook, Kind, check_signature


def marked(owner: object, kind: Kind) -> list[Callable[..., Any]]:
    """Return an object's methods that are marked as hooks of the given kind, ordered by priority and then by name."""
    found: list[tuple[int, str]] = []
    for name in dir(type(owner)):
        marks: dict[Kind, int] = getattr(inspect.getattr_static(type(owner), name, None), MARK, {})
        if kind in marks:
            found.append((-marks[kind], name))
    return [getattr(owner, name) for _, name in sorted(found)]


def hooks_of(owner: object, kind: Kind) -> tuple[Hook, ...]:
    """Return an object's methods that are marked as hooks of the given kind, as `Hook` objects for the engine.

    Raises:
        EnvironmentFault: a marked method does not accept the arguments of such a hook.
    """
    made: list[Hook] = []
    for method in marked(owner, kind):
        check_signature(method, ARGUMENTS[kind], f"@vf.{kind} {type(owner).__name__}.{method.__name__}")
        made.append(Hook(method.__name__, method, inspect.iscoroutinefunction(method)))
    return tuple(made)
