"""Paired comparison of two measurements: mean difference with interval, p-values, wins, losses and ties.

The pair is the sampling unit: reduce rollouts to one value per example first. If both sides agree on which examples are
hard, the differences vary less than the scores of either side, and the interval is narrower than that of two
independent samples. If examples are clustered, the cluster is the unit.

Interval and p-value belong to the same test: p is below 1 − level exactly if the interval excludes 0."""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from harness.core.types import JsonDict
from harness.stats.distributions import beta_quantile, t_quantile, t_two_sided
from harness.stats.hypotheses import McNemar, mcnemar, t_of_estimate
from harness.stats.intervals import EXACT_TAIL, LEVEL, SAME, Estimate, mean_interval, same, sample_std
from harness.stats.signflip import Test, sign_flip
from harness.stats.summary import number

if TYPE_CHECKING:
    from harness.stats.arrays import Labels

METHODS: dict[str, str] = {
    "difference": "mean over pairs of first minus second; each value is one example's mean over its rollouts",
    "ci95": "95 % Student t interval on the differences with one additional win and one additional loss, n-1 degrees "
    "of freedom (after Bonett & Price 2012; Miller 2024, arXiv 2411.00640, § 4)",
    "p_value": "two-sided p-value of the test that corresponds to the interval: below 0.05 exactly if the interval "
    "excludes 0",
    "adjusted_t": "Student t with one additional win and one additional loss",
}
"""Descriptions of a comparison's figures, which are stored with the figures."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Paired:
    """Result of a paired comparison, first minus second. Undefined values are None."""

    estimate: Estimate
    """The mean difference. If no limits are known, it has no interval for a single pair or if all differences are 0."""
    p_value: float | None
    """Two-sided p-value of the test that belongs to the interval; None without a pair, 1 if no pair differs."""
    test: Literal["adjusted_t"] | None
    """Method of the p-value; None without one."""
    wins: int
    """Number of pairs in which the first value is greater."""
    losses: int
    ties: int
    first: float | None
    """Mean of the first side over the pairs."""
    second: float | None
    correlation: float | None
    """Pearson correlation of the two sides; None for fewer than two pairs, or if one side is constant."""
    only_first: int = 0
    """Number of examples omitted because the second side has no value."""
    only_second: int = 0
    t_p_value: float | None = None
    """Two-sided p-value of the plain t test of the differences (with clusters: with CR1)."""
    cautious_low: float | None = None
    """Lower limit of the difference that allows for rare losses (`_cautious_low`); None without known limits."""
    sums: Sequence[float] = field(default=(), repr=False, compare=False)
    """The differences, or their sum in each cluster."""
    effect: float | None = None
    """Effect size: mean difference divided by the standard deviation of the differences."""
    mcnemar: McNemar | None = None
    """Exact test of passes and failures, if every value on both sides is 0 or 1."""
    variance_saved: float | None = None
    """Share of the variance that pairing removed: 1 − SE²/(SE_A² + SE_B²), where SE² = SE_A² + SE_B² − 2·SE_A·SE_B·ρ
    (Miller 2024, § 4); negative if the sides are negatively correlated."""

    @property
    def flips(self) -> tuple[float, Test] | None:
        """Sign-flip test of the differences: two-sided p-value and method. Computed on access, which may take a quarter
        of a second."""
        return sign_flip(self.sums) if self.sums else None

    @property
    def pairs(self) -> int:
        """Number of pairs compared."""
        return self.estimate.examples

    def to_json(self) -> JsonDict:
        """Convert to JSON; undefined, NaN and infinite values become null."""
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
        """Convert to JSON with additional fields that the documented evaluation results do not have."""
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
    """Paired comparison of two sets of values on their common keys; other keys are counted and ignored.

    Args:
        first: One finite value per example, by a hashable key of the example.
        second: One finite value per example of the other set, by the same keys.
        clusters: Cluster of each example; must contain every common key.
        limits: As for `paired_difference`.
        level: Confidence level.
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

    Values that differ only by rounding errors are ties with difference 0. Swapping the sides only changes signs; the
    order of the pairs does not matter.

    Args:
        first: One finite value per pair.
        second: One finite value per pair, for the other side.
        clusters: Label of each pair's cluster, if pairs of one cluster are correlated.
        limits: Lowest and highest possible score, if known. Then there is an interval even if all differences are 0,
            and no interval exceeds the range of possible differences.
        level: Confidence level.

    Raises:
        ValueError: the lengths differ, a value is not finite, or one is outside the limits.

    Source: Miller 2024, arXiv 2411.00640, § 4 (paired standard error); Bonett & Price 2012 (interval and test).
    """
    first, second = _checked(first, second, limits)
    differences = [0.0 if same(min(a, b), max(a, b)) else a - b for a, b in zip(first, second, strict=True)]
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    seen, units = {*first, *second}, _Units(differences, clusters)
    width = None if limits is None else float(limits[1] - limits[0])
    estimate, p_value = _tested(units, _estimate(differences, clusters, level), width)
    spread = _spread(differences)
    effect = None if estimate.mean is None or spread is None else estimate.mean / spread
    unpaired_spread = math.hypot(*(_spread(side) or 0.0 for side in (first, second)))
    saved = None if spread is None or unpaired_spread == 0.0 else 1.0 - (spread / unpaired_spread) ** 2
    return Paired(
        estimate=estimate,
        p_value=p_value,
        test=None if p_value is None else "adjusted_t",
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
        first=math.fsum(first) / len(first) if first else None,
        second=math.fsum(second) / len(second) if second else None,
        correlation=_correlation(first, second),
        t_p_value=t_of_estimate(estimate),
        cautious_low=_cautious_low(units, estimate, width),
        sums=units.sums,
        effect=effect,
        mcnemar=mcnemar(wins, losses) if seen and seen <= {0.0, 1.0} else None,
        variance_saved=saved,
    )


def _estimate(differences: Sequence[float], clusters: Labels | None, level: float) -> Estimate:
    if differences and same(min(differences), max(differences)):
        # The spread is unknown. (The Wilson interval of equal scores applies to proportions.)
        mean = math.fsum(differences) / len(differences)
        count = None if clusters is None else len(set(clusters))
        return Estimate(mean=mean, examples=len(differences), level=level, clusters=count)
    if clusters is not None:
        from harness.stats.clusters import clustered_mean

        return clustered_mean(differences, clusters, level)
    return mean_interval(differences, single_rollout=False, level=level)


class _Units:
    """Sampling units of pairs: examples, or clusters of examples.

    Args:
        differences: One per pair.
        clusters: Label of each pair's cluster; None if every pair is a unit.
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
        """Number of examples in the average unit."""

    def added(self, width: float | None) -> tuple[float, float] | None:
        """Mean and standard error of the differences with one additional win and one additional loss; None if all
        differences are 0 and no width is known.

        The size of the additional win and loss is the typical size of a difference, weighted by itself (Σd²/Σ|d|: 1 for
        passes and failures), or the whole width if all differences are 0."""
        largest = max(map(abs, self.sums), default=0.0) / self.size
        if largest < sys.float_info.min:  # computations with subnormal numbers would underflow
            largest = width or 0.0
        if largest < sys.float_info.min:
            return None
        parts = [each / self.size / largest for each in self.sums]  # squares of these cannot overflow
        absolute = math.fsum(map(abs, parts))
        typical = math.fsum(part * part for part in parts) / absolute if absolute else 1.0
        n = self.count + 2
        middle = math.fsum(parts) / n
        total = 2 * (typical**2 + middle**2) + math.fsum(
            (part - middle * size / self.size) ** 2 for part, size in zip(parts, self.sizes, strict=True)
        )
        return middle * largest, math.sqrt(total) / n * largest


