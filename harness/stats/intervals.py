"""Intervals of means over examples, intervals of proportions, and bounds for missing scores. The method is chosen here,
so that live display, final table and `summary.json` agree.

The example is the sampling unit: reduce rollouts to one value per example first. Treating n·r rollouts as independent
would make intervals too narrow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.stats.distributions import beta_quantile, normal_quantile, t_quantile
from harness.stats.methods import Method

LEVEL = 0.95
"""Default confidence level of all intervals."""

ALPHA = 0.05
"""Default significance level of all tests."""

WILSON_BELOW = 300
"""Number of examples below which the central limit theorem is unreliable for binary scores (Bowyer, Aitchison & Ivanova
2025, arXiv 2503.01747)."""

RARE = 20
"""Number of passes, or of failures, of independent attempts below which t is unreliable for any number of examples: its
interval is off centre near 0 and 1, and with 8 failures in 400 attempts it contains the mean in only 92 % of cases."""

EXACT_TAIL = 0.6
"""Share of the permitted error, 1 − level, that a one-sided exact limit uses if few pass or fail: 3 % of 5 %."""

INFORMATIVE = 15
"""Minimum of (Σe²)²/Σe⁴, for deviations e from the mean, at which Student's t is used if limits are known. It is the
effective number of examples that determine the spread: if 3 of 100 examples differ from the rest, it is 3, not 100."""

TWO_VALUED_FROM = 10
"""Minimum number of examples at which scores with exactly two values count as passes and failures, if limits are
unknown."""

WILSONS = frozenset({"wilson", "wilson_effective"})
"""Methods that are called Wilson's; the second occurs in summaries of older versions."""

LARGEST_SQUARE = 1e150
"""Absolute deviation above which squares may overflow."""

SAME = 1e-12
"""Relative spread below which values count as equal, since their differences are rounding errors."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over examples with its uncertainty. Undefined values are None."""

    mean: float | None = None
    stderr: float | None = None
    """Standard error of the mean; None for fewer than two examples, or if all are equal."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval (`low` and `high`)."""
    method: Method | None = None
    """Method of the interval (`methods.describe` explains it); None if there is no interval."""
    examples: int = 0
    """Number of examples in the mean."""
    level: float = LEVEL
    """Confidence level of the interval."""
    clusters: int | None = None
    """Number of clusters, if these are the sampling units."""
    df: float | None = None
    """Degrees of freedom of the interval, if they are not n−1."""

    @property
    def half_width(self) -> float | None:
        """The larger distance from the mean to an end of the interval."""
        if self.mean is None or self.low is None or self.high is None:
            return None
        return max(self.high - self.mean, self.mean - self.low)

    @property
    def ends(self) -> list[float | None] | None:
        """The interval as a list for JSON; None if there is no interval. An infinite end becomes None."""
        if self.low is None or self.high is None:
            return None
        return [end if math.isfinite(end) else None for end in (self.low, self.high)]


