"""When a run has seen enough: examples come in random order, and once the mean of all of them is known closely enough,
no further one begins. Owns that decision and the interval that goes with it; the sequence behind both is `sequences`,
and who starts nothing more is the engine.

The mean in question is that of the whole run: what it would have come to if every example had been made. The interval
holds at all times, so that stopping for what it says is honest; the ordinary one does not."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.core.types import JsonDict
from harness.stats.intervals import LEVEL, Estimate
from harness.stats.quantiles import normal_quantile
from harness.stats.sequences import ConfidenceSequence

SLACK = 1e-9
"""Part of the range by which rounding may move a sum past it."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What is asked for."""

    half_width: float
    """Of the interval, in units of the reward."""
    examples: int
    """Of the whole run."""
    rollouts: int
    """Of each example: its value is their mean."""
    limits: tuple[float, float] | None
    """The least and the greatest reward; None if there are none, and then the sequence is asymptotic."""
    has_stopped: bool = False
    """Whether it is made of another run that this ended early: then so did it, whatever it comes to, and whole."""

    def __post_init__(self) -> None:
        if not self.half_width > 0:
            raise ValueError(f"Aim: half_width {self.half_width} must be above 0")

    @property
    def planned(self) -> int:
        """Examples at which the interval is made to be narrowest: as many as a fixed sample of the worst variance needs
        for this width, drawn from so many without replacement. Not decided by what is seen."""
        low, high = self.limits or (0.0, 1.0)
        endless = (normal_quantile((1 + LEVEL) / 2) * (high - low) / 2 / self.half_width) ** 2
        return max(1, math.ceil(endless / (1 + endless / self.examples)))


def finite_limits(reward_range: tuple[float, float]) -> tuple[float, float] | None:
    """The range, if a sequence can be made in it."""
    low, high = reward_range
    return reward_range if math.isfinite(low) and math.isfinite(high) and low < high else None


class StoppingRule:
    """Takes the outcomes of a run's rollouts, in any order, and says when they suffice.

    Args:
        aim: What is asked for.
    """

    def __init__(self, aim: Aim) -> None:
        self.aim = aim
        self.is_reached = False
        """Whether the interval has been narrow enough; it stays so."""
        self.outside: float | None = None
        """A value outside the limits: then the sequence holds nothing, and the run goes to its end."""
        self._sequence = ConfidenceSequence(
            aim.limits, planned=aim.planned, population=aim.examples if aim.limits else None
        )
        self._next = 0
        self._open: dict[int, list[float | None]] = {}
        """Outcomes of examples that are not counted yet: one before them is still under way."""
        self.used = 0
        """Examples that the interval is of."""

    def count(self, index: int, reward: float | None) -> None:
        """A rollout of the plan's example `index` has come to this; None is no score.

        Examples count in the plan's order, whichever is done first: quick ones may be easier.
        """
        self._open.setdefault(index, []).append(reward)
        while len(self._open.get(self._next, ())) >= self.aim.rollouts:
            rewards = [self._inside(reward) for reward in self._open.pop(self._next) if reward is not None]
            self._next += 1
            if rewards and self.outside is None:
                self._add(math.fsum(rewards) / len(rewards))

    @property
    def estimate(self) -> Estimate:
        """Mean and interval so far; without an interval where there is none yet."""
        estimate = self._sequence.estimate
        return estimate if self.outside is None else Estimate(estimate.mean, examples=estimate.examples)

    @property
    def is_enough(self) -> bool:
        """Whether no further example is to begin."""
        return self.is_reached and not self.aim.has_stopped

    @property
    def ended_early(self) -> bool:
        """Of a run that has ended: whether the aim ended it. If not, the ordinary interval is right."""
        return (self.is_reached or self.aim.has_stopped) and self._next + len(self._open) < self.aim.examples

    @property
    def lacking(self) -> int:
        """Rollouts that were begun and have no outcome: of the examples up to the last one that has any."""
        if not self._open:
            return 0
        return (max(self._open) + 1 - self._next) * self.aim.rollouts - sum(map(len, self._open.values()))

    def words(self) -> str:
        """What is known, for people."""
        estimate, aim = self.estimate, self.aim
        if estimate.low is None or estimate.high is None:
            return f"nothing known after {self.used:,} of {aim.examples:,} examples"
        half = (estimate.high - estimate.low) / 2
        return (
            f"the mean of the whole run known to \u00b1{half:.2g} (asked for: {aim.half_width:g}) after {self.used:,} "
            f"of {aim.examples:,} examples"
        )

    def to_json(self) -> JsonDict:
        """As in `summary.json`."""
        estimate = self.estimate
        return {
            "half_width": self.aim.half_width,
            "reached": self.is_reached,
            "interval": estimate.ends,
            "method": estimate.method,
            "examples": self.used,
            "of_examples": self.aim.examples,
        }

    def _inside(self, reward: float) -> float:
        """The reward; one that only rounding has moved past a limit is at the limit (0.7 + 0.2 + 0.1 is below 1)."""
        if self.aim.limits is None:
            return reward
        low, high = self.aim.limits
        near = min(high, max(low, reward))
        if abs(reward - near) > SLACK * (high - low):
            self.outside = reward if self.outside is None else self.outside
        return near

    def _add(self, value: float) -> None:
        limits = self.aim.limits
        self._sequence.add(value if limits is None else min(limits[1], max(limits[0], value)))
        self.used += 1
        if self.is_reached:
            return
        estimate = self._sequence.estimate
        if estimate.low is not None and estimate.high is not None:
            self.is_reached = (estimate.high - estimate.low) / 2 <= self.aim.half_width
