"""A mean and how sure it is: the interval for a mean of per-example means, Wilson's for small binary samples, and the
bounds that missing scores leave open. Owns the choice between methods, so that the live display, the final table and
`summary.json` cannot disagree.

The example is the sampling unit: reduce rollouts to one value an example before calling anything here. Treating n·r
rollouts as independent makes every interval too narrow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from harness.stats.quantiles import normal_quantile, t_quantile

LEVEL = 0.95
"""Of every interval: the one that people expect where none is named."""

WILSON_BELOW = 300
"""Examples. Below, the central limit theorem is not to be trusted for binary scores (Bowyer, Aitchison & Ivanova 2025,
arXiv 2503.01747)."""

SAME = 1e-12
"""Values whose spread is below this part of their size are equal: the rest is rounding."""

Method: TypeAlias = Literal["t", "wilson"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over examples with its uncertainty. What is undefined is None."""

    mean: float | None = None
    stderr: float | None = None
    """Standard error of the mean; None with fewer than two examples and when all are equal."""
    low: float | None = None
    high: float | None = None
    """Ends of the 95 % interval."""
    method: Method | None = None
    """How the interval was made: `t` (Student t on per-example means) or `wilson`; None: there is none."""
    examples: int = 0
    """Examples in the mean."""

    @property
    def half_width(self) -> float | None:
        """The larger distance from the mean to an end of the interval."""
        if self.mean is None or self.low is None or self.high is None:
            return None
        return max(self.high - self.mean, self.mean - self.low)


def mean_interval(means: Sequence[float], *, single_rollout: bool) -> Estimate:
    """The mean of `means` with a 95 % interval.

    Wilson if the scores are binary, one rollout each and fewer than 300; Wilson, too, if all means are 0 or all are 1,
    where the t interval would be ±0 at any size; else t with n−1 degrees of freedom. Equal values other than 0 and 1
    have no interval: nothing is known about their spread. One example has none either.

    Args:
        means: One value an example, finite.
        single_rollout: Whether every value is the score of one rollout.

    Source: Miller 2024, arXiv 2411.00640, § 2 (standard error); Wilson 1927.
    """
    n = len(means)
    if n == 0:
        return Estimate()
    mean = math.fsum(means) / n
    if n == 1:
        return Estimate(mean=mean, examples=1)
    low, high = min(means), max(means)
    stderr = 0.0 if same(low, high) else sample_std(means, mean) / math.sqrt(n)
    if stderr == 0.0:
        if low == high and low in (0.0, 1.0):
            return Estimate(mean, None, *wilson(low * n, n), "wilson", n)
        return Estimate(mean=mean, examples=n)
    if single_rollout and n < WILSON_BELOW and all(value in (0.0, 1.0) for value in means):
        return Estimate(mean, stderr, *wilson(math.fsum(means), n), "wilson", n)
    half = t_quantile(0.5 + LEVEL / 2, n - 1) * stderr
    return Estimate(mean, stderr, mean - half, mean + half, "t", n)


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
    z = normal_quantile(0.5 + level / 2)
    p = successes / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    # The ends are exact at p = 0 and p = 1; rounding must not move them past the mean.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


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
