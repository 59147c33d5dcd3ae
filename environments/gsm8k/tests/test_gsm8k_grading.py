"""The grader against replies that try to get more than they earned, and against many ways to write a number."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import is_linear
from tables import for_each_row

from gsm8k.grading import final_answer, number


@for_each_row(
    "reply",
    [
        r"\boxed{18}",
        r"She makes $9 \cdot 2 = \boxed{18}$ dollars.",
        r"\boxed{18.0}",
        r"\boxed{18.}",
        r"\boxed{$18}",
        r"\boxed{\$18}",
        r"\boxed{\$\,18.00}",
        r"\boxed{18\%}",
        r"\boxed{ 18 }",
        r"\boxed{+18}",
        r"\boxed{018}",
        r"\boxed{18 \text{ dollars}}",
        r"\boxed{18\text{ dollars per day}}",
        r"\boxed{\text{18}}",
        r"\boxed{\mathbf{18}}",
        r"\boxed{{18}}",
        r"\boxed{\boxed{18}}",
        r"\boxed{x = 18}",
        r"\boxed{\text{Total: } 18}",
        r"\boxed{\frac{36}{2}}",
        r"\boxed{36/2}",
        r"\boxed{1.8e1}",
        r"\boxed{18}",
        r"\boxed{18 \text{ cm}^2}",
        r"\fbox{18}",
        r"\boxed {18}",
        "#### 18",
        "####18",
        "#### $18.00",
        "#### 18 apples",
        "#### **18**",
        "#### Answer: 18",
        "So it is #### 18",
        "9 * 2 = 18\n#### 18\n",
        "\\boxed{18}\n#### 18",
        "\\boxed{18}, that is \\boxed{18.00}.",
        "#### \\boxed{18}",
        "### Solution\n#### 1. Eggs\n16-7=9\n#### 2. Money\n9*2\n#### Final answer\n\\boxed{18}",
        "#### Step 1: count\n#### 18",
        r"<think>\boxed{17}? No, \boxed{19}?</think>\boxed{18}",
        r"\boxed{17} is too few.</think>\boxed{18}",
        r"\boxed{} should hold the answer: \boxed{18}",
        r"\boxed{\text{the answer}} is \boxed{18}",
    ],
)
def test_right_however_it_is_written(reply: str) -> None:
    assert final_answer(reply) == 18


@for_each_row(
    "reply",
    [
        "",
        "18",
        "The answer is 18.",
        "The answer is **18**.",
        r"The answer is 18. \boxed{19}",  # the right text with the wrong box
        "18 is right.\n#### 19",
        r"\boxed{18} \boxed{19}",
        r"\boxed{19} \boxed{18}",
        r"\boxed{18} \boxed{19} \boxed{18}",
        "\\boxed{18}\n#### 19",
        "\\boxed{19}\n#### 18",
        "#### 19\n#### 18",
        "#### 18 or 19",
        "#### 18, 19",
        "#### 18 19",
        r"\boxed{18 \text{ or } 19}",
        r"\boxed{18, 19}",
        r"\boxed{18$19}",
        r"\boxed{18-19}",
        r"\boxed{17 < x < 19}",
        r"\boxed{9+9}",
        r"\boxed{9 \times 2}",
        r"\boxed{18 \pm 1}",
        r"\boxed{18 or more}",
        r"\boxed{18 to}",
        r"\boxed{18!}",
        r"\boxed{18k}",
        r"\boxed{18 thousand}",
        r"\boxed{18 dozen}",
        r"\boxed{18^2}",
        r"\boxed{18²}",
        r"\boxed{18½}",
        r"\boxed{18:30}",
        r"\boxed{1_8}",
        r"\boxed{0x12}",
        r"\boxed{not 18}",
        r"\boxed{-18}",
        r"\boxed{−18}",
        r"\boxed{18.5}",
        r"\boxed{18.0000000000000000001}",
        r"\boxed{17.99999999999999999999}",
        r"\boxed{1,8}",
        r"\boxed{}",
        r"\boxed{eighteen}",
        r"\boxed{NaN}",
        r"\boxed{Infinity}",
        r"\boxed{1e999999999}",
        r"\boxed{18/0}",
        r"\boxed{" + "1" * 5000 + "}",
        r"\boxed{18",  # cut off
        r"\boxed{18} and \boxed{19 \boxed{18}}",
        r"<think>\boxed{18}</think>",
        r"<think>\boxed{18}",
        r"\boxed{18}</think>",
        "<think>\n#### 18\n</think> I am not sure.",
        "##### 18",
        "### 18",
        "#### 18. The end",  # reads like a numbered heading
        "#### one\n18",
    ],
)
def test_not_right_whatever_it_says_beside(reply: str) -> None:
    assert final_answer(reply) != 18


@for_each_row(
    ("text", "value"),
    [
        ("1,234.0", 1234),
        ("1,234,567", 1234567),
        ("1{,}234", 1234),
        (r"1\,234", 1234),
        (r"1,\!234", 1234),
        ("1 234 567", 1234567),
        ("1 234", 1234),
        ("12,34,567", 1234567),
        ("$1,234.50", Fraction(2469, 2)),
        ("-$5", -5),
        ("$-5", -5),
        ("−5", -5),
        ("- 5", -5),
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        ("3/4", Fraction(3, 4)),
        (r"-\dfrac{3}{4}", Fraction(-3, 4)),
        ("50%", 50),
        ("20^\\circ C", 20),
        ("18 miles/hour", 18),
        ("٣", 3),
    ],
)
def test_the_value_of_a_number(text: str, value: Fraction) -> None:
    assert number(text) == value


@for_each_row("text", ["1,23", "1234,567", "1, 234", "1.2.3", "--5", "2 1/2", r"2\frac{1}{2}", "5:30", "/", "."])
def test_what_is_no_number(text: str) -> None:
    assert number(text) is None


@settings(deadline=None)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3))
def test_every_way_to_write_a_number_has_its_value(value: object) -> None:
    exact = Fraction(str(value))
    for text in (
        f"{value}",
        f"{value:,}",
        f"${value:,}",
        f"{value} km",
        f"\\text{{{value}}}",
        f"{value}".replace("-", "−"),
    ):
        assert final_answer(f"\\boxed{{{text}}}") == exact


@settings(deadline=None)
@given(st.text("1289,. $\\{}#boxedor-\n/%<think>", max_size=300))
def test_no_reply_breaks_the_grader(reply: str) -> None:
    for text in (reply, f"\\boxed{{{reply}}}", f"#### {reply}"):
        assert isinstance(final_answer(text), Fraction | None)


@pytest.mark.slow
@for_each_row("part", [r"\boxed{", r"\boxed{1}", "#### ", "#### 1 ", "<think>", "</think>", "1", "{", r"\boxed{1 "])
def test_a_long_reply_takes_no_long_time(part: str) -> None:
    assert isinstance(final_answer(part * 100_000), Fraction | None)
    assert is_linear(lambda size: final_answer(part * size), 10_000)
