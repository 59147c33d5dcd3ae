"""The sign-flip test of paired differences: how often chance alone, by turning signs, would come as far from 0 as what
was seen. Owns this one p-value and how it is counted, sampled or approximated."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal, TypeAlias

from harness.stats.distributions import LEAST_P
from harness.stats.intervals import SAME

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


def sign_flip(differences: Sequence[float]) -> tuple[float, Test]:
    """Two-sided p-value of the hypothesis that each difference is as likely to have the other sign.

    It is no test of the mean: of differences that are not symmetric (many small gains, few large losses) it finds one
    that is not there in up to 37 % of cases with 20 pairs.

    The part of all 2ⁿ sign patterns whose sum is at least as far from 0 as the observed one. Pairs without a difference
    have no part in it; if none differs it is 1, and so it is for a single pair; it is never 0. Patterns are counted
    where that is possible in a fraction of a second: up to 30 differing pairs, and any number whose differences are
    multiples of one unit, as those of 0/1 scores are. Else 9,999 are drawn with a fixed seed; the observed one counts
    as one more. Thousands of pairs of similar weight are left to the central limit theorem.

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
        return max(LEAST_P, _tail_on_lattice(steps, round(observed / unit))), "exact"
    if len(sizes) <= COUNTED_PAIRS:
        return _tail_counted(sizes, least), "exact"
    # Both sums in units of the greatest difference: squares of tiny ones would vanish.
    squares = [(size / sizes[-1]) ** 2 for size in sizes]
    spread = math.fsum(squares)
    if spread**2 / math.fsum(square**2 for square in squares) >= NORMAL_FROM:
        return max(LEAST_P, math.erfc(observed / sizes[-1] / math.sqrt(2 * spread))), "normal"
    return _tail_drawn(sizes, least), "monte_carlo"


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
