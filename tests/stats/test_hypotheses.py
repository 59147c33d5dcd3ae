"""Tests, adjusted p-values and the gate's verdict: published values and scipy."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from late import Late

from harness.stats.hypotheses import (
    COUNTED,
    benjamini_hochberg,
    holm,
    mcnemar,
    non_inferiority,
    p_of_interval,
    t_of_estimate,
    welch,
)
from harness.stats.intervals import Estimate, mean_interval

stats = Late("scipy.stats")

SAMPLE = st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=2, max_size=30)


def t_test(values: list[float]) -> float | None:
    return t_of_estimate(mean_interval(values, single_rollout=False))


def p_of(result: Any) -> float:
    """scipy's p-value, whose type has no stubs."""
    return float(result.pvalue)


def test_mcnemars_reference_values() -> None:
    found = mcnemar(2, 9)
    assert (found.p_value, found.mid_p) == pytest.approx((0.065430, 0.038574), abs=5e-7)
    assert (found.first_only, found.second_only) == (2, 9)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_the_binomial_test(b: int, c: int) -> None:
    found = mcnemar(b, c)
    expected = p_of(stats.binomtest(b, b + c)) if b + c else 1.0
    assert found.p_value == pytest.approx(expected, rel=1e-9)
    seen = float(stats.binom.pmf(min(b, c), b + c, 0.5)) if b + c else 1.0
    tail = float(stats.binom.cdf(min(b, c), b + c, 0.5)) if b + c else 1.0
    assert found.mid_p == pytest.approx(min(1.0, 2 * tail - seen), rel=1e-9)
    assert mcnemar(c, b).p_value == found.p_value


@pytest.mark.parametrize(("b", "c"), [(480, 530), (2000, 2100), (30_000, 30_500), (5_000, 5_000)])
def test_many_discordant_pairs_are_counted_by_the_beta_distribution(b: int, c: int) -> None:
    assert b + c > COUNTED
    assert mcnemar(b, c).p_value == pytest.approx(p_of(stats.binomtest(b, b + c)), rel=1e-6)
    assert mcnemar(b, c).mid_p < mcnemar(b, c).p_value or b == c


@given(SAMPLE)
def test_the_t_test_is_scipys(values: list[float]) -> None:
    if min(values) == max(values):
        assert t_test(values) is None
    else:
        assert t_test([value - 0.5 for value in values]) == pytest.approx(
            p_of(stats.ttest_1samp(values, 0.5)), rel=1e-7, abs=1e-12
        )


@given(SAMPLE, SAMPLE)
def test_welch_is_scipys(first: list[float], second: list[float]) -> None:
    found = welch(first, second)
    assert found.estimate.mean == pytest.approx(sum(first) / len(first) - sum(second) / len(second), abs=1e-12)
    constant = [len({*side}) == 1 for side in (first, second)]
    if any(constant):  # scipy warns of these
        assert (found.p_value is None) == (found.estimate.method is None) == all(constant)
        return
    reference: Any = stats.ttest_ind(first, second, equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert found.p_value == pytest.approx(float(reference.pvalue), rel=1e-6, abs=1e-12)
    assert found.estimate.df == pytest.approx(float(reference.df), rel=1e-9)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-140, 1e100])
def test_the_size_of_scores_changes_no_p_value(scale: float) -> None:
    first, second = [0.5, 1.0, 0.75, 0.0], [0.25, 0.0, 0.5]
    found = welch([scale * v for v in first], [scale * v for v in second])
    usual = welch(first, second)
    assert (found.p_value, found.estimate.df) == pytest.approx((usual.p_value, usual.estimate.df))
    assert t_test([1e-300, 2e-300, 4e-300]) is None, "their squares vanish"


def test_no_p_value_is_zero() -> None:
    for both in (mcnemar(0, 1_050), mcnemar(3, 5_000)):
        assert 0 < both.p_value < 1e-300 and 0 < both.mid_p <= both.p_value
    assert 0 < (t_test([1e9, 1e9 + 1] * 5_000) or 0) < 1e-300


