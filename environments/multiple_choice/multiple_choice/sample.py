"""Multiple-choice questions that ship with the package. Owns their templates; reads no file and asks no network.

Every question is a function of its index alone, so the set is the same on every machine, and a longer set begins with
the shorter one. Wrong choices are what common slips give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import TypeAlias

from multiple_choice.choices import Question

SIZE = 200

Draft: TypeAlias = "tuple[str, list[str]]"
"""A question and its choices, the right one first."""

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WORDS = (
    "anchor", "basket", "candle", "desert", "engine", "forest", "garden", "hammer", "island", "jacket", "kettle",
    "ladder", "magnet", "needle", "orange", "pencil", "quartz", "ribbon", "saddle", "temple", "velvet", "window",
)  # fmt: skip
ROMAN = ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))


def questions(size: int = SIZE) -> Iterator[Question]:
    """Questions of all kinds in turn.

    Args:
        size: How many.
    """
    seen: set[str] = set()
    for index in range(size):
        rng, template = Random(f"multiple-choice sample {index}"), TEMPLATES[index % len(TEMPLATES)]
        text, choices = template(rng)
        while text in seen or len(set(choices)) < len(choices):
            text, choices = template(rng)
        seen.add(text)
        yield Question(text, tuple(choices), 0, {"subject": template.__name__})


def percentage(rng: Random) -> Draft:
    share, whole = rng.choice((5, 15, 20, 35, 40, 60, 75)), 20 * rng.randint(3, 40)
    right = whole * share // 100
    return f"What is {share} % of {whole}?", [f"{n}" for n in (right, right * 10, whole - right, right + share)]


def weekday(rng: Random) -> Draft:
    start, later = rng.randrange(7), rng.randint(9, 90)
    order = [(later + offset) % 7 for offset in (0, 1, 6, 3, 4, 2, 5)]
    return (
        f"Today is {DAYS[start]}. Which day of the week is it in {later} days?",
        [DAYS[(start + offset) % 7] for offset in order],
    )


def sorting(rng: Random) -> Draft:
    words = rng.sample(WORDS, rng.randint(3, 6))
    return f"Which of these words comes first in the alphabet: {', '.join(words)}?", sorted(words)


def triangle(rng: Random) -> Draft:
    first, second = rng.randint(20, 80), rng.randint(20, 80)
    right = 180 - first - second
    return (
        f"Two angles of a triangle measure {first} and {second} degrees. How large is the third?",
        [f"{n} degrees" for n in (right, 360 - first - second, 180 - first, first + second, 90 - abs(first - second))],
    )


def parity(rng: Random) -> Draft:
    number, factor = rng.randint(100, 999), rng.choice((3, 7, 9, 11))
    right, wrong = ("Yes", "No") if number % factor == 0 else ("No", "Yes")
    return f"Is {number} divisible by {factor}?", [right, wrong]


def roman(rng: Random) -> Draft:
    number = rng.randint(4, 39)
    others = rng.sample([n for n in range(3, 40) if n != number], 9)
    return f"How is {number} written in Roman numerals?", [_roman(n) for n in (number, *others)]


def remainder(rng: Random) -> Draft:
    divisor = rng.randint(4, 9)
    number = rng.randint(30, 400)
    right = number % divisor
    wrong = rng.sample([n for n in range(divisor) if n != right], 3)
    return f"What is the remainder when {number} is divided by {divisor}?", [f"{n}" for n in (right, *wrong)]


def letters(rng: Random) -> Draft:
    word = rng.choice(WORDS)
    place = rng.randrange(1, 6)
    names = ("first", "second", "third", "fourth", "fifth", "sixth")
    wrong = sorted(set(word) - {word[place]})[:4]
    return f"What is the {names[place]} letter of the word “{word}”?", [
        f"the letter {n}" for n in (word[place], *wrong)
    ]


def _roman(number: int) -> str:
    text = ""
    for value, sign in ROMAN:
        text += sign * (number // value)
        number %= value
    return text


TEMPLATES: tuple[Callable[[Random], Draft], ...] = (
    percentage, weekday, sorting, triangle, parity, roman, remainder, letters,
)  # fmt: skip
