"""Hypothesis tests: McNemar's for paired passes and failures, Student's and Welch's t, adjustment of p-values,
and the verdict of a gate. `signflip` has the sign-flip test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from harness.core.types import JsonDict
from harness.stats.distributions import LEAST_P, beta_cdf, normal_quantile, t_quantile, t_two_sided
from harness.stats.intervals import LEVEL, Estimate, same, sample_std
from harness.stats.methods import STUDENTS
from harness.stats.summary import number

if TYPE_CHECKING:
    from harness.stats.arrays import Labels

Verdict: TypeAlias = Literal["pass", "fail", "inconclusive"]

COUNTED = 1_000
"""Number of discordant pairs up to which McNemar's p-value is computed with integers; above it, the beta distribution
is used."""

ROUNDING = 1e-12
"""Tolerance when comparing an end of an interval with a margin."""


@dataclass(frozen=True, slots=True)
class McNemar:
    """Exact test of paired passes and failures, one attempt each."""

    first_only: int
    """Pairs in which only the first side passed."""
    second_only: int
    p_value: float
    """Two-sided exact p-value; conservative."""
    mid_p: float
    """Mid-p value: counts half of the probability of the observed result. Less conservative; in rare cases it exceeds
    the nominal level."""


def mcnemar(first_only: int, second_only: int) -> McNemar:
    """Test whether both sides pass equally often. Concordant pairs do not matter.

    Only valid for one attempt per question: attempts at the same question are correlated, so counting them separately
    gives false findings.

    Raises:
        ValueError: a count is negative.

    Source: McNemar 1947; Fagerland, Lydersen & Laake 2013 (mid-p).
    """
    if first_only < 0 or second_only < 0:
        raise ValueError(f"mcnemar({first_only}, {second_only}): the counts must not be negative")
    n, least = first_only + second_only, min(first_only, second_only)
    if n <= COUNTED:
        ways = sum(math.comb(n, i) for i in range(least + 1))
        twice = 2 * ways / 2**n
        seen = math.comb(n, least) / 2**n
    else:
        twice = 2.0 * beta_cdf(0.5, n - least, least + 1)
        log_ways = math.lgamma(n + 1) - math.lgamma(least + 1) - math.lgamma(n - least + 1)
        seen = math.exp(log_ways - n * math.log(2.0))
    twice, mid_p = (min(1.0, max(LEAST_P, p)) for p in (twice, twice - seen))
    return McNemar(first_only, second_only, twice, mid_p)


def t_of_estimate(estimate: Estimate) -> float | None:
    """Two-sided p-value of the t test that a mean is 0, from its standard error; None if that is unknown."""
    if estimate.mean is None or not estimate.stderr:
        return None
    df = estimate.examples - 1 if estimate.df is None else estimate.df
    return t_two_sided(estimate.mean / estimate.stderr, df)


def p_of_interval(estimate: Estimate) -> float | None:
    """Two-sided p-value of the test that a mean is 0, from its interval. It is below 1 − level exactly if the interval
    excludes 0. Exact for t intervals; for others, the distance from the mean to the end nearer to 0 is treated as a
    multiple of a normal standard error. None if there is no interval."""
    mean, low, high = estimate.mean, estimate.low, estimate.high
    if mean is None or low is None or high is None:
        return None
    if estimate.method in STUDENTS:
        return t_of_estimate(estimate)
    reach = mean - low if mean > 0 else high - mean
    if reach <= 0:
        return 1.0 if mean == 0 else LEAST_P
    return max(LEAST_P, math.erfc(normal_quantile(0.5 + estimate.level / 2) * abs(mean) / reach / math.sqrt(2)))


@dataclass(frozen=True, slots=True)
class Unpaired:
    """Difference of two independent samples, first minus second. Undefined values are None."""

    estimate: Estimate
    """Difference of the means; `examples` counts both samples."""
    p_value: float | None
    """Two-sided p-value of Welch's t test."""
    first: float | None
    """Mean of the first sample."""
    second: float | None
    n_first: int
    n_second: int

    def to_json(self) -> JsonDict:
        """Convert to JSON; undefined, NaN and infinite values become null."""
        e = self.estimate
        return {
            "difference": number(e.mean),
            "stderr": number(e.stderr),
            "ci95": e.ends,
            "level": e.level,
            "method": e.method,
            "df": number(e.df),
            "p_value": number(self.p_value),
            "means": [number(self.first), number(self.second)],
            "examples": [self.n_first, self.n_second],
        }


