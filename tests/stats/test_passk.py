"""pass@k and pass^k against published values and against counting every subset."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.passk import PassRate, pass_at_k, pass_hat_k, pass_rate, powers_of_two


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
