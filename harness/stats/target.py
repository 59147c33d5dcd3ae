"""Early stopping: examples run in random order, and once the mean over all of them is known precisely enough, no
further example starts. Uses the confidence sequences of `sequences`; the engine acts on the decision. `paired_target`
has the rule that compares with a baseline.

The estimated mean is that of the whole run, as if all examples had been run. Its interval remains valid although the
run stops because of it; an ordinary interval would not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.types import JsonDict
from harness.stats.distributions import normal_quantile
from harness.stats.intervals import LEVEL, Estimate
from harness.stats.sequences import ConfidenceSequence

SLACK = 1e-9
"""Tolerance for rounding errors, as a share of the range."""


@dataclass(frozen=True, slots=True)
class Aim:
    """Condition for stopping early."""

    half_width: float
    """Half-width of the interval, in units of the reward; infinite if any will do."""
    examples: int
    """Number of examples in the whole run."""
    rollouts: int
    """Number of rollouts per example; their mean is the example's value."""
    limits: tuple[float, float] | None
    """Lowest and highest possible reward; None if unknown, so that the sequence is asymptotic."""
    has_stopped: bool = False
    """Whether this run was derived from one that was stopped early. Then it counts as stopped early, too, and is not
    stopped again."""

    def __post_init__(self) -> None:
        if not self.half_width > 0:
            raise ValueError(f"Aim: half_width {self.half_width} must be above 0")

    @property
    def planned(self) -> int:
        """Number of examples at which the interval should be narrowest. A fixed sample of this size, drawn without
        replacement, has the required width if the variance is as large as possible."""
        low, high = self.limits or (0.0, 1.0)
        endless = (normal_quantile((1 + LEVEL) / 2) * (high - low) / 2 / self.half_width) ** 2
        return max(1, math.ceil(endless / (1 + endless / self.examples)))


def finite_limits(reward_range: tuple[float, float]) -> tuple[float, float] | None:
    """Return the range if it is finite and not empty, else None."""
    low, high = reward_range
    return reward_range if math.isfinite(low) and math.isfinite(high) and low < high else None


def mean_within(values: Sequence[float], limits: tuple[float, float] | None) -> float:
    """Return the mean of values within the limits, which it cannot leave by a rounding error either."""
    mean = math.fsum(values) / len(values)
    return mean if limits is None else min(limits[1], max(limits[0], mean))


class StoppingRule:
    """Collects the outcomes of a run's rollouts, in any order, and decides when they are sufficient.

    Args:
        aim: Condition for stopping.
    """

    name = "until_ci"
    """Setting that asks for this rule."""

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self.is_reached = False
        """Whether the run has ever been decided: here, whether the interval has been narrow enough."""
        self.outside: float | None = None
        """A value outside the limits, if there was one. Then the sequence is invalid, and the run is not stopped
        early."""
        self._sequence = self._begin()
        self._next = 0
        self._open: dict[int, list[float | None]] = {}
        """Outcomes of examples that are not counted yet because an earlier example is still running."""
        self.used: int = 0
        """Number of examples in the interval."""

    def _begin(self) -> ConfidenceSequence:
        """Return the sequence of the values, before the first one."""
        aim = self.aim
        return ConfidenceSequence(aim.limits, planned=aim.planned, population=aim.examples if aim.limits else None)

    def count(self, index: int, reward: float | None) -> None:
        """Add the reward of a rollout of the plan's example `index`; None stands for a rollout without a score.

        Examples count in the order of the plan and not of completion, since fast ones may be easier."""
        self._open.setdefault(index, []).append(reward)
        while len(self._open.get(self._next, ())) >= self.aim.rollouts:
            rewards = [None if each is None else self._clamped(each) for each in self._open.pop(self._next)]
            self._next += 1
            if self.outside is None:
                self._take(self._next - 1, rewards)

    def _take(self, _index: int, rewards: Sequence[float | None]) -> None:
        """Add the rewards of the rollouts of one example, whose turn has come, and decide."""
        known = [reward for reward in rewards if reward is not None]
        if not known:
            return
        self._sequence.add(mean_within(known, self.aim.limits))
        self.used += 1
        if not self.is_reached:
            estimate = self._sequence.estimate
            if estimate.low is not None and estimate.high is not None:
                self.is_reached = (estimate.high - estimate.low) / 2 <= self.aim.half_width

    @property
    def estimate(self) -> Estimate:
        """The current mean and interval; without an interval if there is none yet."""
        estimate = self._sequence.estimate
        return estimate if self.outside is None else Estimate(estimate.mean, examples=estimate.examples)

    @property
    def is_enough(self) -> bool:
        """Whether no further example should start."""
        return self.is_reached and not self.aim.has_stopped

    @property
    def ended_early(self) -> bool:
        """Whether a finished run was stopped early. If not, the ordinary interval applies."""
        return (self.is_reached or self.aim.has_stopped) and self._next + len(self._open) < self.aim.examples

    @property
    def lacking(self) -> int:
        """Number of started rollouts without an outcome, among the examples up to the last one with an outcome."""
        if not self._open:
            return 0
        return (max(self._open) + 1 - self._next) * self.aim.rollouts - sum(map(len, self._open.values()))

    def words(self) -> str:
        """Describe how precisely the mean is known, for display."""
        estimate, aim = self.estimate, self.aim
        if estimate.low is None or estimate.high is None:
            return f"no interval yet after {self.used:,} of {aim.examples:,} examples"
        half = (estimate.high - estimate.low) / 2
        return (
            f"mean of the whole run known to \u00b1{half:.2g} (target: {aim.half_width:g}) after {self.used:,} of "
            f"{aim.examples:,} examples"
        )

    def to_json(self) -> JsonDict:
        """Convert to the format of `summary.json`."""
        estimate = self.estimate
        return {
            "half_width": self.aim.half_width,
            "reached": self.is_reached,
            "interval": estimate.ends,
            "method": estimate.method,
            "examples": self.used,
            "of_examples": self.aim.examples,
        }

    def _clamped(self, reward: float) -> float:
        """The reward; if it exceeds a limit only by a rounding error (0.7 + 0.2 + 0.1 is below 1), that limit."""
        if self.aim.limits is None:
            return reward
        low, high = self.aim.limits
        near = min(high, max(low, reward))
        if abs(reward - near) > SLACK * (high - low):
            self.outside = reward if self.outside is None else self.outside
        return near
