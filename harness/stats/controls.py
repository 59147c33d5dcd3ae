"""Control variates: the mean of a run over a random sample of examples, corrected by runs of other models on all of
them. The others say how hard the sampled examples are beside the rest, which makes the interval narrower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats.arrays import column
from harness.stats.bootstrap import SEED
from harness.stats.intervals import LEVEL, Estimate, by_spread, informative, mean_interval, same, sample_variance

if TYPE_CHECKING:
    import numpy as np

    from harness.stats.arrays import Floats, Numbers

FOLDS = 10
"""Number of parts of the sample; the weights for each part come from the other parts."""

FEWEST = 20
"""Minimum number of sampled examples: fewer cannot show how much a control is worth."""

PENALTIES = 1e-3, 1e2, 11
"""Smallest and largest penalty that is tried, in units of the largest variance of the controls, and how many are."""

EACH = 3
"""Minimum number of sampled examples per control for weights that differ."""

PERFECT = 0.01
"""Residual, in standard deviations of the values, up to which a prediction has hit. Hits show no spread: other examples
may well be missed."""

GAIN = 0.05
"""Share of the error that controls must save before they get any weight, so that useless ones cost little."""


@dataclass(frozen=True, slots=True)
class Controlled:
    """The mean of a run over a random sample, without and with controls. Each has an interval for the mean of all
    examples of the population, and a wider one for new examples of the same kind."""

    plain: Estimate
    """Mean of the sample; interval for the population's mean."""
    plain_new: Estimate
    """Mean of the sample; interval for new examples."""
    corrected: Estimate
    """Mean corrected by the controls; interval for the population's mean."""
    corrected_new: Estimate
    """The same with the interval for new examples."""
    population: int
    controls: int
    explained: float | None
    """Share of the variance between examples that the controls predict, measured on examples that their weights have
    not seen; negative if they make it worse, None if all values are equal."""
    worth: float | None
    """Number of examples of a plain sample with the same standard error; None if all values are equal."""


def controlled_mean(
    values: Sequence[float],
    sample: Sequence[int],
    controls: Sequence[Numbers],
    *,
    limits: tuple[float, float] | None = None,
    seed: int = SEED,
    level: float = LEVEL,
) -> Controlled:
    """Estimate the mean of a run from a simple random sample of a population on which other runs are complete.

    The sample is split into folds. For each fold, a regression on the other folds (on the mean of the controls, or a
    ridge regression on all of them) predicts the values of all examples; the fold says by how much the prediction is
    wrong on average. So the estimate is unbiased however good the controls are: given the other folds, a fold is a
    simple random sample of the examples that are not in them. The standard error comes from residuals of examples that
    the weights have not seen, with the correction for a finite population, √(1 − n/N).

    Args:
        values: One finite value per sampled example.
        sample: Position of each sampled example in the population; all different.
        controls: One row per control, with one finite value per example of the population.
        limits: Lowest and highest possible value, if known. Estimates are clipped to it.
        seed: Seed of the assignment to folds.
        level: Confidence level.

    Raises:
        ValueError: no controls, rows of different lengths, a value that is not finite, fewer than `FEWEST` sampled
            examples, or positions that are not different examples of the population.

    Source: Särndal, Swensson & Wretman 1992, ch. 6 (regression estimator); Wager, Du, Taylor & Tibshirani 2016, arXiv
    1607.06801 (cross-fitting); Zrnic & Candès 2024, arXiv 2309.16598 (cross-prediction).
    """
    import numpy as np

    y = column(values, "controlled_mean")
    if len(controls) == 0 or len({len(row) for row in controls}) > 1:
        raise ValueError("controlled_mean: needs at least one control, and as many values of each")
    table = np.stack([column(row, "controlled_mean") for row in controls], axis=1)
    count, population = len(y), len(table)
    places = np.asarray(sample, dtype=np.int64)
    if count < FEWEST or len(places) != count or len(np.unique(places)) < count:
        raise ValueError(f"controlled_mean: needs {FEWEST} or more values, and a different example for each")
    if places.min() < 0 or places.max() >= population:
        raise ValueError("controlled_mean: a position is not in the population")
    found = mean_interval(y.tolist(), single_rollout=False, limits=limits, level=level)
    mean = found.mean or 0.0
    if same(float(y.min()), float(y.max())):
        return Controlled(found, found, found, found, population, table.shape[1], None, None)
    corrected, residuals = _cross_fitted(y, places, table, seed)
    if limits is not None:
        corrected = min(max(corrected, limits[0], float(y.min())), max(limits[1], float(y.max())))
    rest = 1 - count / population
    variance = sample_variance(y.tolist())
    ratio = sample_variance(residuals) / variance
    plain, plain_new = _intervals(mean, (y - mean).tolist(), variance, (rest, population), limits, level)
    both = _intervals(corrected, residuals, variance, (rest, population), limits, level)
    worth = 1 / (rest * ratio / count + 1 / population)
    return Controlled(plain, plain_new, *both, population, table.shape[1], 1 - ratio, worth)


