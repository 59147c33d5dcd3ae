"""Two measurements of the same things, compared pair by pair: mean difference with its interval, p-values, wins, losses
and ties. Owns these estimators; what is paired with what, and what a missing value means, is the caller's.

The pair is the sampling unit: reduce rollouts to one value an example before calling anything here. Where both sides
agree in which examples are hard, the differences spread less than either side's scores, and the interval is narrower
than that of two independent samples. Where examples come in clusters, the cluster is the unit.

The interval and the p-value are of one test: p is below 1 − level exactly if the interval leaves 0 out."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from harness.core.types import JsonDict
from harness.stats.distributions import beta_quantile, t_two_sided
from harness.stats.hypotheses import McNemar, mcnemar, t_of_estimate
from harness.stats.intervals import EXACT_TAIL, LEVEL, SAME, Estimate, mean_interval, same, sample_std
from harness.stats.quantiles import t_quantile
from harness.stats.signflip import DRAWS, SEED, Test, sign_flip
from harness.stats.summary import number

if TYPE_CHECKING:
    from harness.stats.arrays import Labels

__all__ = [
    "DRAWS",
    "METHODS",
    "SEED",
    "Paired",
    "Test",
    "fewest_pairs",
    "paired_by_key",
    "paired_difference",
    "sign_flip",
]

METHODS: dict[str, str] = {
    "difference": "mean over pairs of first minus second; each value is one example's mean over its rollouts",
    "ci95": "95 % Student t interval on the differences with one pair more won and one more lost, n-1 degrees of "
    "freedom (after Bonett & Price 2012; Miller 2024, arXiv 2411.00640, § 4)",
    "p_value": "two-sided, of the test that belongs to the interval: below 0.05 exactly if that leaves 0 out",
    "adjusted_t": "Student t with one pair more won and one more lost",
}
"""Travels with the numbers, so that a comparison explains itself."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Paired:
    """First minus second, over the pairs. What is undefined is None."""

    estimate: Estimate
    """The mean difference; without an interval for one pair, and where all differences are 0, unless limits are
    known."""
    p_value: float | None
    """Two-sided, of the test that belongs to the interval; None without a pair, 1 if no pair differs."""
    test: Literal["adjusted_t"] | None
    """How the p-value was made; None without one."""
    wins: int
    """Pairs in which the first is greater."""
    losses: int
    ties: int
    first: float | None
    """Mean of the first over the pairs."""
    second: float | None
    correlation: float | None
    """Pearson's, of the two; None with fewer than two pairs and where one side is constant."""
    only_first: int = 0
    """Left out, because the second has no value for it."""
    only_second: int = 0
    t_p_value: float | None = None
    """Two-sided, of Student's t on the differences alone (with clusters: on CR1)."""
    cautious_low: float | None = None
    """How low the difference may lie if losses were missed by chance (`_cautious_low`); None without known limits."""
    sums: Sequence[float] = field(default=(), repr=False, compare=False)
    """The differences, or the sums of each cluster's."""
    effect: float | None = None
    """Mean difference in units of the spread of the differences."""
    mcnemar: McNemar | None = None
    """Where every value on both sides is 0 or 1: the exact test of passes and failures."""
    variance_saved: float | None = None
    """Part of the variance that pairing removed: 1 − SE²/(SE_A² + SE_B²), where SE² = SE_A² + SE_B² − 2·SE_A·SE_B·ρ
    (Miller 2024, § 4); below 0 where the sides are negatively correlated."""

    @property
    def flips(self) -> tuple[float, Test] | None:
        """The sign-flip test of the same differences: its two-sided p-value, and how it was made. Computed when asked
        for, which may take a quarter of a second."""
        return sign_flip(self.sums) if self.sums else None

    @property
    def pairs(self) -> int:
        """Pairs compared."""
        return self.estimate.examples

    def to_json(self) -> JsonDict:
        """No NaN, no infinity; what is undefined is null."""
        e = self.estimate
        return {
            "difference": number(e.mean),
            "stderr": number(e.stderr),
            "ci95": e.ends,
            "p_value": number(self.p_value),
            "test": self.test,
            "pairs": self.pairs,
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.ties,
            "means": [number(self.first), number(self.second)],
            "correlation": number(self.correlation),
            "only_first": self.only_first,
            "only_second": self.only_second,
        }

    def full_json(self) -> JsonDict:
        """`to_json` and what the documented results of evaluations do not have."""
        exact, flips = self.mcnemar, self.flips
        return {
            **self.to_json(),
            "level": self.estimate.level,
            "method": self.estimate.method,
            "clusters": self.estimate.clusters,
            "t_p_value": number(self.t_p_value),
            "effect": number(self.effect),
            "mcnemar": None if exact is None else {"p_value": exact.p_value, "mid_p": exact.mid_p},
            "sign_flip": None if flips is None else {"p_value": flips[0], "test": flips[1]},
            "variance_saved": number(self.variance_saved),
        }


