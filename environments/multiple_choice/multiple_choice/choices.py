"""The order of the choices and how a question is shown. Owns the shuffling by seed and its exceptions; reads
no data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from harness import JsonDict
from multiple_choice.extraction import LETTERS

_TIED = re.compile(
    r"(?i:\babove\b|\bbelow\b|\bpreceding\b|\bprevious\s+(?:choice|option|answer)s?\b)"
    r"|\b[A-J]\s*(?:,|and|or|&)\s*(?:and\s+|or\s+)?[A-J]\b|\b(?:[Bb]oth|[Nn]either|[Oo]nly)\s+\(?[A-J]\b"
    r"|\b(?i:option|choice|answer)\s+\(?[A-J]\b|\(?\b[A-J]\)?\s+only\b"
)
"""Choices that speak of other choices by place or letter: `all of the above`, `both A and B`."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as its source has it."""

    text: str
    choices: tuple[str, ...]
    answer: int
    """Index of the right choice."""
    info: JsonDict
    """Further columns worth keeping."""


def rows(questions: Iterable[Question], seed: int | None) -> list[JsonDict]:
    """The rows of the dataset, their choices in the order in which they are shown.

    The right choice takes every place equally often: in turn over blocks of as many questions as there are places,
    in an order that the seed decides. The order of the wrong ones depends on the seed and the question alone.

    Args:
        questions: In the order of their source.
        seed: None leaves the choices in their own order.
    """
    seen: Counter[int] = Counter()
    made: list[JsonDict] = []
    for question in questions:
        count = len(question.choices)
        order = list(range(count))
        shuffled = seed is not None and not any(map(_TIED.search, question.choices))
        if shuffled:
            place = _place(seed, count, seen[count])
            seen[count] += 1
            order.remove(question.answer)
            # a text seed goes through sha512, so it depends neither on PYTHONHASHSEED nor on the platform
            Random(f"multiple-choice {seed} {question.text} {question.choices}").shuffle(order)
            order.insert(place, question.answer)
        shown = [question.choices[index] for index in order]
        lines = [f"{letter}) {choice}" for letter, choice in zip(LETTERS, shown, strict=False)]
        made.append(
            {
                "question": "\n".join([question.text, "", *lines]),
                "answer": LETTERS[order.index(question.answer)],
                "info": {**question.info, "choices": shown, "order": order, "shuffled": shuffled},
            }
        )
    return made


def _place(seed: int | None, count: int, number: int) -> int:
    """Where the right choice of the `number`-th question with `count` choices stands."""
    block, turn = divmod(number, count)
    places = list(range(count))
    Random(f"multiple-choice places {seed} {count} {block}").shuffle(places)
    return places[turn]