def test_too_little_has_no_welch_interval() -> None:
    alone = welch([1.0], [0.0, 1.0])
    assert (alone.estimate.mean, alone.estimate.low, alone.p_value, alone.n_first) == (0.5, None, None, 1)
    nothing = welch([], [0.5, 1.0]).to_json()
    assert (nothing["difference"], nothing["means"], nothing["examples"]) == (None, [None, 0.75], [0, 2])


def test_two_samples_in_clusters_have_as_many_degrees_of_freedom_as_clusters() -> None:
    first, second = [0.0, 1.0, 0.5, 0.25], [1.0, 0.0, 0.75, 1.0, 0.5]
    alone = welch(first, second)
    as_clusters = welch(first, second, clusters=([*range(4)], [*range(5)]))
    assert as_clusters.estimate.stderr == pytest.approx(alone.estimate.stderr, rel=1e-12)
    assert (as_clusters.p_value, as_clusters.estimate.df) == pytest.approx((alone.p_value, alone.estimate.df), rel=1e-9)
    # Each value three times over, the three a cluster: no more is known than before.
    thrice = welch([v for v in first for _ in range(3)], [v for v in second for _ in range(3)],
                   clusters=([n // 3 for n in range(12)], [n // 3 for n in range(15)]))  # fmt: skip
    assert (thrice.p_value, thrice.estimate.df) == pytest.approx((alone.p_value, alone.estimate.df), rel=1e-9)
    assert thrice.estimate.clusters == 9
    assert welch(first, second, clusters=([0] * 4, [*range(5)])).p_value is None, "one cluster tells nothing"


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([None, 0.02, None, 0.9]) == [None, 0.04, None, 0.9]
    assert holm([]) == []
    assert holm([0.6, 0.7]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_benjamini_hochberg_is_scipys_and_holm_is_stricter(p_values: list[float]) -> None:
    found = benjamini_hochberg(p_values)
    assert found == pytest.approx(stats.false_discovery_control(p_values).tolist())
    for strict, loose, p in zip(holm(p_values), found, p_values, strict=True):
        assert strict is not None and loose is not None
        assert p <= loose + 1e-12 and loose <= strict + 1e-12 and strict <= min(1.0, len(p_values) * p) + 1e-12


def test_what_is_no_p_value_is_refused() -> None:
    with pytest.raises(ValueError, match="not a p-value"):
        holm([0.5, 1.5])
    with pytest.raises(ValueError, match="not a p-value"):
        benjamini_hochberg([math.nan])
    with pytest.raises(ValueError, match="negative"):
        mcnemar(-1, 2)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.009, 0.02, "pass"),
        (0.01, 0.02, "pass"),
        (-0.01, 0.02, "inconclusive"),
        (-0.05, 0.05, "inconclusive"),
        (-0.05, -0.01, "inconclusive"),
        (-0.05, -0.011, "fail"),
        (None, None, "inconclusive"),
    ],
)
def test_the_verdict_is_read_from_the_interval(low: float | None, high: float | None, verdict: str) -> None:
    assert non_inferiority(Estimate(0.0, 0.1, low, high, "t", 10), 0.01) == verdict


@pytest.mark.parametrize("margin", [-0.01, math.nan, math.inf])
def test_a_margin_is_a_loss(margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        non_inferiority(Estimate(), margin)


def test_the_p_value_of_an_interval_is_below_the_level_where_it_leaves_0_out() -> None:
    student = mean_interval([0.2, 0.4, 0.1, 0.5, 0.3], single_rollout=False)
    assert p_of_interval(student) == pytest.approx(t_test([0.2, 0.4, 0.1, 0.5, 0.3]))
    for low, found in ((0.01, True), (-0.01, False)):
        p_value = p_of_interval(Estimate(0.2, 0.1, low, 0.5, "mover", 10))
        assert p_value is not None and (p_value < 0.05) == found
    assert p_of_interval(Estimate(0.2)) is None
    assert welch([1e200, 2e200], [3e200, 1e200]).p_value == pytest.approx(welch([1.0, 2.0], [3.0, 1.0]).p_value)
