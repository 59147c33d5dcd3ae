"""Metrics of k attempts: the probability that at least one, all or a given share of them pass (pass@k, pass^k,
G-Pass@k), the expected best, worst or majority result, and means over examples. The caller decides which attempts pass.

All estimators are unbiased: averages over all subsets of k of the attempts. With fewer than k attempts there is no
estimate."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from harness.stats.clusters import clustered_mean
from harness.stats.intervals import Estimate, rate_interval

Estimator: TypeAlias = Callable[[int, int, int], float]
"""Function (attempts, passed, k) → probability; NaN for fewer than k attempts."""

THRESHOLD_SLACK = 1e-9
"""Tolerance below the threshold at which a reward passes, since 0.7 + 0.2 + 0.1 is 0.9999999999999999."""


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the probability that at least one of `k` attempts passes.

    1 − C(n−c, k) / C(n, k), computed with integers, so without rounding errors.

    Args:
        n: Number of scored attempts at the example.
        c: Number of attempts that passed.
        k: Number of attempts allowed.

    Returns:
        The estimate; NaN if n < k.

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


def g_pass_at_k(n: int, c: int, k: int, tau: float | Fraction) -> float:
    """Unbiased estimate of the probability that at least the share `tau` of `k` attempts passes (G-Pass@k).

    Σ C(c, j) · C(n−c, k−j) / C(n, k) over j from max(1, ⌈τk⌉). With τ near 0 it is pass@k, with τ = 1 pass^k.

    Args:
        n: Number of scored attempts at the example.
        c: Number of attempts that passed.
        k: Number of attempts allowed.
        tau: 0 to 1. If τk exceeds an integer by less than 1e-9, it is rounded down to it.

    Returns:
        The estimate; NaN if n < k.

    Raises:
        ValueError: c is not in 0..n, k < 1, or tau is not in 0..1.

    Source: Liu et al. 2024, arXiv 2412.13147, § 3.
    """
    _check(n, c, k)
    if not 0 <= tau <= 1:
        raise ValueError(f"tau={tau}: needs 0 <= tau <= 1")
    if n < k:
        return math.nan
    least = tau * k if isinstance(tau, Fraction) else tau * k - 1e-9
    return _tail(n, c, k, max(1, math.ceil(least)))


def mg_pass_at_k(n: int, c: int, k: int) -> float:
    """Mean of G-Pass@k over the upper half of thresholds (mG-Pass@k): 2/k · Σ G-Pass@k at i/k, i from ⌈k/2⌉+1 to k.

    Arguments, NaN and errors as for `pass_at_k`; also NaN for k = 1, which has no upper half.

    Source: Liu et al. 2024, arXiv 2412.13147, § 3."""
    _check(n, c, k)
    if n < k or k < 2:
        return math.nan
    return 2 / k * math.fsum(_tail(n, c, k, i) for i in range((k + 1) // 2 + 1, k + 1))


def best_of_k(values: Sequence[float], k: int) -> float:
    """Unbiased estimate of the expected maximum of `k` attempts: Σ x₍ᵢ₎ · C(i−1, k−1) / C(n, k), ascending.

    Args:
        values: Scores of all attempts at the example.
        k: Number of attempts allowed.

    Returns:
        The estimate; NaN for fewer than k values.

    Raises:
        ValueError: k < 1.
    """
    n = len(values)
    _check(n, 0, k)
    if n < k:
        return math.nan
    ways = math.comb(n, k)
    return math.fsum(math.comb(i, k - 1) / ways * value for i, value in enumerate(sorted(values)))


def worst_of_k(values: Sequence[float], k: int) -> float:
    """Unbiased estimate of the expected minimum of `k` attempts; otherwise as `best_of_k`."""
    return -best_of_k([-value for value in values], k) + 0.0


def majority_at_k(votes: Sequence[Hashable], correct: Collection[Hashable], k: int) -> float:
    """Probability that the most frequent answer of `k` attempts is correct, with ties split evenly (maj@k).

    Exact over all subsets of k attempts.

    Args:
        votes: The answer of each attempt at the example.
        correct: The correct answers.
        k: Number of attempts allowed.

    Returns:
        The probability; NaN for fewer than k votes.

    Raises:
        ValueError: k < 1.

    Source: Wang et al. 2022, arXiv 2203.11171 (self-consistency).
    """
    n = len(votes)
    _check(n, 0, k)
    if n < k:
        return math.nan
    counts = Counter(votes)
    found = Fraction(0)
    for answer in counts:
        if answer in correct:
            others = [count for other, count in counts.items() if other != answer]
            found += sum(
                (math.comb(counts[answer], top) * share for top, share in _when_beaten(others, k, counts[answer])),
                Fraction(0),
            )
    return float(found / math.comb(n, k))


def powers_of_two(limit: int) -> tuple[int, ...]:
    """The powers of two up to `limit`: the values of k that a run with `limit` rollouts per example reports."""
    return tuple(1 << i for i in range(limit.bit_length()) if 1 << i <= limit)


@dataclass(frozen=True, slots=True)
class PassRate:
    """Mean of one estimator over examples, for one k."""

    value: float | None
    """Mean over the examples with enough scored rollouts; None if there is no such example."""
    examples: int
    """Number of examples in the mean."""
    excluded: int
    """Number of examples with fewer than k scored rollouts, which are not in the mean."""
    estimate: Estimate = field(default_factory=Estimate, compare=False)
    """The mean with its interval."""


def pass_counts(groups: Iterable[Sequence[float]], threshold: float) -> Counter[tuple[int, int]]:
    """Count examples by (scored rollouts, passed rollouts), as input for `pass_rate`.

    Args:
        groups: The rewards of each example.
        threshold: A rollout passes if its reward is at least this.
    """
    least = threshold - THRESHOLD_SLACK
    return Counter((len(group), sum(reward >= least for reward in group)) for group in groups)


def clustered_pass_rate(
    groups: Iterable[Sequence[float]], clusters: Sequence[Hashable], threshold: float, k: int, estimator: Estimator
) -> PassRate:
    """Mean of `estimator` over examples, with a cluster-robust interval (`clusters.clustered_mean`).

    Args:
        groups: The rewards of each example.
        clusters: Label of each example's cluster.
        threshold: A rollout passes if its reward is at least this.
        k: Number of attempts allowed.
        estimator: As in `pass_rate`.
    """
    least = threshold - THRESHOLD_SLACK
    rates = [estimator(len(group), sum(reward >= least for reward in group), k) for group in groups]
    known = [(rate, label) for rate, label in zip(rates, clusters, strict=True) if not math.isnan(rate)]
    estimate = Estimate()
    if known:
        estimate = clustered_mean([rate for rate, _ in known], [label for _, label in known], limits=(0.0, 1.0))
    return PassRate(estimate.mean, estimate.examples, len(rates) - len(known), estimate)


@dataclass(frozen=True, slots=True)
class PassMeasure:
    """pass@k or pass^k as a value of each example, such as for a comparison."""

    k: int
    of_all: bool = False
    """Whether all k attempts must pass (pass^k); otherwise at least one (pass@k)."""

    @property
    def name(self) -> str:
        """`pass@3` or `pass^3`."""
        return f"pass{'^' if self.of_all else '@'}{self.k}"

    @property
    def estimator(self) -> Estimator:
        """The estimator of the rate."""
        return pass_hat_k if self.of_all else pass_at_k

    def values(self, passes: Sequence[float]) -> list[float]:
        """Return the example's rate as a list with one value; empty if there are fewer than k attempts.

        Args:
            passes: 1 for each attempt that passed, 0 for each other one.
        """
        rate = self.estimator(len(passes), sum(each >= 1 for each in passes), self.k)
        return [] if math.isnan(rate) else [rate]

    def rate(self, groups: Sequence[Sequence[float]], clusters: Sequence[Hashable] | None = None) -> PassRate:
        """Return the mean over examples.

        Args:
            groups: The attempts of each example, as in `values`.
            clusters: Label of each example's cluster; None if examples are independent.
        """
        if clusters is None:
            return pass_rate(pass_counts(groups, 1.0), self.k, self.estimator)
        return clustered_pass_rate(groups, clusters, 1.0, self.k, self.estimator)


def pass_measure(name: str) -> PassMeasure | None:
    """Parse `pass@3` or `pass^3`; None for another name."""
    found = re.fullmatch(r"pass([@^])([1-9][0-9]{0,5})", name)
    return None if found is None else PassMeasure(int(found[2]), found[1] == "^")


def pass_measures(ks: Iterable[int]) -> list[PassMeasure]:
    """pass@k and pass^k for each k; for k = 1, where both are the same, only pass@1."""
    return [PassMeasure(k, of_all) for k in ks for of_all in (False, True) if k > 1 or not of_all]


def pass_rate(counts: Mapping[tuple[int, int], int], k: int, estimator: Estimator) -> PassRate:
    """Mean of `estimator` over examples.

    Args:
        counts: (scored rollouts n, passed c) → number of examples with these counts; from `pass_counts`.
        k: Number of attempts allowed.
        estimator: `pass_at_k`, `pass_hat_k` or another function with these arguments.
    """
    rates: list[tuple[float, int]] = []
    excluded = 0
    for (n, c), examples in counts.items():
        value = estimator(n, c, k)
        if math.isnan(value):
            excluded += examples
        else:
            rates.append((value, examples))
    # Rates are passes and failures if every example has one rollout.
    estimate = rate_interval(rates, single_rollout=k == 1 and all(n <= 1 for n, _ in counts))
    return PassRate(estimate.mean, estimate.examples, excluded, estimate)


def _tail(n: int, c: int, k: int, least: int) -> float:
    """Probability that at least `least` of k attempts pass."""
    found = sum(math.comb(c, j) * math.comb(n - c, k - j) for j in range(least, min(c, k) + 1))
    return found / math.comb(n, k)


def _when_beaten(others: Sequence[int], k: int, most: int) -> Iterable[tuple[int, Fraction]]:
    """Return, for each number `top` of votes for one answer, in how many ways the other answers can share the remaining
    votes with at most `top` each; a way in which m answers tie counts 1/m."""
    for top in range(1, min(k, most) + 1):
        # (votes assigned, answers that tie) → ways
        ways: dict[tuple[int, int], int] = {(0, 0): 1}
        for count in others:
            grown: Counter[tuple[int, int]] = Counter()
            for (given, tied), number in ways.items():
                for votes in range(min(count, top, k - top - given) + 1):
                    grown[given + votes, tied + (votes == top)] += number * math.comb(count, votes)
            ways = grown
        yield top, sum((Fraction(n, tied + 1) for (given, tied), n in ways.items() if given == k - top), Fraction(0))


def _check(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"n={n} attempts, of which c={c} passed, k={k}: needs 0 <= c <= n and k >= 1")
