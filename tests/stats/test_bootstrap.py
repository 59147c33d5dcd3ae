"""Resampling: against the exact distribution, against scipy, and what is undefined."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from late import Late

from harness.stats.bootstrap import WORK, bootstrap_median, bootstrap_ratio
from harness.stats.intervals import Estimate, mean_interval

stats = Late("scipy.stats")

VALUES = np.random.default_rng(4).lognormal(0, 1, 60)


def test_the_median_of_every_resample_has_the_frequencies_that_are_drawn() -> None:
    for values, part in (([1.0, 2.0, 4.0, 8.0], 0.5), ([1.0, 2.0, 4.0], 0.5), ([1.0, 2.0, 4.0, 8.0], 0.25)):
        exact = sorted(
            float(np.median(s)) if part == 0.5 else sorted(s)[math.ceil(part * len(s)) - 1]
            for s in product(values, repeat=len(values))
        )
        found = bootstrap_median(values, part=part, draws=40_000, level=0.8)
        assert found.mean == (np.median(values) if part == 0.5 else 1.0)
        assert found.stderr == pytest.approx(float(np.std(exact)), rel=0.02)
        share = [sum(v <= end for v in exact) / len(exact) for end in (found.low or 0, found.high or 0)]
        assert share[0] >= 0.09 and share[1] >= 0.89


def test_the_interval_of_a_ratio_is_that_of_scipy() -> None:
    found = bootstrap_ratio(VALUES, [1.0] * len(VALUES), draws=20_000)
    reference = stats.bootstrap(
        (VALUES,), np.mean, method="BCa", n_resamples=20_000, rng=np.random.default_rng(1), vectorized=True
    ).confidence_interval
    assert found.mean == pytest.approx(float(VALUES.mean()))
    assert found.low == pytest.approx(float(reference.low), rel=0.02)
    assert found.high == pytest.approx(float(reference.high), rel=0.02)
    assert found.method == "bootstrap_bca"
    plain = mean_interval(VALUES.tolist(), single_rollout=False)
    assert found.stderr == pytest.approx(plain.stderr, rel=0.03)


def test_a_ratio_by_both_methods() -> None:
    generator = np.random.default_rng(7)
    tokens, passed = generator.gamma(4, 100, 3000), (generator.random(3000) < 0.6).astype(float)
    found = bootstrap_ratio(tokens, passed)
    assert found.mean == pytest.approx(tokens.sum() / passed.sum())
    assert found.method == "bootstrap_bca"
    repeated = bootstrap_ratio(tokens, passed, draws=WORK // 3000 + 1)
    assert repeated.method == "delta"
    assert (repeated.low, repeated.high) == pytest.approx((found.low, found.high), rel=0.01)
    assert repeated.stderr == pytest.approx(found.stderr, rel=0.05)


def test_clusters_are_drawn_whole() -> None:
    often = bootstrap_ratio(np.repeat(VALUES, 3), [1.0] * 180, clusters=np.repeat(np.arange(60), 3))
    once = bootstrap_ratio(VALUES, [1.0] * 60)
    assert (often.low, often.high) == pytest.approx((once.low, once.high))
    assert (often.clusters, often.examples) == (60, 180)


def test_a_seed_makes_it_repeatable() -> None:
    first, again, other = (bootstrap_ratio(VALUES, VALUES + 1, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert bootstrap_median(VALUES, seed=3) == bootstrap_median(VALUES, seed=3)


def test_what_is_undefined_has_no_interval() -> None:
    assert bootstrap_ratio([], []) == Estimate()
    assert bootstrap_ratio([1.0, 2.0], [0.0, 0.0]) == Estimate(examples=2)
    rare = bootstrap_ratio([1.0] * 10, [1.0] + [0.0] * 9)  # a third of the resamples has no denominator
    assert (rare.mean, rare.low, rare.method) == (10.0, None, None)
    assert bootstrap_median([3.0]) == Estimate(mean=3.0, examples=1)
    assert bootstrap_median([]) == Estimate()
    assert bootstrap_median([2.0, 2.0, 2.0]) == Estimate(mean=2.0, examples=3)
    with pytest.raises(ValueError, match="not finite"):
        bootstrap_median([math.nan, 1.0])
    with pytest.raises(ValueError, match="quantile"):
        bootstrap_median([1.0], part=1.0)
    with pytest.raises(ValueError, match="as many numerators as denominators, got 2 and 1"):
        bootstrap_ratio([1.0, 2.0], [1.0])
