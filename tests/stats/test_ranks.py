"""Places of models, their intervals, and who cannot be told from the best."""

from __future__ import annotations

import numpy as np
import pytest

from harness.stats.ranks import Rank, rank_intervals, tied_with_best

GENERATOR = np.random.default_rng(12)
HARD = GENERATOR.random(200)
FAR = [(GENERATOR.random(200) < np.clip(HARD + shift, 0, 1)).astype(float) for shift in (-0.3, 0.4, 0.02, 0.0)]


def test_clear_differences_are_clear_places() -> None:
    found = rank_intervals(FAR, draws=2_000)
    assert (found[0], found[1]) == (Rank(4, 4, 4), Rank(1, 1, 1))
    assert {found[2].rank, found[3].rank} == {2, 3}
    assert all((each.low, each.high) == (2, 3) for each in found[2:])
    assert tied_with_best(FAR) == [False, True, False, False]
    assert tied_with_best(FAR[2:]) == [True, True]


def test_equal_models_share_the_better_place() -> None:
    assert rank_intervals([FAR[0], FAR[0], FAR[1]], draws=500) == [Rank(2, 2, 2), Rank(2, 2, 2), Rank(1, 1, 1)]
    assert tied_with_best([FAR[1], FAR[1]]) == [True, True]
    assert rank_intervals([[0.5]]) == [Rank(1, 1, 1)]


def test_the_seed_makes_it_repeatable() -> None:
    assert rank_intervals(FAR, draws=500, seed=1) == rank_intervals(FAR, draws=500, seed=1)


def test_models_need_the_same_examples() -> None:
    for scores in ([], [[1.0], [1.0, 0.0]], [[], []]):
        with pytest.raises(ValueError, match="one value of every model"):
            rank_intervals(scores)
        with pytest.raises(ValueError, match="one value of every model"):
            tied_with_best(scores)
