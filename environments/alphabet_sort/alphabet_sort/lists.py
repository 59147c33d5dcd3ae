"""Lists of names as replies hold them, and how alike two of them are. Owns no examples."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_NAMES = 1000
"""No list that is asked for is a tenth as long; a longer reply is none, and costs no time."""

_BULLET = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+")


def read_list(reply: str) -> list[str]:
    """The names in a reply's `<sorted>` tags, without bullets and extra space; empty unless there is exactly one list.

    Lists inside thinking do not count. A reply that repeats its list is fine, one with two different lists has none.
    """
    said = reply.rpartition("</think>")[2].partition("<think>")[0]
    parts = [part.partition("</sorted>") for part in said.split("<sorted>")[1:]]
    found = {tuple(_names(inner)) for inner, closed, _ in parts if closed}
    names = list(found.pop()) if len(found) == 1 else []
    return names if len(names) <= MAX_NAMES else []


def similarity_of(one: Sequence[str], other: Sequence[str]) -> float:
    """Twice the length of the longest common subsequence over the sum of the lengths: 1 for equal lists, 0 for lists
    without a common name. Names that are missing, made up, repeated or out of place all lower it."""
    total = len(one) + len(other)
    return 2 * longest_common_subsequence(one, other) / total if total else 1.0


def longest_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest sequence of items that occurs in both, in order, with or without gaps. O(n·m) time."""
    above = [0] * (len(other) + 1)
    for item in one:
        row = [0]
        for column, candidate in enumerate(other):
            row.append(above[column] + 1 if item == candidate else max(row[column], above[column + 1]))
        above = row
    return above[-1]


def _names(text: str) -> list[str]:
    lines = (" ".join(_BULLET.sub("", line, count=1).split()) for line in text.strip().split("\n"))
    return [line for line in lines if line]
