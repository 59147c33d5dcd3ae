"""Bootstrap intervals for statistics without a simple standard error: medians and other quantiles, and ratios. The seed
is fixed.

Examples (or clusters of examples) are resampled, never single rollouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from harness.stats.arrays import column, number_groups, sums_of
from harness.stats.distributions import normal_cdf, normal_quantile, t_quantile
from harness.stats.intervals import LEVEL, Estimate
from harness.stats.methods import Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.stats.arrays import Labels, Numbers

    Statistic: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
    """Function from weights (one row per resample, one column per example: how often it was drawn) to one value per
    row."""

Value = TypeVar("Value", bound="np.generic")

SEED = 20_240_902
"""Default seed: the same numbers give the same interval on every machine."""

DRAWS = 10_000

CHUNK = 2_000_000
"""Maximum number of resampling weights in memory at once, which take 16 MB."""

WORK = 40_000_000
"""Limit of draws · examples for resampling a ratio (about a second). The ratio of a larger sample is nearly normal."""


def bootstrap_median(
    values: Numbers, *, part: float = 0.5, seed: int = SEED, draws: int = DRAWS, level: float = LEVEL
) -> Estimate:
    """Quantile of the values, by default the median, with a percentile bootstrap interval.

    The rank of a resample's quantile among the sorted values follows a beta distribution. Drawing this rank is
    equivalent to drawing all values, and takes the same time for any number of them.

    Args:
        values: One finite value per example.
        part: The quantile, between 0 and 1 (exclusive). The median of an even number of values is the mean of the
            middle two; any other quantile is the smallest value that at least this share of the values does not exceed.
        seed: Random seed.
        draws: Number of resamples.
        level: Confidence level.

    Raises:
        ValueError: a value is not finite, or `part` is out of range.

    Source: Efron 1979; Maritz & Jarrett 1978 (distribution of a resample's order statistics).
    """
    import numpy as np

    if not 0 < part < 1:
        raise ValueError(f"bootstrap_median: the quantile must be between 0 and 1, not {part}")
    ordered = np.sort(column(values, "bootstrap_median"))
    n = len(ordered)
    if n == 0:
        return Estimate(level=level)
    middle = part == 0.5 and n % 2 == 0
    place = n // 2 if middle else max(1, math.ceil(part * n))
    whole = float(ordered[place - 1] + ordered[place]) / 2 if middle else float(ordered[place - 1])
    if n < 2:
        return Estimate(mean=whole, examples=n, level=level)
    generator = np.random.Generator(np.random.PCG64(seed))
    # Order statistics of n uniform variables: the one at `place`, and the next above it.
    lower = generator.beta(place, n - place + 1, draws)
    found = ordered[np.minimum((lower * n).astype(np.int64), n - 1)]
    if middle:
        upper = lower + (1.0 - lower) * generator.beta(1, n - place, draws)
        found = (found + ordered[np.minimum((upper * n).astype(np.int64), n - 1)]) / 2
    parts = (0.5 - level / 2, 0.5 + level / 2)
    return _from_draws(found, whole, n, parts, "bootstrap_percentile", level, None)


def bootstrap_ratio(
    numerators: Numbers,
    denominators: Numbers,
    *,
    clusters: Labels | None = None,
    seed: int = SEED,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> Estimate:
    """Ratio Σ numerators / Σ denominators (tokens per passed answer, cost per example) with its BCa bootstrap interval.

    Args:
        numerators: One finite value per example.
        denominators: One finite value per example, in the same order.
        clusters: Label of each example's cluster.
        seed: Random seed.
        draws: Number of resamples. If draws · examples exceeds 40 million, the delta method is used instead.
        level: Confidence level.

    Returns:
        The ratio; an empty estimate if the denominators add up to 0.

    Raises:
        ValueError: the lengths differ, or a value is not finite.
    """
    import numpy as np

    above, below = column(numerators, "bootstrap_ratio"), column(denominators, "bootstrap_ratio")
    if len(above) != len(below):
        raise ValueError(
            f"bootstrap_ratio: needs as many numerators as denominators, got {len(above)} and {len(below)}"
        )
    examples, count = len(above), None
    if clusters is not None:
        # For resampling clusters their sums are sufficient.
        codes, count = number_groups(clusters, examples, "bootstrap_ratio")
        above, below = (sums_of(side, codes, count) for side in (above, below))
    units = len(above)
    if units * draws > WORK:
        return _delta(above, below, examples, count, level)

    def ratio(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return (weights @ above) / (weights @ below)

    mean = float(ratio(np.ones((1, units)))[0])
    if units < 2 or not math.isfinite(mean):
        return Estimate(mean if math.isfinite(mean) else None, examples=examples, level=level, clusters=count)
    rows = max(1, CHUNK // units)
    found = resampled(ratio, units, rows, draws, seed)
    parts = _corrected(found, mean, _left_out(ratio, units, rows), (0.5 - level / 2, 0.5 + level / 2))
    return _from_draws(found, mean, examples, parts, "bootstrap_bca", level, count)


def resampled(
    statistic: Callable[[NDArray[np.float64]], NDArray[Value]], units: int, rows: int, draws: int, seed: int
) -> NDArray[Value]:
    """Compute a statistic for all resamples, one row each.

    Args:
        statistic: Function of the weights of the units.
        units: Number of units to draw from.
        rows: Number of resamples per batch.
        draws: Number of resamples in total.
        seed: Random seed.
    """
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(seed))
    values: list[NDArray[Value]] = []
    for start in range(0, draws, rows):
        size = min(rows, draws - start)
        drawn = generator.integers(0, units, (size, units)) + np.arange(size)[:, None] * units
        weights = np.bincount(drawn.ravel(), minlength=size * units).reshape(size, units)
        values.append(statistic(weights.astype(np.float64)))
    return np.concatenate(values)


def _delta(
    above: NDArray[np.float64], below: NDArray[np.float64], examples: int, clusters: int | None, level: float
) -> Estimate:
    total, units = float(below.sum()), len(above)
    if total == 0.0:
        return Estimate(examples=examples, level=level, clusters=clusters)
    mean = float(above.sum()) / total
    rest = above - mean * below
    stderr = math.sqrt(units / (units - 1) * float((rest**2).sum())) / abs(total)
    if stderr == 0.0:
        return Estimate(mean=mean, examples=examples, level=level, clusters=clusters)
    half = t_quantile(0.5 + level / 2, units - 1) * stderr
    return Estimate(mean, stderr, mean - half, mean + half, "delta", examples, level, clusters=clusters, df=units - 1)


def _left_out(statistic: Statistic, units: int, rows: int) -> NDArray[np.float64]:
    """Return the values of the statistic with each unit left out in turn (jackknife)."""
    import numpy as np

    values: list[NDArray[np.float64]] = []
    for start in range(0, units, rows):
        size = min(rows, units - start)
        weights = np.ones((size, units))
        weights[np.arange(size), np.arange(start, start + size)] = 0.0
        values.append(statistic(weights))
    return np.concatenate(values)


def _corrected(
    found: NDArray[np.float64], mean: float, left_out: NDArray[np.float64], parts: tuple[float, float]
) -> tuple[float, float]:
    """Return the quantile levels of the draws for the BCa interval (Efron 1987), or the plain levels if BCa is
    undefined."""
    import numpy as np

    below = float((found < mean).mean() + (found == mean).mean() / 2)
    if not 0 < below < 1 or not np.isfinite(left_out).all():
        return parts
    bias = normal_quantile(below)
    away = left_out.mean() - left_out
    squares = float((away**2).sum())
    acceleration = float((away**3).sum()) / (6 * squares**1.5) if squares > 0 else 0.0

    def place(part: float) -> float:
        shifted = bias + normal_quantile(part)
        return normal_cdf(bias + shifted / (1 - acceleration * shifted))

    return place(parts[0]), place(parts[1])


def _from_draws(
    found: NDArray[np.float64],
    mean: float,
    examples: int,
    parts: tuple[float, float],
    method: Method,
    level: float,
    clusters: int | None,
) -> Estimate:
    import numpy as np

    ordered = np.sort(np.where(np.isnan(found), np.inf, found))
    last = len(ordered) - 1
    low, high = (float(ordered[min(last, max(0, math.ceil(part * len(ordered)) - 1))]) for part in parts)
    if low == high or not (math.isfinite(low) and math.isfinite(high)):
        return Estimate(mean=mean, examples=examples, level=level, clusters=clusters)
    stderr = float(found.std(ddof=1)) if np.isfinite(found).all() else None
    return Estimate(mean, stderr, min(low, mean), max(high, mean), method, examples, level, clusters=clusters)
