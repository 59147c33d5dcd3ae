"""Rollouts reduced to examples, against plain loops; and a million scores within a second."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.arrays import column, number_groups, reduce_groups, reduce_rollouts
from harness.stats.bootstrap import bootstrap_median
from harness.stats.clusters import clustered_mean
from harness.stats.intervals import mean_interval
from harness.stats.paired import paired_difference
from harness.stats.passk import pass_at_k, pass_counts, pass_rate
from harness.stats.variance import noise_of

SCORES = st.sampled_from([0.0, 0.25, 1.0, -3.5])


@given(st.lists(st.lists(st.one_of(SCORES, st.just(math.nan)), max_size=5), max_size=8))
def test_reduction_agrees_with_a_loop(groups: list[list[float]]) -> None:
    values = [value for group in groups for value in group]
    owners = [index for index, group in enumerate(groups) for _ in group]
    order = np.random.default_rng(1).permutation(len(values))
    reduced = reduce_rollouts(np.array(values, dtype=float)[order], np.array(owners, dtype=np.int64)[order])
    known = {i: kept for i, group in enumerate(groups) if (kept := [v for v in group if v == v])}
    assert reduced.index.tolist() == list(known)
    assert reduced.counts.tolist() == [len(kept) for kept in known.values()]
    assert reduced.means.tolist() == pytest.approx([statistics.fmean(kept) for kept in known.values()])
    for variance, kept in zip(reduced.variances.tolist(), known.values(), strict=True):
        if len(kept) > 1:
            assert variance == pytest.approx(statistics.variance(kept), abs=1e-12)
        else:
            assert math.isnan(variance)
    again = reduce_groups([kept for kept in known.values()])
    assert again.means.tolist() == pytest.approx(reduced.means.tolist())


def test_labels_are_numbered_by_first_appearance() -> None:
    codes, count = number_groups(["b", "a", "b", None], 4, "test")
    assert (codes.tolist(), count) == ([0, 1, 0, 2], 3)
    codes, count = number_groups(np.array([7, 5, 7]), 3, "test")
    assert (codes.tolist(), count) == ([1, 0, 1], 2)
    with pytest.raises(ValueError, match="test: 1 labels for 2 values"):
        number_groups(["a"], 2, "test")


def test_what_is_no_column_of_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="a value is not finite"):
        column([1.0, math.nan], "test")
    with pytest.raises(ValueError, match="2 dimensions"):
        column(np.zeros((2, 2)), "test")
    with pytest.raises(ValueError, match="reduce_rollouts"):
        reduce_rollouts([1.0], [0, 1])
    with pytest.raises(ValueError, match="infinite"):
        reduce_rollouts([math.inf], [0])


@pytest.mark.slow
def test_a_million_scores_are_reduced_in_arrays() -> None:
    generator = np.random.default_rng(0)
    examples = np.repeat(np.arange(250_000), 4)
    scores = (generator.random(1_000_000) < 0.7).astype(np.float64)
    other = reduce_rollouts((generator.random(1_000_000) < 0.69).astype(np.float64), examples)
    reduced = reduce_rollouts(scores, examples)
    estimates = [
        mean_interval(reduced.means.tolist(), single_rollout=False, binary=True),
        clustered_mean(scores, examples),
        bootstrap_median(scores),
    ]
    parts = noise_of(reduced)
    rate = pass_rate(pass_counts(scores.reshape(-1, 4).tolist(), 1.0), 4, pass_at_k)
    paired = paired_difference(reduced.means.tolist(), other.means.tolist())
    assert estimates[0].mean == pytest.approx(0.7, abs=0.002)
    assert estimates[0].stderr == pytest.approx(estimates[1].stderr, rel=1e-3)  # rollouts in clusters of an example
    assert parts.question_std == pytest.approx(0.0, abs=0.03) and parts.rerun_std == pytest.approx(0.4583, abs=0.002)
    assert rate.value == pytest.approx(1 - 0.3**4, abs=0.002)
    assert paired.pairs == 250_000
