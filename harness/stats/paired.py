"""Two measurements of the same things, compared pair by pair: mean difference with its interval, a p-value without an
assumption about the shape of the scores, and wins, losses and ties. Owns these estimators; what is paired with what,
and what a missing value means, is the caller's.

The pair is the sampling unit: reduce rollouts to one value an example before calling anything here. Where both sides
agree in which examples are hard, the differences spread less than either side's scores, and the interval is narrower
than that of two independent samples."""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal, TypeAlias, TypeVar

from harness.stats.intervals import SAME, Estimate, mean_interval, same
from harness.stats.summary import number
from harness.types import JsonDict

Test: TypeAlias = Literal["exact", "monte_carlo", "normal"]
"""How the distribution over all sign patterns was taken: counted, sampled, or approximated."""

DRAWS = 9_999
"""Of sign patterns, where they cannot be counted; with the observed one they make 10,000."""

SEED = 20_240_901
"""Of these draws: the same numbers give the same p-value, on every machine."""

COUNTED_PAIRS = 30
"""Pairs that differ up to which every pattern is counted: two halves of 2¹⁵ sums each."""

LATTICE_WORK = 4_000_000
"""Additions that counting on a lattice may take: about a quarter of a second."""

LARGEST_DENOMINATOR = 10_000
"""Of differences that are taken for exact fractions: scores in hundredths, means of up to a hundred rollouts."""

NORMAL_FROM = 2_000
"""Effective number of differing pairs from which the normal approximation errs less than sampling does."""

METHODS: dict[str, str] = {
    "difference": "mean over pairs of first minus second; each value is one example's mean over its rollouts",
    "ci95": "95 % Student t interval on the differences, n-1 degrees of freedom (Miller 2024, arXiv 2411.00640, § 4)",
    "p_value": "two-sided sign-flip permutation test of the differences (Fisher 1935; on 0/1 scores McNemar's exact)",
    "exact": "all sign patterns counted",
    "monte_carlo": f"(1 + patterns at least as extreme) / (1 + {DRAWS}), fixed seed (Phipson & Smyth 2010)",
    "normal": "normal approximation of the sign-flip distribution",
}
"""Travels with the numbers, so that a comparison explains itself."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Paired:
    """First minus second, over the pairs. What is undefined is None."""

    estimate: Estimate
    """The mean difference; without an interval for one pair, and where all differences are equal."""
    p_value: float | None
    """Two-sided; None without a pair, 1 if no pair differs."""
    test: Test | None
    """How the p-value was made."""
    wins: int
    """Pairs in which the first is greater."""
    losses: int
    ties: int
    first: float | None
    """Mean of the first over the pairs."""
    second: float | None
    correlation: float | None
    """Pearson's, of the two; None with fewer than two pairs and where one side is constant."""
    only_first: int = 0
    """Left out, because the second has no value for it."""
    only_second: int = 0

    @property
    def pairs(self) -> int:
        """Pairs compared."""
        return self.estimate.examples

    def to_json(self) -> JsonDict:
        """No NaN, no infinity; what is undefined is null."""
        e = self.estimate
        return {
            "difference": number(e.mean),
            "stderr": number(e.stderr),
            "ci95": None if e.low is None or e.high is None else [number(e.low), number(e.high)],
            "p_value": number(self.p_value),
            "test": self.test,
            "pairs": self.pairs,
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.ties,
            "means": [number(self.first), number(self.second)],
            "correlation": number(self.correlation),
            "only_first": self.only_first,
            "only_second": self.only_second,
        }


