"""Rubrics that run other rubrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.errors import EnvironmentFault
from harness.core.records import Score
from harness.core.state import State
from harness.rubrics.functions import RewardFunc, Value, range_limits, total
from harness.rubrics.judge_port import JudgeSpec
from harness.rubrics.parser import Parser
from harness.rubrics.rubric import Rubric


class CombinedRubric(Rubric):
    """Base class of rubrics that run other rubrics."""

    def _parts(self) -> Sequence[Rubric]:
        """Return the rubrics that this rubric runs."""
        raise NotImplementedError

    @property
    def parser(self) -> Parser:
        """The parser of the first rubric."""
        return self._parts()[0].parser

    @property
    def functions(self) -> tuple[RewardFunc, ...]:
        """The functions of all rubrics."""
        return tuple(function for rubric in self._parts() for function in rubric.functions)

    @property
    def is_group(self) -> bool:
        """Whether a function of any rubric needs all rollouts of an example together."""
        return any(rubric.is_group for rubric in self._parts())

    @property
    def needs_live_state(self) -> bool:
        """Whether any rubric can score only in the process that generated the rollouts."""
        return any(rubric.needs_live_state for rubric in self._parts())

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        """The judges of all rubrics, in order."""
        return tuple(spec for rubric in self._parts() for spec in rubric.judges)

    def use_parser(self, parser: Parser) -> None:
        """Use the environment's parser in every rubric that does not have its own."""
        for rubric in self._parts():
            rubric.use_parser(parser)

    def add_class_object(self, name: str, obj: object) -> None:
        """Make `obj` available to functions of all rubrics as parameter `name`."""
        for rubric in self._parts():
            rubric.add_class_object(name, obj)


class RubricGroup(CombinedRubric):
    """Several rubrics that score the same rollouts. The reward is the sum of their rewards, or None if the reward of
    one of them is None.

    Args:
        rubrics: At least one rubric, in the order in which they run.

    Raises:
        EnvironmentFault: there is no rubric, or two functions have the same name.
    """

    def __init__(self, rubrics: Sequence[Rubric]) -> None:
        super().__init__()
        if not rubrics:
            raise EnvironmentFault("a RubricGroup needs at least one rubric")
        wrong = [rubric for rubric in rubrics if not isinstance(rubric, Rubric)]  # pyright: ignore[reportUnnecessaryIsInstance]
        if wrong:
            raise EnvironmentFault(f"a RubricGroup takes rubrics, not {wrong[0]!r}")
        self.rubrics = list(rubrics)
        self._check_names()

    def _parts(self) -> Sequence[Rubric]:
        return self.rubrics

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of all functions of all rubrics, in order."""
        return tuple(name for rubric in self.rubrics for name in rubric.metric_names)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of all functions of all rubrics, by name."""
        return {name: weight for rubric in self.rubrics for name, weight in rubric.weights.items()}

    @property
    def reward_range(self) -> tuple[float, float]:
        """Sum of the lowest rewards and sum of the highest rewards of all rubrics."""
        return range_limits(rubric.reward_range for rubric in self.rubrics)

    @property
    def has_custom_reward(self) -> bool:
        """Whether any rubric, or a subclass of the group, computes the reward other than as a weighted sum."""
        return self._overrides_score or any(rubric.has_custom_reward for rubric in self.rubrics)

    def only(self, name: str) -> Rubric:
        """Return a copy of the group's rubric that has the function `name`; the copy runs only this function.

        Raises:
            UsageError: the function is unknown, or any of the rubrics computes the reward itself; see `Rubric.only`.
        """
        self._check_only(name)
        return next(rubric for rubric in self.rubrics if name in rubric.metric_names).only(name)

    def add_reward_func(self, func: RewardFunc, weight: float = 1.0) -> None:
        """Add a function to the first rubric."""
        self.rubrics[0].add_reward_func(func, weight)
        self._check_names()

    async def score(self, states: Sequence[State]) -> list[Score]:
        """Score rollouts with each rubric in turn, and add the scores."""
        parts = [await rubric.score(states) for rubric in self.rubrics]
        scores = [add_scores(scores) for scores in zip(*parts, strict=True)]
        for state, score in zip(states, scores, strict=True):
            state["reward"], state["metrics"] = score.reward, score.metrics
        return scores

    def add_up(self, values: Mapping[str, Value]) -> Score:
        """Compute the score of a rollout from the values of all functions: the sum of the rubrics' scores."""
        return add_scores([rubric.add_up(values) for rubric in self.rubrics])

    def _check_names(self) -> None:
        names = self.metric_names
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise EnvironmentFault(
                f"two rubrics of a group have a function called {repeated!r}; results have one column per function, so "
                "rename one"
            )


def add_scores(scores: Sequence[Score]) -> Score:
    """Add the scores that rubrics gave one rollout, and metrics of the same name. A sum with a missing part is None."""
    metrics: dict[str, float | None] = {}
    for score in scores:
        for name, value in score.metrics.items():
            held = metrics.get(name, 0.0)
            metrics[name] = None if value is None or held is None else held + value
    rewards = [score.reward for score in scores if score.reward is not None]
    reasons: dict[str, str] = {}
    for score in sorted(scores, key=lambda score: score.reward is not None):
        reasons.update(score.reasons)
    return Score(total(rewards) if len(rewards) == len(scores) else None, metrics, reasons)
