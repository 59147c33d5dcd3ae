"""Reward functions by the rules of the classic API: the parameters that they may have, and how they are called.
`harness.rubrics.scoring` runs them and handles failures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, get_origin

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import JsonDict
from harness.rubrics.functions import GROUP_NAMES, ROLLOUT_NAMES, RewardFunction
from harness.usercode.functions import is_async, name_of

RewardFunc = Callable[..., Any]


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
        """Return name and weight of each reward function."""
        return list(zip(self._names(), self, strict=False))

    def get(self, name: str, default: float | None = None) -> float | None:
        """Return the weight of the reward function with this name, or `default`."""
        return dict(self.items()).get(name, default)


def is_group(function: RewardFunc) -> bool:
    """Return whether a reward function scores all rollouts of an example together, according to the names of its
    parameters or because it is annotated to return a list."""
    signature = inspect.signature(function)
    returns: Any = signature.return_annotation
    lists = returns is list or get_origin(returns) is list or (isinstance(returns, str) and returns.startswith("list"))
    return lists or any(name in GROUP_NAMES for name in signature.parameters)


def planned(function: RewardFunc, weight: float, objects: Mapping[str, object], columns: bool) -> RewardFunction:
    """Wrap an author's reward function for `harness.rubrics.scoring`: the wrapper gets the state, or all states of a
    group, and calls the function with those arguments for which it has parameters.

    Args:
        function: The author's function.
        weight: Its weight.
        objects: Objects that the function may take as parameters, by name.
        columns: Whether the function may have columns of the dataset as parameters.
    """
    group = is_group(function)
    parameters = inspect.signature(function).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    wanted = None if takes_all else frozenset(parameters)

    def of_rollout(state: State) -> Any:
        fields: JsonDict = dict(state["input"]) if columns else {}
        fields.update({name: state.get(name) for name in ROLLOUT_NAMES}, state=state)
        return function(**_picked({**fields, **objects}, wanted))

    def of_group(states: Sequence[State]) -> Any:
        fields: JsonDict = {f"{name}s": [state.get(name) for state in states] for name in ROLLOUT_NAMES}
        return function(**_picked({**fields, "states": list(states), **objects}, wanted))

    call = of_group if group else of_rollout
    name = name_of(function)
    return RewardFunction(name, call, float(weight), group, is_async(function), ("states",) if group else ("state",))


def check(function: RewardFunc, known: Collection[str], where: str) -> None:
    """Validate the parameters of a reward function; if one could not be supplied, no rollout would be scored.

    Raises:
        EnvironmentFault: a parameter cannot be supplied; the message names it.
    """
    names = {*(GROUP_NAMES if is_group(function) else ROLLOUT_NAMES), *known}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name in names:
            continue
        if parameter.default is parameter.empty:
            raise EnvironmentFault(
                f"{where} {name_of(function)!r}, parameter {name!r}: unknown name. "
                f"Known names are {', '.join(sorted(names))}; use **kwargs to receive all of them"
            )


def _picked(values: JsonDict, wanted: frozenset[str] | None) -> JsonDict:
    return values if wanted is None else {name: value for name, value in values.items() if name in wanted}
