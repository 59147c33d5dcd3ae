"""Two measurements of the same things, compared pair by pair: mean difference with its interval, p-values, wins, losses
and ties. Owns these estimators; what is paired with what, and what a missing value means, is the caller's.

The pair is the sampling unit: reduce rollouts to one value an example before calling anything here. Where both sides
agree in which examples are hard, the differences spread less than either side's scores, and the interval is narrower
than that of two independent samples. Where examples come in clusters, the cluster is the unit: its differences keep or
turn their signs together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from harness.stats.hypotheses import McNemar, mcnemar, t_of_estimate
from harness.stats.intervals import LEVEL, SAME, Estimate, mean_interval, same, sample_std
from harness.stats.quantiles import normal_quantile
from harness.stats.signflip import DRAWS, SEED, Test, sign_flip
from harness.stats.summary import number
from harness.types import JsonDict

if TYPE_CHECKING:
    from harness.stats.arrays import Labels

__all__ = [
    "DRAWS",
    "METHODS",
    "SEED",
    "Paired",
    "Test",
    "paired_by_key",
    "paired_difference",
    "sign_flip",
]

METHODS: dict[str, str] = {
    "difference": "mean over pairs of first minus second; each value is one example's mean over its rollouts",
    "ci95": "95 % Student t interval on the differences, n-1 degrees of freedom (Miller 2024, arXiv 2411.00640, § 4)",
    "p_value": "two-sided sign-flip permutation test of the differences (Fisher 1935; on 0/1 scores McNemar's exact)",
    "exact": "all sign patterns counted",
    "monte_carlo": f"(1 + patterns at least as extreme) / (1 + {DRAWS}), fixed seed (Phipson & Smyth 2010)",
    "normal": "normal approximation of the sign-flip distribution",
}
"""Travels with the numbers, so that a comparison explains itself."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Paired:
    """First minus second, over the pairs. What is undefined is None."""

    estimate: Estimate
    """The mean difference; without an interval for one pair, and where all differences are equal, unless
    limits are known."""
    p_value: float | None
    """Two-sided; None without a pair, 1 if no pair differs."""
    test: Test | None
    """How the p-value was made."""
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
    """Two-sided, of Student's t on the differences (with clusters: on CR1): the one that belongs to the interval."""
    effect: float | None = None
    """Mean difference in units of the spread of the differences."""
    mcnemar: McNemar | None = None
    """Where every value on both sides is 0 or 1: the exact test of passes and failures."""
    variance_saved: float | None = None
    """Part of the variance that pairing removed: 1 − SE²/(SE_A² + SE_B²), where SE² = SE_A² + SE_B² − 2·SE_A·SE_B·ρ
    (Miller 2024, § 4); below 0 where the sides are negatively correlated."""

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
        exact = self.mcnemar
        return {
            **self.to_json(),
            "level": self.estimate.level,
            "method": self.estimate.method,
            "clusters": self.estimate.clusters,
            "t_p_value": number(self.t_p_value),
            "effect": number(self.effect),
            "mcnemar": None if exact is None else {"p_value": exact.p_value, "mid_p": exact.mid_p},
            "variance_saved": number(self.variance_saved),
        }


def paired_by_key(
    first: Mapping[Key, float],
    second: Mapping[Key, float],
    *,
    clusters: Mapping[Key, Hashable] | None = None,
    limits: tuple[float, float] | None = None,
    passes: bool = False,
    level: float = LEVEL,
) -> Paired:
    """Compare the two on the keys that both have; the others are counted and left out.

    Args:
        first: One finite value an example, by anything that names the example.
        second: The same of the other side.
        clusters: What each example's cluster is; every common key has one.
        limits: As for `paired_difference`.
        passes: As for `paired_difference`.
        level: Of confidence.
    """
    common = [key for key in first if key in second]
    paired = paired_difference(
        [first[key] for key in common],
        [second[key] for key in common],
        clusters=None if clusters is None else [clusters[key] for key in common],
        limits=limits,
        passes=passes,
        level=level,
    )
    return replace(paired, only_first=len(first) - len(common), only_second=len(second) - len(common))


