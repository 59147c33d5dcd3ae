"""Text as JavaScript has it. The expected values are what Node prints."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from tables import for_each_row

from harness.multi import javascript


@for_each_row(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ("", ""),
        (" A ", " A "),
        (0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-2.50, "-2.5"),
        (0.1, "0.1"),
        (100, "100"),
        (123.456, "123.456"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.25e22, "1.25e+22"),
        (123456789012345680000.0, "123456789012345680000"),
        (5e-324, "5e-324"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
        (12345678901234567890, "12345678901234567000"),
        (10**400, "Infinity"),
        (-(10**400), "-Infinity"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        ([1, None, "a", [True, []]], "1,,a,true,"),
        ([], ""),
        ({"a": 1}, "[object Object]"),
        ([{}], "[object Object]"),
    ],
)
def test_a_value_as_string(value: object, text: str) -> None:
    assert javascript.text_of(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_as_itself(number: float) -> None:
    text = javascript.number_text(number)
    assert float(text) == number
    assert not text.endswith(".0")
    assert "e" not in text or not 1e-6 <= abs(number) < 1e21


def test_white_space_is_that_of_javascript() -> None:
    assert javascript.trimmed("\ufeff\u00a0\u2028 a b \u3000\v") == "a b"
    assert javascript.trimmed("\x1ca\x85") == "\x1ca\x85"
    assert javascript.words("a\ufeffb\u00a0c\n\n d") == 4
    assert javascript.words("a\x1cb") == 1
    assert javascript.words("") == javascript.words(" \t") == 0


def test_case_is_that_of_unicode() -> None:
    assert javascript.folded("  ÄÖ İ ΑΣ \n") == "äö i̇ ας"


@for_each_row("value", [True, 1, -0.5, "0", [], {}, [0]])
def test_what_counts_as_true(value: object) -> None:
    assert javascript.is_truthy(value)


@for_each_row("value", [None, False, 0, -0.0, ""])
def test_what_counts_as_false(value: object) -> None:
    assert not javascript.is_truthy(value)


def test_indexes_come_first() -> None:
    names = ["b", "10", "01", "2", "-1", "4294967294", "4294967295", "1.0", "a", "٣"]
    order = [name for name, _ in javascript.entries(dict.fromkeys(names))]
    assert order == ["2", "10", "4294967294", "b", "01", "-1", "4294967295", "1.0", "a", "٣"]


def test_length_is_in_utf16_units() -> None:
    assert javascript.length("") == 0
    assert javascript.length("hello") == 5
    assert javascript.length("é€") == 2
    assert javascript.length("🙂👍🏽") == 6
    assert javascript.length("\ud83d") == 1
