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

EXACT_TAIL = 0.6
"""Part of the level's error that a one-sided exact limit gets where few pass or fail: 3 % of 5 %."""

INFORMATIVE = 15
"""Least (Σe²)²/Σe⁴ of the deviations e at which t is used for scores with known limits. It is the number of examples
that the spread was really seen from: 3 of 100 examples that differ from the rest are 3, not 100."""

TWO_VALUED_FROM = 10
"""Examples from which on scores of exactly two values are taken for passes and failures, where no limits are known."""

WILSONS = frozenset({"wilson", "wilson_effective"})
"""Methods that people call Wilson's; summaries of older versions have the second."""

LARGEST_SQUARE = 1e150
"""Deviations beyond which squares may overflow."""

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
    means: Sequence[float],
    *,
    single_rollout: bool,
    binary: bool | None = None,
    limits: tuple[float, float] | None = None,
    level: float = LEVEL,
) -> Estimate:
    """The mean of `means` with its interval, by the method that suits them.

    Single rollouts with two values (0 and 1, or the two limits) have Wilson's interval (`share_interval`), from 300 of
    them on and with 20 or more of either value Student's t; so have scores that are all at one limit. Other scores
    with known limits have t with n−1 degrees of freedom if it stays within the limits and enough examples show the
    spread (`INFORMATIVE`), else t with one example more at each limit (`adjusted_t`). Scores without limits have t, and
    no interval if all are equal. One example has none either.

    Args:
        means: One value an example, finite.
        single_rollout: Whether every value is the score of one rollout.
        binary: Whether the score of every rollout is 0 or 1; None: seen from `means` if they are single rollouts, and
            not assumed else. Ignored if `limits` are given.
        limits: The least and the greatest score possible, if they are known; widened to what was seen.
        level: Of confidence.

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
    return _by_spread(mean, stderr, n, level, limits=limits, attempts=attempts, seen=seen)


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
        return _of_equals(mean, n, (0.0, 1.0), level)
    squares = math.fsum(examples * (rate - mean) ** 2 for rate, examples in rates)
    seen = squares**2 / math.fsum(examples * (rate - mean) ** 4 for rate, examples in rates)
    stderr = math.sqrt(squares / (n - 1) / n)
    return _by_spread(mean, stderr, n, level, limits=(0.0, 1.0), attempts=single_rollout, seen=seen)


def share_interval(successes: float, n: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval; where fewer than 20 pass, or fail, with that end at least as far out as an exact one-sided
    limit (3 % for a level of 95 %). It covers at least 94 % at every p from 10 trials on; Wilson's own only 84 % near 0
    and 1.

    Arguments and errors as for `wilson`.

    Source: Wilson 1927; Brown, Cai & DasGupta 2001, § 4.1.1 (one-sided limits near 0 and 1).
    """
    low, high = wilson(successes, n, level)
    tail = (1 - level) * EXACT_TAIL
    failures = n - successes
    if 0 < successes < RARE:
        low = min(low, beta_quantile(tail, successes, failures + 1))
    if 0 < failures < RARE:
        high = max(high, beta_quantile(1 - tail, successes + 1, failures))
    return low, high


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
    largest = max(abs(value - mean) for value in values)
    if largest > LARGEST_SQUARE:  # squares would overflow
        return largest * math.sqrt(math.fsum(((v - mean) / largest) ** 2 for v in values) / (len(values) - 1))
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def informative(deviations: Sequence[float]) -> float:
    """The number of examples that a spread was really seen from: (Σe²)²/Σe⁴, n over the kurtosis; 0 if all are 0."""
    largest = max(map(abs, deviations), default=0.0)
    if largest == 0.0:
        return 0.0
    squares = [(each / largest) ** 2 for each in deviations]
    return math.fsum(squares) ** 2 / math.fsum(square * square for square in squares)


def added_interval(mean: float, spread: float, n: int, limits: tuple[float, float], t: float) -> tuple[float, float]:
    """Student's interval with one example more at each limit; never outside the limits, and never without the mean.

    Args:
        mean: Of the values.
        spread: Root of the sum of the squared deviations from it.
        n: Values (or clusters).
        limits: The least and the greatest value possible.
        t: Quantile of Student's t.
    """
    low, high = limits
    width = high - low
    share, part = (mean - low) / width, spread / width  # as shares, whose squares cannot overflow
    middle = (n * share + 1) / (n + 2)
    total = part**2 + n * (share - middle) ** 2 + middle**2 + (1 - middle) ** 2
    half = t * math.sqrt(total) / (n + 2)
    return max(low, min(mean, low + (middle - half) * width)), min(high, max(mean, low + (middle + half) * width))


def _guessed_limits(
    means: Sequence[float], low: float, high: float, *, single_rollout: bool, binary: bool | None
) -> tuple[float, float] | None:
    """Limits of scores of which none were named: 0 and 1 of zeros and ones, and any two values of single rollouts."""
    if low == high:
        return (0.0, 1.0) if low in (0.0, 1.0) and binary is not False else None
    if binary:
        return 0.0, 1.0
    enough = len(means) >= TWO_VALUED_FROM or (binary is None and (low, high) == (0.0, 1.0))
    if single_rollout and enough and all(value in (low, high) for value in means):
        return low, high
    return None


def _of_equals(mean: float, n: int, limits: tuple[float, float] | None, level: float) -> Estimate:
    """The interval of equal values: Wilson's at a limit, else t with the added examples; none without limits."""
    if limits is None or limits[0] == limits[1]:
        return Estimate(mean=mean, examples=n, level=level)
    low, high = limits
    for limit, passes in ((low, 0), (high, n)):
        if same(min(mean, limit), max(mean, limit)):
            ends = wilson(passes, n, level)
            return Estimate(mean, None, *_scaled(ends, limits), "wilson", n, level)
    ends = added_interval(mean, 0.0, n, limits, t_quantile(0.5 + level / 2, n - 1))
    return Estimate(mean, None, *ends, "adjusted_t", n, level)


def _by_spread(
    mean: float,
    stderr: float,
    n: int,
    level: float,
    *,
    limits: tuple[float, float] | None,
    attempts: bool,
    seen: float,
) -> Estimate:
    """The interval of values that are not all equal.

    Args:
        mean: Theirs.
        stderr: Theirs.
        n: How many.
        level: Of confidence.
        limits: Least and greatest possible; None if unknown.
        attempts: Whether each is one attempt, at one of the limits.
        seen: What `informative` says of them.
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
    """An interval of shares in the units of scores with these limits."""
    low, high = limits
    return low + ends[0] * (high - low), high - (1 - ends[1]) * (high - low)


def _score_interval(p: float, n: float, z: float) -> tuple[float, float]:
    """All θ with |p − θ| ≤ z·√(θ(1−θ)/n): inside [0, 1], for any n > 0."""
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(max(0.0, p * (1 - p)) / n + z * z / (4 * n * n)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)
