"""Inspection of authors' functions, which may be wrapped in `functools.partial` or be objects with `__call__`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, cast


def without_partials(function: object) -> Any:
    """Return the function or object that is wrapped in any number of `functools.partial`."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def name_of(function: object) -> str:
    """Return the name of a function, or that of its class for an object without a name."""
    inner = without_partials(function)
    return str(getattr(inner, "__name__", None) or type(inner).__name__)


def is_async(function: object) -> bool:
    """Return whether a function, or the `__call__` of an object, is defined with `async def`."""
    inner = without_partials(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return a function's parameters, without those that a partial binds by keyword and still lists in its signature.

    Raises:
        TypeError, ValueError: the signature cannot be read.
    """
    bound = cast("functools.partial[Any]", function).keywords if isinstance(function, functools.partial) else {}
    return [each for each in inspect.signature(cast(Any, function)).parameters.values() if each.name not in bound]
