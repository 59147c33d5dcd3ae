"""pass@k and pass^k: how likely at least one, or every one, of k attempts passes. Owns the two estimators and their
mean over examples; what counts as passing is the caller's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of `k` attempts passes.

    1 − C(n−c, k) / C(n, k), from whole numbers, so nothing is lost to rounding.

    Args:
        n: Scored attempts at the example.
        c: How many of them passed.
        k: Attempts allowed.

    Returns:
        The estimate; NaN if n < k, where there is none.

    Raises:
        ValueError: c is not in 0..n, or k < 1.

    Source: Chen et al. 2021, arXiv 2107.03374, § 2.1.
    """
    _check(n, c, k)
    if n < k:
        return math.nan
    ways = math.comb(n, k)
    return (ways - math.comb(n - c, k)) / ways


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the probability that all of `k` attempts pass (pass^k): C(c, k) / C(n, k).

    Arguments, NaN and errors as for `pass_at_k`.

    Source: Yao et al. 2024 (τ-bench), arXiv 2406.12045, § 4.
    """
    _check(n, c, k)
    if n < k:
        return math.nan
    return math.comb(c, k) / math.comb(n, k)


def powers_of_two(limit: int) -> tuple[int, ...]:
    """1, 2, 4, … up to `limit`: the k that a run with `limit` rollouts per example reports."""
    return tuple(1 << i for i in range(limit.bit_length()) if 1 << i <= limit)


@dataclass(frozen=True, slots=True)
class PassRate:
    """One estimator at one k, over examples."""

    value: float | None
    """Mean over the examples that have enough scored rollouts; None if there are none."""
    examples: int
    """Examples in the mean."""
    excluded: int
    """Examples with fewer than k scored rollouts: they say nothing about k attempts."""


def pass_rate(counts: Mapping[tuple[int, int], int], k: int, estimator: Callable[[int, int, int], float]) -> PassRate:
    """The mean of `estimator` over examples.

    Args:
        counts: (scored rollouts n, passed c) → examples with these counts. Few pairs occur, however many examples.
        k: Attempts allowed.
        estimator: `pass_at_k` or `pass_hat_k`.
    """
    terms: list[float] = []
    used = excluded = 0
    for (n, c), examples in counts.items():
        value = estimator(n, c, k)
        if math.isnan(value):
            excluded += examples
        else:
            used += examples
            terms.append(value * examples)
    return PassRate(math.fsum(terms) / used if used else None, used, excluded)


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"n={n}, c={c}, k={k}: needs 0 <= c <= n and k >= 1")
