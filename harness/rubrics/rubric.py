"""Rubrics: weighted reward functions that score finished rollouts. If a function of the reward fails, the rollout is
unscored and the reason is recorded; it never gets score 0. `rubrics.scoring` calls the functions, `rubrics.functions`
validates them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

from harness.core.errors import EnvironmentFault, UsageError
from harness.core.records import Score
from harness.core.state import State
from harness.rubrics.functions import (
    GROUP_NAMES,
    ROLLOUT_NAMES,
    RewardFunc,
    RewardFunction,
    Value,
    plan,
    total,
    weight_limits,
)
from harness.rubrics.judge_port import JudgeSpec
from harness.rubrics.parser import Parser
from harness.rubrics.scoring import Scoring
from harness.settings.wording import suggestion


class Rubric:
    """Weighted reward functions. The reward is the weighted sum; a function of weight 0 is a metric.

    Args:
        funcs: The functions, in the order in which they run.
        weights: One weight per function; 1 for each by default.
        parser: Passed to functions with the parameter `parser`; defaults to the environment's parser.
        class_objects: Additional arguments for functions, by name.
        reward_range: Lowest and highest possible reward. Defaults to the sums of the negative and of the positive
            weights, which is right for functions with values from 0 to 1.
        needs_live_state: Whether functions read values that cannot be stored in the journal (a sandbox, a game). Then
            rollouts are scored directly after generation, and cannot be scored after a crash.

    Raises:
        EnvironmentFault: a function has an unknown parameter, two functions have the same name, or a function has the
            name of a fixed column of the results.
    """

    def __init__(
        self,
        funcs: Sequence[RewardFunc] | None = None,
        weights: Sequence[float] | None = None,
        parser: Parser | None = None,
        *,
        class_objects: Mapping[str, object] | None = None,
        reward_range: tuple[float, float] | None = None,
        needs_live_state: bool = False,
    ) -> None:
        functions = list(funcs or [])
        if weights is not None and len(weights) != len(functions):
            raise EnvironmentFault(
                f"a rubric needs one weight per function, not {len(weights)} weights for {len(functions)} functions"
            )
        if parser is not None and not isinstance(parser, Parser):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise EnvironmentFault(f"parser must be a Parser, not {parser!r}")
        if reward_range is not None:
            low, high = map(float, reward_range)
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise EnvironmentFault(f"reward_range must be (lowest, highest), not {reward_range!r}")
            reward_range = low, high
        self._own_parser = parser
        self._range = reward_range
        self._live = needs_live_state
        self._functions: list[RewardFunction] = []
        self._objects: dict[str, object] = {}
        for name, value in (class_objects or {}).items():
            self.add_class_object(name, value)
        for function, weight in zip(functions, weights or [1.0] * len(functions), strict=True):
            self.add_reward_func(function, weight)

    @property
    def parser(self) -> Parser:
        """The parser that is passed to functions with the parameter `parser`."""
        if self._own_parser is None:
            self._own_parser = Parser()
        return self._own_parser

    def use_parser(self, parser: Parser) -> None:
        """Use the environment's parser, unless the rubric has its own."""
        if self._own_parser is None:
            self._own_parser = parser

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of all functions, in order."""
        return tuple(planned.name for planned in self._functions)

    @property
    def weights(self) -> dict[str, float]:
        """Weights by function name, 0 for metrics. Empty if a subclass computes the reward itself."""
        return {planned.name: planned.weight for planned in self._functions}

    @property
    def functions(self) -> tuple[RewardFunc, ...]:
        """The reward functions and metrics."""
        return tuple(planned.function for planned in self._functions)

    @property
    def is_group(self) -> bool:
        """Whether a function needs all rollouts of an example together."""
        return any(planned.is_group for planned in self._functions)

    @property
    def needs_live_state(self) -> bool:
        """Whether rollouts can be scored only in the process that generated them."""
        return self._live

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judge models that the functions call. They must be connected before scoring (`rubrics.judge_port`)."""
        return ()

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest possible reward."""
        if self._range is not None:
            return self._range
        return weight_limits(planned.weight for planned in self._functions)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to the reward.

        Raises:
            EnvironmentFault: the function has an unknown parameter, or a name that is not unique or is that of a fixed
                column of the results.
        """
        planned = plan(func, weight, tuple(self._objects))
        if planned.name in self.metric_names:
            raise EnvironmentFault(
                f"two reward functions are called {planned.name!r}; results have one column per function, so rename one"
            )
        self._functions.append(planned)

    def add_metric(self, func: RewardFunc, weight: float = 0.0) -> None:
        """Add a metric: a function that is recorded but has weight 0 in the reward by default."""
        self.add_reward_func(func, weight)

    def add_class_object(self, name: str, obj: object) -> None:
        """Make `obj` available to functions as parameter `name`. Call it before adding these functions."""
        if name in {*ROLLOUT_NAMES, *GROUP_NAMES, "parser"}:
            raise EnvironmentFault(f"class object {name!r}: this name is reserved; rename it")
        self._objects[name] = obj

    @property
    def has_custom_reward(self) -> bool:
        """Whether a subclass computes the reward itself, and not as the weighted sum of `add_up`."""
        named = tuple(planned.name for planned in self._functions)
        return named != self.metric_names or len(self.weights) != len(named) or self._overrides_score

    @property
    def _overrides_score(self) -> bool:
        """Whether a subclass outside of this package overrides the method `score`."""
        owner = next(base for base in type(self).__mro__ if "score" in vars(base))
        return not owner.__module__.startswith("harness.")

    def only(self, name: str) -> Rubric:
        """Make a copy of this rubric that runs only one function.

        Args:
            name: Name of the function.

        Raises:
            UsageError: the function is unknown, or the rubric computes the reward itself, so that functions cannot be
                run separately.
        """
        self._check_only(name)
        part = copy.copy(self)
        part._functions = [planned for planned in self._functions if planned.name == name]
        part._range = self._range if len(self._functions) == 1 else None
        return part

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts: a single one, or for group functions all rollouts of an example.

        Also sets `reward` and `metrics` in each state.

        Raises:
            ThreadsHung: sync functions of earlier rollouts hang; see `harness.usercode.threads`.
        """
        if not states:
            return []
        scoring = Scoring(states, {"parser": self.parser, **self._objects})
        await scoring.run(self._functions)
        scores = [self.add_up(values) for values in scoring.values]
        for state, score in zip(states, scores, strict=True):
            state["reward"], state["metrics"] = score.reward, score.metrics
        return scores

    def add_up(self, values: Mapping[str, Value]) -> Score:
        """Compute the score of a rollout from the values of all functions.

        The score's reasons begin with those of missing values that leave the rollout without a reward.

        Args:
            values: Value of every function in `metric_names`: a number, or None and the reason.
        """
        terms: list[float] = []
        metrics: dict[str, float | None] = {}
        fatal: dict[str, str] = {}
        minor: dict[str, str] = {}
        for planned in self._functions:
            value, reason = values[planned.name]
            metrics[planned.name] = value
            if value is None:
                (fatal if planned.weight else minor)[planned.name] = reason
            elif planned.weight:
                terms.append(planned.weight * value)
        reward = total(terms)
        if not fatal and not math.isfinite(reward):
            fatal["*"] = f"the weighted sum is {reward}"
        return Score(None if fatal else reward, metrics, {**fatal, **minor})

    def _check_only(self, name: str) -> None:
        """Raise `UsageError` if the function `name` cannot be run separately; see `only`."""
        if not self.metric_names:
            raise UsageError(f"{name!r}: the rubric has no functions")
        if name not in self.metric_names:
            raise UsageError(f"{name!r}: the rubric has no such function; {suggestion(name, self.metric_names)}")
        if self.has_custom_reward:
            raise UsageError(
                f"{name!r}: {type(self).__name__} overrides the computation of the reward, so its functions cannot be "
                "run separately; score with the whole rubric"
            )