def _intervals(
    mean: float,
    residuals: Sequence[float],
    variance: float,
    size: tuple[float, int],
    limits: tuple[float, float] | None,
    level: float,
) -> tuple[Estimate, Estimate]:
    """Intervals for the mean of the population, and for new examples.

    Args:
        mean: The estimate.
        residuals: Values minus predictions.
        variance: Variance of the values between examples.
        size: Share of the population that is not in the sample, and number of its examples.
        limits: As in `controlled_mean`.
        level: Confidence level.
    """
    rest, population = size
    count = len(residuals)
    if rest <= 0:
        stderrs = 0.0, math.sqrt(variance / population)
    else:
        own = rest * sample_variance(residuals) / count
        stderrs = math.sqrt(own), math.sqrt(own + variance / population)
    middle, hit = math.fsum(residuals) / count, PERFECT * math.sqrt(variance)
    seen = informative([gap if abs(gap) > hit else 0.0 for gap in (each - middle for each in residuals)])
    exact = Estimate(mean, 0.0, mean, mean, "t", count, level)  # every example is known
    whole, new = (
        exact if not stderr else by_spread(mean, stderr, count, level, limits=limits, attempts=False, seen=seen)
        for stderr in stderrs
    )
    return whole, new


def _cross_fitted(y: Floats, places: np.ndarray, table: Floats, seed: int) -> tuple[float, list[float]]:
    """The corrected mean, and each value minus what its example's controls are above average, by weights that have not
    seen it."""
    import numpy as np

    count, population = len(y), len(table)
    folds = np.random.default_rng(seed).permutation(count) % FOLDS
    table = table - table.mean(axis=0)
    residuals = np.empty(count)
    means: list[float] = []
    for fold in range(FOLDS):
        held = folds == fold
        train = table[places[~held]]
        weights = _weights(train, y[~held])
        residuals[held] = y[held] - table[places[held]] @ weights
        left = population - len(train)
        # The fold is a random sample of the examples that are not in the others; those are `train`, and known.
        rest = float(residuals[held].mean()) - float(train.sum(axis=0) @ weights) / left
        means.append((float(y[~held].sum()) + left * rest) / population * int(held.sum()))
    return math.fsum(means) / count, residuals.tolist()


def _weights(table: Floats, y: Floats) -> Floats:
    """Weights of the controls in a regression with an intercept: equal ones, or different ones by ridge regression if
    there are enough examples for that; each if it makes the leave-one-out error smaller by `GAIN`, else 0."""
    import numpy as np

    gaps = y - y.mean()
    weights = np.zeros(table.shape[1])
    best = float(((gaps / (1 - 1 / len(y))) ** 2).sum())
    few = len(y) < EACH * table.shape[1]
    for columns in (table.mean(axis=1, keepdims=True), *(() if few else (table,))):
        error, found = _ridge(columns, gaps)
        if error < (1 - GAIN) * best:
            best, weights = error, found if columns is table else np.full(len(weights), found[0] / len(weights))
    return weights


def _ridge(table: Floats, gaps: Floats) -> tuple[float, Floats]:
    """Leave-one-out error and weights of the ridge regression whose penalty has the smallest such error."""
    import numpy as np

    left, sizes, right = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    projected = left.T @ gaps
    largest = float(sizes.max(initial=0.0)) ** 2
    best, weights = math.inf, np.zeros(table.shape[1])
    for penalty in np.geomspace(*PENALTIES) * largest if largest > 0 else ():
        shrink = sizes**2 / (sizes**2 + penalty)
        leverage = 1 / len(gaps) + (left**2) @ shrink
        error = float((((gaps - left @ (shrink * projected)) / np.maximum(1 - leverage, 1e-9)) ** 2).sum())
        if error < best:
            best, weights = error, right.T @ (sizes / (sizes**2 + penalty) * projected)
    return best, weights
