"""A mean and how sure it is: the interval for a mean of per-example means, those for small binary samples, and the
bounds that missing scores leave open. Owns the choice between methods, so that the live display, the final table and
`summary.json` cannot disagree.

The example is the sampling unit: reduce rollouts to one value an example before calling anything here. Treating n·r
rollouts as independent makes every interval too narrow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.stats.distributions import beta_quantile
from harness.stats.methods import Method
from harness.stats.quantiles import normal_quantile, t_quantile

LEVEL = 0.95
"""Of every interval: the one that people expect where none is named."""

WILSON_BELOW = 300
"""Examples. Below, the central limit theorem is not to be trusted for binary scores (Bowyer, Aitchison & Ivanova 2025,
arXiv 2503.01747)."""

RARE = 20
"""Passes, or failures, of independent attempts below which t is not to be trusted either, at any number of examples:
near 0 and 1 it lies too far out, and with 8 failures among 400 attempts covers in 92 % of cases."""

WILSONS = frozenset({"wilson", "wilson_effective"})
"""The methods whose intervals stay within 0 and 1."""

SAME = 1e-12
"""Values whose spread is below this part of their size are equal: the rest is rounding."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over examples with its uncertainty. What is undefined is None."""

    mean: float | None = None
    stderr: float | None = None
    """Standard error of the mean; None with fewer than two examples and when all are equal."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval."""
    method: Method | None = None
    """How the interval was made (`methods.describe` says it in words); None: there is none."""
    examples: int = 0
    """Examples in the mean."""
    level: float = LEVEL
    """Of confidence, of the interval."""
    clusters: int | None = None
    """Clusters of examples, where these are the sampling unit."""
    df: float | None = None
    """Degrees of freedom of the interval, where they are not n−1."""

    @property
    def half_width(self) -> float | None:
        """The larger distance from the mean to an end of the interval."""
        if self.mean is None or self.low is None or self.high is None:
            return None
        return max(self.high - self.mean, self.mean - self.low)

    @property
    def ends(self) -> list[float | None] | None:
        """The interval for JSON; None if there is none, and for an end that is not finite."""
        if self.low is None or self.high is None:
            return None
        return [end if math.isfinite(end) else None for end in (self.low, self.high)]


def mean_interval(
    means: Sequence[float], *, single_rollout: bool, binary: bool | None = None, level: float = LEVEL
) -> Estimate:
    """The mean of `means` with its interval, by the method that suits them.

    Wilson if the scores are binary, one rollout each and fewer than 300; Wilson, too, if all means are 0 or all are 1,
    where the t interval would be ±0 at any size; else t with n−1 degrees of freedom. A t interval of binary scores that
    would reach below 0 or above 1, or that stands on fewer than 20 passes or failures, gives way to Wilson's, with the
    effective sample size if there are several rollouts an example. Equal values other than 0 and 1 have no interval:
    nothing is known about their spread. One example has none either.

    Args:
        means: One value an example, finite.
        single_rollout: Whether every value is the score of one rollout.
        binary: Whether the score of every rollout is 0 or 1; None: seen from `means` if they are single rollouts, and
            not assumed else.
        level: Of confidence.

    Source: Miller 2024, arXiv 2411.00640, § 2 (standard error); Wilson 1927; Korn & Graubard 1998 (effective size).
    """
    n = len(means)
    if n == 0:
        return Estimate(level=level)
    mean = math.fsum(means) / n
    if n == 1:
        return Estimate(mean=mean, examples=1, level=level)
    low, high = min(means), max(means)
    stderr = 0.0 if same(low, high) else sample_std(means, mean) / math.sqrt(n)
    if stderr == 0.0:
        if low == high and low in (0.0, 1.0) and binary is not False:
            return Estimate(mean, None, *wilson(low * n, n, level), "wilson", n, level)
        return Estimate(mean=mean, examples=n, level=level)
    if single_rollout and binary is None:
        binary = low == 0.0 and high == 1.0 and all(value in (0.0, 1.0) for value in means)
    return _by_spread(mean, stderr, n, level, is_rate=bool(binary), single_rollout=single_rollout)


def rate_interval(rates: Sequence[tuple[float, int]], *, single_rollout: bool, level: float = LEVEL) -> Estimate:
    """`mean_interval` of rates, all from 0 to 1, of which few different ones occur.

    Args:
        rates: (rate, how many examples have it).
        single_rollout: Whether every rate is 0 or 1 because it is that of one rollout.
        level: Of confidence.
    """
    n = sum(examples for _, examples in rates)
    if n == 0:
        return Estimate(level=level)
    mean = math.fsum(rate * examples for rate, examples in rates) / n
    low, high = min(rate for rate, _ in rates), max(rate for rate, _ in rates)
    if n == 1:
        return Estimate(mean=mean, examples=1, level=level)
    if same(low, high):
        if low == high and low in (0.0, 1.0):
            return Estimate(mean, None, *wilson(low * n, n, level), "wilson", n, level)
        return Estimate(mean=mean, examples=n, level=level)
    variance = math.fsum(examples * (rate - mean) ** 2 for rate, examples in rates) / (n - 1)
    return _by_spread(mean, math.sqrt(variance / n), n, level, is_rate=True, single_rollout=single_rollout)


