"""k attempts instead of one, against published values and against counting every subset."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.intervals import Estimate, mean_interval, share_interval
from harness.stats.passk import (
    PassRate,
    best_of_k,
    g_pass_at_k,
    majority_at_k,
    mg_pass_at_k,
    pass_at_k,
    pass_counts,
    pass_hat_k,
    pass_rate,
    powers_of_two,
    worst_of_k,
)

T = TypeVar("T")
COUNTS = st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n)))


def listed(values: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[list[T], int]]:
    """Values of one example's attempts, and how many of them to choose."""
    lists = st.lists(values, min_size=1, max_size=8)
    return lists.flatmap(lambda chosen: st.tuples(st.just(chosen), st.integers(1, len(chosen))))


@pytest.mark.parametrize(("k", "expected"), [(1, 0.3), (2, 0.533333), (5, 0.916667), (8, 1.0)])
def test_pass_at_k_has_the_reference_values(k: int, expected: float) -> None:
    assert pass_at_k(10, 3, k) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("k", "expected"), [(1, 0.3), (2, 0.066667), (3, 0.008333), (4, 0.0), (10, 0.0)])
def test_pass_hat_k_has_the_reference_values(k: int, expected: float) -> None:
    assert pass_hat_k(10, 3, k) == pytest.approx(expected, abs=5e-7)


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_both_are_the_share_of_subsets(case: tuple[int, int, int]) -> None:
    n, c, k = case
    outcomes = [True] * c + [False] * (n - c)
    subsets = list(combinations(outcomes, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets), abs=1e-15)
    assert pass_hat_k(n, c, k) == pytest.approx(sum(all(s) for s in subsets) / len(subsets), abs=1e-15)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_the_product_form_of_the_paper_agrees(case: tuple[int, int, int]) -> None:
    n, c, k = case
    paper = 1.0 if n - c < k else 1.0 - math.prod(1.0 - k / j for j in range(n - c + 1, n + 1))
    assert pass_at_k(n, c, k) == pytest.approx(paper, abs=1e-9)


def test_fewer_rollouts_than_k_is_undefined_not_zero_or_one() -> None:
    assert math.isnan(pass_at_k(3, 3, 4))
    assert math.isnan(pass_hat_k(3, 0, 4))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="needs"):
        pass_at_k(n, c, k)
    with pytest.raises(ValueError, match="needs"):
        pass_hat_k(n, c, k)


def test_the_mean_leaves_short_examples_out_and_counts_them() -> None:
    counts = {(4, 4): 1, (4, 2): 2, (4, 0): 1, (3, 3): 5}
    assert pass_rate(counts, 4, pass_at_k) == PassRate(0.75, examples=4, excluded=5)
    assert pass_rate(counts, 4, pass_hat_k) == PassRate(0.25, examples=4, excluded=5)
    assert pass_rate({(3, 3): 5}, 4, pass_at_k) == PassRate(None, examples=0, excluded=5)
    assert pass_rate({}, 1, pass_at_k) == PassRate(None, examples=0, excluded=0)


@pytest.mark.parametrize(
    ("limit", "powers"),
    [(0, ()), (1, (1,)), (2, (1, 2)), (3, (1, 2)), (4, (1, 2, 4)), (5, (1, 2, 4)), (9, (1, 2, 4, 8))],
)
def test_powers_of_two(limit: int, powers: tuple[int, ...]) -> None:
    assert powers_of_two(limit) == powers


def every_choice(n: int, c: int, k: int) -> list[int]:
    """How many of the chosen pass, for every way to choose k of n attempts of which c pass."""
    return [sum(index < c for index in chosen) for chosen in combinations(range(n), k)]


def test_g_pass_has_the_reference_values() -> None:
    assert g_pass_at_k(16, 12, 8, 0.75) == pytest.approx(0.715385, abs=5e-7)
    assert g_pass_at_k(16, 12, 8, 1.0) == pytest.approx(0.038462, abs=5e-7)
    assert mg_pass_at_k(16, 12, 8) == pytest.approx(0.5, abs=5e-7)


