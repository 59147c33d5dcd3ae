"""Reward functions by the rules of the classic API: the parameters that they may have, and how they are called.
`harness.rubrics.scoring` runs them and handles failures."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast, get_origin

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import JsonDict
from harness.rubrics.functions import GROUP_NAMES, ROLLOUT_NAMES, RewardFunction

RewardFunc = Callable[..., Any]

Sources = Callable[[Sequence[State]], Mapping[str, object]]
"""Function that returns further objects for reward functions besides the state's fields, at call time."""


class Weights(list[float]):
    """The weights of a rubric's functions: a list that authors may change, also readable by function name.

    Args:
        weights: Weights in the order of the functions.
        names: The functions' current names.
    """

    def __init__(self, weights: Iterable[float], names: Callable[[], Sequence[str]]) -> None:
        super().__init__(weights)
        self._names = names

    def items(self) -> Sequence[tuple[str, float]]:
        """Name and weight of each function."""
        return list(zip(self._names(), self, strict=False))

    def get(self, name: str, default: float | None = None) -> float | None:
        """The weight of a function."""
        return dict(self.items()).get(name, default)


def name_of(function: object) -> str:
    """The name of a reward function in metrics."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def is_group(function: RewardFunc) -> bool:
    """Whether a function scores all rollouts of an example: by its parameters' names, or because it returns a list."""
    signature = inspect.signature(function)
    returns: Any = signature.return_annotation
    lists = returns is list or get_origin(returns) is list or (isinstance(returns, str) and returns.startswith("list"))
    return lists or any(name in GROUP_NAMES for name in signature.parameters)


def planned(function: RewardFunc, weight: float, objects: Sources, columns: bool) -> RewardFunction:
    """Convert an author's function to one for our scoring: it gets the state, or the states, and passes on the
    parameters that the author's function has.

    Args:
        function: The author's function.
        weight: Its weight.
        objects: Class objects, by name.
        columns: Whether it may take columns of the dataset.
    """
    group = is_group(function)
    wanted = _wanted(function)

    def of_rollout(state: State) -> Any:
        return function(**_picked(_of_rollout(state, objects([state]), columns), wanted))

    def of_group(states: Sequence[State]) -> Any:
        return function(**_picked(_of_group(states, objects(states)), wanted))

    call = of_group if group else of_rollout
    name = name_of(function)
    return RewardFunction(name, call, float(weight), group, _is_async(function), ("states",) if group else ("state",))


def check(function: RewardFunc, known: Collection[str], where: str) -> None:
    """Validate a function's parameters. A parameter that cannot be supplied would leave every rollout unscored.

    Raises:
        EnvironmentFault: a parameter cannot be supplied; the message names it.
    """
    names = {*(GROUP_NAMES if is_group(function) else ROLLOUT_NAMES), *known}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name in names:
            continue
        if parameter.default is parameter.empty:
            raise EnvironmentFault(
                f"{where} {name_of(function)!r}, parameter {name!r}: nothing of that name is passed. "
                f"It may take {', '.join(sorted(names))} or **kwargs"
            )


def _wanted(function: RewardFunc) -> frozenset[str] | None:
    """The parameter names of a function; None if it takes any."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return frozenset(parameters)


def _picked(values: JsonDict, wanted: frozenset[str] | None) -> JsonDict:
    return values if wanted is None else {name: value for name, value in values.items() if name in wanted}


def _of_rollout(state: State, objects: Mapping[str, object], columns: bool) -> JsonDict:
    fields: JsonDict = {}
    if columns:
        fields.update({name: value for name, value in state["input"].items() if name not in ROLLOUT_NAMES})
    for name in ROLLOUT_NAMES:
        fields[name] = state if name == "state" else state.get(name)
    fields.update(objects)
    return fields


def _of_group(states: Sequence[State], objects: Mapping[str, object]) -> JsonDict:
    plurals: JsonDict = {
        f"{name}s": list(states) if name == "state" else [state.get(name) for state in states] for name in ROLLOUT_NAMES
    }
    return {**plurals, **objects}


def _is_async(function: object) -> bool:
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