def _tested(units: _Units, estimate: Estimate, width: float | None) -> tuple[Estimate, float | None]:
    """Compute the interval and the p-value of the test of no difference: Student's t of the differences with one
    additional win and one additional loss (Bonett & Price 2012, who use the normal distribution).

    Plain t is overconfident if few examples differ; with the two added pairs, a finding needs at least six pairs."""
    if not units.count:
        return estimate, None
    found = units.added(width)
    if found is None or units.count < 2:
        if found is not None and width is not None:
            estimate = replace(estimate, low=-width, high=width, method="bonett_price")
        return estimate, 1.0
    middle, stderr = found
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
    """Lower limit of the difference that allows for rare losses of which too few were observed: the minimum of

    - the lower end of the interval,
    - the mean minus the half-width of the interval if all differences were 0, since not observing a large loss in these
      examples does not exclude one in others,
    - the wins minus the one-sided exact limit (3 % for a level of 95 %) of the losses, in units of the largest observed
      difference, since a mean of few large losses is skewed."""
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
    """Minimum number of pairs (or clusters) for a p-value below `alpha`, for any size of the differences. The smallest
    possible p-value is that of n equal differences.

    Raises:
        ValueError: `alpha` is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"fewest_pairs: alpha must be between 0 and 1, not {alpha}")
    n = 2
    while t_two_sided(n * math.sqrt((n + 2) / (4 * n + 4)), n - 1) >= alpha:
        n += 1
    return n


def _checked(
    first: Sequence[float], second: Sequence[float], limits: tuple[float, float] | None
) -> tuple[list[float], list[float]]:
    first, second = list(first), list(second)
    if len(first) != len(second):
        raise ValueError(f"paired_difference: needs pairs of values, but got {len(first)} and {len(second)} values")
    if not all(map(math.isfinite, first)) or not all(map(math.isfinite, second)):
        raise ValueError("paired_difference: a value is not finite")
    if limits is not None:
        low, high = limits
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"paired_difference: limits: {low} must be less than {high}")
        slack = SAME * max(abs(low), abs(high))
        if not all(low - slack <= value <= high + slack for side in (first, second) for value in side):
            raise ValueError(f"paired_difference: a value lies outside the limits {low} and {high}")
        # The mean of equal scores may differ from them by rounding errors.
        first, second = ([min(high, max(low, value)) for value in side] for side in (first, second))
    return first, second


def _spread(differences: Sequence[float]) -> float | None:
    """Standard deviation of the differences; None if it is unknown or 0."""
    if len(differences) < 2 or same(min(differences), max(differences)):
        return None
    # Squares of very small differences underflow to 0.
    return sample_std(differences, math.fsum(differences) / len(differences)) or None


def _correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    scaled: list[list[float]] = []
    for side in (first, second):
        if not side or same(min(side), max(side)):
            return None
        largest = max(map(abs, side))  # in units of the largest, so that squares neither underflow nor overflow
        scaled.append([value / largest for value in side])
    return max(-1.0, min(1.0, statistics.correlation(*scaled)))
