"""Statistics of examples over several models: how well each example tells strong from weak models, which ones are
negatively related to the rest, and how much a model's own answers vary.

Scores are arrays with one row per model and one column per example; NaN marks a missing cell. A two-parameter logistic
model is not fitted: with the 5 to 50 models of an archive its discriminations have no finite maximum for the many
examples that split the models perfectly, and the correlations below need no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats.bootstrap import SEED
from harness.stats.hypotheses import benjamini_hochberg

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.stats.arrays import Floats

LEAST_MODELS = 3
"""Minimum number of models for a correlation over models."""

FIRST_DRAWS, MORE_DRAWS = 500, 40_000
"""Number of permutations for every example, and for those with a small p-value."""

CLOSER_LOOK = 0.02
"""p-value up to which an example is tested again with more permutations."""

_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Discrimination:
    """Relation between an example and the rest, over models."""

    correlation: Floats
    """Corrected item-rest correlation of each example; NaN if fewer than three models have a score, or all have the
    same."""
    p_negative: Floats
    """One-sided p-value for a negative relation (weak models pass, strong ones fail); NaN without a correlation."""
    adjusted: Floats
    """The p-values adjusted by Benjamini and Hochberg's method over all examples with a correlation."""


def discrimination(means: Floats, seed: int = SEED) -> Discrimination:
    """Correlate each example with the rest of the examples, over models.

    The rest of a model is its mean deviation from the other models on its other examples, so that models with missing
    cells can be compared. The p-value is of a permutation test: if the example is unrelated to the rest, every
    assignment of its scores to the models is equally likely.

    Args:
        means: Mean score of each model (row) on each example (column).
        seed: Random seed of the permutations.

    Source: Henrysson 1963 (corrected item-rest correlation); Phipson & Smyth 2010 (p-values of random permutations).
    """
    import numpy as np

    found = item_rest(means)
    usable, products = found.usable, found.products
    p_values = np.where(usable, 1.0, np.nan)
    generator = np.random.default_rng(seed)
    for draws, most in ((FIRST_DRAWS, 1.0), (MORE_DRAWS, CLOSER_LOOK)):
        orders: dict[bytes, NDArray[np.int64]] = {}
        for place in np.flatnonzero(usable & (products < 0) & (np.nan_to_num(p_values, nan=2.0) <= most)):
            here = np.flatnonzero(found.known[:, place])
            order = orders.get(here.tobytes())
            if order is None:
                order = np.argsort(generator.random((draws, len(here)), dtype=np.float32), axis=1)
                orders[here.tobytes()] = order
            rest, own = found.rest[here, place], found.deviations[here, place]
            slack = _TINY * float(np.abs(rest) @ np.abs(own))
            reached = int((rest[order] @ own <= products[place] + slack).sum())
            p_values[place] = (1 + reached) / (1 + draws)
    adjusted = benjamini_hochberg([None if np.isnan(p) else float(p) for p in p_values])
    return Discrimination(
        found.correlation, p_values, np.array([np.nan if p is None else p for p in adjusted], dtype=np.float64)
    )


@dataclass(frozen=True, slots=True)
class ItemRest:
    """Each example's scores, and the models' results on the rest, as deviations from their means over models. Arrays
    have a row per model and a column per example."""

    known: NDArray[np.bool_]
    deviations: Floats
    rest: Floats
    products: Floats
    """Sum over models of deviation times rest, for each example."""
    correlation: Floats
    """Correlation of each example with the rest; NaN if it is undefined."""

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Whether each example has a correlation."""
        import numpy as np

        return ~np.isnan(self.correlation)


def item_rest(means: Floats) -> ItemRest:
    """Relate each example to the rest; see `discrimination`."""
    import numpy as np

    known = ~np.isnan(means)
    deviations = np.where(known, means - _mean(means, known, 0), 0.0)
    totals, counts = deviations.sum(axis=1, keepdims=True), known.sum(axis=1, keepdims=True)
    rest = np.where(known, (totals - deviations) / np.maximum(counts - 1, 1), 0.0)
    rest = np.where(known, rest - _mean(rest, known, 0), 0.0)
    sizes = np.sqrt((deviations**2).sum(axis=0) * (rest**2).sum(axis=0))
    usable = (known.sum(axis=0) >= LEAST_MODELS) & (sizes > _TINY)
    products = (deviations * rest).sum(axis=0)
    products = np.where(np.abs(products) > 1e-9 * sizes, products, 0.0)
    correlation = np.where(usable, products / np.where(usable, sizes, 1.0), np.nan)
    return ItemRest(known, deviations, rest, products, correlation)


@dataclass(frozen=True, slots=True)
class Flakiness:
    """Variation of a model's own answers to an example."""

    within: Floats
    """Mean variance of the scores within a model, of each example; NaN without two scores of any model."""
    expected: Floats
    """The same for examples of this difficulty."""

    @property
    def excess(self) -> Floats:
        """Variance in excess of that of examples of the same difficulty."""
        return self.within - self.expected


def flakiness(means: Floats, counts: Floats, squares: Floats, limits: tuple[float, float]) -> Flakiness:
    """Variance within models, compared with that of examples of the same difficulty.

    Scores with mean p between the limits 0 and 1 have a variance of at most p(1 − p), of which over all examples a
    certain share is within models. An example is expected to have this share, too.

    Args:
        means: Mean score of each model on each example.
        counts: Number of scores in each cell.
        squares: Sum of squared deviations of the scores in each cell from the cell's mean.
        limits: Lowest and highest score.
    """
    import numpy as np

    usable = counts >= 2
    has = usable.any(axis=0)
    variances = np.where(usable, squares / np.maximum(counts - 1, 1), 0.0)
    within = np.where(has, variances.sum(axis=0) / np.maximum(usable.sum(axis=0), 1), np.nan)
    level = _mean(means, usable, 0)
    room = np.where(has, np.clip(level - limits[0], 0, None) * np.clip(limits[1] - level, 0, None), np.nan)
    total = float(np.nansum(room))
    share = float(np.nansum(within)) / total if total > _TINY else 0.0
    return Flakiness(within, share * room)


def _mean(values: Floats, known: NDArray[np.bool_], axis: int) -> Floats:
    """Mean of the known values along an axis, which is kept; 0 without any."""
    import numpy as np

    total = np.where(known, values, 0.0).sum(axis=axis, keepdims=True)
    mean = total / np.maximum(known.sum(axis=axis, keepdims=True), 1)
    return mean if axis == 1 else mean[0]
