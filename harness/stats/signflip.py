"""The sign-flip test of paired differences: the probability that a random choice of signs gives a sum as far from 0 as
the observed one."""

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
"""How the distribution over all sign patterns was computed: by counting, sampling, or normal approximation."""

DRAWS = 9_999
"""Number of random sign patterns, if they cannot be counted; 10,000 with the observed one."""

SEED = 20_240_901
"""Seed of the random patterns: the same numbers give the same p-value on every machine."""

COUNTED_PAIRS = 30
"""Maximum number of differing pairs for counting all patterns: two halves of 2¹⁵ sums each."""

LATTICE_WORK = 4_000_000
"""Maximum number of additions for counting on a lattice: about a quarter of a second."""

LARGEST_DENOMINATOR = 10_000
"""Maximum denominator of differences that are treated as exact fractions: scores in hundredths, means of up to a
hundred rollouts."""

NORMAL_FROM = 2_000
"""Effective number of differing pairs above which the normal approximation is more accurate than sampling."""


def sign_flip(differences: Sequence[float]) -> tuple[float, Test]:
    """Two-sided p-value of the hypothesis that both signs of each difference are equally likely.

    This is not a test of the mean. For asymmetric differences (many small gains, few large losses) its rate of false
    findings is up to 37 % with 20 pairs.

    The p-value is the share of all 2ⁿ sign patterns whose sum is at least as far from 0 as the observed one. Pairs
    without a difference are ignored. It is 1 for a single pair or if no pair differs, and never 0. Patterns are counted
    if that takes a fraction of a second: for up to 30 differing pairs, and for any number of differences that are
    multiples of one unit, such as those of 0/1 scores. Otherwise 9,999 patterns are drawn with a fixed seed, and the
    observed one is added. For thousands of pairs of similar weight the normal approximation is used.

    Args:
        differences: One finite value per pair, in any order.

    Source: Fisher 1935, The Design of Experiments, § 21; Phipson & Smyth 2010 (p-values of sampled patterns).
    """
    sizes = sorted(abs(d) for d in differences if d)
    observed = abs(math.fsum(differences))
    # Sums of equal terms in another order may differ by rounding; they count as equally extreme.
    least = observed - SAME * math.fsum(sizes)
    if least <= 0:
        return 1.0, "exact"  # also if no pair differs
    lattice = _lattice(sizes)
    if lattice is not None:
        unit, steps = lattice
        return max(LEAST_P, _tail_on_lattice(steps, round(observed / unit))), "exact"
    if len(sizes) <= COUNTED_PAIRS:
        return _tail_counted(sizes, least), "exact"
    # In units of the largest difference, since squares of very small ones underflow.
    squares = [(size / sizes[-1]) ** 2 for size in sizes]
    spread = math.fsum(squares)
    if spread**2 / math.fsum(square**2 for square in squares) >= NORMAL_FROM:
        return max(LEAST_P, math.erfc(observed / sizes[-1] / math.sqrt(2 * spread))), "normal"
    return _tail_drawn(sizes, least), "monte_carlo"


def _lattice(sizes: Sequence[float]) -> tuple[float, list[int]] | None:
    """Express the sizes as multiples of a common unit; None if they have no common unit, or one that is too small."""
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
    """Probability that the signed sum is at least `least` away from 0, by matching the sorted sums of two halves."""
    middle = len(sizes) // 2
    low, high = sorted(_signed_sums(sizes[:middle])), sorted(_signed_sums(sizes[middle:]))
    found, j = 0, len(high)
    for total in low:
        while j > 0 and total + high[j - 1] >= least:
            j -= 1
        found += len(high) - j
    # The number of sums below −least is the same.
    return min(1.0, 2 * found / 2 ** len(sizes))


def _tail_drawn(sizes: Sequence[float], least: float) -> float:
    generator = random.Random(SEED)
    totals = [0.0] * DRAWS
    bounds = [*range(0, len(sizes), 8), len(sizes)]
    for start, stop in pairwise(bounds):
        # One byte per draw gives the signs of eight pairs.
        sums = _signed_sums([*sizes[start:stop], *[0.0] * (8 - stop + start)])
        totals = [total + sums[byte] for total, byte in zip(totals, generator.randbytes(DRAWS), strict=True)]
    return (1 + sum(abs(total) >= least for total in totals)) / (1 + DRAWS)


def _signed_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [total + signed for total in sums for signed in (size, -size)]
    return sums
