"""Validation of reward functions: of their signatures, and of the values that they return."""

from __future__ import annotations

import difflib
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
from harness.usercode.functions import is_async, name_of, parameters_of

RewardFunc: TypeAlias = Callable[..., Any]
"""A reward function. It returns a number for one rollout, a list of numbers for a group, or an awaitable of either."""

Value: TypeAlias = tuple[float | None, str]
"""Value of a reward function for one rollout: a finite number and "", or None and the reason."""

ROLLOUT_NAMES: tuple[str, ...] = ("prompt", "completion", "answer", "state", "task", "info")
"""Parameters that a reward function of one rollout may have, besides `parser` and class objects."""

GROUP_NAMES: tuple[str, ...] = ("prompts", "completions", "answers", "states", "tasks", "infos")
"""Parameters that a group function may have: lists with one value for each rollout of an example."""

_SIMILAR = 0.8
"""Similarity to a known name from which on a parameter with a default is rejected as misspelt, since a parameter such
as `anwser=""` would never be set."""


@dataclass(frozen=True, slots=True)
class RewardFunction:
    """A reward function and how to call it."""

    name: str
    function: RewardFunc
    weight: float
    """Weight in the reward; 0 for a metric."""
    is_group: bool
    """Whether the function scores all rollouts of an example together."""
    is_async: bool
    takes: tuple[str, ...] | None
    """Names of the arguments to pass; None for all (`**kwargs`)."""


def plan(function: RewardFunc, weight: float, class_objects: Collection[str]) -> RewardFunction:
    """Inspect the signature of a reward function, to find out how to call it.

    Args:
        function: A sync or async function; may be a `functools.partial` or an object with `__call__`.
        weight: Weight in the reward; 0 for a metric.
        class_objects: Names of additional parameters that it may have.

    Raises:
        EnvironmentFault: a parameter has an unknown name, or the function has the name of a fixed column of the
            results.
    """
    name = name_of(function)
    if name in FIXED_COLUMNS:
        raise EnvironmentFault(f"reward function {name!r}: results already have a column with this name; rename it")
    if not isinstance(weight, int | float) or not math.isfinite(weight):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EnvironmentFault(f"reward function {name!r}: its weight must be a finite number, not {weight!r}")
    if not callable(function):
        raise EnvironmentFault(f"a reward function must be callable, not {function!r}")
    try:
        parameters = parameters_of(function)
    except (TypeError, ValueError) as error:
        raise EnvironmentFault(
            f"reward function {name!r}: its signature cannot be read; wrap it in a function ({error})"
        ) from error
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
        name, function, float(weight), is_group, is_async(function), None if takes_all else tuple(takes)
    )


def read(value: object) -> Value:
    """Convert the return value of a reward function to a finite number, or to None and the reason."""
    if type(value) is float:
        return (value, "") if math.isfinite(value) else (None, f"returned {value}")
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        value = item()  # a scalar of numpy or of a tensor library
    # Decimal is not a numbers.Real. A string has no __float__. An array has one, but also a length.
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
    """Convert the return value of a group function to one value for each of its `size` rollouts."""
    tolist = getattr(value, "tolist", None)
    values: object = tolist() if callable(tolist) else value
    if not isinstance(values, list | tuple):
        return [(None, f"returned {type(value).__name__}: a group function must return a list of numbers")] * size
    items = cast("list[object] | tuple[object, ...]", values)
    if len(items) != size:
        return [(None, f"returned {len(items)} values for {size} rollouts")] * size
    return [read(item) for item in items]


def total(terms: Iterable[float]) -> float:
    """Return the sum of the terms without their rounding errors: 0.7 + 0.29 + 0.01 is 1, and so is 49 times 1/49.

    `math.fsum` rounds only once, but a term such as 0.29 is itself stored as a slightly smaller number. So if a decimal
    number of at most 15 digits lies within the rounding errors of the terms, it is returned as the sum. A single term
    is returned unchanged."""
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
    """Return the lowest and the highest weighted sum of values between 0 and 1."""
    weights = list(weights)
    return total(w for w in weights if w < 0), total(w for w in weights if w > 0)


def range_limits(ranges: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the lowest and the highest sum of rewards that lie within the given (lowest, highest) ranges."""
    lows, highs = zip(*ranges, strict=True)
    return total(lows), total(highs)


def raised(error: BaseException) -> str:
    """Return the reason why a reward function that raised an exception has no value. The part before the first colon is
    short and stable, so that it can be counted."""
    if isinstance(error, StateLost):
        return f"{STATE_LOST}: {error}"
    if isinstance(error, JudgeError):
        return str(error)
    return f"raised {type(error).__name__}: {error}"


def exception_reason(error: BaseException) -> str:
    """Return the reason for a value that an exception prevented. If the author is at fault, add the line of the
    author's code that raised it."""
    is_authors = not isinstance(error, HarnessError) or isinstance(error, EnvironmentFault)
    return f"{raised(error)} ({at})" if is_authors and (at := place(error)) else raised(error)


def _is_taken(function: str, parameter: inspect.Parameter, known: Collection[str]) -> bool:
    """Return whether the rubric passes a value for a parameter; otherwise the parameter keeps its default."""
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
