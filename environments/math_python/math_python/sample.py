r"""Problems that ship with the package, of kinds in which a few lines of Python help. Owns their templates; reads no
file and asks no network.

Every problem is a function of its index alone, so the set is the same on every machine, and a longer set begins with
the shorter one. Answers are LaTeX as in MATH: numbers, fractions, sets, intervals. Each comes with a short program that
prints the answer, found by other means than the one that made it where there is another; a test runs them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from random import Random
from typing import TypeAlias

SIZE = 200

Problem: TypeAlias = "tuple[str, str, str]"
"""The question, the answer, and a program that prints it."""


def problems(size: int = SIZE) -> Iterator[dict[str, str]]:
    """Rows with `problem`, `answer`, `subject` and `program`.

    Args:
        size: How many; kinds of problem take turns.
    """
    seen: set[str] = set()
    for index in range(size):
        # a text seed goes through sha512, so it depends neither on PYTHONHASHSEED nor on the platform
        rng, template = Random(f"math-python sample {index}"), TEMPLATES[index % len(TEMPLATES)]
        question, answer, program = template(rng)
        while question in seen:
            question, answer, program = template(rng)
        seen.add(question)
        yield {"problem": question, "answer": answer, "subject": template.__name__, "program": program}


def latex(value: Fraction) -> str:
    r"""A fraction as `-\frac{1}{2}`, a whole one as a number."""
    sign = "-" if value < 0 else ""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def power_remainder(rng: Random) -> Problem:
    base, power, modulus = rng.randint(3, 29), rng.randint(200, 2000), rng.randint(31, 997)
    return (
        f"What is the remainder when ${base}^{{{power}}}$ is divided by ${modulus}$?",
        str(pow(base, power, modulus)),
        f"print({base}**{power} % {modulus})",
    )


def digit_sum(rng: Random) -> Problem:
    base, power = rng.randint(2, 19), rng.randint(40, 150)
    return (
        f"Find the sum of the decimal digits of ${base}^{{{power}}}$.",
        str(sum(int(digit) for digit in str(base**power))),
        f"n, total = {base}**{power}, 0\nwhile n:\n    n, digit = divmod(n, 10)\n    total += digit\nprint(total)",
    )


def multiples(rng: Random) -> Problem:
    first, second, third = rng.sample((3, 4, 5, 6, 7, 9, 11, 13), 3)
    most = rng.randint(1000, 9000)
    count = sum(most // n for n in (first, second)) - most // math.lcm(first, second)
    spoilt = sum(most // math.lcm(n, third) for n in (first, second)) - most // math.lcm(first, second, third)
    return (
        f"How many positive integers up to ${most}$ are divisible by ${first}$ or by ${second}$, but not by ${third}$?",
        str(count - spoilt),
        f"print(sum((n % {first} == 0 or n % {second} == 0) and n % {third} != 0 for n in range(1, {most} + 1)))",
    )


def next_prime(rng: Random) -> Problem:
    least = rng.randint(10_000, 90_000)
    found = least + 1
    while any(found % n == 0 for n in range(2, math.isqrt(found) + 1)):
        found += 1
    return (
        f"What is the smallest prime number greater than ${least}$?",
        str(found),
        f"sieve = bytearray([1]) * ({least} + 1000)\nfor n in range(2, 320):\n    sieve[n * n :: n] = "
        f"bytes(len(sieve[n * n :: n]))\nprint(next(n for n in range({least} + 1, len(sieve)) if sieve[n]))",
    )


def harmonic_sum(rng: Random) -> Problem:
    first, terms, step = rng.randint(1, 5), rng.randint(5, 9), rng.randint(1, 4)
    parts = [Fraction(1, first + step * n) for n in range(terms)]
    shown = " + ".join(f"\\frac{{1}}{{{part.denominator}}}" for part in parts)
    return (
        f"Write ${shown}$ as a common fraction in lowest terms.",
        latex(sum(parts, Fraction(0))),
        f"from math import gcd\na, b = 0, 1\nfor n in range({first}, {first + step * terms}, {step}):\n"
        "    a, b = a * n + b, b * n\nprint(f'{a // gcd(a, b)}/{b // gcd(a, b)}')",
    )


def determinant(rng: Random) -> Problem:
    rows = [[rng.randint(-9, 9) for _ in range(3)] for _ in range(3)]
    (a, b, c), (d, e, f), (g, h, i) = rows
    body = " \\\\ ".join(" & ".join(map(str, row)) for row in rows)
    return (
        f"Compute the determinant of the matrix $\\begin{{pmatrix}} {body} \\end{{pmatrix}}$.",
        str(a * e * i + b * f * g + c * d * h - c * e * g - b * d * i - a * f * h),
        f"m = {rows}\n"
        "minor = lambda x, y: m[1][x] * m[2][y] - m[1][y] * m[2][x]\n"
        "print(m[0][0] * minor(1, 2) - m[0][1] * minor(0, 2) + m[0][2] * minor(0, 1))",
    )


def recurrence(rng: Random) -> Problem:
    a, b, p, q = rng.randint(1, 9), rng.randint(1, 9), rng.randint(2, 5), rng.randint(1, 4)
    n, modulus = rng.randint(50, 400), rng.randint(100, 999)
    x, y = a, b
    for _ in range(n):
        x, y = y, (p * y + q * x) % modulus
    return (
        f"Let $a_0 = {a}$, $a_1 = {b}$ and $a_{{k+2}} = {p}a_{{k+1}} + {q}a_k$ for $k \\ge 0$. What is the remainder "
        f"when $a_{{{n}}}$ is divided by ${modulus}$?",
        str(x % modulus),
        f"a = [{a}, {b}]\nwhile len(a) <= {n}:\n    a.append({p} * a[-1] + {q} * a[-2])\nprint(a[{n}] % {modulus})",
    )


def coefficient(rng: Random) -> Problem:
    a, b = rng.randint(2, 5), rng.choice((-4, -3, -2, 2, 3, 4))
    power = rng.randint(8, 14)
    of = rng.randint(2, power - 2)
    sign = "+" if b > 0 else "-"
    return (
        f"What is the coefficient of $x^{{{of}}}$ in the expansion of $({a}x {sign} {abs(b)})^{{{power}}}$?",
        str(math.comb(power, of) * a**of * b ** (power - of)),
        f"p = [1]\nfor _ in range({power}):\n    p = [{b} * u + {a} * v for u, v in zip([*p, 0], [0, *p])]\n"
        f"print(p[{of}])",
    )


def dice(rng: Random) -> Problem:
    count, faces = rng.randint(3, 4), rng.choice((4, 6, 8))
    total = rng.randint(count + 4, count * faces - 4)
    ways = [1]
    for _ in range(count):
        ways = [sum(ways[max(0, s - faces) : s]) for s in range(len(ways) + faces)]
    return (
        f"{count} fair dice, each with faces numbered from 1 to {faces}, are rolled. What is the probability that the "
        f"sum of the numbers shown is {total}? Give a common fraction.",
        latex(Fraction(ways[total], faces**count)),
        f"from fractions import Fraction\nfrom itertools import product\nrolls = list(product(range(1, {faces} + 1), "
        f"repeat={count}))\nprint(Fraction(sum(sum(roll) == {total} for roll in rolls), len(rolls)))",
    )


def roots(rng: Random) -> Problem:
    first, second, third = sorted(rng.sample([n for n in range(-12, 13) if n], 3))
    b = -(first + second + third)
    c = first * second + first * third + second * third
    d = -first * second * third
    terms = "".join(
        f" {'+' if n > 0 else '-'} {abs(n)}{x}" if abs(n) != 1 or not x else f" {'+' if n > 0 else '-'} {x}"
        for n, x in ((b, "x^2"), (c, "x"), (d, ""))
        if n
    )
    return (
        f"Find the set of all real solutions of $x^3{terms} = 0$.",
        f"\\{{{first}, {second}, {third}\\}}",
        f"print(', '.join(str(x) for x in range(-50, 51) if x**3 + {b} * x**2 + {c} * x + {d} == 0))",
    )


def inequality(rng: Random) -> Problem:
    low, high = sorted(rng.sample(range(-15, 16), 2))
    b, c = -(low + high), low * high
    middle = f" {'+' if b > 0 else '-'} {'' if abs(b) == 1 else abs(b)}x" if b else ""
    end = f" {'+' if c > 0 else '-'} {abs(c)}" if c else ""
    return (
        f"Solve $x^2{middle}{end} \\le 0$ over the real numbers. Give the solution as an interval.",
        f"[{low}, {high}]",
        f"inside = [n for n in range(-400, 401) if n * n + {b} * n + {c} <= 0]\nprint([inside[0], inside[-1]])",
    )


def subsets(rng: Random) -> Problem:
    size, chosen = rng.randint(10, 13), rng.randint(3, 4)
    divisor = rng.randint(3, 7)
    count = sum(sum(part) % divisor == 0 for part in combinations(range(1, size + 1), chosen))
    return (
        f"How many subsets of $\\{{1, 2, \\ldots, {size}\\}}$ have exactly ${chosen}$ elements and a sum that is "
        f"divisible by ${divisor}$?",
        str(count),
        f"print(sum(bin(m).count('1') == {chosen} and sum(n + 1 for n in range({size}) if m >> n & 1) % {divisor} == 0 "
        f"for m in range(1 << {size})))",
    )


TEMPLATES: tuple[Callable[[Random], Problem], ...] = (
    power_remainder, digit_sum, multiples, next_prime, harmonic_sum, determinant,
    recurrence, coefficient, dice, roots, inequality, subsets,
)  # fmt: skip
