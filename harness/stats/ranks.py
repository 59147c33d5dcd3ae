"""Ranks of several models: intervals of the ranks, and the models that cannot be distinguished from the best. For the
models' scores and differences see `standings` and `paired`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats.arrays import column
from harness.stats.bootstrap import CHUNK, DRAWS, SEED, resampled
from harness.stats.hypotheses import holm
from harness.stats.intervals import LEVEL
from harness.stats.paired import paired_difference

if TYPE_CHECKING:
    from harness.stats.arrays import Floats, Integers, Numbers


@dataclass(frozen=True, slots=True)
class Rank:
    """A model's rank; 1 is best, equal means share the better rank."""

    rank: int
    low: int
    """Lower end of the rank's interval: the best plausible rank."""
    high: int


def rank_intervals(
    scores: Sequence[Numbers], *, seed: int = SEED, draws: int = DRAWS, level: float = LEVEL
) -> list[Rank]:
    """Rank of each model by its mean, with a percentile bootstrap interval over the examples.

    Args:
        scores: One row per model, one value per example; the same examples in the same order, at least one.
        seed: Random seed.
        draws: Number of resamples of the examples, the same for all models.
        level: Confidence level.

    Raises:
        ValueError: no rows, rows of different lengths, or a value that is not finite.
    """
    import numpy as np

    table = np.stack([column(row, "rank_intervals") for row in _rows(scores)], axis=1)
    examples, models = table.shape
    rows = max(1, CHUNK // max(examples, models * models))
    ordered = np.sort(resampled(lambda drawn: _places(drawn @ table / examples), examples, rows, draws, seed), axis=0)
    cut = max(0, math.ceil((0.5 - level / 2) * draws) - 1)
    seen = _places(table.mean(axis=0)[None, :])[0]
    return [
        Rank(int(seen[m]), min(int(seen[m]), int(ordered[cut, m])), max(int(seen[m]), int(ordered[draws - 1 - cut, m])))
        for m in range(models)
    ]


def tied_with_best(scores: Sequence[Numbers], alpha: float = 0.05) -> list[bool]:
    """Return which models cannot be distinguished from the best one (the first of those with the highest mean),
    including the best one itself.

    Uses paired tests against the best model, adjusted by Holm's method. The best model was selected for its result, so
    a model outside the group is not always worse; a model inside is not necessarily equal.

    Args:
        scores: As for `rank_intervals`.
        alpha: Probability of excluding any model wrongly, if the best one were known in advance.

    Raises:
        ValueError: no rows, rows of different lengths, or a value that is not finite.
    """
    rows = [column(row, "tied_with_best").tolist() for row in _rows(scores)]
    means = [math.fsum(row) / len(row) for row in rows]
    best = means.index(max(means))
    p_values = [None if m == best else paired_difference(rows[best], row).p_value for m, row in enumerate(rows)]
    return [p is None or p > alpha for p in holm(p_values)]


def _rows(scores: Sequence[Numbers]) -> Sequence[Numbers]:
    if not scores or len({len(row) for row in scores}) > 1 or not len(scores[0]):
        raise ValueError("ranks need at least one model and one example, and one value of every model for each example")
    return scores


def _places(means: Floats) -> Integers:
    """Rank of each model in each row: 1 + the number of better models."""
    better = means[:, None, :] > means[:, :, None] + 1e-12
    return (1 + better.sum(axis=2)).astype("int64")
