"""The decorators `@vf.stop`, `@vf.cleanup` and `@vf.teardown` of the classic API, and the lookup of the methods that
they mark. If a subclass overrides a marked method without the decorator, the method is no longer a hook."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from harness.envs import hooks
from harness.envs.hooks import Hook
from harness.plugins.classic.generation import Generation

F = TypeVar("F", bound=Callable[..., Any])

Kind = Literal["stop", "cleanup", "teardown"]

_NATIVE = "__bench_hooks__"


def _marker(kind: str) -> Callable[..., Any]:
    def mark(func: Callable[..., Any] | None = None, priority: int = 0, **options: Any) -> Any:
        def marked(function: F) -> F:
            setattr(function, kind, True)
            setattr(function, f"{kind}_priority", priority)
            for name, value in options.items():
                setattr(function, f"{kind}_{name}", value)
            return function

        return marked if func is None else marked(func)

    mark.__name__ = mark.__qualname__ = kind
    mark.__doc__ = f"Mark a method as a {kind} hook. Higher priorities are called first, equal ones by name."
    return mark


stop, cleanup, teardown = _marker("stop"), _marker("cleanup"), _marker("teardown")
setup, update, metric = _marker("setup"), _marker("update"), _marker("metric")
reward, advantage = _marker("reward"), _marker("advantage")


def marked(owner: object, kind: str) -> list[Callable[..., Any]]:
    """Return an object's methods that are marked as hooks of the given kind, ordered by priority and then by name."""
    found: list[tuple[int, str, Callable[..., Any]]] = []
    for name in dir(type(owner)):
        if isinstance(inspect.getattr_static(type(owner), name, None), property):
            continue
        method = getattr(owner, name, None)
        if not inspect.ismethod(method):
            continue
        native: dict[str, int] = getattr(method, _NATIVE, {})
        if kind in native:
            found.append((-native[kind], name, method))
        elif getattr(method, kind, None) is True:
            found.append((-int(getattr(method, f"{kind}_priority", 0)), name, method))
    return [method for _, _, method in sorted(found, key=lambda each: each[:2])]


def hooks_of(owner: object, kind: Kind, generation: Generation) -> tuple[Hook, ...]:
    """Return an object's methods that are marked as hooks of the given kind, as `Hook` objects for the engine.

    Raises:
        EnvironmentFault: a marked method does not accept the arguments of such a hook.
    """
    arguments = () if kind == "teardown" else ("state",)
    made: list[Hook] = []
    for method in marked(owner, kind):
        function: Callable[..., Any] = method
        if generation == "C" and kind != "teardown":
            function = _by_name(owner, method)
        hooks.check_signature(function, arguments, f"@vf.{kind} {type(owner).__name__}.{method.__name__}")
        made.append(Hook(method.__name__, function, inspect.iscoroutinefunction(method)))
    return tuple(made)


def _by_name(owner: object, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a hook of the newer, typed API (generation C), whose arguments are passed by name (`state`, `env`, …), so
    that it can be called with the state alone."""
    parameters = inspect.signature(method).parameters
    if set(parameters) <= {"state", "kwargs"} or not parameters.keys() & {"env", "task", "resources"}:
        return method

    def call(state: Any) -> Any:
        known = {"state": state, "env": owner, "task": state.get("task"), "resources": None}
        return method(**{name: value for name, value in known.items() if name in parameters})

    return call