def paired_by_key(first: Mapping[Key, float], second: Mapping[Key, float]) -> Paired:
    """Compare the two on the keys that both have; the others are counted and left out.

    Args:
        first: One finite value an example, by anything that names the example.
        second: The same of the other side.
    """
    common = [key for key in first if key in second]
    paired = paired_difference([first[key] for key in common], [second[key] for key in common])
    return replace(paired, only_first=len(first) - len(common), only_second=len(second) - len(common))


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare `first[i]` with `second[i]`.

    Values that differ by no more than rounding are a tie and their difference is 0. Swapping the sides changes signs
    and nothing else; the order of the pairs changes nothing.

    Args:
        first: One finite value a pair.
        second: As many.

    Raises:
        ValueError: the lengths differ, or a value is not finite.

    Source: Miller 2024, arXiv 2411.00640, § 4 (paired standard error); Fisher 1935 (randomisation test).
    """
    if len(first) != len(second):
        raise ValueError(f"paired_difference: {len(first)} values against {len(second)}")
    if not all(map(math.isfinite, (*first, *second))):
        raise ValueError("paired_difference: a value is not finite")
    differences = [0.0 if same(min(a, b), max(a, b)) else a - b for a, b in zip(first, second, strict=True)]
    wins = sum(d > 0 for d in differences)
    losses = sum(d < 0 for d in differences)
    p_value, test = sign_flip(differences) if differences else (None, None)
    return Paired(
        estimate=_estimate(differences),
        p_value=p_value,
        test=test,
        wins=wins,
        losses=losses,
        ties=len(differences) - wins - losses,
        first=_mean(first),
        second=_mean(second),
        correlation=_correlation(first, second),
    )


def sign_flip(differences: Sequence[float]) -> tuple[float, Test]:
    """Two-sided p-value of the hypothesis that each difference is as likely to have the other sign.

    The part of all 2ⁿ sign patterns whose sum is at least as far from 0 as the observed one. Pairs without a difference
    have no part in it; if none differs it is 1, and so it is for a single pair. Patterns are counted where that is
    possible in a fraction of a second: up to 30 differing pairs, and any number whose differences are multiples of one
    unit, as those of 0/1 scores are. Else 9,999 are drawn with a fixed seed; the observed one counts as one more, so
    that the value is never 0. Thousands of pairs of similar weight are left to the central limit theorem.

    Args:
        differences: Finite, one a pair, in any order.

    Source: Fisher 1935, The Design of Experiments, § 21; Phipson & Smyth 2010 (p-values of sampled patterns).
    """
    sizes = sorted(abs(d) for d in differences if d)
    observed = abs(math.fsum(differences))
    # Sums of equal terms in another order differ by rounding; they are no less extreme.
    least = observed - SAME * math.fsum(sizes)
    if least <= 0:
        return 1.0, "exact"  # so it is, too, if no pair differs
    lattice = _lattice(sizes)
    if lattice is not None:
        unit, steps = lattice
        return _tail_on_lattice(steps, round(observed / unit)), "exact"
    if len(sizes) <= COUNTED_PAIRS:
        return _tail_counted(sizes, least), "exact"
    # Both sums in units of the greatest difference: squares of tiny ones would vanish.
    squares = [(size / sizes[-1]) ** 2 for size in sizes]
    spread = math.fsum(squares)
    if spread**2 / math.fsum(square**2 for square in squares) >= NORMAL_FROM:
        return math.erfc(observed / sizes[-1] / math.sqrt(2 * spread)), "normal"
    return _tail_drawn(sizes, least), "monte_carlo"


def _estimate(differences: Sequence[float]) -> Estimate:
    if differences and same(min(differences), max(differences)):
        # Nothing is known about the spread. (The Wilson interval of equal scores is one of proportions.)
        return Estimate(mean=_mean(differences), examples=len(differences))
    return mean_interval(differences, single_rollout=False)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    x, y = _deviations(first), _deviations(second)
    if not x or not y:
        return None
    norms = math.fsum(a * a for a in x) * math.fsum(b * b for b in y)
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.sqrt(norms)))


def _deviations(values: Sequence[float]) -> list[float]:
    """From the mean, in units of the largest, whose square neither vanishes nor overflows; none if all are equal."""
    if not values or same(min(values), max(values)):
        return []
    mean = math.fsum(values) / len(values)
    largest = max(abs(value - mean) for value in values)
    return [(value - mean) / largest for value in values]


def _lattice(sizes: Sequence[float]) -> tuple[float, list[int]] | None:
    """The sizes as multiples of a unit; None if they have none, or too fine a one."""
    largest, denominator = sizes[-1], 1
    fractions: dict[float, Fraction] = {}
    for size in sizes:
        if size not in fractions:
            fraction = Fraction(size).limit_denominator(LARGEST_DENOMINATOR)
            denominator = math.lcm(denominator, fraction.denominator)
            if abs(fraction - Fraction(size)) > SAME * largest or denominator > LATTICE_WORK:
                return None
            fractions[size] = fraction
    steps = [int(fractions[size] * denominator) for size in sizes]
    divisor = math.gcd(*steps)
    steps = [step // divisor for step in steps]
    if sum(steps) * len(steps) > LATTICE_WORK:
        return None
    return divisor / denominator, steps


def _tail_on_lattice(steps: Sequence[int], observed: int) -> float:
    """Probability that the signed sum of `steps` is at least `observed` away from 0."""
    chances = [1.0]
    for step in steps:
        gap = [0.0] * step
        chances = [(a + b) / 2 for a, b in zip(chances + gap, gap + chances, strict=True)]
    total = sum(steps)
    # Position p is the sum of the positive steps: the signed sum is p − (total − p).
    return min(1.0, math.fsum(c for p, c in enumerate(chances) if abs(2 * p - total) >= observed))


def _tail_counted(sizes: Sequence[float], least: float) -> float:
    """The same for any sizes, by two halves whose sums are matched in order."""
    middle = len(sizes) // 2
    low, high = sorted(_signed_sums(sizes[:middle])), sorted(_signed_sums(sizes[middle:]))
    found, j = 0, len(high)
    for total in low:
        while j > 0 and total + high[j - 1] >= least:
            j -= 1
        found += len(high) - j
    # As many sums lie below −least.
    return min(1.0, 2 * found / 2 ** len(sizes))


def _tail_drawn(sizes: Sequence[float], least: float) -> float:
    generator = random.Random(SEED)
    totals = [0.0] * DRAWS
    bounds = [*range(0, len(sizes), 8), len(sizes)]
    for start, stop in pairwise(bounds):
        # A byte a draw stands for the signs of eight pairs.
        sums = _signed_sums([*sizes[start:stop], *[0.0] * (8 - stop + start)])
        totals = [total + sums[byte] for total, byte in zip(totals, generator.randbytes(DRAWS), strict=True)]
    return (1 + sum(abs(total) >= least for total in totals)) / (1 + DRAWS)


def _signed_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [total + signed for total in sums for signed in (size, -size)]
    return sums