def mean_interval(
    means: Sequence[float],
    *,
    single_rollout: bool,
    binary: bool | None = None,
    limits: tuple[float, float] | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Mean of the examples' values with an interval, by the method that suits them.

    - Single rollouts with two values (0 and 1, or the two limits): Wilson's interval (`share_interval`); Student's t
      for at least 300 examples with at least 20 of each value.
    - All scores at one limit: Wilson's interval, extended as well (`share_interval`).
    - Other scores with known limits: t with n−1 degrees of freedom, if it stays within the limits and enough examples
      determine the spread (`INFORMATIVE`); else t with one additional example at each limit (`adjusted_t`).
    - Scores without limits: t; no interval if all are equal.
    - A single example: no interval.

    Args:
        means: One finite value per example.
        single_rollout: Whether every value is the score of one rollout.
        binary: Whether every rollout's score is 0 or 1. None: determined from `means` for single rollouts, else assumed
            false. Ignored if `limits` are given.
        limits: Lowest and highest possible score, if known; extended to the observed values.
        level: Confidence level.

    Raises:
        ValueError: a value is not finite.

    Source: Miller 2024, arXiv 2411.00640, § 2 (standard error); Wilson 1927; Agresti & Coull 1998 (added examples).
    """
    n = len(means)
    if n == 0:
        return Estimate(level=level)
    mean = math.fsum(means) / n
    if not math.isfinite(mean):
        raise ValueError("mean_interval: a value is not finite")
    if n == 1:
        return Estimate(mean=mean, examples=1, level=level)
    low, high = min(means), max(means)
    if limits is None:
        limits = _guessed_limits(means, low, high, single_rollout=single_rollout, binary=binary)
    else:
        limits = min(limits[0], low), max(limits[1], high)
    if same(low, high):
        return _of_equals(mean, n, limits, level)
    stderr = sample_std(means, mean) / math.sqrt(n)
    if stderr == 0.0:
        return Estimate(mean=mean, examples=n, level=level)
    attempts = single_rollout and limits is not None and all(value in limits for value in means)
    seen = math.inf if attempts or limits is None else informative([value - mean for value in means])
    return by_spread(mean, stderr, n, level, limits=limits, attempts=attempts, seen=seen)


def rate_interval(rates: Sequence[tuple[float, int]], *, single_rollout: bool, level: float = LEVEL) -> Estimate:
    """Mean of rates from 0 to 1 with an interval like that of `mean_interval`; fast if few distinct rates occur.

    Args:
        rates: Pairs (rate, number of examples with this rate).
        single_rollout: Whether every rate is 0 or 1, as the result of one rollout.
        level: Confidence level.
    """
    n = sum(examples for _, examples in rates)
    if n == 0:
        return Estimate(level=level)
    mean = math.fsum(rate * examples for rate, examples in rates) / n
    low, high = min(rate for rate, _ in rates), max(rate for rate, _ in rates)
    if n == 1:
        return Estimate(mean=mean, examples=1, level=level)
    if same(low, high):
        return _of_equals(mean, n, (0.0, 1.0), level)
    squares = math.fsum(examples * (rate - mean) ** 2 for rate, examples in rates)
    seen = squares**2 / math.fsum(examples * (rate - mean) ** 4 for rate, examples in rates)
    stderr = math.sqrt(squares / (n - 1) / n)
    return by_spread(mean, stderr, n, level, limits=(0.0, 1.0), attempts=single_rollout, seen=seen)


def share_interval(successes: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval for a proportion, extended to an exact one-sided limit (tail 3 % for a level of 95 %) at an end
    with fewer than 20 passes or failures.

    For every p, the 95 % interval covers it with a probability of at least 94 % for 2 to 20 trials, and at least 92.9 %
    for more. Wilson's interval alone covers p near 0 or 1 with only 84 %, and 0 of 2 to 0 of 5 with only 87 to 93 %.

    Arguments and errors as for `wilson`.

    Source: Wilson 1927; Brown, Cai & DasGupta 2001, § 4.1.1 (one-sided limits near 0 and 1)."""
    low, high = wilson(successes, n, level)
    tail = (1 - level) * EXACT_TAIL
    failures = n - successes
    if 0 < successes < RARE:
        low = min(low, beta_quantile(tail, successes, failures + 1))
    if 0 < failures < RARE:
        high = max(high, beta_quantile(1 - tail, successes + 1, failures))
    return low, high


def wilson(successes: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a proportion; within [0, 1] and never of width 0.

    Args:
        successes: Number of successes, 0 to n.
        n: Number of trials; at least 1.
        level: Confidence level.

    Raises:
        ValueError: no trial, or more successes than trials.

    Source: Wilson 1927; recommended for small n by Brown, Cai & DasGupta 2001.
    """
    _check_counts("wilson", successes, n, least=1)
    # All θ with |p − θ| ≤ z·√(θ(1−θ)/n).
    p, z = successes / n, normal_quantile(0.5 + level / 2)
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(max(0.0, p * (1 - p)) / n + z * z / (4 * n * n)) / scale
    # The ends are exact at p = 0 and p = 1; rounding must not move them beyond the mean.
    return 0.0 if successes == 0 else max(0.0, centre - half), 1.0 if successes == n else min(1.0, centre + half)


def clopper_pearson(successes: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Exact interval of a proportion: its coverage is at least the level for every p, so it is wider than Wilson's.

    Arguments and errors as for `wilson`.

    Source: Clopper & Pearson 1934."""
    _check_counts("clopper_pearson", successes, n, least=1)
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else beta_quantile(tail, successes, n - successes + 1)
    high = 1.0 if successes == n else beta_quantile(1 - tail, successes + 1, n - successes)
    return low, high


def beta_interval(successes: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Bayesian interval of a proportion with uniform prior and equal tails. Never contains 0 or 1.

    Arguments and errors as for `wilson`; n may be 0.

    Source: recommended for small n by Bowyer, Aitchison & Ivanova 2025, arXiv 2503.01747, § 3.1."""
    _check_counts("beta_interval", successes, n, least=0)
    tail = (1 - level) / 2
    a, b = 1 + successes, 1 + n - successes
    return beta_quantile(tail, a, b), beta_quantile(1 - tail, a, b)


def _check_counts(name: str, successes: float, n: int, *, least: int) -> None:
    if n < least or not 0 <= successes <= n:
        raise ValueError(f"{name}({successes}, {n}): needs n >= {least} and 0 <= successes <= n")


def missing_bounds(groups: Iterable[tuple[float, int, int]], low: float, high: float) -> tuple[float, float] | None:
    """Mean if all unscored rollouts had the lowest possible reward, and if all had the highest.

    Missing rewards are filled in, each example is reduced to its mean, and the examples are averaged. So the mean over
    scored rollouts is always between the bounds.

    Args:
        groups: (sum of rewards, scored rollouts, unscored rollouts) of each example; only examples with rollouts.
        low: Lowest possible reward.
        high: Highest possible reward.

    Returns:
        The two means; None if there are no examples, or if the range of rewards is not finite.
    """
    listed = list(groups)
    if not listed or not (math.isfinite(low) and math.isfinite(high)):
        return None
    worst, best = (
        math.fsum((total + unscored * end) / (scored + unscored) for total, scored, unscored in listed) / len(listed)
        for end in (low, high)
    )
    return worst, best


def same(low: float, high: float) -> bool:
    """Return whether the minimum and maximum of some values differ only by rounding errors."""
    return high - low <= SAME * max(abs(low), abs(high))


def sample_std(values: Sequence[float], mean: float) -> float:
    """Sample standard deviation (ddof = 1) about `mean`; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    largest = max(abs(value - mean) for value in values)
    if largest > LARGEST_SQUARE:  # squares would overflow
        return largest * math.sqrt(math.fsum(((v - mean) / largest) ** 2 for v in values) / (len(values) - 1))
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def sample_variance(values: Sequence[float]) -> float:
    """Sample variance (ddof = 1); NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def informative(deviations: Sequence[float]) -> float:
    """Effective number of examples that determine a spread: (Σe²)²/Σe⁴, which is n over the kurtosis; 0 if all
    deviations are 0."""
    largest = max(map(abs, deviations), default=0.0)
    if largest == 0.0:
        return 0.0
    squares = [(each / largest) ** 2 for each in deviations]
    return math.fsum(squares) ** 2 / math.fsum(square * square for square in squares)


def added_interval(mean: float, spread: float, n: int, limits: tuple[float, float], t: float) -> tuple[float, float]:
    """Student's t interval with one additional example at each limit. It lies within the limits and contains the mean.

    Args:
        mean: Mean of the values.
        spread: Root of the sum of squared deviations.
        n: Number of values (or clusters).
        limits: Lowest and highest possible value.
        t: Quantile of Student's t.
    """
    low, high = limits
    width = high - low
    share, part = (mean - low) / width, spread / width  # as shares of the width, so that squares cannot overflow
    middle = (n * share + 1) / (n + 2)
    total = part**2 + n * (share - middle) ** 2 + middle**2 + (1 - middle) ** 2
    half = t * math.sqrt(total) / (n + 2)
    return max(low, min(mean, low + (middle - half) * width)), min(high, max(mean, low + (middle + half) * width))


def _guessed_limits(
    means: Sequence[float], low: float, high: float, *, single_rollout: bool, binary: bool | None
) -> tuple[float, float] | None:
    """Guess the limits of scores: 0 and 1 for binary scores, or the two values of single rollouts with only two."""
    if low == high:
        return (0.0, 1.0) if low in (0.0, 1.0) and binary is not False else None
    if binary:
        return 0.0, 1.0
    enough = len(means) >= TWO_VALUED_FROM or (binary is None and (low, high) == (0.0, 1.0))
    if single_rollout and enough and all(value in (low, high) for value in means):
        return low, high
    return None


def _of_equals(mean: float, n: int, limits: tuple[float, float] | None, level: float) -> Estimate:
    """Interval of equal values: `share_interval` at a limit, else t with the additional examples."""
    if limits is None or limits[0] == limits[1]:
        return Estimate(mean=mean, examples=n, level=level)
    low, high = limits
    for limit, passes in ((low, 0), (high, n)):
        if same(min(mean, limit), max(mean, limit)):
            ends = share_interval(passes, n, level)
            return Estimate(mean, None, *_scaled(ends, limits), "wilson", n, level)
    ends = added_interval(mean, 0.0, n, limits, t_quantile(0.5 + level / 2, n - 1))
    return Estimate(mean, None, *ends, "adjusted_t", n, level)


def by_spread(
    mean: float,
    stderr: float,
    n: int,
    level: float,
    *,
    limits: tuple[float, float] | None,
    attempts: bool,
    seen: float,
) -> Estimate:
    """Interval of values that are not all equal.

    Args:
        mean: Mean of the values.
        stderr: Standard error of the mean.
        n: Number of values.
        level: Confidence level.
        limits: Lowest and highest possible value; None if unknown.
        attempts: Whether each value is one attempt, at one of the limits.
        seen: Result of `informative` for the values.
    """
    t = t_quantile(0.5 + level / 2, n - 1)
    low, high = mean - t * stderr, mean + t * stderr
    plain = Estimate(mean, stderr, low, high, "t", n, level)
    if limits is None:
        return plain
    least, greatest = limits
    is_outside = low < least or high > greatest
    if attempts:
        share = (mean - least) / (greatest - least)
        if n < WILSON_BELOW or is_outside or n * min(share, 1 - share) < RARE:
            return Estimate(mean, stderr, *_scaled(share_interval(share * n, n, level), limits), "wilson", n, level)
        return plain
    if is_outside or seen < INFORMATIVE:
        ends = added_interval(mean, math.sqrt((n - 1) * n) * stderr, n, limits, t)
        return Estimate(mean, stderr, *ends, "adjusted_t", n, level)
    return plain


def _scaled(ends: tuple[float, float], limits: tuple[float, float]) -> tuple[float, float]:
    """Convert an interval of shares to scores with these limits."""
    low, high = limits
    return low + ends[0] * (high - low), high - (1 - ends[1]) * (high - low)
