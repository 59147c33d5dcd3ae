"""Means, intervals and bounds: published values, slow obvious implementations, and coverage by simulation."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from late import Late
from numpy.typing import NDArray

from harness.stats.intervals import (
    WILSON_BELOW,
    Estimate,
    beta_interval,
    clopper_pearson,
    mean_interval,
    missing_bounds,
    rate_interval,
    sample_std,
    share_interval,
    wilson,
)
from harness.stats.methods import INTERVALS, Method, describe
from harness.stats.summary import spread

special = Late("scipy.special")
stats = Late("scipy.stats")

FINITE = st.floats(-1e6, 1e6)


def test_wilson_has_the_reference_value() -> None:
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=5e-7)


@pytest.mark.parametrize("n", [1, 2, 7, 299, 10_000])
def test_wilson_never_has_width_zero_and_never_leaves_the_unit_interval(n: int) -> None:
    assert wilson(0, n)[0] == 0.0 < wilson(0, n)[1] < 1.0
    assert 0.0 < wilson(n, n)[0] < wilson(n, n)[1] == 1.0


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_inverts_the_score_test(case: tuple[int, int]) -> None:
    c, n = case
    z = statistics.NormalDist().inv_cdf(0.975)
    for end in wilson(c, n):
        if 0.0 < end < 1.0:
            assert abs(c / n - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="wilson"):
        wilson(successes, n)


@given(st.lists(FINITE, min_size=2, max_size=50))
def test_the_t_interval_is_the_textbook_one(means: list[float]) -> None:
    estimate = mean_interval(means, single_rollout=False)
    assert estimate.mean == pytest.approx(statistics.fmean(means), abs=1e-9, rel=1e-12)
    if estimate.method == "t":
        stderr = statistics.stdev(means) / math.sqrt(len(means))
        half = float(special.stdtrit(len(means) - 1, 0.975)) * stderr
        assert estimate.stderr == pytest.approx(stderr, rel=1e-6, abs=1e-12)
        assert estimate.half_width == pytest.approx(half, rel=1e-6, abs=1e-12)
    if estimate.low is not None and estimate.high is not None and estimate.mean is not None:
        assert estimate.low <= estimate.mean <= estimate.high
        assert estimate.low < estimate.high


def test_the_standard_error_of_binary_scores_is_the_bernoulli_one() -> None:
    means = [1.0] * 600 + [0.0] * 400
    estimate = mean_interval(means, single_rollout=True)
    assert estimate.method == "t"
    assert estimate.stderr == pytest.approx(math.sqrt(0.6 * 0.4 / 1000 * 1000 / 999), rel=1e-12)


def test_two_clusters_of_the_reference_have_the_naive_standard_error() -> None:
    scores = [1.0, 1, 1, 0, 0, 1, 0, 1, 1]
    assert mean_interval(scores, single_rollout=True).stderr == pytest.approx(0.166667, abs=5e-7)


def test_small_binary_samples_use_wilson() -> None:
    means = [1.0] * 8 + [0.0] * 2
    estimate = mean_interval(means, single_rollout=True)
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=5e-7)
    exact = float(stats.beta.ppf(0.03, 8, 3)), float(stats.beta.ppf(0.97, 9, 2))
    assert (estimate.low, estimate.high) == pytest.approx(exact)
    assert (estimate.method, estimate.mean, estimate.examples) == ("wilson", 0.8, 10)
    assert estimate.stderr is not None
    assert mean_interval(means, single_rollout=False).method == "t"
    assert mean_interval([*means, 0.5], single_rollout=True).method == "t"
    many = [1.0, 0.0] * (WILSON_BELOW // 2)
    assert mean_interval(many[:-1], single_rollout=True).method == "wilson"
    assert mean_interval(many, single_rollout=True).method == "t"


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("n", [2, 5, 1319])
def test_all_right_or_all_wrong_is_never_plus_minus_zero(value: float, single: bool, n: int) -> None:
    estimate = mean_interval([value] * n, single_rollout=single)
    assert estimate.mean == value
    assert estimate.method == "wilson"
    assert estimate.stderr is None
    assert estimate.half_width is not None and estimate.half_width > 0


@pytest.mark.parametrize("value", [0.5, 1 / 3, -2.0, 7.0])
def test_equal_values_have_no_interval(value: float) -> None:
    estimate = mean_interval([value] * 9, single_rollout=False)
    assert estimate.mean is not None
    assert estimate == Estimate(mean=estimate.mean, examples=9)
    assert estimate.mean == pytest.approx(value)


def test_rounding_is_not_spread() -> None:
    assert mean_interval([0.3, 0.1 + 0.2, 0.3], single_rollout=False).stderr is None


def test_one_example_or_none_has_no_interval() -> None:
    assert mean_interval([1.0], single_rollout=True) == Estimate(mean=1.0, examples=1)
    assert mean_interval([], single_rollout=True) == Estimate()


def test_bounds_have_the_reference_formula() -> None:
    # Eight of ten scored, one rollout each, six of them right: (Σs + u·L)/n and (Σs + u·U)/n.
    groups = [(1.0, 1, 0)] * 6 + [(0.0, 1, 0)] * 2 + [(0.0, 0, 1)] * 2
    assert missing_bounds(groups, 0.0, 1.0) == pytest.approx((0.6, 0.8))
    assert missing_bounds(groups, -1.0, 2.0) == pytest.approx((0.4, 1.0))


def test_bounds_need_a_finite_range_and_an_example() -> None:
    assert missing_bounds([(1.0, 1, 1)], 0.0, math.inf) is None
    assert missing_bounds([], 0.0, 1.0) is None


@given(
    st.lists(
        st.tuples(st.lists(st.floats(0, 1), max_size=4), st.integers(0, 3)).filter(lambda g: len(g[0]) + g[1] > 0),
        min_size=1,
        max_size=12,
    ).filter(lambda groups: any(scores for scores, _ in groups))
)
def test_the_mean_lies_between_its_bounds(groups: list[tuple[list[float], int]]) -> None:
    bounds = missing_bounds([(sum(scores), len(scores), lost) for scores, lost in groups], 0.0, 1.0)
    mean = statistics.fmean(statistics.fmean(scores) for scores, _ in groups if scores)
    assert bounds is not None
    assert bounds[0] - 1e-12 <= mean <= bounds[1] + 1e-12


def test_sums_do_not_lose_small_terms() -> None:
    estimate = mean_interval([1e15, 0.1, -1e15, 0.1], single_rollout=False)
    assert estimate.mean == pytest.approx(0.05)
    assert math.isnan(sample_std([1.0], 1.0))


def covered(draw: list[list[float]], truth: float, *, single: bool) -> float:
    """The share of samples whose interval holds `truth`."""
    hits = 0
    for means in draw:
        estimate = mean_interval(means, single_rollout=single)
        assert estimate.low is not None and estimate.high is not None
        hits += estimate.low <= truth <= estimate.high
    return hits / len(draw)


def test_the_t_interval_covers_as_it_says_for_examples_with_several_rollouts() -> None:
    # Each example has its own probability x ~ U(0,1) and four rollouts: between- and within-example noise.
    rnd = random.Random(20240911)

    def example() -> float:
        x = rnd.random()
        return sum(rnd.random() < x for _ in range(4)) / 4

    samples = [[example() for _ in range(30)] for _ in range(4000)]
    assert covered(samples, 0.5, single=False) == pytest.approx(0.95, abs=0.012)


def test_treating_rollouts_as_examples_would_not_cover() -> None:
    # The commonest error in the field, kept here so that nobody "simplifies" to it.
    rnd = random.Random(7)

    def flat() -> list[float]:
        return [float(rnd.random() < x) for x in (rnd.random() for _ in range(30)) for _ in range(4)]

    assert covered([flat() for _ in range(1500)], 0.5, single=False) < 0.90


@pytest.mark.parametrize("p", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("n", [10, 50, 200])
def test_wilson_covers_for_small_binary_samples(p: float, n: int) -> None:
    # Exact coverage, no simulation: the binomial probabilities of the counts whose interval holds p.
    inside = [c for c in range(n + 1) if wilson(c, n)[0] <= p <= wilson(c, n)[1]]
    coverage = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in inside)
    assert 0.91 <= coverage <= 0.99


@pytest.mark.parametrize("n", range(2, 21))
def test_few_attempts_cover_every_rate_also_if_all_are_alike(n: int) -> None:
    """Exact coverage, at a grid of p that is fine near 0 and 1, and just beside every end of an interval."""
    runs = [[1.0] * c + [0.0] * (n - c) for c in range(n + 1)]
    ends = np.array([mean_interval(run, single_rollout=True).ends for run in runs], dtype=float)
    rates = np.concatenate(
        [np.linspace(0.001, 0.999, 999), np.geomspace(1e-5, 0.1, 100), *(ends + 1e-9), *(ends - 1e-9)]
    )
    rates = np.concatenate([rates, 1 - rates])
    rates = rates[(rates > 0) & (rates < 1)]
    chances = stats.binom.pmf(np.arange(n + 1)[:, None], n, rates)

    def coverage(ends: NDArray[np.float64]) -> NDArray[np.float64]:
        return (chances * ((ends[:, :1] <= rates) & (rates <= ends[:, 1:]))).sum(axis=0)

    assert coverage(ends).min() >= 0.94
    assert coverage(ends)[(rates < 0.1) | (rates > 0.9)].min() >= 0.96
    plain = ends.copy()
    plain[0], plain[n] = wilson(0, n), wilson(n, n)
    if n <= 5:  # Wilson's interval of equal attempts is too narrow
        assert coverage(plain).min() < 0.93
    # The same data as pass rates and as scores with known limits have the same interval.
    assert [rate_interval([(float(c == n), n)], single_rollout=True).ends for c in (0, n)] == [*ends[[0, n]].tolist()]
    assert [spread([[x] for x in run], (0.0, 1.0)).estimate.ends for run in runs] == ends.tolist()


@pytest.mark.slow
def test_wilson_covers_on_average_as_it_says() -> None:
    rnd = random.Random(3)
    samples: list[tuple[list[float], float]] = []
    for _ in range(6000):
        p, n = rnd.uniform(0.05, 0.95), rnd.randint(10, 120)
        samples.append(([float(rnd.random() < p) for _ in range(n)], p))
    hits = sum(covered([means], p, single=True) for means, p in samples)
    assert hits / len(samples) == pytest.approx(0.95, abs=0.01)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_clopper_pearson_and_the_beta_interval_are_scipys(case: tuple[int, int]) -> None:
    c, n = case
    reference = stats.binomtest(c, n).proportion_ci(method="exact")
    assert clopper_pearson(c, n) == pytest.approx((float(reference.low), float(reference.high)), abs=1e-9)
    expected = tuple(float(stats.beta.ppf(part, 1 + c, 1 + n - c)) for part in (0.025, 0.975))
    assert beta_interval(c, n) == pytest.approx(expected, abs=1e-9)


def test_other_proportion_intervals_refuse_impossible_counts() -> None:
    with pytest.raises(ValueError, match="clopper_pearson"):
        clopper_pearson(3, 2)
    with pytest.raises(ValueError, match="beta_interval"):
        beta_interval(-1, 2)
    assert beta_interval(0, 0) == pytest.approx((0.025, 0.975))


def test_a_t_interval_of_shares_that_leaves_them_gives_way() -> None:
    means = [1.0, 0.75, 1.0, 1.0, 0.5]
    plain, shares = mean_interval(means, single_rollout=False), mean_interval(means, single_rollout=False, binary=True)
    assert plain.method == "t" and plain.high is not None and plain.high > 1
    assert shares.method == "adjusted_t" and shares.stderr == plain.stderr and shares.mean == plain.mean
    assert shares.low is not None and shares.high is not None and shares.mean is not None and shares.stderr is not None
    # One example more at 0, and one at 1.
    every = [*means, 0.0, 1.0]
    half = float(special.stdtrit(4, 0.975)) * statistics.pstdev(every) / math.sqrt(7)
    assert (shares.low, shares.high) == (pytest.approx(statistics.fmean(every) - half), 1.0)
    scaled = mean_interval([4 * m - 1 for m in means], single_rollout=False, limits=(-1.0, 3.0))
    assert (scaled.low, scaled.high) == (pytest.approx(4 * shares.low - 1), 3.0)
    inside = [0.25, 0.5, 0.75, 0.5, 0.25, 0.75, 0.5, 0.5] * 4
    assert mean_interval(inside, single_rollout=False, binary=True) == mean_interval(inside, single_rollout=False)


def test_few_failures_of_many_attempts_are_too_few_for_t() -> None:
    """Eight of 400: t would stay within 0 and 1, and yet hold the truth in 92 % of cases only."""
    one_each = mean_interval([1.0] * 392 + [0.0] * 8, single_rollout=True)
    assert (one_each.method, one_each.low, one_each.high) == ("wilson", *share_interval(392, 400))
    assert one_each.low == wilson(392, 400)[0] and one_each.high == pytest.approx(stats.beta.ppf(0.97, 393, 8))
    four_each = mean_interval([1.0] * 92 + [0.75] * 8, single_rollout=False, binary=True)
    assert four_each.mean == 0.98 and four_each.stderr is not None
    assert (four_each.mean or 0) + 2 * (four_each.stderr or 9) < 1 and four_each.method == "adjusted_t"
    assert mean_interval([1.0] * 380 + [0.0] * 20, single_rollout=True).method == "t"
    assert mean_interval([1.0] * 60 + [0.75] * 40, single_rollout=False, binary=True).method == "t"
    assert mean_interval([1.0] * 92 + [0.75] * 8, single_rollout=False, binary=False).method == "t"


def test_one_right_of_many_is_wilsons_at_any_size() -> None:
    one = [1.0] + [0.0] * 999
    assert mean_interval(one, single_rollout=True).method == "wilson"
    assert (mean_interval(one, single_rollout=True).low or 0) > 0


def test_equal_means_of_other_scores_are_no_shares() -> None:
    assert mean_interval([1.0, 1.0], single_rollout=False, binary=False) == Estimate(mean=1.0, examples=2)
    assert mean_interval([1.0, 1.0], single_rollout=False, binary=True).method == "wilson"


def test_another_level_is_wider_and_travels_with_it() -> None:
    for means, single in (([0.2, 0.5, 0.9], False), ([1.0] * 5 + [0.0] * 5, True)):
        usual, strict = (mean_interval(means, single_rollout=single, level=level) for level in (0.95, 0.99))
        assert (strict.half_width or 0) > (usual.half_width or 9) and (usual.level, strict.level) == (0.95, 0.99)


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=30))
def test_rates_that_repeat_have_the_interval_of_their_list(rates: list[float]) -> None:
    counted = rate_interval(sorted(Counter(rates).items()), single_rollout=False)
    listed = mean_interval(rates, single_rollout=False, limits=(0.0, 1.0))
    assert (counted.method, counted.examples) == (listed.method, listed.examples)
    assert counted.mean == pytest.approx(listed.mean)
    assert (counted.stderr, counted.low, counted.high) == pytest.approx((listed.stderr, listed.low, listed.high))


def test_every_method_is_described() -> None:
    assert set(INTERVALS) == set(get_args(Method))
    assert describe("wilson").startswith("Wilson score interval for a proportion (Wilson 1927)")
    assert describe(None) == "no interval"


def test_the_ends_for_json_are_numbers_or_null() -> None:
    assert Estimate(mean=0.5, low=0.25, high=0.75).ends == [0.25, 0.75]
    assert Estimate(mean=0.5, low=0.25, high=math.inf).ends == [0.25, None]
    assert Estimate(mean=0.5).ends is None


def test_two_values_are_shares_of_their_range() -> None:
    """Fifty rewards of 1 from 0 to 5 do not show that all are; two values have the interval of passes and failures."""
    inside = mean_interval([1.0] * 50, single_rollout=True, limits=(0.0, 5.0))
    assert inside.method == "adjusted_t" and inside.low is not None and inside.high is not None
    assert 0.85 < inside.low < 1 < inside.high < 1.25
    for low, high in ((0.0, 5.0), (-1.0, 1.0), (0.0, 2.0)):
        shares = [1.0] * 40 + [0.0] * 10
        scaled = mean_interval([low + s * (high - low) for s in shares], single_rollout=True, limits=(low, high))
        ends = [low + end * (high - low) for end in share_interval(40, 50)]
        assert (scaled.low, scaled.high, scaled.method) == (*map(pytest.approx, ends), "wilson")
        bottom = mean_interval([low] * 50, single_rollout=True, limits=(low, high))
        assert (bottom.low, bottom.high) == (low, pytest.approx(low + wilson(0, 50)[1] * (high - low)))


def test_scores_that_are_huge_or_infinite() -> None:
    huge = mean_interval([1e200, -1e200, 3e200], single_rollout=True)
    usual = mean_interval([1.0, -1.0, 3.0], single_rollout=True)
    assert (huge.low, huge.high) == pytest.approx(((usual.low or 0) * 1e200, (usual.high or 0) * 1e200))
    with pytest.raises(ValueError, match="finite"):
        mean_interval([1.0, math.inf], single_rollout=True)
