"""Reward functions: validation of their signatures and of the values that they return."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from harness.core.errors import EnvironmentFault, HarnessError, JudgeError, StateLost
from harness.core.records import FIXED_COLUMNS, STATE_LOST
from harness.core.safe_text import clean
from harness.usercode.exceptions import place

RewardFunc: TypeAlias = Callable[..., Any]
"""Returns a number (for one rollout) or a list of numbers (for a group), or an awaitable of it."""

Value: TypeAlias = tuple[float | None, str]
"""A function's value for one rollout: a finite number, or None and the reason."""

ROLLOUT_NAMES: tuple[str, ...] = ("prompt", "completion", "answer", "state", "task", "info")
"""Parameters that a function of one rollout may have, besides `parser` and class objects."""

GROUP_NAMES: tuple[str, ...] = ("prompts", "completions", "answers", "states", "tasks", "infos")
"""Parameters of a function of all rollouts of an example: lists with one value per rollout."""

_SIMILAR = 0.8
"""Similarity from which a parameter with a default counts as misspelt; a parameter such as `anwser=""` would never be
set."""


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A reward function and how to call it."""

    name: str
    function: RewardFunc
    weight: float
    """Weight in the reward; 0 for a metric."""
    is_group: bool
    is_async: bool
    takes: tuple[str, ...] | None
    """Names of the arguments to pass; None for all (`**kwargs`)."""


def plan(function: RewardFunc, weight: float, class_objects: Collection[str]) -> RewardFunction:
    """Inspect a reward function's signature.

    Args:
        function: A sync or async function; may be a `functools.partial` or an object with `__call__`.
        weight: Weight in the reward; 0 for a metric.
        class_objects: Names of additional parameters that it may have.

    Raises:
        EnvironmentFault: a parameter has an unknown name, or the function has the name of a fixed column.
    """
    name = _name(function)
    if name in FIXED_COLUMNS:
        raise EnvironmentFault(f"reward function {name!r}: results already have a column with this name; rename it")
    if not isinstance(weight, int | float) or not math.isfinite(weight):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EnvironmentFault(f"reward function {name!r}: its weight must be a finite number, not {weight!r}")
    parameters = _parameters(name, function)
    is_group = any(parameter.name in GROUP_NAMES for parameter in parameters)
    known = (*(GROUP_NAMES if is_group else ROLLOUT_NAMES), "parser", *class_objects)
    takes: list[str] = []
    takes_all = False
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_all = True
        elif parameter.kind is not parameter.VAR_POSITIONAL and _is_taken(name, parameter, known):
            takes.append(parameter.name)
    return RewardFunction(
        name, function, float(weight), is_group, _is_async(function), None if takes_all else tuple(takes)
    )


def read(value: object) -> Value:
    """Convert a function's return value to a finite number, or to None and the reason."""
    if type(value) is float:
        return (value, "") if math.isfinite(value) else (None, f"returned {value}")
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        value = item()  # a scalar of numpy or of a tensor library
    # Decimal is not a numbers.Real. A str has no __float__; an array has one, but also a length.
    if isinstance(value, numbers.Real) or (hasattr(value, "__float__") and not hasattr(value, "__len__")):
        try:
            number = float(cast(float, value))
        except (OverflowError, TypeError, ValueError) as error:
            return None, f"returned {type(value).__name__}: {error}"
        return (number, "") if math.isfinite(number) else (None, f"returned {number}")
    if value is None:
        return None, "returned None"
    return None, f"returned {type(value).__name__}: {clean(repr(value), 58)}"


def read_group(value: object, size: int) -> list[Value]:
    """Convert a group function's return value to one entry for each of `size` rollouts."""
    tolist = getattr(value, "tolist", None)
    values: object = tolist() if callable(tolist) else value
    if not isinstance(values, list | tuple):
        return [(None, f"returned {type(value).__name__}: a group function returns a list of numbers")] * size
    items = cast("list[object] | tuple[object, ...]", values)
    if len(items) != size:
        return [(None, f"returned {len(items)} values for {size} rollouts")] * size
    return [read(item) for item in items]


def total(terms: Iterable[float]) -> float:
    """Sum of terms without their rounding errors: 0.7 + 0.29 + 0.01 is 1, as is 49 times 1/49.

    `math.fsum` rounds only once, but already 0.29 is stored as a slightly smaller number. So if a decimal number of at
    most 15 digits lies within the rounding errors of the terms, it is returned as the sum. A single term is returned
    unchanged."""
    parts = [term for term in terms if term]
    try:
        exact = math.fsum(parts)
    except (OverflowError, ValueError):  # larger than the largest float; inf and -inf
        return sum(parts)
    if len(parts) < 2 or not math.isfinite(exact):
        return exact
    short = float(f"{exact:.15g}")
    return short if abs(short - exact) <= 2.0 * math.fsum(map(math.ulp, parts)) else exact


def weight_limits(weights: Iterable[float]) -> tuple[float, float]:
    """Lowest and highest weighted sum of values between 0 and 1."""
    weights = list(weights)
    return total(w for w in weights if w < 0), total(w for w in weights if w > 0)


def range_limits(ranges: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Lowest and highest sum of rewards within these ranges."""
    lows, highs = zip(*ranges, strict=True)
    return total(lows), total(highs)


def raised(error: BaseException) -> str:
    """Reason for a missing value of a function that raised an exception. The part before the first colon is short and
    stable, so that it can be counted."""
    if isinstance(error, StateLost):
        return f"{STATE_LOST}: {error}"
    if isinstance(error, JudgeError):
        return str(error)
    return f"raised {type(error).__name__}: {error}"


def raised_there(error: BaseException) -> str:
    """Reason for a missing value, like `raised`, with the author's line if the exception is the author's fault."""
    words, at = raised(error), place(error)
    return (
        f"{words} ({at})"
        if at and (not isinstance(error, HarnessError) or isinstance(error, EnvironmentFault))
        else words
    )


def _is_taken(function: str, parameter: inspect.Parameter, known: Collection[str]) -> bool:
    """Whether a parameter is passed by the rubric; otherwise it keeps its default."""
    name = parameter.name
    where = f"reward function {function!r}, parameter {name!r}"
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise EnvironmentFault(f"{where}: arguments are passed by name, so it must not be positional-only")
    if name in known:
        return True
    near = difflib.get_close_matches(name, known, 1, _SIMILAR if parameter.default is not parameter.empty else 0.6)
    if parameter.default is not parameter.empty and not near:
        return False
    if name in ROLLOUT_NAMES:
        raise EnvironmentFault(f"{where}: a group function has list parameters; did you mean {name + 's'!r}?")
    hint = f"did you mean {near[0]!r}?" if near else "rename it, or first add a class object with this name."
    raise EnvironmentFault(f"{where}: unknown name; {hint} Known names are {', '.join(known)}; **kwargs receives all")


def _parameters(name: str, function: RewardFunc) -> list[inspect.Parameter]:
    if not callable(function):
        raise EnvironmentFault(f"a reward function must be callable, not {function!r}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise EnvironmentFault(
            f"reward function {name!r}: its signature cannot be read; wrap it in a function ({error})"
        ) from error
    # Parameters that a partial binds by keyword stay in its signature with a default.
    bound: set[str] = set(function.keywords) if isinstance(function, functools.partial) else set()
    return [parameter for parameter in parameters if parameter.name not in bound]


def _name(function: object) -> str:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def _is_async(function: object) -> bool:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
