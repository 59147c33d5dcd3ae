"""What counts as the same answer. The worker's own reading of texts needs no process; verdicts are asked for in one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.rubrics.math import verify_math
from harness.rubrics.math_worker import plain, words

RIGHT = [
    # numbers
    ("5", "5.0"), ("5", "5."), ("-5", "−5"), ("5", "５"), ("5", "+5"), ("1234", "1,234"), ("1234", "1{,}234"),
    ("1234567", "1 234 567"), ("1234", r"1\,234"), ("1234", r"1\;234"), ("1000", "1e3"), ("1000", r"1\cdot 10^3"),
    ("0.00012", "1.2e-4"), (r"\frac{1}{2}", "0.5"), (r"\frac12", "1/2"), (r"\frac 1 2", ".5"),
    (r"\dfrac{3}{4}", "0.75"),
    ("1/3", "0.333333"), (r"\frac{3}{2}", "1 1/2"), (r"1\frac{1}{2}", "1.5"), (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    ("5", r"\approx 5"), ("½", "0.5"),
    # units, percent, currency
    ("5", r"5 \text{ apples}"), ("12", "12 km/h"), ("12", r"12~\mathrm{cm}^3"), ("10", r"10\text{ cm}^2"),
    (r"\$5", "5"),
    ("5", r"\$5.00"), ("90", r"90^\circ"), ("90°", "90"), (r"50\%", "50"), ("50%", "0.5"), ("50%", r"\frac12"),
    # markup
    ("5", "$5$"), ("5", r"\(5\)"), ("5", r"\[5\]"), ("5", "$$5$$"), ("5", r"\textbf{5}"), ("5", r"\displaystyle 5"),
    ("5", r"\left(5\right)"), ("5", r"5\\"), ("5", r"\boxed{5}"), (r"\boxed{5}", "5"),
    # equations
    ("5", "x=5"), ("x=5", "5"), ("5", "2+3=5"), ("f(x)=x^2", "x^2"), ("x=2,y=3", "y=3,x=2"), ("2,3", "x=2, x=3"),
    # sets, intervals, pairs
    (r"\{1,2\}", "2, 1"), ("1,2,3", "3,2,1"), (r"\pm 5", "5,-5"), ("(1,2)", "1,2"), ("[1,2]", r"\left[1, 2\right]"),
    (r"(-\infty,2)\cup(3,\infty)", "(-∞, 2) ∪ (3, ∞)"), (r"(2,\infty)", "x>2"), ("[1,2]", r"1 \le x \le 2"),
    (r"1 \le x \le 2", "[1,2]"), (r"x \in [1,2]", "[1,2]"), (r"\emptyset", r"\varnothing"),
    (r"\mathbb{R}", r"(-\infty,\infty)"),
    # expressions
    ("(x+1)^2", "x^2+2x+1"), (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"), ("√2", r"2^{1/2}"), (r"\log_2 8", "3"),
    ("5040", "7!"), ("2+3i", "3i+2"), (r"2\pi", "2π"), (r"\sin 30^\circ", "1/2"), (r"\frac{a}{b}", "a/b"), ("ab", "ba"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix}1\\2\end{bmatrix}"), ("2^{1000}", "2^{1000}"),
    (r"\text{C}", r"\textbf{(C)}"), ("2516_8", "2516_{8}"),
    ("p - q", "-q+p"), ("a b", "b a"), (r"\frac{14}{3}", "4 2/3"), (r"0.\overline{1331}", r"\frac{1331}{9999}"),
    (r"1.2\overline{3}", r"\frac{37}{30}"), (r"\frac{1}{3}", r"0.\overline{3}"),
    (r"1 \pm \sqrt{19}", r"1+\sqrt{19}, 1-\sqrt{19}"),
    # words
    (r"\text{ab}", "AB"), (r"\text{not-a-number}", "Not-a-number"),
    (r"\text{Evelyn}", "evelyn"), (r"\text{no solution}", "No  solution"), ("even", r"\text{even}"),
]  # fmt: skip

WRONG = [
    ("5", "6"), ("5", "5 or 6"), ("5", "5, 6"), ("5", "5; 6"), ("5", r"5\text{ or }6"), ("5", "5?"), ("5", "about 5"),
    ("5", "5x"), ("5", "5 @ 6"), ("5", ""), ("5", r"\emptyset"), ("1000000", "1 million"),
    # two numbers beside one another are not their sum
    ("15", r"7 \quad 8"), ("15", "7 8"), ("235", "1 234"), ("7", "7 8"),
    # an equation that is false commits to neither side
    ("6", "5=6"), ("5", "5=6"), ("5", "x=5=6"), ("x=5", "y=5"), ("x=2", "x=2, x=3"),
    # rounding does not make small numbers equal
    (r"3 \times 10^{-8}", "0.00000005"), ("0.00000003", "0.00000005"), ("0", "0.0000001"), ("1/3", "0.3333"),
    ("1", "1.0000001"),
    ("(1,2)", "(2,1)"), ("(1,2)", "2,1"), ("[1,2]", "(1,2]"), ("[1,2]", "1<x<2"), ("1,2,3", "1,2"), (r"\pm5", "5"),
    (r"\frac{1}{2}", r"\frac{1}{2}x"), ("11/2", r"1\frac12"), ("2516_8", "2516_9"), ("x^2=4", "x=2"), ("x", "y"),
    (r"0.\overline{1331}", "0.1331"), (r"1 \pm \sqrt{19}", r"1 + \sqrt{19}"), ("p - q", "q - p"),
    (r"\text{east}", "seat"), ("east", "seat"), (r"\text{Monday}", "Tuesday"), (r"\text{C}", r"\text{(C) or (D)}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"),
    # written out, the expected number is smaller than any of these
    ("5", "9^{9^{9^9}}"), ("5", "(10^{10})!"), ("5", "10^{10^{8}}"),
]  # fmt: skip


def verdicts(pairs: list[tuple[str, str]]) -> list[bool]:
    async def main() -> list[bool]:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(verify_math(answer, gold)) for gold, answer in pairs]
        return [task.result() for task in asked]

    return asyncio.run(main())


def test_equal_answers_are_equal_however_they_are_written() -> None:
    assert [pair for pair, right in zip(RIGHT, verdicts(RIGHT), strict=True) if not right] == []


def test_other_answers_are_not() -> None:
    assert [pair for pair, right in zip(WRONG, verdicts(WRONG), strict=True) if right] == []


def test_an_answer_that_is_python_is_not_run(tmp_path: Path) -> None:
    target = tmp_path / "ran"
    program = f"__import__('pathlib').Path('{target}').touch()"
    answers = [program, rf"\operatorname{{{program}}}", rf"\text{{{program}}}", f"5 + {program}", f"f({program})"]
    assert verdicts([("5", answer) for answer in answers]) == [False] * len(answers)
    assert not target.exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ 5 $", "5"),
        (r"\[ x \]", "x"),
        (r"1\,234\,567", "1234567"),
        ("1 2345", "1 2345"),
        (r"a \\ b", r"a \\ b"),
        (r"2\!3", "23"),
        ("3 1/4", r"3\frac{1}{4}"),
        ("5 km / h", "5"),
        (r"\approx 3.14.", "3.14"),
        ("2.5e-3", r"2.5\times 10^{-3}"),
        ("∅", r"\emptyset"),
        ("3 m", "3 m"),  # may be a variable; the library knows simple units
    ],
)
def test_what_changes_nothing_is_taken_off(text: str, expected: str) -> None:
    assert plain(text) == expected


@pytest.mark.parametrize(
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
