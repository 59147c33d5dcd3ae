"""Paired differences against scipy, against counting every sign pattern, and against what must never change."""

from __future__ import annotations

import math
import random
import statistics
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from late import Late

from harness.stats.clusters import clustered_mean
from harness.stats.intervals import Estimate
from harness.stats.paired import Paired, paired_by_key, paired_difference
from harness.stats.signflip import DRAWS, sign_flip

stats = Late("scipy.stats")

SIXTEENTHS = st.integers(-64, 64).map(lambda n: n / 16)
"""Scores whose sums and differences are exact, so that invariants hold without a tolerance."""

FLOATS = st.floats(-1e3, 1e3)


def p_of(result: Any) -> float:
    """scipy's p-value, whose type has no stubs."""
    return float(result.pvalue)


def columns(values: st.SearchStrategy[float], least: int, most: int) -> st.SearchStrategy[list[tuple[float, float]]]:
    return st.lists(st.tuples(values, values), min_size=least, max_size=most)


def split(pairs: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def all_patterns(differences: list[float]) -> float:
    """The p-value by its definition, in whole sixteenths."""
    sizes = [round(16 * d) for d in differences]
    observed = abs(sum(sizes))
    patterns = list(product((1, -1), repeat=len(sizes)))
    extreme = sum(abs(sum(s * d for s, d in zip(signs, sizes, strict=True))) >= observed for signs in patterns)
    return extreme / len(patterns)


def skewed(n: int, seed: int = 1) -> tuple[list[float], list[float]]:
    """Scores that lie on no lattice, with a true difference of about a fifth of their spread."""
    generator = random.Random(seed)
    second = [generator.lognormvariate(0, 1) for _ in range(n)]
    return [b + generator.gauss(0.2, 1) for b in second], second


def one_more_of_each(differences: list[float], width: float = 1.0) -> tuple[float, float, float]:
    """Both ends of the 95 % interval, and the p-value, with one pair more won and one more lost."""
    sizes = [abs(d) for d in differences]
    typical = sum(d * d for d in sizes) / sum(sizes) if any(sizes) else width
    every = [*differences, typical, -typical]
    middle, stderr, df = statistics.fmean(every), statistics.pstdev(every) / math.sqrt(len(every)), len(differences) - 1
    half = float(stats.t.ppf(0.975, df)) * stderr
    return middle - half, middle + half, 2 * float(stats.t.sf(abs(middle) / stderr, df))


def test_a_small_comparison_by_hand() -> None:
    result = paired_difference([1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0])
    low, high, p_value = one_more_of_each([1.0, 0.0, 0.0, 1.0])
    assert result.estimate.mean == 0.5
    assert result.estimate.stderr == pytest.approx(math.sqrt(1 / 12))
    assert (result.estimate.low, result.estimate.high) == pytest.approx((low, high))
    assert (result.p_value, result.test) == (pytest.approx(p_value), "adjusted_t")
    assert result.flips == (0.5, "exact")  # of ++, +-, -+, -- two are as far from 0
    assert (result.wins, result.losses, result.ties, result.pairs) == (2, 0, 2, 4)
    assert (result.first, result.second) == (0.75, 0.25)
    assert result.correlation == pytest.approx(1 / 3)


@example([(0.0, 0.0), (0.0, 5e-324)])  # squares and quotients of subnormal numbers vanish
@given(columns(FLOATS, 2, 40))
def test_mean_and_interval_are_those_of_scipy(pairs: list[tuple[float, float]]) -> None:
    first, second = split(pairs)
    estimate = paired_difference(first, second).estimate
    differences = [a - b for a, b in pairs]
    assert estimate.mean == pytest.approx(math.fsum(differences) / len(pairs), rel=1e-9, abs=1e-9)
    if max(differences) - min(differences) > 1e-3:
        low, high, _ = one_more_of_each(differences)
        assert (estimate.low, estimate.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


@given(st.lists(SIXTEENTHS, min_size=1, max_size=11))
def test_the_p_value_is_the_share_of_sign_patterns(differences: list[float]) -> None:
    assert sign_flip(differences) == (pytest.approx(all_patterns(differences), abs=1e-12), "exact")


@given(st.lists(SIXTEENTHS, min_size=2, max_size=11).filter(lambda ds: sum(map(bool, ds)) > 1))
def test_counting_by_halves_agrees_with_counting_on_the_lattice(differences: list[float]) -> None:
    off = [d * math.pi for d in differences]  # the same patterns, but in no unit that is found
    assert sign_flip(off) == (pytest.approx(sign_flip(differences)[0], abs=1e-12), "exact")


@pytest.mark.parametrize("n", [6, 12])
def test_the_exact_p_value_is_scipys(n: int) -> None:
    first, second = skewed(n)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    whole = stats.permutation_test((differences,), lambda d: sum(d), permutation_type="samples", n_resamples=10**9)
    assert sign_flip(differences) == (pytest.approx(whole.pvalue, abs=1e-12), "exact")


@pytest.mark.parametrize(("better", "worse"), [(2, 9), (1, 0), (5, 5), (30, 12), (700, 610)])
def test_on_binary_scores_it_is_mcnemars_exact_test(better: int, worse: int) -> None:
    differences = [1.0] * better + [-1.0] * worse + [0.0] * 50
    reference = stats.binomtest(better, better + worse).pvalue
    assert sign_flip(differences) == (pytest.approx(reference, rel=1e-9), "exact")


def test_mcnemars_reference_value() -> None:
    assert sign_flip([1.0] * 2 + [-1.0] * 9)[0] == pytest.approx(0.065430, abs=5e-7)


@given(columns(SIXTEENTHS, 0, 14))
def test_swapping_the_sides_changes_signs_and_nothing_else(pairs: list[tuple[float, float]]) -> None:
    first, second = split(pairs)
    there, back = paired_difference(first, second), paired_difference(second, first)
    assert (back.wins, back.losses, back.ties) == (there.losses, there.wins, there.ties)
    assert (back.first, back.second) == (there.second, there.first)
    assert (back.p_value, back.test, back.pairs) == (there.p_value, there.test, there.pairs)
    assert back.estimate.stderr == there.estimate.stderr
    for one, other in (
        (there.estimate.mean, back.estimate.mean),
        (there.estimate.low, back.estimate.high),
        (there.estimate.high, back.estimate.low),
    ):
        assert (one is None and other is None) or (one is not None and other is not None and one == -other)


@pytest.mark.parametrize("n", [9, 60, 2500])
def test_the_order_of_the_pairs_changes_nothing(n: int) -> None:
    first, second = skewed(n)
    order = random.Random(5).sample(range(n), n)
    result = paired_difference(first, second)
    again = paired_difference([first[i] for i in order], [second[i] for i in order])
    assert (again.p_value, again.test) == (result.p_value, result.test)
    assert (again.wins, again.losses, again.ties) == (result.wins, result.losses, result.ties)
    assert again.estimate.mean == result.estimate.mean
    assert again.estimate.low == pytest.approx(result.estimate.low)
    assert again.correlation == pytest.approx(result.correlation)


@given(columns(SIXTEENTHS, 1, 14), SIXTEENTHS)
def test_a_constant_added_to_both_sides_changes_no_difference(pairs: list[tuple[float, float]], c: float) -> None:
    first, second = split(pairs)
    plain = paired_difference(first, second)
    shifted = paired_difference([a + c for a in first], [b + c for b in second])
    assert (shifted.estimate, shifted.p_value) == (plain.estimate, plain.p_value)
    assert (shifted.wins, shifted.losses, shifted.ties) == (plain.wins, plain.losses, plain.ties)


@given(st.lists(FLOATS, min_size=1, max_size=60))
def test_equal_sides_have_p_one_and_no_interval(values: list[float]) -> None:
    result = paired_difference(values, list(values))
    assert (result.p_value, result.test, result.ties) == (1.0, "adjusted_t", len(values))
    assert result.estimate == Estimate(mean=0.0, examples=len(values))


@given(columns(FLOATS, 1, 50))
def test_a_p_value_lies_above_zero_and_not_above_one(pairs: list[tuple[float, float]]) -> None:
    p_value = paired_difference(*split(pairs)).p_value
    assert p_value is not None
    assert 0.0 < p_value <= 1.0


def test_one_pair_has_a_difference_and_nothing_more() -> None:
    result = paired_difference([0.75], [0.25])
    assert result.estimate == Estimate(mean=0.5, examples=1)
    assert (result.p_value, result.test, result.wins, result.correlation) == (1.0, "adjusted_t", 1, None)


def test_equal_differences_have_an_interval() -> None:
    result = paired_difference([0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 0.2, 0.4, 0.6, 0.8])
    assert result.estimate.mean == pytest.approx(0.2)
    low, high, p_value = one_more_of_each([0.2] * 5)
    assert (result.estimate.low, result.estimate.high, result.p_value) == pytest.approx((low, high, p_value))
    assert low < 0 < high and p_value > 0.05 and result.flips == (2 / 2**5, "exact")
    six = paired_difference([0.2] * 6, [0.0] * 6)
    assert (six.p_value or 1) < 0.05 and (six.estimate.low or 0) > 0
    assert (result.wins, result.losses, result.ties) == (5, 0, 0)


def test_no_pairs_leave_everything_undefined() -> None:
    assert paired_difference([], []) == Paired(Estimate(), None, None, 0, 0, 0, None, None, None)


def test_values_that_differ_by_rounding_are_a_tie() -> None:
    result = paired_difference([0.1 + 0.2, 1.0], [0.3, 0.5])
    assert (result.wins, result.ties) == (1, 1)
    assert result.estimate.mean == 0.25


def test_sums_that_rounding_tells_apart_are_equally_extreme() -> None:
    # As exact numbers, 0.1 + 0.2 - 0.3 is 0: of the eight patterns six are as far from 0 as 0.1 + 0.2 - 0.3 + ...
    differences = [0.1 * math.e, 0.2 * math.e, -0.3 * math.e]
    assert sign_flip(differences) == (1.0, "exact")


def test_many_pairs_are_drawn_with_a_fixed_seed() -> None:
    first, second = skewed(60)
    p_value, test = sign_flip([a - b for a, b in zip(first, second, strict=True)])
    assert test == "monte_carlo"
    assert (p_value, test) == sign_flip([a - b for a, b in zip(first, second, strict=True)])
    assert p_value * (1 + DRAWS) == pytest.approx(round(p_value * (1 + DRAWS)))
    # The t test has the same limit; sampling errs by sqrt(p(1-p)/9,999).
    reference = p_of(stats.ttest_rel(first, second))
    assert p_value == pytest.approx(reference, abs=0.02)


def test_drawing_agrees_with_counting() -> None:
    first, second = skewed(24)
    differences = [a - b for a, b in zip(first, second, strict=True)]
    counted, test = sign_flip(differences)
    assert test == "exact"
    # Ten more that weigh nothing change no pattern's place, but make the patterns too many to be counted.
    drawn, test = sign_flip([*differences, *(1e-7 * d for d in differences[:10])])
    assert test == "monte_carlo"
    assert drawn == pytest.approx(counted, abs=5 * math.sqrt(counted * (1 - counted) / DRAWS))


def test_a_drawn_p_value_is_never_zero() -> None:
    first, second = skewed(300)
    assert sign_flip([a - b + 9 for a, b in zip(first, second, strict=True)]) == (1 / (1 + DRAWS), "monte_carlo")


@pytest.mark.parametrize("differences", [[1.0] * 1100, [n / 7 + 1 for n in range(5000)]])
def test_nor_is_one_that_is_too_small_for_a_number(differences: list[float]) -> None:
    found = paired_difference(differences, [0.0] * len(differences))
    assert found.p_value is not None and 0 < found.p_value < 1e-300
    assert found.mcnemar is None or 0 < found.mcnemar.mid_p <= found.mcnemar.p_value < 1e-300


def test_thousands_of_pairs_have_the_normal_limit() -> None:
    first, second = skewed(9000)
    differences = [a - b - 0.18 for a, b in zip(first, second, strict=True)]
    p_value, test = sign_flip(differences)
    assert test == "normal"
    assert p_value == pytest.approx(p_of(stats.ttest_1samp(differences, 0)), rel=0.01)


def test_a_few_huge_differences_among_thousands_have_no_normal_limit() -> None:
    generator = random.Random(3)
    small = [generator.gauss(0, 1) for _ in range(5000)]
    p_value, test = sign_flip([*small, 1e4 * math.pi, 1e4 * math.e, 1e4])
    # Two of the eight patterns of the three have them all alike; then the others decide, which have the normal limit.
    others = statistics.NormalDist(0, math.sqrt(math.fsum(d * d for d in small)))
    assert test == "monte_carlo"
    assert p_value == pytest.approx(0.25 * (1 - others.cdf(math.fsum(small))), abs=0.02)


def test_scores_far_from_one_neither_overflow_nor_vanish() -> None:
    first, second = skewed(9000)
    usual = sign_flip([a - b for a, b in zip(first, second, strict=True)])
    for scale in (1e-200, 1e100):
        p_value, test = sign_flip([(a - b) * scale for a, b in zip(first, second, strict=True)])
        assert (p_value, test) == (pytest.approx(usual[0], rel=1e-6), "normal")


@pytest.mark.parametrize(("first", "second"), [([1.0], []), ([math.nan], [1.0]), ([1.0], [math.inf])])
def test_what_cannot_be_paired_is_refused(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="paired_difference"):
        paired_difference(first, second)


def test_keys_pair_what_both_have_and_count_the_rest() -> None:
    result = paired_by_key({"a": 1.0, "b": 0.5, "c": 0.0, "x": 9.0}, {"c": 0.0, "b": 0.0, "a": 0.5, "y": 7.0, "z": 7.0})
    assert (result.pairs, result.only_first, result.only_second) == (3, 1, 2)
    assert result.estimate.mean == pytest.approx(1 / 3)
    assert (result.wins, result.losses, result.ties) == (2, 0, 1)
    nothing = paired_by_key({1: 0.5}, {2: 0.5})
    assert (nothing.pairs, nothing.p_value, nothing.only_first, nothing.only_second) == (0, None, 1, 1)


@given(
    columns(SIXTEENTHS, 3, 14).filter(lambda pairs: len({a for a, _ in pairs}) > 1 and len({b for _, b in pairs}) > 1)
)
def test_the_correlation_explains_the_standard_error(pairs: list[tuple[float, float]]) -> None:
    first, second = split(pairs)
    result = paired_difference(first, second)
    assert result.correlation == pytest.approx(float(np.corrcoef(first, second)[0, 1]), abs=1e-9)
    # SE² = SE_A² + SE_B² − 2 · SE_A · SE_B · ρ
    a, b = (float(stats.sem(side)) for side in (first, second))
    stderr, correlation = result.estimate.stderr or 0.0, result.correlation or 0.0
    assert stderr**2 == pytest.approx(a * a + b * b - 2 * a * b * correlation, abs=1e-9)


def test_intervals_cover_and_p_values_are_uniform_where_nothing_differs() -> None:
    generator = random.Random(11)
    covered = small = 0
    for _ in range(1000):
        differences = [generator.uniform(-1, 1) for _ in range(12)]
        result = paired_difference(differences, [0.0] * 12)
        assert result.estimate.low is not None and result.estimate.high is not None and result.p_value is not None
        covered += result.estimate.low <= 0 <= result.estimate.high
        small += result.p_value <= 0.05
    assert covered + small == 1000
    assert 930 <= covered <= 985


def test_json_has_null_for_what_is_undefined() -> None:
    assert paired_difference([], []).to_json() == {
        "difference": None, "stderr": None, "ci95": None, "p_value": None, "test": None,
        "pairs": 0, "wins": 0, "losses": 0, "ties": 0, "means": [None, None], "correlation": None,
        "only_first": 0, "only_second": 0,
    }  # fmt: skip
    whole = paired_difference([1.0, 0.0], [0.0, 0.0]).to_json()
    low, high, p_value = one_more_of_each([1.0, 0.0])
    assert (whole["difference"], whole["p_value"], whole["test"]) == (0.5, pytest.approx(p_value), "adjusted_t")
    assert whole["ci95"] == pytest.approx([low, high])


def test_sides_that_agree_everywhere_have_an_interval_within_limits() -> None:
    scores = [1.0, 0.0, 0.5] * 200
    paired = paired_difference(scores, scores, limits=(0, 1))
    e = paired.estimate
    assert (e.mean, e.method, paired.p_value) == (0.0, "bonett_price", 1.0)
    half = float(stats.t.ppf(0.975, 599)) * math.sqrt(2 / 602 / 602)
    assert (e.low, e.high) == pytest.approx((-half, half))
    wide = paired_difference([4 * s for s in scores], [4 * s for s in scores], limits=(0, 4)).estimate
    assert (wide.low, wide.high) == pytest.approx((-4 * half, 4 * half))


def test_passes_and_failures_have_the_interval_of_bonett_and_price() -> None:
    first, second = [1.0] * 12 + [0.0] * 8, [1.0] * 5 + [0.0] * 7 + [1.0] * 2 + [0.0] * 6
    e = paired_difference(first, second, limits=(0, 1)).estimate
    a, b = 8 / 22, 3 / 22
    half = float(stats.t.ppf(0.975, 19)) * math.sqrt((a + b - (a - b) ** 2) / 22)
    assert (e.mean, e.method) == (0.25, "bonett_price")
    assert (e.low, e.high) == pytest.approx((a - b - half, a - b + half))
    assert paired_difference(first, second).estimate == e
    always = paired_difference([1.0] * 8, [0.0] * 8, limits=(0, 1)).estimate
    assert always.mean == always.high == 1.0 and always.low is not None and 0 < always.low < 1


def test_an_interval_is_cut_at_the_greatest_difference_possible() -> None:
    first, second = [1.0, 0.9], [0.1, 0.6]
    assert (paired_difference(first, second).estimate.high or 0) > 1
    e = paired_difference(first, second, limits=(0, 1)).estimate
    assert (e.low, e.high, e.method) == (-1.0, 1.0, "bonett_price")


def test_the_mean_of_scores_at_a_limit_is_at_the_limit() -> None:
    mean = math.fsum([0.1] * 3) / 3
    assert mean > 0.1
    e = paired_difference([mean, 0.0, mean], [0.0, 0.0, 0.1], limits=(0.0, 0.1)).estimate
    assert (e.mean, e.method) == (pytest.approx(0.1 / 3), "bonett_price")


@pytest.mark.parametrize("limits", [(0.0, 0.5), (1.0, 0.0), (0.0, math.inf)])
def test_limits_that_do_not_hold_are_refused(limits: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="limits"):
        paired_difference([1.0], [0.0], limits=limits)


def test_clusters_are_won_and_lost_whole() -> None:
    first, second = [1.0] * 12, [0.0] * 12
    second[0] = 0.5
    alone = paired_difference(first, second)
    clustered = paired_difference(first, second, clusters=["a"] * 4 + ["b"] * 4 + ["c"] * 4)
    assert alone.flips is not None and alone.flips[0] == 2 / 2**12
    assert clustered.flips is not None and clustered.flips[0] == 2 / 2**3
    e = clustered.estimate
    assert (e.method, e.clusters, e.df) == ("bonett_price", 3, 2)
    assert e.stderr == clustered_mean([0.5] + [1.0] * 11, ["a"] * 4 + ["b"] * 4 + ["c"] * 4).stderr
    assert (e.low, e.high, clustered.p_value) == pytest.approx(one_more_of_each([0.875, 1.0, 1.0]))
    same_sides = paired_difference(first, first, clusters=["a"] * 6 + ["b"] * 6, limits=(0, 1))
    assert (same_sides.estimate.method, same_sides.estimate.clusters) == ("bonett_price", 2)
    assert (same_sides.estimate.high or 0) > 0.5  # two clusters know little
    by_key = paired_by_key(
        {1: 1.0, 2: 0.0, 3: 1.0}, {1: 0.0, 2: 0.5, 9: 1.0}, clusters={1: "a", 2: "b", 3: "b"}, level=0.9
    )
    assert (by_key.estimate.clusters, by_key.estimate.level, by_key.only_first, by_key.only_second) == (2, 0.9, 1, 1)


@given(columns(SIXTEENTHS, 2, 20))
def test_the_other_figures_are_those_of_scipy_and_miller(pairs: list[tuple[float, float]]) -> None:
    first, second = split(pairs)
    found = paired_difference(first, second)
    differences = [a - b for a, b in pairs]
    if len({*differences}) == 1:
        assert (found.t_p_value, found.effect, found.variance_saved) == (None, None, None)
        return
    assert found.t_p_value == pytest.approx(p_of(stats.ttest_rel(first, second)), rel=1e-6, abs=1e-12)
    assert found.effect == pytest.approx(statistics.fmean(differences) / statistics.stdev(differences))
    if len({*first}) > 1 and len({*second}) > 1:
        a, b = statistics.stdev(first), statistics.stdev(second)
        saved = 2 * a * b * (found.correlation or 0) / (a * a + b * b)
        assert found.variance_saved == pytest.approx(saved, abs=1e-9)


def test_passes_and_failures_alone_have_mcnemars_test() -> None:
    first, second = [1.0] * 2 + [0.0] * 9 + [1.0] * 5, [0.0] * 2 + [1.0] * 9 + [1.0] * 5
    found = paired_difference(first, second)
    assert found.mcnemar is not None
    assert found.mcnemar.p_value == pytest.approx(0.065430, abs=5e-7)
    assert found.flips == (pytest.approx(0.065430, abs=5e-7), "exact")
    assert found.mcnemar.mid_p == pytest.approx(0.038574, abs=5e-7)
    assert paired_difference([0.5, 1.0], [0.0, 1.0]).mcnemar is None
    document = found.full_json()
    assert set(document) == {
        *found.to_json(),
        "level",
        "method",
        "clusters",
        "t_p_value",
        "effect",
        "mcnemar",
        "sign_flip",
        "variance_saved",
    }
    assert document["mcnemar"] == {"p_value": found.mcnemar.p_value, "mid_p": found.mcnemar.mid_p}


def test_differences_whose_squares_vanish_have_no_spread() -> None:
    found = paired_difference([1e-200, 0.0, 3e-200], [0.0, 0.0, 0.0])
    assert (found.effect, found.variance_saved, found.wins) == (None, None, 2)
    mixed = paired_difference([1e-200, 1.0, 0.0], [0.0, 1.0, 0.0])
    assert (mixed.effect, mixed.variance_saved) == (None, None)
