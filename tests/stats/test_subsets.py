"""Subsets of examples that rank models, and their error on models that were left out."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.stats.subsets import (
    CHOICES,
    SubsetError,
    fit_line,
    sizes_below,
    smallest_sufficient,
    subset_errors,
    subset_of,
)

Floats = NDArray[np.float64]

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))


def table(generator: np.random.Generator, models: int, examples: int) -> Floats:
    strength, difficulty = generator.normal(0, 1, models), generator.normal(0, 1.3, examples)
    slope = np.exp(generator.normal(0, 0.4, examples))
    p = 1 / (1 + np.exp(-slope * (strength[:, None] - difficulty)))
    return (generator.random(p.shape) < p).astype(np.float64)


@pytest.mark.parametrize("choice", CHOICES)
def test_a_subset_spans_all_difficulties(choice: str) -> None:
    scores = table(np.random.default_rng(1), 12, 100)
    chosen = subset_of(scores, 10, choice)  # type: ignore[arg-type]
    assert len(set(chosen.tolist())) == 10 and chosen.tolist() == sorted(chosen.tolist())
    level = np.sort(scores.mean(axis=0)[chosen])
    assert level[0] < 0.35 and level[-1] > 0.65
    assert len(subset_of(np.ones((4, 9)), 5, choice)) == 5  # type: ignore[arg-type]


def test_examples_on_which_all_models_are_equal_are_used_last() -> None:
    scores = table(np.random.default_rng(2), 8, 40)
    scores[:, ::2] = 1.0
    useful = int((np.ptp(scores, axis=0) > 0).sum())
    assert all(np.ptp(scores[:, place]) > 0 for place in subset_of(scores, useful, "discriminating"))
    assert len(subset_of(scores, useful + 3, "discriminating")) == useful + 3


def test_a_line_predicts_the_score_on_all_examples() -> None:
    line = fit_line(np.array([0.0, 0.5, 1.0]), np.array([0.2, 0.45, 0.7]))
    assert (line.intercept, line.slope) == (pytest.approx(0.2), pytest.approx(0.5))
    flat = fit_line(np.array([0.5, 0.5]), np.array([0.2, 0.4]))
    assert (flat.intercept, flat.slope) == (pytest.approx(0.3), 0.0)


def test_the_smallest_sufficient_size_has_only_sufficient_ones_above_it() -> None:
    def error(size: int, missed: int, clear: int = 100) -> SubsetError:
        return SubsetError(size, "even", 0.9, clear, missed, 0.1, 0.9, 0.1)

    assert smallest_sufficient([error(5, 3), error(10, 6), error(20, 5), error(40, 0)]) == 20
    assert smallest_sufficient([error(5, 3), error(10, 6)]) is None
    assert smallest_sufficient([error(5, 0, 0)]) is None
    assert smallest_sufficient([]) is None
    assert sizes_below(101) == [5, 10, 15, 20, 30, 40, 60, 80, 100]
    assert sizes_below(5) == []


def test_models_are_left_out_of_the_choice_and_of_the_line() -> None:
    """With noise alone a subset that is chosen on the same models looks good; on others it does not."""
    scores = (np.random.default_rng(3).random((8, 300)) < 0.5).astype(np.float64)
    chosen = subset_of(scores, 10, "discriminating")
    part, whole = scores[:, chosen].mean(axis=1), scores.mean(axis=1)
    line = fit_line(part, whole)
    own = math.sqrt(float(((line.intercept + line.slope * part - whole) ** 2).mean()))
    [found] = subset_errors(scores, [10])
    assert np.corrcoef(part, whole)[0, 1] > 0.9
    assert found.error > 2 * own
    with pytest.raises(ValueError, match="at least 4 models"):
        subset_errors(scores[:3], [10])


@pytest.mark.slow
@pytest.mark.parametrize("models", [8, 24])
def test_the_error_is_that_of_new_models(models: int) -> None:
    """The error by cross-validation is that of models that no one has seen, and the prediction's error is known."""
    generator, rounds, size = np.random.default_rng(models), 40 * TIMES, 30
    told = seen = 0.0
    for _ in range(rounds):
        both = table(generator, models + 40, 300)
        scores, new = both[:models], both[models:]
        [found] = subset_errors(scores, [size])
        chosen = subset_of(scores, size, found.choice)
        line = fit_line(scores[:, chosen].mean(axis=1), scores.mean(axis=1))
        told += found.error**2 / rounds
        away = line.intercept + line.slope * new[:, chosen].mean(axis=1) - new.mean(axis=1)
        seen += float((away**2).mean()) / rounds
    ratio = math.sqrt(told / seen)
    assert 0.8 <= ratio <= 1.3, ratio
    print(f"{models} models: told {math.sqrt(told):.4f}, seen {math.sqrt(seen):.4f}, of {rounds}")
