"""The rules of Wordle and its words. Owns marks, hard mode, what counts as a guess and which words are secrets; knows
no messages and no rewards."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

WORD_LENGTH = 5
GUESSES = 6


@cache
def word_list() -> tuple[str, ...]:
    """Every word that may be a secret, in alphabetical order.

    The five-letter words of the EFF's long word list: 7,776 words picked because nearly everybody knows them, without
    vulgar words and hard spellings (https://www.eff.org/dice). xkcdpass ships it as plain text.
    """
    text = files("xkcdpass").joinpath("static", "eff-long").read_text("utf-8")
    fitting = (word for word in text.split() if len(word) == WORD_LENGTH and word.isascii() and word.isalpha())
    return tuple(sorted(word for word in fitting if word.islower()))


@cache
def word_list_id() -> str:
    """Names the words exactly, so that a run tells whether another one drew from the same words."""
    return f"eff-long/{len(word_list())}/sha256:{hashlib.sha256(' '.join(word_list()).encode()).hexdigest()[:16]}"


def secrets(seed: int) -> list[str]:
    """All words in an order that the seed decides.

    Sorting by hash rather than shuffling: should a later list gain or lose a word, all others keep their order.
    """
    return sorted(word_list(), key=lambda word: hashlib.sha256(f"{seed} {word}".encode()).digest())


def marks(secret: str, guess: str) -> str:
    """G, Y or - for each letter of a guess.

    A letter is marked as often as the secret word has it: first where it stands right, then from left to right.
    """
    unplaced = Counter(there for there, here in zip(secret, guess, strict=True) if there != here)
    result: list[str] = []
    for there, here in zip(secret, guess, strict=True):
        if there == here:
            result.append("G")
        elif unplaced[here]:
            unplaced[here] -= 1
            result.append("Y")
        else:
            result.append("-")
    return "".join(result)


def broken_hint(guess: str, hints: Sequence[tuple[str, str]]) -> str:
    """Why a guess is not allowed in hard mode, or "".

    Args:
        guess: Five letters.
        hints: The guesses so far, each with its marks.
    """
    for word, shown in hints:
        for place, (letter, mark) in enumerate(zip(word, shown, strict=True)):
            if mark == "G" and guess[place] != letter:
                return f"Hard mode: letter {place + 1} must be {letter.upper()}."
        known = Counter(letter for letter, mark in zip(word, shown, strict=True) if mark != "-")
        for letter, count in known.items():
            if guess.count(letter) < count:
                times = {1: "", 2: " twice"}.get(count, f" {count} times")
                return f"Hard mode: the guess must contain {letter.upper()}{times}."
    return ""


def read_guess(reply: str) -> tuple[str, str]:
    """The word that a reply guesses, and what is wrong with it ("" if nothing is).

    Guesses inside thinking do not count. A reply that repeats its guess is fine, one with two different guesses is not.
    """
    said = reply.rpartition("</think>")[2].partition("<think>")[0]
    parts = [part.partition("</guess>") for part in said.split("<guess>")[1:]]
    found = {"".join(inner.split()).lower() for inner, closed, _ in parts if closed}
    if len(found) != 1:
        return "", "Write one guess in <guess> tags." if not found else "Only one guess is allowed at a time."
    word = found.pop()
    if len(word) != WORD_LENGTH or not (word.isascii() and word.isalpha()):
        return word[: 2 * WORD_LENGTH], f"A guess has {WORD_LENGTH} letters from a to z."
    return word, ""