def wilson(successes: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval for a proportion; inside [0, 1] and never of width 0.

    Args:
        successes: Of `n` trials, 0 to n.
        n: Trials; at least 1.
        level: Of confidence.

    Raises:
        ValueError: no trial, or more successes than trials.

    Source: Wilson 1927; recommended for small n by Brown, Cai & DasGupta 2001.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"wilson({successes}, {n}): needs n >= 1 and 0 <= successes <= n")
    low, high = _score_interval(successes / n, n, normal_quantile(0.5 + level / 2))
    # The ends are exact at p = 0 and p = 1; rounding must not move them past the mean.
    return 0.0 if successes == 0 else low, 1.0 if successes == n else high


def clopper_pearson(successes: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """The exact interval for a proportion: covers at least as often as it says, at every p, and is wider for it.

    Arguments and errors as for `wilson`.

    Source: Clopper & Pearson 1934.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"clopper_pearson({successes}, {n}): needs n >= 1 and 0 <= successes <= n")
    tail = (1 - level) / 2
    low = 0.0 if successes == 0 else beta_quantile(tail, successes, n - successes + 1)
    high = 1.0 if successes == n else beta_quantile(1 - tail, successes + 1, n - successes)
    return low, high


def beta_interval(successes: int, n: int, level: float = LEVEL) -> tuple[float, float]:
    """The Bayesian interval for a proportion: uniform prior, equal tails. Never contains 0 or 1.

    Arguments and errors as for `wilson`; n may be 0.

    Source: recommended for small n by Bowyer, Aitchison & Ivanova 2025, arXiv 2503.01747, § 3.1.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"beta_interval({successes}, {n}): needs 0 <= successes <= n")
    tail = (1 - level) / 2
    a, b = 1 + successes, 1 + n - successes
    return beta_quantile(tail, a, b), beta_quantile(1 - tail, a, b)


def missing_bounds(groups: Iterable[tuple[float, int, int]], low: float, high: float) -> tuple[float, float] | None:
    """Where the mean would lie if every unscored rollout had the worst, or the best, reward.

    Missing rewards are filled in, each example is reduced to its mean, and the examples are averaged; so the mean over
    scored rollouts always lies between the bounds.

    Args:
        groups: An example's (sum of rewards, scored rollouts, unscored rollouts); examples without either are no part.
        low: Worst possible reward.
        high: Best possible reward.

    Returns:
        The two means; None if there is no example or the range of rewards is not finite.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    worst: list[float] = []
    best: list[float] = []
    for total, scored, unscored in groups:
        worst.append((total + unscored * low) / (scored + unscored))
        best.append((total + unscored * high) / (scored + unscored))
    if not worst:
        return None
    return math.fsum(worst) / len(worst), math.fsum(best) / len(best)


def same(low: float, high: float) -> bool:
    """Whether the least and the greatest of some values differ by no more than rounding."""
    return high - low <= SAME * max(abs(low), abs(high))


def sample_std(values: Sequence[float], mean: float) -> float:
    """Sample standard deviation (ddof = 1) about `mean`; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _by_spread(mean: float, stderr: float, n: int, level: float, *, is_rate: bool, single_rollout: bool) -> Estimate:
    """The interval of values that are not all equal; `is_rate`: they are made of zeros and ones."""
    t = t_quantile(0.5 + level / 2, n - 1)
    low, high = mean - t * stderr, mean + t * stderr
    if not is_rate:
        return Estimate(mean, stderr, low, high, "t", n, level)
    # As many independent attempts have this standard error: n, but for its n−1, if each example has one rollout.
    attempts = float(n) if single_rollout else mean * (1 - mean) / stderr**2
    is_lopsided = low < 0.0 or high > 1.0 or attempts * min(mean, 1 - mean) < RARE
    if single_rollout and (n < WILSON_BELOW or is_lopsided):
        return Estimate(mean, stderr, *wilson(mean * n, n, level), "wilson", n, level)
    if is_lopsided:
        return Estimate(mean, stderr, *_score_interval(mean, attempts, t), "wilson_effective", n, level)
    return Estimate(mean, stderr, low, high, "t", n, level)


def _score_interval(p: float, n: float, z: float) -> tuple[float, float]:
    """All θ with |p − θ| ≤ z·√(θ(1−θ)/n): inside [0, 1], for any n > 0."""
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(max(0.0, p * (1 - p)) / n + z * z / (4 * n * n)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)
