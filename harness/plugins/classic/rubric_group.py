"""Groups of classic rubrics. Rewards are summed, and so are metrics with the same name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from harness.core.records import Score
from harness.core.state import State
from harness.plugins.classic.reward_functions import RewardFunc, Weights
from harness.plugins.classic.rubric import Rubric
from harness.rubrics.functions import range_limits
from harness.rubrics.group import add_scores
from harness.rubrics.rubric import Rubric as NativeRubric


class RubricGroup(Rubric):
    """`vf.RubricGroup(rubrics)`: several rubrics whose rewards are summed. New functions are added to the first rubric.

    Raises:
        ValueError: the list of rubrics is empty.
    """

    def __init__(self, rubrics: Sequence[NativeRubric], **kwargs: Any) -> None:
        if not rubrics:
            raise ValueError("RubricGroup must have at least one rubric")
        super().__init__(**kwargs)
        self.rubrics: list[NativeRubric] = list(rubrics)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to the first rubric."""
        self.rubrics[0].add_reward_func(func, weight)

    def add_metric(self, func: RewardFunc, weight: float = 0.0) -> None:
        """Add a metric to the first rubric."""
        self.rubrics[0].add_metric(func, weight)

    def add_class_object(self, name: str, obj: object) -> None:
        """Pass an object to functions of the first rubric that have a parameter of this name."""
        self.rubrics[0].add_class_object(name, obj)

    def get_reward_func_names(self) -> list[str]:
        """Return the names of the functions of all rubrics."""
        return [name for rubric in self.rubrics for name in _names(rubric)]

    def get_reward_funcs(self) -> list[RewardFunc]:
        """Return the functions of all rubrics."""
        return [func for rubric in self.rubrics if isinstance(rubric, Rubric) for func in rubric.get_reward_funcs()]

    def get_reward_weights(self) -> list[float]:
        """Return the weights of the functions of all rubrics."""
        return [weight for rubric in self.rubrics for weight in _weights(rubric)]

    @property
    def weights(self) -> Any:
        """The weights of all functions of all rubrics."""
        return Weights(self.get_reward_weights(), self.get_reward_func_names)

    @weights.setter
    def weights(self, weights: Sequence[float]) -> None:
        """Do nothing: each rubric has its own weights."""

    @property
    def is_group(self) -> bool:
        """Whether any rubric scores all rollouts of an example together."""
        return self._overrides("score_group") or any(rubric.is_group for rubric in self.rubrics)

    @property
    def judges(self) -> tuple[Any, ...]:
        """The judges of all rubrics, in order."""
        return tuple(spec for rubric in self.rubrics for spec in getattr(rubric, "judges", ()))

    @property
    def needs_live_state(self) -> bool:
        """Whether any rubric can score only in the process that ran the rollout."""
        return any(rubric.needs_live_state for rubric in self.rubrics)

    @property
    def reward_range(self) -> tuple[float, float]:
        """Lowest and highest possible reward: the sums of those of the rubrics."""
        return range_limits(rubric.reward_range for rubric in self.rubrics)

    async def teardown(self) -> None:
        """Run the `@vf.teardown` methods of the group, then those of its rubrics."""
        await super().teardown()
        for rubric in self.rubrics:
            if isinstance(rubric, Rubric):
                await rubric.teardown()

    async def _run(self, states: Sequence[State]) -> list[Score]:
        started = time.time()
        before = [(state.get("reward"), dict(state.get("metrics") or {})) for state in states]
        parts: list[list[Score]] = []
        for rubric in self.rubrics:
            for state, (reward, metrics) in zip(states, before, strict=True):
                state["reward"], state["metrics"] = reward, dict(metrics)
            parts.append(await rubric.score(states))
        scores = [add_scores(scores) for scores in zip(*parts, strict=True)]
        self._keep(states, scores, started)
        return scores


def _names(rubric: NativeRubric) -> Sequence[str]:
    return rubric.get_reward_func_names() if isinstance(rubric, Rubric) else rubric.metric_names


def _weights(rubric: NativeRubric) -> Sequence[float]:
    return rubric.get_reward_weights() if isinstance(rubric, Rubric) else list(rubric.weights.values())