def paired_by_key(
    first: Mapping[Key, float],
    second: Mapping[Key, float],
    *,
    clusters: Mapping[Key, Hashable] | None = None,
    limits: tuple[float, float] | None = None,
    level: float = LEVEL,
) -> Paired:
    """Compare the two on the keys that both have; the others are counted and left out.

    Args:
        first: One finite value an example, by anything that names the example.
        second: The same of the other side.
        clusters: What each example's cluster is; every common key has one.
        limits: As for `paired_difference`.
        level: Of confidence.
    """
    common = [key for key in first if key in second]
    paired = paired_difference(
        [first[key] for key in common],
        [second[key] for key in common],
        clusters=None if clusters is None else [clusters[key] for key in common],
        limits=limits,
        level=level,
    )
    return replace(paired, only_first=len(first) - len(common), only_second=len(second) - len(common))


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    *,
    clusters: Labels | None = None,
    limits: tuple[float, float] | None = None,
    level: float = LEVEL,
) -> Paired:
    """Compare `first[i]` with `second[i]`.

    Values that differ by no more than rounding are a tie and their difference is 0. Swapping the sides changes signs
    and nothing else; the order of the pairs changes nothing.

    Args:
        first: One finite value a pair.
        second: As many.
        clusters: Label of each pair's cluster, if pairs of one cluster resemble each other.
        limits: The least and the greatest score possible, where they are known. Then sides that agree everywhere have
            an interval as well, and no interval reaches further than scores can differ.
        level: Of confidence.

    Raises:
        ValueError: the lengths differ, a value is not finite, or one lies outside the limits.

    Source: Miller 2024, arXiv 2411.00640, § 4 (paired standard error); Bonett & Price 2012 (interval and test).
    """
    first, second = _checked(first, second, limits)
    differences = [0.0 if same(min(a, b), max(a, b)) else a - b for a, b in zip(first, second, strict=True)]
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    seen, units = {*first, *second}, _Units(differences, clusters)
    width = None if limits is None else float(limits[1] - limits[0])
    estimate, p_value = _tested(units, _estimate(differences, clusters, level), width)
    return Paired(
        estimate=estimate,
        p_value=p_value,
        test=None if p_value is None else "adjusted_t",
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
        first=_mean(first),
        second=_mean(second),
        correlation=_correlation(first, second),
        t_p_value=t_of_estimate(estimate),
        cautious_low=_cautious_low(units, estimate, width),
        sums=units.sums,
        effect=_effect(estimate, differences),
        mcnemar=mcnemar(wins, losses) if seen and seen <= {0.0, 1.0} else None,
        variance_saved=_saved(first, second, differences),
    )


def _estimate(differences: Sequence[float], clusters: Labels | None, level: float) -> Estimate:
    if differences and same(min(differences), max(differences)):
        # Nothing is known about the spread. (The Wilson interval of equal scores is one of proportions.)
        mean = math.fsum(differences) / len(differences)
        count = None if clusters is None else len(set(clusters))
        return Estimate(mean=mean, examples=len(differences), level=level, clusters=count)
    if clusters is not None:
        from harness.stats.clusters import clustered_mean

        return clustered_mean(differences, clusters, level)
    return mean_interval(differences, single_rollout=False, level=level)


class _Units:
    """What pairs are tested as: examples, or clusters of them.

    Args:
        differences: Of the pairs.
        clusters: Label of each pair's cluster; None: every pair is a unit.
    """

    def __init__(self, differences: Sequence[float], clusters: Labels | None) -> None:
        self.sums: Sequence[float] = differences
        self.sizes: Sequence[int] = [1] * len(differences)
        if clusters is not None:
            found: defaultdict[Hashable, list[float]] = defaultdict(list)
            for difference, cluster in zip(differences, clusters, strict=True):
                found[cluster].append(difference)
            self.sums = [math.fsum(values) for values in found.values()]
            self.sizes = [len(values) for values in found.values()]
        self.count = len(self.sums)
        self.size = len(differences) / self.count if self.count else 1.0
        """Of the average unit."""

    def added(self, width: float | None) -> tuple[float, float] | None:
        """Middle and standard error of the differences with one unit more won, and one lost; None if nothing differs
        and no width is known.

        What is won, or lost, is the typical size of a difference, each weighted by itself (Σd²/Σ|d|: 1 of passes and
        failures), or the whole width if nothing differs.
        """
        largest = max(map(abs, self.sums), default=0.0) / self.size
        if largest < sys.float_info.min:  # what is made of subnormal numbers would vanish
            largest = width or 0.0
        if largest < sys.float_info.min:
            return None
        parts = [each / self.size / largest for each in self.sums]  # their squares cannot overflow
        absolute = math.fsum(map(abs, parts))
        typical = math.fsum(part * part for part in parts) / absolute if absolute else 1.0
        n = self.count + 2
        middle = math.fsum(parts) / n
        total = 2 * (typical**2 + middle**2) + math.fsum(
            (part - middle * size / self.size) ** 2 for part, size in zip(parts, self.sizes, strict=True)
        )
        return middle * largest, math.sqrt(total) / n * largest


