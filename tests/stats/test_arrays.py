"""Scores and labels as arrays; and estimates over a million scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.stats.arrays import column, number_groups
from harness.stats.bootstrap import bootstrap_median
from harness.stats.clusters import clustered_mean
from harness.stats.intervals import mean_interval
from harness.stats.paired import paired_difference
from harness.stats.passk import pass_at_k, pass_counts, pass_rate
from harness.stats.variance import noise


def test_labels_are_numbered_by_first_appearance() -> None:
    codes, count = number_groups(["b", "a", "b", None], 4, "test")
    assert (codes.tolist(), count) == ([0, 1, 0, 2], 3)
    codes, count = number_groups(np.array([7, 5, 7]), 3, "test")
    assert (codes.tolist(), count) == ([1, 0, 1], 2)
    with pytest.raises(ValueError, match="test: needs one label per value, not 1 labels for 2"):
        number_groups(["a"], 2, "test")


def test_what_is_no_column_of_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="a value is not finite"):
        column([1.0, math.nan], "test")
    with pytest.raises(ValueError, match="2 dimensions"):
        column(np.zeros((2, 2)), "test")


@pytest.mark.slow
def test_a_million_scores_are_estimated() -> None:
    generator = np.random.default_rng(0)
    examples = np.repeat(np.arange(250_000), 4)
    scores = (generator.random(1_000_000) < 0.7).astype(np.float64)
    other = (generator.random((250_000, 4)) < 0.69).mean(axis=1)
    groups = scores.reshape(-1, 4)
    means = groups.mean(axis=1)
    estimates = [
        mean_interval(means.tolist(), single_rollout=False, binary=True),
        clustered_mean(scores, examples),
        bootstrap_median(scores),
    ]
    parts = noise(groups.tolist())
    rate = pass_rate(pass_counts(groups.tolist(), 1.0), 4, pass_at_k)
    paired = paired_difference(means.tolist(), other.tolist())
    assert estimates[0].mean == pytest.approx(0.7, abs=0.002)
    assert estimates[0].stderr == pytest.approx(estimates[1].stderr, rel=1e-3)  # rollouts in clusters of an example
    assert parts.question_std == pytest.approx(0.0, abs=0.03) and parts.rerun_std == pytest.approx(0.4583, abs=0.002)
    assert rate.value == pytest.approx(1 - 0.3**4, abs=0.002)
    assert paired.pairs == 250_000
