"""Judges: published values of κ and α, corrections by hand, and what is undefined."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.stats.agreement import agreement, cohen_kappa, krippendorff_alpha, rogan_gladen

KRIPPENDORFF = [
    [1, 1, None, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4],
    [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [None, 5, 5, 5], [None, None, 1, 1], [None, 3, None, None],
]  # fmt: skip
"""Four raters, twelve items: Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, section D."""


def test_alpha_has_the_published_values() -> None:
    assert krippendorff_alpha(KRIPPENDORFF) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(KRIPPENDORFF, "ordinal") == pytest.approx(0.815, abs=5e-4)
    assert krippendorff_alpha(KRIPPENDORFF, "interval") == pytest.approx(0.849, abs=5e-4)


RATINGS = st.lists(st.lists(st.one_of(st.none(), st.integers(1, 4)), min_size=3, max_size=3), min_size=1, max_size=7)


@given(RATINGS, st.sampled_from(["nominal", "ordinal", "interval"]))
def test_alpha_agrees_with_its_definition(rows: list[list[int | None]], scale: str) -> None:
    units = [kept for row in rows if len(kept := [r for r in row if r is not None]) > 1]
    every = [rating for unit in units for rating in unit]

    def distance(a: int, b: int) -> float:
        if scale == "nominal":
            return float(a != b)
        if scale == "interval":
            return float((a - b) ** 2)
        low, high = min(a, b), max(a, b)
        between = sum(low <= rating <= high for rating in every)
        return (between - (every.count(a) + every.count(b)) / 2) ** 2 if a != b else 0.0

    found = krippendorff_alpha(rows, scale)  # pyright: ignore[reportArgumentType]
    expected = sum(distance(a, b) for a, b in itertools.permutations(every, 2))
    if not expected:
        assert found is None
        return
    observed = sum(sum(distance(a, b) for a, b in itertools.permutations(u, 2)) / (len(u) - 1) for u in units)
    n = len(every)
    assert found == pytest.approx(1 - (observed / n) / (expected / (n * (n - 1))), abs=1e-9)


def test_kappa_by_hand() -> None:
    # 20 + 15 of 50 alike; both say yes to 25 and 30: chance agrees on (25·30 + 25·20)/50² = 0.5.
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert agreement(first, second) == 0.7
    assert cohen_kappa(first, second) == pytest.approx(0.4)
    assert cohen_kappa(first, first) == 1.0
    assert cohen_kappa(["a", "b"], ["b", "a"]) == -1.0


def test_agreement_by_chance_alone_is_undefined_or_zero() -> None:
    assert cohen_kappa(["yes"] * 4, ["yes"] * 4) is None
    assert cohen_kappa(["yes"] * 4, ["yes", "no", "yes", "yes"]) == 0.0
    assert (agreement([], []), cohen_kappa([], [])) == (None, None)
    assert krippendorff_alpha([[1, None], [None, 2]]) is None
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None
    with pytest.raises(ValueError, match="not a number"):
        krippendorff_alpha([["a", "b"]], "interval")
    with pytest.raises(ValueError, match="but got 1 and 2 labels"):
        cohen_kappa(["a"], ["a", "b"])


def test_the_corrected_share_by_hand() -> None:
    found = rogan_gladen(60, 100, sensitivity=(90, 100), specificity=(80, 100))
    assert found.mean == pytest.approx((0.6 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.low is not None and found.high is not None and found.mean is not None
    assert 0 <= found.low < found.mean < found.high <= 1
    assert (found.method, found.examples) == ("rogan_gladen", 100)
    # A judge of unknown quality says less than one that is known well.
    known = rogan_gladen(60, 100, sensitivity=(9000, 10_000), specificity=(8000, 10_000))
    assert known.low is not None and known.high is not None
    assert known.high - known.low < found.high - found.low
    perfect = rogan_gladen(0, 50, sensitivity=(30, 30), specificity=(30, 30))
    assert (perfect.mean, perfect.low) == (0.0, 0.0) and perfect.high is not None and perfect.high > 0.02


def test_a_judge_without_skill_or_labels_corrects_nothing() -> None:
    for positives, n, se, sp in ((5, 10, (5, 10), (5, 10)), (5, 10, (0, 0), (5, 10)), (0, 0, (9, 10), (9, 10))):
        found = rogan_gladen(positives, n, sensitivity=se, specificity=sp)
        assert (found.mean, found.low, found.method) == (None, None, None)
    # None of 100 called positive by a judge who calls a fifth of the negative ones so: it is not the judge that was
    # measured, and ±0 would be certainty.
    odd = rogan_gladen(0, 100, sensitivity=(45, 50), specificity=(40, 50))
    assert (odd.mean, odd.low, odd.high, odd.method) == (0.0, None, None, None)
    odd = rogan_gladen(1000, 1000, sensitivity=(60, 100), specificity=(60, 100))
    assert (odd.mean, odd.low, odd.high) == (1.0, None, None)
    with pytest.raises(ValueError, match="rogan_gladen"):
        rogan_gladen(11, 10, sensitivity=(1, 1), specificity=(1, 1))


def test_a_rating_that_is_no_number_is_none() -> None:
    ratings = [["a", "a", math.nan], ["b", None, "b"], ["a", "b", math.nan]]
    assert krippendorff_alpha(ratings) == krippendorff_alpha([[r for r in row if r in ("a", "b")] for row in ratings])
