"""The sequential gate: examples run in random order, and once it is decided whether the candidate's mean over all of
them is worse than the baseline's by more than a margin, no further example starts.

The baseline's scores of all examples are known, so only the candidate's mean over these examples is estimated, with the
baseline's scores as a control variate (`sequences`). The claim is about the whole run: in at most 2.5 % of runs a
candidate passes although the whole run would have measured a loss of the margin or more, and in at most 2.5 % it fails
although the whole run would have measured less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.core.types import JsonDict
from harness.stats.intervals import Estimate
from harness.stats.sequences import ConfidenceSequence
from harness.stats.target import Aim, StoppingRule, mean_within

ROUNDING = 1e-12
"""Tolerance when comparing an end of an interval with a margin."""

Decision: TypeAlias = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class PairedAim(Aim):
    """Condition for stopping early once a comparison with a baseline is decided."""

    limits: tuple[float, float]
    margin: float = 0.0
    """Largest acceptable loss of mean reward; 0 or more."""
    scores: tuple[tuple[float, float], ...] = ()
    """Lowest and highest possible mean of each example of the plan in the baseline's run. They differ only if the
    baseline lacks a score there."""
    baseline: str = ""
    """Id of the baseline's run."""

    def __post_init__(self) -> None:
        if not 0 <= self.margin < math.inf:
            raise ValueError(f"PairedAim: margin {self.margin} must be a finite number of 0 or more")
        if len(self.scores) != self.examples:
            raise ValueError(f"PairedAim: {len(self.scores)} scores of the baseline for {self.examples} examples")


class PairedStoppingRule(StoppingRule):
    """Collects the outcomes of a candidate's rollouts, in any order, and decides whether it passes or fails.

    A rollout without a score counts with the lowest possible reward in the limit that a candidate must exceed to pass,
    and with the highest one in the limit that it must stay below to fail. So missing scores decide nothing.

    Args:
        aim: The margin, and the baseline's scores.
    """

    name = "gate"

    def __init__(self, aim: PairedAim) -> None:
        self.gate = aim
        self.decision: Decision | None = None
        """The first decision; None before it."""
        super().__init__(aim)
        self._best: ConfidenceSequence | None = None
        """The sequence with the highest possible rewards in place of missing ones; None if none is missing. `_sequence`
        has the lowest ones."""
        worst, best = zip(*aim.scores, strict=True) if aim.scores else ((0.0,), (0.0,))
        self._baseline = math.fsum(worst) / len(worst), math.fsum(best) / len(best)

    def _begin(self) -> ConfidenceSequence:
        aim, control = self.gate, [sum(ends) / 2 for ends in self.gate.scores]
        return ConfidenceSequence(aim.limits, population=aim.examples, control=control or None, gap=aim.margin)

    def _take(self, index: int, rewards: Sequence[float | None]) -> None:
        limits, control = self.gate.limits, sum(self.gate.scores[index]) / 2
        worst, best = ([end if each is None else each for each in rewards] for end in limits)
        if self._best is None and worst != best:
            self._best = deepcopy(self._sequence)
        self._sequence.add(mean_within(worst, limits), control)
        if self._best is not None:
            self._best.add(mean_within(best, limits), control)
        self.used += 1
        ends = self.ends
        if ends is not None and self.decision is None:
            is_above, is_below = ends[0] > -self.gate.margin + ROUNDING, ends[1] < -self.gate.margin - ROUNDING
            self.decision = "pass" if is_above and not is_below else "fail" if is_below and not is_above else None
            self.is_reached = self.decision is not None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval of the difference, candidate minus baseline, over all examples; valid after every example."""
        low, high = self._sequence.ends, (self._best or self._sequence).ends
        if self.outside is not None or low is None or high is None:
            return None
        return low[0] - self._baseline[1], high[1] - self._baseline[0]

    @property
    def difference(self) -> Estimate:
        """The estimated difference of the means over all examples, with its interval; without one before the first
        example."""
        worst, best, ends = self._sequence.adjusted_mean, (self._best or self._sequence).adjusted_mean, self.ends
        if worst is None or best is None or ends is None:
            return Estimate(examples=self.used)
        mean = (worst + best - sum(self._baseline)) / 2
        return Estimate(min(ends[1], max(ends[0], mean)), None, *ends, "betting", self.used)

    @property
    def estimate(self) -> Estimate:
        """The candidate's mean with its interval, as of the whole run."""
        found, best = self._sequence.estimate, (self._best or self._sequence).estimate
        if self.outside is not None:
            return Estimate(found.mean, examples=found.examples)
        if self._best is None or found.mean is None or best.mean is None:
            return found
        return Estimate((found.mean + best.mean) / 2, None, found.low, best.high, found.method, found.examples)

    def words(self) -> str:
        """Describe the decision, for display."""
        aim, ends = self.gate, self.ends
        after = f"after {self.used:,} of {aim.examples:,} examples"
        if ends is None:
            return f"not decided {after}"
        edge = f"{-aim.margin:g}" if aim.margin else "0"
        where = {"pass": f"lies above {edge}", "fail": f"lies below {edge}", None: f"contains {edge}"}[self.decision]
        verdict = "not decided" if self.decision is None else self.decision
        return f"{verdict}: the difference from {aim.baseline}, [{ends[0]:+.3f}, {ends[1]:+.3f}], {where} {after}"

    def to_json(self) -> JsonDict:
        """Convert to the format of `summary.json`."""
        difference = self.difference
        return {
            **StoppingRule.to_json(self),
            "half_width": None,
            "gate": {
                "baseline": self.gate.baseline,
                "margin": self.gate.margin,
                "verdict": self.decision or "inconclusive",
                "difference": difference.mean,
                "interval": difference.ends,
            },
        }


def rule_of(aim: Aim) -> StoppingRule:
    """Return the early stopping rule for an aim."""
    return PairedStoppingRule(aim) if isinstance(aim, PairedAim) else StoppingRule(aim)
