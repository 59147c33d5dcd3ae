"""Statistics of examples over models: against slow twins, and by simulation. BENCH_ROUNDS multiplies the draws."""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.stats.items import discrimination, flakiness, item_rest

Floats = NDArray[np.float64]

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))


def rasch(generator: np.random.Generator, models: int, examples: int) -> Floats:
    """Pass rates of models of different strength on examples of different difficulty and discrimination."""
    strength, difficulty = generator.normal(0, 1, models), generator.normal(0, 1.2, examples)
    slope = np.exp(generator.normal(0, 0.3, examples))
    return 1 / (1 + np.exp(-slope * (strength[:, None] - difficulty)))


def passed(generator: np.random.Generator, p: Floats) -> Floats:
    return (generator.random(p.shape) < p).astype(np.float64)


def test_the_correlation_is_with_the_sum_of_the_other_examples() -> None:
    generator = np.random.default_rng(1)
    table = passed(generator, rasch(generator, 9, 20))
    table[:, 3] = 1.0
    found = item_rest(table).correlation
    for place in range(20):
        rest = np.delete(table, place, axis=1).sum(axis=1)
        same = np.ptp(table[:, place]) == 0
        assert (
            math.isnan(found[place])
            if same
            else found[place] == pytest.approx(np.corrcoef(table[:, place], rest)[0, 1])
        )


def test_with_missing_cells_models_are_compared_with_the_others_on_their_examples() -> None:
    generator = np.random.default_rng(2)
    table = passed(generator, rasch(generator, 8, 15))
    table[generator.random(table.shape) < 0.2] = np.nan
    relative = table - np.nanmean(table, axis=0)
    found = item_rest(table).correlation
    for place in range(15):
        rest = np.nanmean(np.delete(relative, place, axis=1), axis=1)
        here = ~np.isnan(table[:, place])
        if np.ptp(table[here, place]):
            assert found[place] == pytest.approx(np.corrcoef(table[here, place], rest[here])[0, 1])


def test_p_values_agree_with_all_permutations() -> None:
    generator = np.random.default_rng(3)
    table = passed(generator, rasch(generator, 6, 12))
    table[:, 0] = 1 - np.sort(passed(generator, np.full((6, 1), 0.5)), axis=0)[:, 0]
    table = table[np.argsort(table.sum(axis=1))]
    found = discrimination(table)
    for place in np.flatnonzero(found.correlation < 0):
        rest = np.delete(table, place, axis=1).sum(axis=1)
        sums = [float(rest[list(order)] @ table[:, place]) for order in itertools.permutations(range(6))]
        exact = np.mean([each <= rest @ table[:, place] + 1e-9 for each in sums])
        assert found.p_negative[place] == pytest.approx(exact, abs=0.06)
    assert all(found.p_negative[found.correlation >= 0] == 1.0)


def test_one_or_two_models_and_equal_models_have_no_correlation() -> None:
    for table in (np.ones((1, 4)), np.array([[1.0, 0.0], [0.0, 1.0]]), np.ones((5, 3)), np.full((4, 3), np.nan)):
        found = discrimination(table)
        assert np.isnan(found.correlation).all() and np.isnan(found.adjusted).all()
    assert np.isnan(discrimination(np.array([[1.0], [0.0], [1.0]])).correlation).all()  # no rest


def test_flakiness_is_the_variance_within_models_beyond_that_of_the_same_difficulty() -> None:
    # Of example 0 each model gives the same answer twice; of example 1 one right and one wrong one. Both have mean 0.5.
    means, counts = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 0.0]]), np.full((2, 3), 2.0)
    squares = np.array([[0.0, 0.5, 0.0], [0.0, 0.5, 0.0]])
    found = flakiness(means, counts, squares, (0.0, 1.0))
    assert found.within.tolist() == [0.0, 0.5, 0.0]
    assert found.expected.tolist() == [0.25, 0.25, 0.0]
    assert found.excess.tolist() == [-0.25, 0.25, 0.0]
    one = flakiness(means, np.ones((2, 3)), np.zeros((2, 3)), (0.0, 1.0))
    assert np.isnan(one.within).all() and np.isnan(one.excess).all()


@pytest.mark.slow
@pytest.mark.parametrize("models", [12, 30])
def test_few_of_the_suspected_labels_are_right(models: int) -> None:
    """A twentieth of the examples has a wrong label, and a tenth is unrelated to the rest."""
    generator, rounds, examples = np.random.default_rng(models), 12 * TIMES, 200
    false, found, wrong = list[float](), 0, examples // 20
    for _ in range(rounds):
        p = rasch(generator, models, examples)
        p[:, :wrong] = 1 - p[:, :wrong]
        p[:, wrong : wrong + examples // 10] = 0.5
        sure = np.flatnonzero(np.nan_to_num(discrimination(passed(generator, p)).adjusted, nan=1.0) <= 0.05)
        false.append(float((sure >= wrong).sum()) / max(1, len(sure)))
        found += int((sure < wrong).sum())
    error = float(np.std(false)) / math.sqrt(rounds)
    assert np.mean(false) <= 0.05 + error, f"{np.mean(false):.3f} ± {error:.3f}"
    power = found / rounds / wrong
    assert power >= {12: 0.0, 30: 0.05}[models]
    print(f"{models} models: false {np.mean(false):.4f} ± {error:.4f}, found {power:.3f}, of {rounds}")
