"""What counts as the same answer: verdicts, asked for in a process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harness.rubrics.math import verify_math

THINGS = ["solutions", "pairs", "tickets", "paths", "cups", "red marbles", "cups of tea", "cubic inches", "km/h"]

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
    # mixed numbers
    ("1 1/2", "3/2"), ("1 1/2", "1.5"), ("1.5", "1 1/2"), ("-3/2", "-1 1/2"), ("x=3/2", "x = 1 1/2"),
    # spaces that say nothing
    ("x+2", "x +2"), (r"\text{A, B}", "A,B"), ("(1,2)", "( 1 , 2 )"),
    # letters that are no units
    ("a + b + c", "c+b+a"), (r"2\pi r^2 + 2\pi r h", r"2\pi r(h+r)"), ("x^2 + c", "x^2+C"), ("m g h", "mgh"),
    # units after a number
    ("3", "3 m"), ("3", "3m"), ("3 m", "3"), (r"3 \text{ m}", "3"), (r"3 \text{ m}", "3 m"), ("3", "3 m/s"),
    (r"25\pi\text{ cm}^2", r"25\pi"), (r"25\pi\text{ cm}^2", r"25\pi cm^2"), (r"2\sqrt{3}\text{ ft}", r"\sqrt{12}"),
    (r"60 \text{ m}/\text{s}", "60"), (r"\frac{270}7\text{ degrees}", "270/7"), ("x = 5", "5 cm"), ("5", "x = 5 cm"),
    (r"20^\circ\text{C}", "20"), ("7", "7th"), ("7", r"7^{\text{th}}"),
    # counted things after a number
    *[("7", f"7 {word}") for word in THINGS], *[("7", rf"7 \text{{ {word}}}") for word in THINGS],
    (r"\$20", "20 dollars"), ("18", "18 dollars"), ("5", "5 people"), ("12", "12 sides"), ("7", "7 sq. units"),
    ("5 apples", "5"), (r"5 \text{ apples}", "5 apples"), (r"2\frac{1}{2}\text{ hours}", "2.5 hours"),
    ("18", "18 percent"), (r"7\pi", "7pi"), (r"7\pi", "7 pi"), ("5", r"5 \text{ (five)}"),
    # texts with numbers
    (r"\text{June 20}", "June 20"), ("June 20", r"\text{june 20}"), ("10:30 a.m.", r"\text{10:30 a.m.}"),
    (r"10\!:\!30\text{ a.m.}", "10:30 a.m."), (r"\text{5 cm}", "5"),
    (r"5\text{ feet }3\text{ inches}", "5 feet 3 inches"),
    # thousands set off by a negative space
    (r"11,\! 111,\! 111,\! 100", "11111111100"), ("11111111100", r"11,\! 111,\! 111,\! 100"), (r"\$32,\!348", "32348"),
    # complex numbers
    ("2i", "(1+i)^2"), (r"\frac{1-i}{2}", r"\frac{1}{1+i}"), ("-1", "i^2"), ("5", "(2+i)(2-i)"), ("2i", r"\sqrt{-4}"),
    ("-1", r"e^{i\pi}"), ("-1", r"e^{\mathrm{i}\pi}"), ("-i", "i^3"), ("1", "i^4"), ("2i", r"2\imath"), ("5", "|3+4i|"),
    (r"e^{2\pi i/3}", r"-\frac{1}{2}+\frac{\sqrt{3}}{2}i"), ("x^2+y^2", "(x+iy)(x-iy)"), (r"\{i,-i\}", r"\pm i"),
    ("z=2+3i", "3i + 2"), (r"\text{I}", "I"),
    # `i` that counts
    ("i=0.05", "0.05"), (r"\sum_{i=1}^{n} i", r"\frac{n(n+1)}{2}"), ("14", r"\sum_{i=1}^{3} i^2"),
    ("a_i + i", "i + a_i"),
    ("i < 5", "5 > i"), (r"\infty", "inf"), ("mi", "im"),
    # words
    (r"\text{ab}", "AB"), (r"\text{not-a-number}", "Not-a-number"),
    (r"\text{Evelyn}", "evelyn"), (r"\text{no solution}", "No  solution"), ("even", r"\text{even}"),
]  # fmt: skip

WRONG = [
    ("5", "6"), ("5", "5 or 6"), ("5", "5, 6"), ("5", "5; 6"), ("5", r"5\text{ or }6"), ("5", "5?"), ("5", "about 5"),
    ("5", "5x"), ("5", "5 @ 6"), ("5", ""), ("5", r"\emptyset"), ("1000000", "1 million"),
    # two numbers beside one another are not their sum
    ("15", r"7 \quad 8"), ("15", "7 8"), ("235", "1 234"), ("7", "7 8"),
    ("11/2", "1 1/2"), ("31/3", "3 1/3"), ("21/2", "2 1/2"), ("55", "5 5"), ("12", "1 2"), ("(12)", "(1 2)"),
    ("1, 234", "1,234"), ("1.5", "1 .5"),
    # letters of the expected answer are variables
    (r"\pi r^2 h", r"\pi r^2"), (r"4 \pi h", r"4\pi"), (r"\frac{1}{2} g t", r"\frac12"), ("x + 2 m", "x+2"),
    ("3m", "3"),
    ("m g h", "mg"), ("2xyz", "2"), ("2 xyz", "2"), ("24 abcd", "24"), (r"\text{A} + \text{B}", r"\text{A}"),
    # words that change the number
    ("7", "7 million"), ("7", r"7\text{ million}"), ("7", "7 dozen"), ("7", "7 squared"), ("7", "7 halves"),
    ("7", "7 pi"),
    ("7", "7 or 8"), ("7", "7 or more"), ("7", "7 cups or 8 cups"), ("7", "8 cups"), ("7", "7 abc"), ("7", "7x"),
    ("7", "7 sin"), ("7", "7 wrong"), ("7", r"7\mathrm{i}"),
    # texts with numbers
    (r"\text{June 20}", "June 21"), (r"\text{June 20}", "20"), ("June 20", "20"), ("June 20", "Nuje 20"),
    ("10:30 a.m.", "10:30 p.m."), ("5 feet 3 inches", "3 feet 5 inches"), (r"11,\! 111", "11"),
    # complex numbers
    ("i", "-i"), ("i", "i^2"), ("i", "i^3"), ("i", "1"), ("1", "i"), ("2i", "-2i"), ("2i", "2j"), ("x+iy", "x-iy"),
    ("3+4i", "3-4i"), ("3+4i", "5"), ("I^2 R", "IR"), ("a_i - i^2", "a_i + 1"), (r"\sum_{i=1}^{n} i^2", "-n"),
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