def welch(
    first: Sequence[float],
    second: Sequence[float],
    level: float = LEVEL,
    clusters: tuple[Labels, Labels] | None = None,
) -> Unpaired:
    """Compare two samples without common examples (Welch's t test).

    For samples with common examples, `paired.paired_difference` gives a narrower interval.

    Args:
        first: One finite value per example.
        second: One finite value per example of the other sample.
        level: Confidence level.
        clusters: Labels of the values' clusters, for both samples, if values of one cluster are correlated. Then each
            side's standard error is CR1, with clusters−1 degrees of freedom.

    Source: Welch 1947.
    """
    n, m = len(first), len(second)
    x = math.fsum(first) / n if n else None
    y = math.fsum(second) / m if m else None
    difference = x - y if x is not None and y is not None else None
    unknown = Unpaired(Estimate(mean=difference, examples=n + m, level=level), None, x, y, n, m)
    if x is None or y is None or difference is None or n < 2 or m < 2:
        return unknown
    if clusters is None:
        units, count = (n, m), None
        a, b = (
            0.0 if same(min(side), max(side)) else sample_std(side, mean) / math.sqrt(len(side))
            for side, mean in ((first, x), (second, y))
        )
    else:
        from harness.stats.clusters import clustered_mean

        sides = [clustered_mean(side, labels, level) for side, labels in zip((first, second), clusters, strict=True)]
        units = sides[0].clusters or 0, sides[1].clusters or 0
        count = sum(units)
        a, b = (side.stderr or 0.0 for side in sides)
    stderr = math.hypot(a, b)
    if stderr == 0.0 or min(units) < 2:
        return unknown
    # In units of the standard error, so that squares neither underflow nor overflow.
    df = 1 / ((a / stderr) ** 4 / (units[0] - 1) + (b / stderr) ** 4 / (units[1] - 1))
    half = t_quantile(0.5 + level / 2, df) * stderr
    ends = difference - half, difference + half
    estimate = Estimate(difference, stderr, *ends, "welch", n + m, level, clusters=count, df=df)
    return Unpaired(estimate, t_two_sided(difference / stderr, df), x, y, n, m)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values of several comparisons so that the probability of even one false finding stays below the level
    (Holm).

    Args:
        p_values: One per comparison. An unknown p-value (None) stays None and is not counted.

    Returns:
        Adjusted p-values in the same order, to be compared with the level itself.

    Source: Holm 1979.
    """
    order = _ascending(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        adjusted[index] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values so that the expected share of false findings among all findings stays below the level (false
    discovery rate). For exploration rather than for final results.

    Arguments and result as for `holm`.

    Source: Benjamini & Hochberg 1995."""
    order = _ascending(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    lowest = 1.0
    for rank in range(len(order), 0, -1):
        p, index = order[rank - 1]
        lowest = min(lowest, p * len(order) / rank)
        adjusted[index] = lowest
    return adjusted


def non_inferiority(estimate: Estimate, margin: float) -> Verdict:
    """Test whether a candidate is worse than its baseline by less than `margin`.

    `pass` if the whole interval of candidate − baseline is above −margin, `fail` if it is below, `inconclusive` if it
    contains −margin or if there is no interval. With a 95 % interval at most 2.5 % of the candidates that are worse by
    `margin` or more pass, and at most 2.5 % of the others fail.

    Args:
        estimate: Candidate minus baseline.
        margin: Largest acceptable loss; 0 or more.

    Raises:
        ValueError: the margin is negative or not finite.
    """
    if not 0 <= margin < math.inf:
        raise ValueError(f"non_inferiority: the margin must be a finite number of 0 or more, not {margin}")
    if estimate.low is None or estimate.high is None:
        return "inconclusive"
    if estimate.low > -margin + ROUNDING:
        return "pass"
    return "fail" if estimate.high < -margin - ROUNDING else "inconclusive"


def is_above(low: float | None, margin: float) -> bool:
    """Return whether a lower limit of the difference is above −margin. An unknown limit (None) counts as above."""
    return low is None or low > -margin + ROUNDING


def _ascending(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    known = [(p, index) for index, p in enumerate(p_values) if p is not None]
    for p, _ in known:
        if not 0 <= p <= 1:
            raise ValueError(f"{p} is not a p-value: it must be from 0 to 1")
    return sorted(known)