@given(COUNTS, st.sampled_from([0.0, 0.25, 0.3, 0.5, 0.7, 0.75, 1.0]))
def test_g_pass_is_the_share_of_choices(case: tuple[int, int, int], tau: float) -> None:
    n, c, k = case
    passing = every_choice(n, c, k)
    least = max(1, math.ceil(round(tau * k, 6)))
    assert g_pass_at_k(n, c, k, tau) == pytest.approx(sum(p >= least for p in passing) / len(passing))
    assert g_pass_at_k(n, c, k, Fraction(round(100 * tau), 100)) == g_pass_at_k(n, c, k, tau)
    assert g_pass_at_k(n, c, k, 0.0) == pytest.approx(pass_at_k(n, c, k))
    assert g_pass_at_k(n, c, k, 1.0) == pytest.approx(pass_hat_k(n, c, k))
    if k > 1:
        upper = range(math.ceil(k / 2) + 1, k + 1)
        assert mg_pass_at_k(n, c, k) == pytest.approx(
            2 / k * sum(sum(p >= i for p in passing) / len(passing) for i in upper)
        )


def test_a_threshold_that_rounding_lifted_is_no_attempt_more() -> None:
    assert math.ceil(0.07 * 100) == 8  # 7.000000000000001
    assert g_pass_at_k(100, 7, 100, 0.07) == 1.0


def test_best_and_worst_have_the_reference_values() -> None:
    values = [0.5, 0.1, 0.9, 0.4]
    assert best_of_k(values, 2) == pytest.approx(0.683333, abs=5e-7)
    assert worst_of_k(values, 2) == pytest.approx(0.266667, abs=5e-7)


@given(listed(st.floats(-5, 5)))
def test_best_and_worst_are_means_over_choices(case: tuple[list[float], int]) -> None:
    values, k = case
    choices = list(combinations(values, k))
    assert best_of_k(values, k) == pytest.approx(sum(map(max, choices)) / len(choices), abs=1e-9)
    assert worst_of_k(values, k) == pytest.approx(sum(map(min, choices)) / len(choices), abs=1e-9)
    assert math.isnan(best_of_k(values, len(values) + 1)) and math.isnan(worst_of_k(values, len(values) + 1))


@given(listed(st.sampled_from("abc")))
def test_the_majority_is_a_mean_over_choices(case: tuple[list[str], int]) -> None:
    votes, k = case
    shares: list[Fraction] = []
    for chosen in combinations(votes, k):
        top = max(chosen.count(answer) for answer in set(chosen))
        tied = [answer for answer in set(chosen) if chosen.count(answer) == top]
        shares.append(Fraction(sum(answer in ("a", "c") for answer in tied), len(tied)))
    assert majority_at_k(votes, {"a", "c"}, k) == pytest.approx(float(sum(shares) / len(shares)))


def test_too_few_attempts_have_no_estimate() -> None:
    assert math.isnan(g_pass_at_k(2, 1, 3, 0.5)) and math.isnan(majority_at_k(["a"], {"a"}, 2))
    assert math.isnan(mg_pass_at_k(2, 1, 3)) and math.isnan(mg_pass_at_k(2, 1, 1))
    with pytest.raises(ValueError, match="tau"):
        g_pass_at_k(4, 2, 2, 1.5)


def test_a_rate_has_the_interval_of_its_examples() -> None:
    groups = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0]]
    counts = pass_counts(groups, 1.0)
    assert counts == {(2, 1): 1, (2, 2): 1, (2, 0): 1, (1, 1): 1}
    rate = pass_rate(counts, 1, pass_at_k)
    expected = mean_interval([0.5, 1.0, 0.0, 1.0], single_rollout=False, binary=True)
    assert (rate.estimate.stderr, rate.estimate.low, rate.estimate.method) == (
        pytest.approx(expected.stderr), pytest.approx(expected.low), "adjusted_t",
    )  # fmt: skip
    twice = pass_rate(counts, 2, pass_at_k)
    assert (twice.examples, twice.excluded) == (3, 1)
    assert (twice.value, twice.estimate.method) == (pytest.approx(2 / 3), "adjusted_t")
    single = pass_rate({(1, 1): 8, (1, 0): 2}, 1, pass_hat_k)
    assert (single.estimate.low, single.estimate.high) == share_interval(8, 10)
    assert single.estimate.method == "wilson"
    assert pass_rate({(2, 2): 10}, 2, pass_at_k).estimate.low == pytest.approx(0.704226, abs=5e-7)
    assert pass_rate({}, 1, pass_at_k).estimate == Estimate()
    many = pass_rate({(4, 1): 400, (4, 3): 600}, 1, pass_at_k)
    assert (many.estimate.method, many.value) == ("t", pytest.approx(0.55))
    assert pass_counts([[0.7 + 0.2 + 0.1]], 1.0) == {(1, 1): 1}


def test_a_rate_leaves_out_what_has_too_few_attempts() -> None:
    rate = pass_rate(pass_counts([[0.1, 0.9], [0.5], [], [0.2, 0.4]], 0.5), 2, pass_at_k)
    assert (rate.value, rate.excluded) == (0.5, 2)
