"""Clustered standard errors: published values and the double sum by its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.clusters import clustered_mean
from harness.stats.distributions import t_quantile
from harness.stats.intervals import Estimate, mean_interval

REFERENCE = [1.0, 1, 1, 0, 0, 1, 0, 1, 1]
OWNERS = ["a", "a", "a", "b", "b", "c", "c", "c", "c"]


def test_the_reference_values() -> None:
    assert mean_interval(REFERENCE, single_rollout=True).stderr == pytest.approx(0.166667, abs=5e-7)
    estimate = clustered_mean([2 * score for score in REFERENCE], OWNERS)
    halved = clustered_mean(REFERENCE, OWNERS, limits=(0.0, 1.0))
    assert halved == clustered_mean(REFERENCE, OWNERS)
    assert (halved.method, halved.low, halved.high) == ("adjusted_t", 0.0, 1.0)
    assert halved.stderr == pytest.approx(0.231296, abs=5e-7)
    assert (estimate.mean, estimate.method, estimate.clusters, estimate.df) == (pytest.approx(4 / 3), "cluster_t", 3, 2)
    assert estimate.half_width == pytest.approx(t_quantile(0.975, 2) * 2 * 0.231296, abs=1e-5)


CASES = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.5]), st.integers(0, 4)), min_size=2, max_size=14)


@given(CASES)
def test_it_agrees_with_the_double_sum(cases: list[tuple[float, int]]) -> None:
    values, owners = [v for v, _ in cases], [o for _, o in cases]
    n, count = len(values), len(set(owners))
    mean = sum(values) / n
    double = [
        [(x - mean) * (y - mean) * (a == b) for y, b in cases] for x, a in cases
    ]  # fmt: skip
    total = sum(map(sum, double))
    estimate = clustered_mean(values, owners)
    if count > 1 and total > 1e-9:
        assert estimate.stderr == pytest.approx(math.sqrt(count / (count - 1) * total) / n, rel=1e-9)
    elif total <= 1e-12 or count < 2:
        assert (estimate.stderr, estimate.low, estimate.method) == (None, None, None)


def test_clusters_of_one_are_the_ordinary_interval() -> None:
    values = [0.1, 0.5, 0.9, 0.2, 0.75]
    alone, plain = clustered_mean(values, list(range(5))), mean_interval(values, single_rollout=False)
    assert (alone.mean, alone.stderr, alone.low, alone.high) == pytest.approx(
        (plain.mean, plain.stderr, plain.low, plain.high)
    )


def test_one_cluster_says_nothing_about_others() -> None:
    assert clustered_mean([0.0, 1.0, 1.0], ["a"] * 3) == Estimate(mean=2 / 3, examples=3, clusters=1)
    assert clustered_mean([], []) == Estimate(clusters=0)
    assert clustered_mean([0.3] * 4, list("aabb")) == Estimate(mean=0.3, examples=4, clusters=2)


def test_repeating_every_example_does_not_narrow_a_clustered_interval() -> None:
    values = np.random.default_rng(3).random(40)
    once = clustered_mean(values, np.arange(40))
    often = clustered_mean(np.repeat(values, 5), np.repeat(np.arange(40), 5))
    assert (often.mean, often.stderr, often.low) == pytest.approx((once.mean, once.stderr, once.low))


def test_labels_must_be_as_many_as_values() -> None:
    with pytest.raises(ValueError, match="2 labels for 3 values"):
        clustered_mean([1.0, 2.0, 3.0], ["a", "b"])
