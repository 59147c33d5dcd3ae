"""Intervals by resampling, for what has no standard error to write down: medians and other quantiles, ratios, anything
that can be computed from weights. Owns the resampling, which is seeded; means have their own intervals and need none.

The example, or its cluster, is what is drawn; never the single rollout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from harness.stats.arrays import column, number_groups, sums_of
from harness.stats.intervals import LEVEL, Estimate
from harness.stats.methods import Method
from harness.stats.quantiles import normal_cdf, normal_quantile, t_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.stats.arrays import Labels, Numbers

    Statistic: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
    """From weights (one row a resample, one column an example: how often it was drawn) to a value a row."""

Value = TypeVar("Value", bound="np.generic")

SEED = 20_240_902
"""Where none is named: the same numbers give the same interval, on every machine."""

DRAWS = 10_000

CHUNK = 2_000_000
"""Weights that are held at once: 16 MB."""

WORK = 40_000_000
"""Draws · examples that resampling a ratio may take, about a second; beyond, its distribution is normal anyway."""


def bootstrap(
    examples: int,
    statistic: Statistic,
    *,
    clusters: Labels | None = None,
    corrected: bool = False,
    seed: int = SEED,
    draws: int = DRAWS,
    level: float = LEVEL,
) -> Estimate:
    """The interval of any statistic, by drawing examples with replacement. Time grows with draws · examples.

    Args:
        examples: How many there are.
        statistic: Of weights; infinite or NaN where it is undefined.
        clusters: Label of each example's cluster: then clusters are drawn, with all of their examples.
        corrected: For bias and skewness (BCa) instead of plain percentiles: better for smooth statistics, not for
            quantiles.
        seed: Of the draws.
        draws: Resamples.
        level: Of confidence.

    Returns:
        The statistic of all examples, its standard error and interval. No interval with fewer than two units or where
        resamples in which it is undefined reach into it.
    """
    import numpy as np

    codes, units = number_groups(clusters, examples, "bootstrap") if clusters is not None else (None, examples)
    count = units if clusters is not None else None
    if examples == 0:
        return Estimate(level=level, clusters=count)
    whole = float(statistic(np.ones((1, examples)))[0])
    mean = whole if math.isfinite(whole) else None
    if units < 2 or mean is None:
        return Estimate(mean=mean, examples=examples, level=level, clusters=count)

    def of_units(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return statistic(weights if codes is None else weights[:, codes])

    rows = max(1, CHUNK // max(units, examples))
    found = resampled(of_units, units, rows, draws, seed)
    method: Method = "bootstrap_bca" if corrected else "bootstrap_percentile"
    parts = (0.5 - level / 2, 0.5 + level / 2)
    if corrected:
        parts = _corrected(found, mean, _left_out(of_units, units, rows), parts)
    return _from_draws(found, mean, examples, parts, method, level, count)


def bootstrap_median(
    values: Numbers, *, part: float = 0.5, seed: int = SEED, draws: int = DRAWS, level: float = LEVEL
) -> Estimate:
    """A quantile of the values, the median unless said, with its percentile bootstrap interval.

    The quantile of a resample is a place in the ascending values that follows a beta distribution; drawing that place
    gives the same distribution as drawing all the values, at a cost that does not grow with their number.

    Args:
        values: One an example, finite.
        part: Which quantile, above 0 and below 1. For the median of an even number of values the mean of the two in
            the middle; else the least that at least this part of them does not exceed.
        seed: Of the draws.
        draws: Resamples.
        level: Of confidence.

    Raises:
        ValueError: a value is not finite, or the part out of range.

    Source: Efron 1979; Maritz & Jarrett 1978 (distribution of a resample's order statistics).
    """
    import numpy as np

    if not 0 < part < 1:
        raise ValueError(f"bootstrap_median: a quantile of {part} does not lie between 0 and 1")
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
    # Ranks of n uniform draws: the one at `place`, and, above it, the next.
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
    """Σ numerators / Σ denominators (tokens per passed answer, cost per example), with its BCa bootstrap interval.

    Args:
        numerators: One an example, finite.
        denominators: The same examples'.
        clusters: Label of each example's cluster.
        seed: Of the draws.
        draws: Resamples. Where draws · examples exceed 40 million, the delta method takes their place.
        level: Of confidence.

    Returns:
        The ratio; nothing where the denominators add up to 0.

    Raises:
        ValueError: the lengths differ, or a value is not finite.
    """
    import numpy as np

    above, below = column(numerators, "bootstrap_ratio"), column(denominators, "bootstrap_ratio")
    if len(above) != len(below):
        raise ValueError(f"bootstrap_ratio: {len(above)} numerators for {len(below)} denominators")
    examples, count = len(above), None
    if clusters is not None:
        # A resample of clusters needs their sums only.
        codes, count = number_groups(clusters, examples, "bootstrap_ratio")
        above, below = (sums_of(side, codes, count) for side in (above, below))
    if len(above) * draws > WORK:
        return _delta(above, below, examples, count, level)

    def ratio(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore", invalid="ignore"):
            return (weights @ above) / (weights @ below)

    estimate = bootstrap(len(above), ratio, corrected=True, seed=seed, draws=draws, level=level)
    return Estimate(
        estimate.mean, estimate.stderr, estimate.low, estimate.high, estimate.method, examples, level, clusters=count
    )


def resampled(
    statistic: Callable[[NDArray[np.float64]], NDArray[Value]], units: int, rows: int, draws: int, seed: int
) -> NDArray[Value]:
    """The statistic of each resample, one row each.

    Args:
        statistic: From weights to values, as `bootstrap` takes it.
        units: What is drawn from.
        rows: Resamples that are made at once.
        draws: Resamples in all.
        seed: Of the draws.
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
    """The statistic without each unit in turn."""
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
    """Which quantiles of the draws BCa takes instead of the plain ones (Efron 1987); these, where it is undefined."""
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
