"""How far two runs differ: which scores are compared, the range of the scores, and the verdict.

Every command that compares runs (`compare`, `gate`, `report`, `multi`, `eval`) gets its differences here: reduce each
side with `scores_of`, compare with `difference_of`, and correct comparisons made together with `adjust`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

from harness.stats.hypotheses import Unpaired, holm, welch
from harness.stats.intervals import Estimate
from harness.stats.paired import Paired, fewest_pairs, paired_by_key
from harness.stats.power import Components, detectable, settling_examples

LEAST_COMMON = 2
"""Examples without which nothing can be said of pairs."""

ALPHA = 0.05

Range: TypeAlias = tuple[float, float]
"""The least and the greatest score possible; infinite where it is unknown."""

UNKNOWN: Range = (-math.inf, math.inf)

Verdict: TypeAlias = Literal["better", "worse", "tied", "unknown"]


@dataclass(frozen=True, slots=True)
class Scores:
    """One run, as far as a comparison looks at it."""

    means: Mapping[str, float]
    """Each example's value, by key; examples without one are left out."""
    seen: frozenset[float]
    """Every single score."""
    promised: Range = UNKNOWN
    """As the run says."""
    clusters: Mapping[str, str] | None = None
    """Of each of these examples; None if no clusters were named."""


def scores_of(
    values: Mapping[str, Sequence[float]], promised: Range = UNKNOWN, clusters: Mapping[str, str] | None = None
) -> Scores:
    """The same of single scores.

    Args:
        values: Each example's scores, by key; examples without one are left out.
        promised: As in `Scores`.
        clusters: As in `Scores`.
    """
    means = {key: math.fsum(each) / len(each) for key, each in values.items() if each}
    return Scores(means, frozenset(value for each in values.values() for value in each), promised, clusters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first run against the second."""

    paired: Paired
    """First minus second, over the examples that both have a value for."""
    unpaired: Unpaired | None
    """Of two runs that share too few examples: the difference of two samples."""
    adjusted: float | None = None
    """The p-value after Holm, over all comparisons that are made together."""
    comparisons: int = 1
    """That are made together."""

    @property
    def estimate(self) -> Estimate:
        """First minus second, by the pairs, or of two samples where there are too few."""
        return self.paired.estimate if self.unpaired is None else self.unpaired.estimate

    @property
    def p_value(self) -> float | None:
        """Of this comparison alone."""
        return self.paired.p_value if self.unpaired is None else self.unpaired.p_value

    @property
    def verdict(self) -> Verdict:
        """What the first is: `better`, `worse`, `tied`, or `unknown` where no result could have told the two apart."""
        mean = self.estimate.mean
        if self.adjusted is None or mean is None or self.is_too_small:
            return "unknown"
        if self.adjusted >= ALPHA:
            return "tied"
        return "better" if mean > 0 else "worse"

    @property
    def is_found(self) -> bool:
        """Whether it is more than noise."""
        return self.verdict in ("better", "worse")

    @property
    def units(self) -> int:
        """What the pairs are tested as: clusters, if these were named, else examples."""
        clusters = self.paired.estimate.clusters
        return self.paired.pairs if clusters is None else clusters

    @property
    def is_too_small(self) -> bool:
        """Whether so few pairs cannot be told apart even if all of them differ the same way."""
        is_few = self.unpaired is None and self.units < fewest_pairs(ALPHA)
        return is_few and (self.adjusted is None or self.adjusted >= ALPHA)

    @property
    def least(self) -> int:
        """Units from which on something can be told, however many comparisons are made together."""
        return fewest_pairs(ALPHA / self.comparisons)

    @property
    def detectable(self) -> float | None:
        """The smallest difference that these examples would show four times in five; None if they can show none."""
        estimate = self.paired.estimate
        if not estimate.stderr or self.unpaired is not None or self.units < self.least:
            return None
        seen = Components(estimate.stderr**2 * estimate.examples, 0.0, 0.0)  # as `settling_examples` takes it
        return detectable(seen, estimate.examples, alpha=ALPHA / self.comparisons)

    @property
    def settling(self) -> int | None:
        """Examples that would tell a difference as large as this one from none; None if nothing differs, or if it is
        told already."""
        if self.is_found or self.unpaired is not None:
            return None
        return settling_examples(self.paired, alpha=ALPHA / self.comparisons)


def difference_of(first: Scores, second: Scores) -> Difference:
    """Hold one run against another, on the examples that both have; as two samples where these are too few."""
    paired = paired_scores(first, second)
    if paired.pairs >= LEAST_COMMON or not first.means or not second.means:
        return Difference(paired=paired, unpaired=None)
    clusters = None
    if first.clusters is not None and second.clusters is not None:
        clusters = [first.clusters[key] for key in first.means], [second.clusters[key] for key in second.means]
    unpaired = welch(list(first.means.values()), list(second.means.values()), clusters=clusters)
    if unpaired.p_value is None and paired.pairs:
        return Difference(paired=paired, unpaired=None)  # two samples of one example say no more than the pair
    return Difference(paired=paired, unpaired=_within(unpaired, limits_of(first, second)))


def _within(unpaired: Unpaired, limits: Range | None) -> Unpaired:
    """The same with an interval that reaches no further than scores can differ."""
    estimate = unpaired.estimate
    if limits is None or estimate.low is None or estimate.high is None:
        return unpaired
    width = limits[1] - limits[0]
    return replace(unpaired, estimate=replace(estimate, low=max(-width, estimate.low), high=min(width, estimate.high)))


def paired_scores(first: Scores, second: Scores) -> Paired:
    """The first minus the second, on the examples that both have."""
    return paired_by_key(first.means, second.means, clusters=first.clusters, limits=limits_of(first, second))


def limits_of(*sides: Scores) -> Range | None:
    """What scores of these can be: as the runs say, widened to what was seen, since a rubric's function may give more
    than it says; None if there is no bound, or it is unknown."""
    ends = {end for side in sides for end in (*side.promised, *side.seen)}
    low, high = min(ends), max(ends)
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low < high else None


D = TypeVar("D", bound=Difference)


def adjust(differences: Sequence[D]) -> list[D]:
    """The same comparisons with the p-values that they have together (Holm)."""
    p_values = [each.p_value for each in differences]
    made = max(1, sum(p is not None for p in p_values))
    return [replace(each, adjusted=p, comparisons=made) for each, p in zip(differences, holm(p_values), strict=True)]
