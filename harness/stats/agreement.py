"""How far a judge can be believed: agreement with people, and a share or a mean corrected for the judge's errors. Owns
these figures; how much a judge's own verdicts vary on one answer is `variance.noise` of repeated verdicts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from harness.stats.arrays import column
from harness.stats.intervals import LEVEL, Estimate, same
from harness.stats.quantiles import normal_quantile, t_quantile

if TYPE_CHECKING:
    from harness.stats.arrays import Numbers

Scale: TypeAlias = Literal["nominal", "ordinal", "interval"]
"""What ratings are: names, ranks, or numbers whose distances count."""


def agreement(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """The part of the items that both label alike; None without items. Chance alone may make it high (`cohen_kappa`).

    Raises:
        ValueError: the lengths differ.
    """
    _check(first, second)
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first) if first else None


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Agreement beyond chance: (p_o − p_e) / (1 − p_e). 1 is perfect, 0 what chance gives.

    Returns:
        κ; None without items, and where both use one and the same label throughout: chance agrees as well as they do.

    Raises:
        ValueError: the lengths differ.

    Source: Cohen 1960.
    """
    _check(first, second)
    n = len(first)
    if not n:
        return None
    ours, theirs = Counter(first), Counter(second)
    by_chance = sum(count * theirs[label] for label, count in ours.items())
    if by_chance == n * n:
        return None
    agreed = sum(a == b for a, b in zip(first, second, strict=True))
    return (agreed * n - by_chance) / (n * n - by_chance)


def krippendorff_alpha(ratings: Sequence[Sequence[float | str | None]], scale: Scale = "nominal") -> float | None:
    """Agreement beyond chance of any number of raters who may have left items out: 1 − D_observed / D_expected.

    Args:
        ratings: One row an item, one rating a rater; None or NaN: not rated. Items with fewer than two ratings say
            nothing.
        scale: How far two ratings are apart.

    Returns:
        α; None if no item has two ratings, or all ratings are equal.

    Raises:
        ValueError: a rating that is no finite number, where ranks or distances count.

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
        return _nominal_alpha(units)
    rows = [[_finite(rating) for rating in unit] for unit in units]
    if scale == "ordinal":
        # The ordinal distance of two ranks is that of the middles of their places.
        places: dict[float, float] = {}
        below = 0
        for value, count in sorted(Counter(value for row in rows for value in row).items()):
            places[value] = below + count / 2
            below += count
        rows = [[places[value] for value in row] for row in rows]
    return _interval_alpha(rows)


def rogan_gladen(
    positives: int, n: int, *, sensitivity: tuple[int, int], specificity: tuple[int, int], level: float = LEVEL
) -> Estimate:
    """The share that people would call positive, from what a judge of known errors called so: (p̂+sp−1)/(se+sp−1).

    Args:
        positives: Of `n` items, called positive by the judge.
        n: Items judged.
        sensitivity: (called positive by the judge, of so many that people called positive).
        specificity: (called negative by the judge, of so many that people called negative).
        level: Of confidence.

    Returns:
        The share, cut to 0 and 1, with the interval of Lang and Reiczigel, which allows for the errors being estimates
        themselves. Nothing without items of any of the three kinds, and where the judge is no better than chance; no
        interval where all of it lies below 0 or above 1: no share fits to what was counted and to such errors.

    Raises:
        ValueError: more successes than items.

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


def prediction_powered(judged: Numbers, labelled_judged: Numbers, labels: Numbers, level: float = LEVEL) -> Estimate:
    """The mean that people's labels would have, from few labels and many verdicts of a judge.

    λ·mean(verdicts without a label) + mean(label − λ·verdict), λ chosen to make it as narrow as possible: a judge who
    knows nothing gets λ near 0 and does no harm. Unbiased whatever the judge does, if the labelled items are a random
    part of all.

    Args:
        judged: The judge's scores of items without a label.
        labelled_judged: The judge's scores of items with a label.
        labels: The labels of these, in the same order.
        level: Of confidence.

    Returns:
        The estimate; nothing without labels, no interval with fewer than two.

    Raises:
        ValueError: as many labels as verdicts on them are needed; a value is not finite.

    Source: Angelopoulos, Duchi & Zrnic 2023 (PPI++), arXiv 2311.01453, § 3 and 6.
    """
    many = column(judged, "prediction_powered")
    few = column(labelled_judged, "prediction_powered")
    truth = column(labels, "prediction_powered")
    if len(few) != len(truth):
        raise ValueError(f"prediction_powered: {len(few)} verdicts on {len(truth)} labelled items")
    n, big = len(truth), len(many)
    if not n:
        return Estimate(level=level)
    weight, variance_of_judge = 0.0, 0.0
    if n > 1 and big > 1:
        both = [*few.tolist(), *many.tolist()]
        variance_of_judge = 0.0 if same(min(both), max(both)) else float(_variance(both))
        if variance_of_judge:
            shared = float(((truth - truth.mean()) * (few - few.mean())).sum()) / (n - 1)
            weight = min(1.0, max(0.0, shared / ((1 + n / big) * variance_of_judge)))
    rest = truth - weight * few
    mean = float(rest.mean()) + (weight * float(many.mean()) if weight else 0.0)
    if n < 2:
        return Estimate(mean=mean, examples=n, level=level)
    variance = (weight**2 * variance_of_judge / big if weight else 0.0) + float(rest.var(ddof=1)) / n
    if variance <= 0.0:
        return Estimate(mean=mean, examples=n, level=level)
    stderr = math.sqrt(variance)
    half = t_quantile(0.5 + level / 2, n - 1) * stderr
    return Estimate(mean, stderr, mean - half, mean + half, "ppi", n, level)


def _check(first: Sequence[Hashable], second: Sequence[Hashable]) -> None:
    if len(first) != len(second):
        raise ValueError(f"agreement: {len(first)} labels against {len(second)}")


def _finite(rating: float | str) -> float:
    if isinstance(rating, str) or not math.isfinite(rating):
        raise ValueError(f"krippendorff_alpha: {rating!r} is no number; names have the scale 'nominal'")
    return float(rating)


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _nominal_alpha(units: Sequence[Sequence[Hashable]]) -> float | None:
    totals: Counter[Hashable] = Counter()
    observed: list[float] = []
    for unit in units:
        counts = Counter(unit)
        totals.update(counts)
        observed.append((len(unit) ** 2 - sum(count * count for count in counts.values())) / (len(unit) - 1))
    n = totals.total()
    expected = n * n - sum(count * count for count in totals.values())
    return 1 - (n - 1) * math.fsum(observed) / expected if expected else None


def _interval_alpha(rows: Sequence[Sequence[float]]) -> float | None:
    every = [value for row in rows for value in row]
    if same(min(every), max(every)):
        return None
    # Σ over ordered pairs of squared distances is 2·m·Σ(x − mean)².
    observed = math.fsum(2 * len(row) * _variance(row) for row in rows)
    return 1 - observed / (2 * len(every) * _variance(every))
