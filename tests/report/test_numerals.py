"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.core.types import Usage
from harness.report import numerals
from harness.stats.intervals import Estimate, mean_interval


@for_each_row(
    ("value", "words"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0.000"),
        (-0.0, "0.000"),
        (0.71234, "0.712"),
        (1e9, "1e+09"),
        (1e-7, "1e-07"),
    ],
)
def test_score(value: float | None, words: str) -> None:
    assert numerals.score(value) == words


def test_an_interval_is_never_shown_as_a_point() -> None:
    wide = Estimate(0.5, 0.05, 0.4, 0.6, "t", 20)
    assert (numerals.interval(wide), numerals.plus_minus(wide)) == ("[0.400, 0.600]", "0.500 ±0.100")
    narrow = Estimate(0.5, 1e-4, 0.4998, 0.5002, "t", 10**6)
    assert (numerals.interval(narrow), numerals.plus_minus(narrow)) == ("[0.4998, 0.5002]", "0.5000 ±0.0002")
    perfect = mean_interval([1.0] * 10, single_rollout=True)
    assert (numerals.interval(perfect), numerals.plus_minus(perfect)) == ("[0.704, 1.000]", "1.000 ±0.296")
    assert (numerals.interval(Estimate(0.5)), numerals.plus_minus(Estimate(0.5))) == ("–", "0.500")


@given(st.integers(0, 10**17))
def test_short_counts_are_short_and_right(value: int) -> None:
    words = numerals.short_count(value)
    assert len(words) <= 5
    if not words.startswith(">"):
        scale = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(words[-1], 1)
        assert float(words.rstrip("kMGT")) * scale == pytest.approx(value, rel=0.05)


@for_each_row(
    ("seconds", "words"),
    [
        (None, "–"), (-1.0, "–"), (math.inf, "–"), (0.0, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"),
        (59.6, "1:00"), (185, "3:05"), (7421, "2:03:41"), (273_600, "3 d 4 h"),
    ],
)  # fmt: skip
def test_duration(seconds: float | None, words: str) -> None:
    assert numerals.duration(seconds) == words


@for_each_row(
    ("cost", "words"),
    [
        (None, "–"),
        (0.0, "$0.00"),
        (0.01, "$0.01"),
        (0.0164, "$0.016"),
        (0.00345, "$0.0034"),
        (2e-5, "$0.00002"),
        (1.25e-7, "$0.00000012"),
        (1e-9, "$0.000000001"),
        (2.2e-309, "< $0.000000001"),
        (1234.5, "$1,234.50"),
        (1e300, "$1e+300"),
    ],
)
def test_dollars(cost: float | None, words: str) -> None:
    assert numerals.dollars(cost) == words


@for_each_row(
    ("per_second", "words"),
    [(None, "–"), (0.0, "–"), (0.02, "1.2/min"), (3.25, "3.2/s"), (1234.5, "1,234/s")],
)
def test_rate(per_second: float | None, words: str) -> None:
    assert numerals.rate(per_second) == words


@for_each_row(("part", "words"), [(0, "0 %"), (0.001, "<1 %"), (0.5, "50 %"), (0.999, ">99 %"), (1, "100 %")])
def test_percent_never_rounds_to_all_or_nothing(part: float, words: str) -> None:
    assert numerals.percent(part) == words


@for_each_row(
    ("seconds", "words"),
    [
        (None, "–"),
        (0.0, "0 ms"),
        (0.0084, "8 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (1.23, "1.2 s"),
        (185, "3:05"),
    ],
)
def test_latency(seconds: float | None, words: str) -> None:
    assert numerals.latency(seconds) == words


def test_differences_have_signs_and_p_values_no_zero() -> None:
    assert [numerals.signed(value) for value in (0.25, -0.25, 0.0, 0.0001, None)] == [
        "+0.250", "-0.250", "0.000", "0.000", "–"
    ]  # fmt: skip
    assert numerals.signed_interval(Estimate(0.1, 0.1, -0.1, 0.3, "t", 4)) == "[-0.100, +0.300]"
    assert numerals.signed_interval(Estimate(0.1)) == "–"
    assert [numerals.p_value(value) for value in (None, 0.0004, 0.05, 1.0)] == ["–", "<0.001", "0.050", "1.000"]
    assert [numerals.p_value(value, 0.05 / 190) for value in (0.000021, 0.0004)] == ["0.00002", "0.00040"]


def test_tokens_that_are_not_known_are_not_zero() -> None:
    assert numerals.tokens(Usage(1234, requests=2), 1234) == "1,234"
    assert numerals.tokens(Usage(1234, requests=2, unreported=1), 1234) == "≥ 1,234"
    assert numerals.tokens(Usage(0, requests=2, unreported=2), 0) == "unknown"
    assert numerals.tokens(Usage(), 0) == "0"


def test_reasons_are_cleaned_ordered_and_added_up() -> None:
    unscored = {"timeout": 2, "\x1b[31mjudge\x1b[0m": 7, "a": 1, "b": 1, "c": 1, "d": 1}
    assert numerals.reasons(unscored) == "judge 7, timeout 2, a 1, b 1, 2 other reasons 2"


def test_a_difference_that_is_there_never_looks_like_none() -> None:
    assert numerals.difference(Estimate(-0.0004, 0.1, -0.2, 0.2)) == "-0.0004"
    assert numerals.difference(Estimate(0.0, 0.1, -0.2, 0.2)) == "0.000"
    assert numerals.difference(Estimate(0.00012, 0.0, 0.0001, 0.00014)) == "+0.00012"
    assert numerals.difference(Estimate(1e-7)) == "+1e-07"
    assert numerals.difference(Estimate()) == "–"
