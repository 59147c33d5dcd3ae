"""Equality of two runs within a margin: two one-sided tests on the paired interval, with the verdicts `equal`,
`different` and `cannot tell`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.stats.difference import LEAST_COMMON, Scores, limits_of
from harness.stats.hypotheses import is_above, non_inferiority
from harness.stats.intervals import ALPHA
from harness.stats.paired import Paired, paired_by_key
from harness.stats.power import POWER, passing_examples, settling_examples

EqualityVerdict: TypeAlias = Literal["equal", "different", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Equality:
    """Whether two runs differ by less than a margin."""

    verdict: EqualityVerdict
    margin: float
    paired: Paired
    """The comparison, first minus second, at the level that decides: 95 % for a single comparison."""
    cautious: tuple[float | None, float | None]
    """Limits of the difference that allow for rare losses of either side; None without known limits of the scores."""
    needed: int | None
    """Examples that would settle it with a probability of 80 %; None if it is settled, or if that is unknown."""
    truth: float
    """The true difference for which `needed` holds: 0, or the observed one if that is beyond the margin, or so near to
    it that for 0 there would be enough examples."""


def equality(first: Scores, second: Scores, margin: float, comparisons: int = 1) -> Equality:
    """Test whether the true difference of two runs is within ±margin, or beyond it, on their common examples.

    - `equal`: the whole interval lies within ±margin, and so do the limits that allow for rare losses
      (`Paired.cautious_low`), of both sides.
    - `different`: the whole interval lies above +margin, or below −margin.
    - `cannot tell`: neither, or fewer than two common examples.

    The interval is the two-sided one of 95 %, so each of the two one-sided tests has a level of 2.5 %, as in
    `non_inferiority`. An interval that leaves out 0 and contains the margin is no verdict: such a difference is real,
    but may be smaller than the margin.

    Args:
        first: Scores of one run.
        second: Scores of the other run.
        margin: Largest difference that counts as equal; more than 0, in units of the score.
        comparisons: Number of simultaneous comparisons. The level of each is 1 − 0.05/comparisons (Bonferroni).

    Raises:
        ValueError: the margin is not a finite number above 0, or there is no comparison.

    Source: Schuirmann 1987 (two one-sided tests); Bonett & Price 2012 (interval).
    """
    if not 0 < margin < math.inf or comparisons < 1:
        raise ValueError(f"equality: margin and comparisons must be above 0, not {margin} and {comparisons}")
    limits, level = limits_of(first, second), 1 - ALPHA / comparisons
    paired = paired_by_key(first.means, second.means, clusters=first.clusters, limits=limits, level=level)
    mirror = paired_by_key(second.means, first.means, clusters=first.clusters, limits=limits, level=level)
    estimate, low, high = paired.estimate, paired.cautious_low, mirror.cautious_low
    verdict: EqualityVerdict = "cannot tell"
    sides = non_inferiority(estimate, margin), non_inferiority(mirror.estimate, margin)
    if paired.pairs >= LEAST_COMMON and estimate.clusters != 1:
        if "fail" in sides:
            verdict = "different"
        elif sides == ("pass", "pass") and is_above(low, margin) and is_above(high, margin):
            verdict = "equal"
    needed, truth = None, 0.0
    if verdict == "cannot tell" and estimate.mean is not None:
        # For `equal`, both tests must succeed, so each is allowed half of the misses.
        width = None if limits is None else limits[1] - limits[0]
        needed = passing_examples(paired, margin, width, power=(1 + POWER) / 2)
        if abs(estimate.mean) > margin or (needed is not None and needed <= paired.pairs):
            truth = estimate.mean
            needed = settling_examples(paired, abs(estimate.mean) - margin, alpha=ALPHA / comparisons)
    return Equality(verdict, margin, paired, (low, None if high is None else -high), needed, truth)
