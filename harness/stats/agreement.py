"""Reliability of a judge model: its agreement with people, and proportions corrected for its errors. `labels` has means
corrected by labels, and intervals of agreement. For the variation of a judge's repeated verdicts on one answer use
`variance.noise`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias

from harness.stats.distributions import normal_quantile
from harness.stats.intervals import LEVEL, Estimate, same, sample_variance

Scale: TypeAlias = Literal["nominal", "ordinal", "interval"]
"""Scale of ratings: categories, ranks, or numbers."""


def agreement(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Share of items that both raters label equally, some by chance (see `cohen_kappa`); None if there are no items.

    Raises:
        ValueError: the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"agreement: needs two labels per item, but got {len(first)} and {len(second)} labels")
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first) if first else None


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa: agreement beyond chance, (p_o − p_e) / (1 − p_e). 1 is perfect agreement, 0 the agreement expected
    by chance.

    Returns:
        κ; None if there are no items, or if both raters give all items one label, so that chance agreement is perfect.

    Raises:
        ValueError: the lengths differ.

    Source: Cohen 1960.
    """
    observed, n, theirs = agreement(first, second), len(first), Counter(second)
    by_chance = sum(count * theirs[label] for label, count in Counter(first).items())
    if observed is None or by_chance == n * n:
        return None
    return (round(observed * n) * n - by_chance) / (n * n - by_chance)


def krippendorff_alpha(ratings: Sequence[Sequence[float | str | None]], scale: Scale = "nominal") -> float | None:
    """Krippendorff's alpha: agreement beyond chance among any number of raters, with missing ratings: 1 − D_observed /
    D_expected.

    Args:
        ratings: One row per item, one rating per rater; None or NaN if missing. Items with fewer than two ratings are
            ignored.
        scale: Determines the distance between two ratings.

    Returns:
        α; None if no item has two ratings, or all ratings are equal.

    Raises:
        ValueError: for an ordinal or interval scale, a rating is not a finite number.

    Source: Krippendorff 2004, Content Analysis, ch. 11.
    """
    units = [
        kept
        for row in ratings
        if len(kept := [rating for rating in row if rating is not None and rating == rating]) > 1
    ]
    if not units:
        return None
    if scale == "nominal":
        totals: Counter[Hashable] = Counter()
        distances: list[float] = []
        for unit in units:
            counts = Counter(unit)
            totals.update(counts)
            distances.append((len(unit) ** 2 - sum(count * count for count in counts.values())) / (len(unit) - 1))
        n = totals.total()
        expected = n * n - sum(count * count for count in totals.values())
        return 1 - (n - 1) * math.fsum(distances) / expected if expected else None
    for rating in (rating for unit in units for rating in unit):
        if isinstance(rating, str) or not math.isfinite(rating):
            raise ValueError(f"krippendorff_alpha: {rating!r} is not a number; for names use the scale 'nominal'")
    rows = [[float(rating) for rating in unit] for unit in units]
    if scale == "ordinal":
        # The ordinal distance of two ranks is the distance of the midpoints of their positions.
        places: dict[float, float] = {}
        below = 0
        for value, count in sorted(Counter(value for row in rows for value in row).items()):
            places[value] = below + count / 2
            below += count
        rows = [[places[value] for value in row] for row in rows]
    every = [value for row in rows for value in row]
    if same(min(every), max(every)):
        return None
    # The sum of squared distances over ordered pairs is 2·m·Σ(x − mean)².
    observed = math.fsum(2 * len(row) * sample_variance(row) for row in rows)
    return 1 - observed / (2 * len(every) * sample_variance(every))


def rogan_gladen(
    positives: int, n: int, *, sensitivity: tuple[int, int], specificity: tuple[int, int], level: float = LEVEL
) -> Estimate:
    """Estimate the true share of positives from the verdicts of an imperfect judge: (p̂+sp−1)/(se+sp−1).

    Args:
        positives: Number of items that the judge called positive.
        n: Number of items judged.
        sensitivity: (called positive by the judge, number of items that people called positive).
        specificity: (called negative by the judge, number of items that people called negative).
        level: Confidence level.

    Returns:
        The share, clipped to 0 and 1, with the interval of Lang and Reiczigel, which takes the uncertainty of
        sensitivity and specificity into account. An empty estimate if one of the three numbers of items is 0, or if the
        judge is no better than chance. No interval if all of it is below 0 or above 1, since no share is consistent
        with the counts.

    Raises:
        ValueError: a count of successes exceeds its number of items.

    Source: Rogan & Gladen 1978; Lang & Reiczigel 2014.
    """
    counts = ((positives, n), sensitivity, specificity)
    if any(not 0 <= hits <= size for hits, size in counts):
        raise ValueError(f"rogan_gladen: {counts}: needs 0 <= successes <= items")
    if any(size == 0 for _, size in counts):
        return Estimate(examples=n, level=level)
    p, se, sp = (hits / size for hits, size in counts)
    if se + sp - 1 <= 0:
        return Estimate(examples=n, level=level)
    mean = min(1.0, max(0.0, (p + sp - 1) / (se + sp - 1)))
    z = normal_quantile(0.5 + level / 2)
    size, size_se, size_sp = n + z * z, sensitivity[1] + 2, specificity[1] + 2
    p, se, sp = (positives + z * z / 2) / size, (sensitivity[0] + 1) / size_se, (specificity[0] + 1) / size_sp
    if se + sp - 1 <= 0:
        return Estimate(mean=mean, examples=n, level=level)
    share = (p + sp - 1) / (se + sp - 1)
    of_se, of_sp = se * (1 - se) / size_se, sp * (1 - sp) / size_sp
    shift = 2 * z * z * (share * of_se - (1 - share) * of_sp)
    variance = p * (1 - p) / size + share**2 * of_se + (1 - share) ** 2 * of_sp
    stderr = math.sqrt(variance) / (se + sp - 1)
    low, high = share + shift - z * stderr, share + shift + z * stderr
    if high <= 0.0 or low >= 1.0:
        return Estimate(mean=mean, examples=n, level=level)
    low, high = min(max(0.0, low), mean), max(min(1.0, high), mean)
    return Estimate(mean, stderr, low, high, "rogan_gladen", n, level)
