r"""Answers as texts: what is taken off, what is a unit, a word or a variable."""

from __future__ import annotations

from pace import is_linear
from tables import for_each_row

from harness.rubrics.math_text import (
    i_is_variable,
    is_numeral,
    is_prose,
    plain,
    same_text,
    squeezed,
    with_imaginary,
    without_unit,
    words,
)


@for_each_row(
    ("text", "expected"),
    [
        ("$ 5 $", "5"),
        (r"\[ x \]", "x"),
        (r"1\,234\,567", "1234567"),
        ("1 2345", "1 2345"),
        (r"a \\ b", r"a \\ b"),
        (r"2\!3", "23"),
        ("3 1/4", r"3\frac{1}{4}"),
        (r"\approx 3.14.", "3.14"),
        ("2.5e-3", r"2.5\times 10^{-3}"),
        ("∅", r"\emptyset"),
        ("7pi", r"7\pi"),
        (r"11,\! 111", "11,111"),
        (r"\text{June 20}", "June 20"),
    ],
)
def test_what_changes_nothing_is_taken_off(text: str, expected: str) -> None:
    assert plain(text) == expected


@for_each_row(
    ("text", "expected"),
    [
        (r"\text{No solution}", "no solution"),
        ("Evelyn", "evelyn"),
        ("x", None),
        ("p - q", None),
        ("ab cd", None),
        (r"\pi", None),
        ("infinity", None),
        ("5 apples", None),
        (r"\text{5 cm}", None),
    ],
)
def test_words_are_told_from_formulas(text: str, expected: str | None) -> None:
    assert words(text) == expected


@for_each_row(
    ("text", "expected"),
    [
        ("1  1/2", "1 1/2"),
        (" 5 5 ", "5 5"),
        ("x + 2", "x+2"),
        ("( 1 )", "(1)"),
        ("1, 234", "1, 234"),
        ("1 .5", "1 .5"),
        ("a, b", "a,b"),
        (r"2 \pi r", r"2\pi r"),
    ],
)
def test_a_space_between_letters_and_digits_stays(text: str, expected: str) -> None:
    assert squeezed(text) == expected


def test_texts_are_the_same_whatever_is_marked_and_whatever_the_case_of_words() -> None:
    assert same_text(r"\text{June 20}", "june 20")
    assert same_text(r"10:30\text{ a.m.}", "10:30 a.m")
    assert not same_text(r"\Delta", r"\delta")
    assert not same_text("1 1/2", "11/2")


@for_each_row(
    ("text", "expected", "strict"),
    [
        ("5 km / h", "5", "5"),
        ("3 m", "3", "3"),
        ("3m", "3", "3m"),  # the expected answer may be a product
        ("7 dog", "7", "7 dog"),
        ("7 cats", "7", "7"),
        ("5 cm^2", "5", "5"),
        (r"25\pi cm", r"25\pi", r"25\pi"),
        (r"25\pi m", r"25\pi m", r"25\pi m"),
        ("x + 2 m", "x + 2 m", "x + 2 m"),
        (r"\pi r^2 h", r"\pi r^2 h", r"\pi r^2 h"),
        (r"x \text{ cm}", "x", "x"),
        (r"x \text{ m}", r"x \text{ m}", r"x \text{ m}"),
        (r"v_\text{max}", r"v_\text{max}", r"v_\text{max}"),
        ("7 million", "7 million", "7 million"),
        ("7 abc", "7 abc", "7 abc"),
        ("7th", "7", "7"),
    ],
)
def test_a_unit_is_taken_off_where_it_can_be_no_variable(text: str, expected: str, strict: str) -> None:
    assert without_unit(text, number_expected=True) == expected
    assert without_unit(text, number_expected=False) == strict


def test_a_numeral_is_one_number_and_prose_has_words() -> None:
    numerals = ["5", "-5", "1,234.5", ".5", r"\$5", "1/2", r"1\frac{1}{2}", "50\\%", r"90^\circ", "x = 5", "a_1=2"]
    others = ["", "x", "2x", "5, 6", "1,2", "2+3", r"2\pi", "x^2 = 5", "1/x"]
    assert [text for text in numerals if not is_numeral(text)] == []
    assert [text for text in others if is_numeral(text)] == []
    assert [is_prose(text) for text in ("June 20", "5 feet 3 inches")] == [True, True]
    formulas = [
        "x",
        "24 abcd",
        r"\sqrt{2}",
        "sqrt (2)",
        r"x=3 \text{ only}",
        r"\begin{matrix} 1 \end{matrix}",
        "x and y",
    ]
    assert [text for text in formulas if is_prose(text)] == []


@for_each_row(
    ("text", "expected"),
    [
        ("2i", "2I"),
        ("x+iy", "x+Iy"),
        ("i^2", "{I}^2"),
        (r"e^{i\pi}", r"e^{I\pi}"),
        (r"2\mathrm{i}", "2 I"),
        (r"\pi\sin x", r"\pi\sin x"),
        (r"\hat{i} + \text{if}", r"\hat{i} + \text{if}"),
        ("(-inf, 3)", "(-inf, 3)"),
        ("min x", "min x"),
    ],
)
def test_only_an_i_of_its_own_is_the_imaginary_unit(text: str, expected: str) -> None:
    assert with_imaginary(text, lower=True) == expected


def test_an_i_that_counts_is_none() -> None:
    counting = [
        "a_i",
        "a_{ij}",
        r"\sum_{i=1}^n 2",
        "i=5",
        "i < 3",
        r"1 \le i",
        r"i \in A",
        r"\int f di",
        r"\lim_{i \to 0}",
    ]
    units = ["i", "2i+3", "z=i", r"\sum_{k=0}^3 i^k", r"x_{\min}", r"x \in \{i, -i\}", "xi", r"\pi i"]
    assert [text for text in counting if not i_is_variable(text)] == []
    assert [text for text in units if i_is_variable(text)] == []
    assert with_imaginary("i + I^2", lower=False) == "i + {I}^2"


@for_each_row("part", ["( ", "a ", "5 a", r"\text{", "_{i", "i", "5,", r"\frac{1}", "$", "7 sq. ", r"\! ", "1 234 "])
def test_a_long_text_takes_no_long_time(part: str) -> None:
    def work(size: int) -> None:
        assert squeezed(part * size)
        text = plain(part * size)
        assert same_text(text, text)
        assert words(text) is None or "i" in part
        _ = is_prose(text), is_numeral(text), i_is_variable(text)
        _ = without_unit(text, number_expected=True), with_imaginary(text, lower=True)

    assert is_linear(work, 1_000)