def paired_difference(
    first: Sequence[float],
    second: Sequence[float],
    *,
    clusters: Labels | None = None,
    limits: tuple[float, float] | None = None,
    passes: bool = False,
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
            an interval as well, and passes and failures that of Bonett and Price; else equal differences have none.
        passes: Whether every single score is at a limit, where values are means of several: these have it too.
        level: Of confidence.

    Raises:
        ValueError: the lengths differ, a value is not finite, or one lies outside the limits.

    Source: Miller 2024, arXiv 2411.00640, § 4 (paired standard error); Fisher 1935 (randomisation test).
    """
    first, second = _checked(first, second, limits)
    differences = [0.0 if same(min(a, b), max(a, b)) else a - b for a, b in zip(first, second, strict=True)]
    wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    p_value, test = sign_flip(_flipped(differences, clusters)) if differences else (None, None)
    seen, estimate = {*first, *second}, _estimate(differences, clusters, level)
    if limits is not None and differences:
        estimate = _within_limits(estimate, differences, limits, passes=passes or seen <= {*limits})
    return Paired(
        estimate=estimate,
        p_value=p_value,
        test=test,
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
        first=_mean(first),
        second=_mean(second),
        correlation=_correlation(first, second),
        t_p_value=t_of_estimate(estimate),
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


def _within_limits(
    estimate: Estimate, differences: Sequence[float], limits: tuple[float, float], *, passes: bool
) -> Estimate:
    """The interval that knowing the range of the scores allows."""
    width = float(limits[1] - limits[0])
    # Of differences that are all 0, as of passes and failures, it is known how rare others must be.
    if not any(differences) or (passes and estimate.clusters is None):
        units = len(differences) if estimate.clusters is None else estimate.clusters
        low, high = _bonett_price(differences, width, units, estimate.level)
        return replace(estimate, low=low, high=high, method="bonett_price", df=None)
    if estimate.low is None or estimate.high is None:
        return estimate
    return replace(estimate, low=max(estimate.low, -width), high=min(estimate.high, width))


def _bonett_price(differences: Sequence[float], width: float, n: int, level: float) -> tuple[float, float]:
    """Adjusted Wald interval for the difference of two paired proportions (Bonett & Price 2012): as if one more pair
    were won, and one more lost.

    Of shares of passes, each is won or lost by the largest difference seen, and the interval is never narrower than if
    the sides agreed everywhere: that an example differs is no evidence that others do not. Where one side passes nearly
    always, Student's interval lies on the wrong side of the truth in one case of ten.

    Args:
        differences: Of the pairs, at least one.
        width: The greatest possible.
        n: Pairs, or their clusters.
        level: Of confidence.
    """
    z = normal_quantile(0.5 + level / 2)
    mean, largest = math.fsum(differences) / len(differences), max(map(abs, differences)) or width
    middle = math.fsum(d / largest for d in differences) / (n + 2)
    squares = math.fsum((d / largest) ** 2 for d in differences) + 2
    half = z * math.sqrt((squares / (n + 2) - middle**2) / (n + 2))
    least = z * math.sqrt(2) / (n + 2) * width if largest < width else 0.0
    low, high = min((middle - half) * largest, mean - least), max((middle + half) * largest, mean + least)
    return max(-width, low), min(width, high)


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


def _flipped(differences: Sequence[float], clusters: Labels | None) -> Sequence[float]:
    """What keeps or turns its sign: the differences, or the sums of each cluster's."""
    if clusters is None:
        return differences
    sums: defaultdict[Hashable, list[float]] = defaultdict(list)
    for difference, cluster in zip(differences, clusters, strict=True):
        sums[cluster].append(difference)
    return [math.fsum(values) for values in sums.values()]


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
