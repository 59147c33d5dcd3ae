"""Comparison of two runs: the scores to compare, their range, and the verdict.

All commands that compare runs (`compare`, `gate`, `report`, `multi`, `eval`) use this module: `scores_of` reduces each
run, `difference_of` compares two, and `adjust` corrects for multiple comparisons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

from harness.stats.hypotheses import Unpaired, holm, welch
from harness.stats.intervals import ALPHA, Estimate
from harness.stats.paired import Paired, fewest_pairs, paired_by_key
from harness.stats.power import detectable, seen_components, settling_examples

LEAST_COMMON = 2
"""Minimum number of common examples for a paired comparison."""

Range: TypeAlias = tuple[float, float]
"""Lowest and highest possible score; infinite if unknown."""

UNKNOWN: Range = (-math.inf, math.inf)

Verdict: TypeAlias = Literal["better", "worse", "tied", "unknown"]


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of one run for a comparison."""

    means: Mapping[str, float]
    """Mean score of each example, by key; examples without a score are omitted."""
    seen: frozenset[float]
    """All distinct scores of single rollouts."""
    promised: Range = UNKNOWN
    """Lowest and highest possible score, as the run declares them."""
    clusters: Mapping[str, str] | None = None
    """Cluster label of each example with a score, by key; None without clusters."""


def scores_of(
    values: Mapping[str, Sequence[float]], promised: Range = UNKNOWN, clusters: Mapping[str, str] | None = None
) -> Scores:
    """Reduce the single scores of a run to one mean per example, for a comparison.

    Args:
        values: Scores of each example, by key; examples without a score are omitted.
        promised: As in `Scores`.
        clusters: As in `Scores`.
    """
    means = {key: math.fsum(each) / len(each) for key, each in values.items() if each}
    return Scores(means, frozenset(value for each in values.values() for value in each), promised, clusters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Result of comparing a first run with a second: estimates, p-values and verdict."""

    paired: Paired
    """Paired comparison, first minus second, over the common examples."""
    unpaired: Unpaired | None
    """Comparison as two independent samples, for runs with too few common examples; else None."""
    adjusted: float | None = None
    """p-value adjusted for all simultaneous comparisons (Holm)."""
    comparisons: int = 1
    """Number of simultaneous comparisons."""

    @property
    def estimate(self) -> Estimate:
        """Estimated difference, first minus second: of pairs, or of independent samples if pairs are too few."""
        return self.paired.estimate if self.unpaired is None else self.unpaired.estimate

    @property
    def p_value(self) -> float | None:
        """p-value of this comparison alone, not adjusted."""
        return self.paired.p_value if self.unpaired is None else self.unpaired.p_value

    @property
    def verdict(self) -> Verdict:
        """Result for the first run: `better`, `worse`, `tied`, or `unknown` if there are too few examples for any
        finding."""
        mean = self.estimate.mean
        if self.adjusted is None or mean is None or self.is_too_small:
            return "unknown"
        if self.adjusted >= ALPHA:
            return "tied"
        return "better" if mean > 0 else "worse"

    @property
    def is_found(self) -> bool:
        """Whether the difference is significant."""
        return self.verdict in ("better", "worse")

    @property
    def units(self) -> int:
        """Number of sampling units in the paired comparison: clusters if there are any, else examples."""
        clusters = self.paired.estimate.clusters
        return self.paired.pairs if clusters is None else clusters

    @property
    def is_too_small(self) -> bool:
        """Whether there are so few pairs that the difference could not be significant, even if all had the same
        sign."""
        is_few = self.unpaired is None and self.units < fewest_pairs(ALPHA)
        return is_few and (self.adjusted is None or self.adjusted >= ALPHA)

    @property
    def least(self) -> int:
        """Minimum number of units for a significant difference, given the number of comparisons."""
        return fewest_pairs(ALPHA / self.comparisons)

    @property
    def detectable(self) -> float | None:
        """Smallest true difference that these examples reveal with a probability of 80 %; None if they are too few."""
        estimate = self.paired.estimate
        if not estimate.stderr or self.unpaired is not None or self.units < self.least:
            return None
        found = detectable(seen_components(estimate), estimate.examples, alpha=ALPHA / self.comparisons)
        return None if math.isnan(found) else found

    @property
    def settling(self) -> int | None:
        """Number of examples at which a difference of this size would become significant; None if the difference is 0
        or already significant."""
        if self.is_found or self.unpaired is not None:
            return None
        return settling_examples(self.paired, alpha=ALPHA / self.comparisons)


def difference_of(first: Scores, second: Scores) -> Difference:
    """Compare two runs on their common examples, or as two independent samples if these are too few."""
    paired = paired_scores(first, second)
    if paired.pairs >= LEAST_COMMON or not first.means or not second.means:
        return Difference(paired=paired, unpaired=None)
    clusters = None
    if first.clusters is not None and second.clusters is not None:
        clusters = [first.clusters[key] for key in first.means], [second.clusters[key] for key in second.means]
    unpaired = welch(list(first.means.values()), list(second.means.values()), clusters=clusters)
    if unpaired.p_value is None and paired.pairs:
        return Difference(paired=paired, unpaired=None)  # the pair gives as much information
    limits, estimate = limits_of(first, second), unpaired.estimate
    if limits is not None and estimate.low is not None and estimate.high is not None:
        # No difference exceeds the width of the range of scores.
        width = limits[1] - limits[0]
        estimate = replace(estimate, low=max(-width, estimate.low), high=min(width, estimate.high))
    return Difference(paired=paired, unpaired=replace(unpaired, estimate=estimate))


def paired_scores(first: Scores, second: Scores) -> Paired:
    """Compare two runs pair by pair on their common examples."""
    return paired_by_key(first.means, second.means, clusters=first.clusters, limits=limits_of(first, second))


def limits_of(*sides: Scores) -> Range | None:
    """Range of possible scores: the declared range, extended to the observed scores, since reward functions may exceed
    it. None if it is infinite or unknown."""
    ends = {end for side in sides for end in (*side.promised, *side.seen)}
    low, high = min(ends), max(ends)
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None


D = TypeVar("D", bound=Difference)


def adjust(differences: Sequence[D]) -> list[D]:
    """Set the adjusted p-values (Holm) of simultaneous comparisons."""
    p_values = [each.p_value for each in differences]
    made = max(1, sum(p is not None for p in p_values))
    return [replace(each, adjusted=p, comparisons=made) for each, p in zip(differences, holm(p_values), strict=True)]