def _tested(units: _Units, estimate: Estimate, width: float | None) -> tuple[Estimate, float | None]:
    """The interval, and the p-value of the test of no difference that belongs to it: Student's t on the differences
    with one pair more won and one more lost (Bonett & Price 2012, who have the normal distribution).

    Plain t is a certainty where few examples differ; with the two added pairs no fewer than six can show a difference.
    """
    if not units.count:
        return estimate, None
    found = units.added(width)
    if found is None or (units.count < 2 and width is None):
        return estimate, 1.0
    middle, stderr = found
    if units.count < 2:
        return replace(estimate, low=-(width or 0.0), high=width, method="bonett_price"), 1.0
    half = t_quantile(0.5 + estimate.level / 2, units.count - 1) * stderr
    low, high = middle - half, middle + half
    if width is not None:
        low, high = max(-width, low), min(width, high)
    df = None if estimate.clusters is None else units.count - 1
    return (
        replace(estimate, low=low, high=high, method="bonett_price", df=df),
        t_two_sided(middle / stderr, units.count - 1),
    )


def _cautious_low(units: _Units, estimate: Estimate, width: float | None) -> float | None:
    """How low the difference may lie, allowing for rare losses of which too few were seen: the least of

    - the low end of the interval,
    - the mean less what the interval would reach if the sides agreed everywhere: that so many examples show no large
      loss does not exclude one on others,
    - what was won less the one-sided exact limit (3 % for a level of 95 %) of what was lost, in units of the greatest
      difference seen: a mean of few large losses is skewed.
    """
    if width is None or estimate.low is None or units.count < 2:
        return estimate.low if width is not None else None
    n, mean = units.count, estimate.mean or 0.0
    effective = math.fsum(units.sizes) ** 2 / math.fsum(size * size for size in units.sizes)
    t = t_quantile(0.5 + estimate.level / 2, n - 1)
    values = [each / units.size for each in units.sums]
    largest = max(map(abs, values)) or width
    lost = math.fsum(-value / largest for value in values if value < 0)
    won = math.fsum(value for value in values if value > 0) / n
    limit = beta_quantile(1 - (1 - estimate.level) * EXACT_TAIL, lost + 1, n - lost) if lost < n else 1.0
    return max(-width, min(estimate.low, mean - t * math.sqrt(2) / (effective + 2) * width, won - largest * limit))


def fewest_pairs(alpha: float) -> int:
    """Pairs (or clusters) below which no p-value is below `alpha`, however far apart the sides are: that of n equal
    differences is the least.

    Raises:
        ValueError: `alpha` does not lie between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"fewest_pairs: {alpha} does not lie between 0 and 1")
    n = 2
    while t_two_sided(n * math.sqrt((n + 2) / (4 * n + 4)), n - 1) >= alpha:
        n += 1
    return n


def _checked(
    first: Sequence[float], second: Sequence[float], limits: tuple[float, float] | None
) -> tuple[list[float], list[float]]:
    first, second = list(first), list(second)
    if len(first) != len(second):
        raise ValueError(f"paired_difference: {len(first)} values against {len(second)}")
    if not all(map(math.isfinite, first)) or not all(map(math.isfinite, second)):
        raise ValueError("paired_difference: a value is not finite")
    if limits is not None:
        low, high = limits
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"paired_difference: limits {low} and {high} are no range")
        slack = SAME * max(abs(low), abs(high))
        if not all(low - slack <= value <= high + slack for side in (first, second) for value in side):
            raise ValueError(f"paired_difference: a value lies outside the limits {low} and {high}")
        # The mean of equal scores may differ from them by rounding.
        first, second = ([min(high, max(low, value)) for value in side] for side in (first, second))
    return first, second


def _spread(differences: Sequence[float]) -> float | None:
    """Standard deviation of the differences; None where it is unknown or 0."""
    if len(differences) < 2 or same(min(differences), max(differences)):
        return None
    # Squares of the tiniest differences vanish.
    return sample_std(differences, math.fsum(differences) / len(differences)) or None


def _effect(estimate: Estimate, differences: Sequence[float]) -> float | None:
    spread = _spread(differences)
    return None if estimate.mean is None or spread is None else estimate.mean / spread


def _saved(first: Sequence[float], second: Sequence[float], differences: Sequence[float]) -> float | None:
    spread = _spread(differences)
    sides = [_spread(side) or 0.0 for side in (first, second)]
    alone = math.hypot(*sides)
    return None if spread is None or alone == 0.0 else 1.0 - (spread / alone) ** 2


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    x, y = _deviations(first), _deviations(second)
    if not x or not y:
        return None
    norms = math.fsum(a * a for a in x) * math.fsum(b * b for b in y)
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.sqrt(norms)))


def _deviations(values: Sequence[float]) -> list[float]:
    """From the mean, in units of the largest, whose square neither vanishes nor overflows; none if all are equal."""
    if not values or same(min(values), max(values)):
        return []
    mean = math.fsum(values) / len(values)
    largest = max(abs(value - mean) for value in values)
    return [(value - mean) / largest for value in values]
