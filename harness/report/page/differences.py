"""How far the runs of each environment differ, pair by pair on the examples that both scored. Owns which pairs are
looked at and the words for what comes of it; the numbers are those of `stats`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from harness.stats.hypotheses import holm
from harness.stats.paired import Paired, paired_by_key
from harness.stats.power import settling_examples
from harness.stats.signflip import fewest_pairs
from harness.types import JsonDict

ALPHA = 0.05

ALL_PAIRS = 5
"""Runs of which every pair is looked at: ten pairs. Of more, each beside the best one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One run beside another."""

    first: int
    """Position of the run among those of its environment."""
    second: int
    paired: Paired
    adjusted: float | None
    """The p-value, adjusted for all pairs of the page."""
    settled_by: int | None = None
    """Examples at which a true difference as large as this one would be found; None where it is found, or unknown."""
    least: int = fewest_pairs(ALPHA)
    """Examples from which on something can be found, however many pairs are looked at."""

    @property
    def is_found(self) -> bool:
        """Whether it is more than noise."""
        return self.adjusted is not None and self.adjusted < ALPHA

    @property
    def is_too_small(self) -> bool:
        """Whether so few examples cannot tell even if all of them differ the same way."""
        return self.paired.pairs < fewest_pairs(ALPHA)

    def to_json(self, names: Sequence[str]) -> JsonDict:
        """For programs.

        Args:
            names: What each run is called.
        """
        return {
            "first": names[self.first],
            "second": names[self.second],
            **self.paired.to_json(),
            "p_adjusted": self.adjusted,
            "settled_by": self.settled_by,
        }


def pairs_of(
    means: Sequence[dict[str, float]], ranges: Sequence[tuple[float, float]], passes: Sequence[bool]
) -> list[tuple[int, int, Paired]]:
    """Compare the runs of an environment.

    Args:
        means: Of each run, the best mean first, example key → mean reward.
        ranges: Of each run, the least and the greatest reward that there can be.
        passes: Of each run, whether every reward is one of these two.

    Returns:
        All pairs, or each run beside the best one; the better one first. Pairs without an example in common are left
        out.
    """
    ranked = [position for position, each in enumerate(means) if each]
    pairs = list(combinations(ranked, 2)) if len(ranked) <= ALL_PAIRS else [(ranked[0], other) for other in ranked[1:]]
    found: list[tuple[int, int, Paired]] = []
    for first, second in pairs:
        seen = [*means[first].values(), *means[second].values()]
        limits = _limits(ranges[first], ranges[second], seen)
        at_limits = passes[first] and passes[second] and ranges[first] == ranges[second] == limits
        paired = paired_by_key(means[first], means[second], limits=limits, passes=at_limits)
        if paired.pairs:
            found.append((first, second, paired))
    return found


def differences_of(environments: Sequence[Sequence[tuple[int, int, Paired]]]) -> list[list[Difference]]:
    """The differences of a page, by environment, each p-value adjusted for all of them: as `bench compare` does, and
    because whoever reads the page looks at all of them."""
    p_values = [paired.p_value for pairs in environments for _, _, paired in pairs]
    adjusted = iter(holm(p_values))
    alpha = ALPHA / max(1, sum(p is not None for p in p_values))
    return [[_difference(*each, next(adjusted), alpha) for each in pairs] for pairs in environments]


def _difference(first: int, second: int, paired: Paired, adjusted: float | None, alpha: float) -> Difference:
    found = adjusted is not None and adjusted < ALPHA
    settled_by = None if found else settling_examples(paired, alpha=alpha)
    return Difference(first, second, paired, adjusted, settled_by, fewest_pairs(alpha))


def _limits(
    first: tuple[float, float], second: tuple[float, float], seen: Sequence[float]
) -> tuple[float, float] | None:
    """What rewards can be, widened to what they were: a rubric's function may give more than it says."""
    low, high = min(first[0], second[0], *seen), max(first[1], second[1], *seen)
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None
