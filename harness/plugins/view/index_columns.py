"""Columns that the index of a run stores for each rollout, and the conversion of values. A column of numbers has one
float for each rollout, a column of words the code of one of its different values. A column with a value that cannot be
stored exactly is left out; queries then read the journal. The functions that read values are those of
`report.rollout_columns`."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from harness.core.types import JsonDict
from harness.report.rollout_columns import FLAGS, RunRollout, rollout_columns
from harness.store.manifest import Manifest

NUMBERS = (
    "reward", "rollout", "tokens", "input_tokens", "output_tokens", "reasoning_tokens", "requests", "cost", "turns",
    "seconds", "model_seconds", "waiting_seconds", "attempts",
)  # fmt: skip
"""Columns of numbers, besides the metrics."""

WORDS = ("outcome", "reason", "error", "stop", "metrics", "parsed", "answer", "tool", "task")
"""Columns of words."""

SHOWN = frozenset({"outcome", "reason", "stop"})
"""Columns of words that tables show in any case, also with words missing."""

EXAMPLE = "example"
"""Column with the ids of the examples, which are numbers or words."""

CONSTANTS = frozenset({"env", "model", "name", "run"})
"""Columns whose value is the same in all rollouts of a run; not stored."""

FLAG_BITS = {name: 1 << place for place, name in enumerate(FLAGS)}
"""Bits of the properties in the column of flags."""

MISSING = -1
"""Number of a missing word."""

LARGEST = 1e15
"""Smallest integer that is not stored, since its text differs from that of the float."""

LONGEST_WORD = 2_000
"""Maximum number of characters of a word."""

PREVIEW = 200
"""Maximum number of characters of the beginnings of texts."""

MOST_WORDS = 100_000
"""Maximum number of different words of a column."""

UNUSUAL = (AttributeError, TypeError, ValueError, KeyError, RecursionError, OverflowError)
"""Errors that a function raises if a record has a form that it does not expect."""

T = TypeVar("T")
Word: TypeAlias = "str | tuple[str, ...]"
Read: TypeAlias = Callable[[RunRollout], object]


class NotStorable(Exception):
    """A value that the index cannot store exactly."""


def as_number(value: object) -> float:
    """Convert a value to a float; NaN if it is missing.

    Raises:
        NotStorable: it is not a number, or a float would not have the same text.
    """
    kind = type(value)
    if kind is float:
        return cast(float, value) if math.isfinite(cast(float, value)) else math.nan
    if value is None:
        return math.nan
    if kind is int and -LARGEST < cast(int, value) < LARGEST:
        return float(cast(int, value))
    raise NotStorable


def as_word(value: object) -> Word | None:
    """Return a value that can be stored as a word; None if it is missing.

    Raises:
        NotStorable: it is too long, or not a text or a tuple of texts.
    """
    if not value and (value is None or isinstance(value, str | tuple)):
        return None
    if isinstance(value, str) and len(value) <= LONGEST_WORD:
        return value
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
        if all(isinstance(part, str) for part in parts) and sum(len(cast(str, part)) for part in parts) <= LONGEST_WORD:
            return cast("tuple[str, ...]", parts)
    raise NotStorable


def as_stored(value: object) -> Word:
    """A word from JSON, which has lists in place of tuples."""
    return value if isinstance(value, str) else tuple(cast("list[str]", value))


@dataclass(frozen=True, slots=True)
class RowReader:
    """The functions that read the stored values of a rollout, by column."""

    numbers: Mapping[str, Read]
    words: Mapping[str, Read]
    flags: tuple[Callable[[RunRollout], bool], ...]
    example: Read

    @classmethod
    def of(cls, manifest: Manifest) -> RowReader:
        """The columns of a run, with its metrics."""
        columns = rollout_columns([manifest])
        metrics = [f"metric.{name}" for name in dict.fromkeys(manifest.metric_names)]
        named = {name: columns.column(name) for name in (*NUMBERS, *metrics, *WORDS, EXAMPLE)}
        return cls(
            {name: named[name].read for name in (*NUMBERS, *metrics)},
            {name: named[name].read for name in WORDS},
            tuple(test for test, _ in FLAGS.values()),
            named[EXAMPLE].read,
        )


def safely(read: Callable[[RunRollout], object], rollout: RunRollout) -> object:
    """Read a value of a rollout; None if its record has an unusual form that the function does not expect."""
    try:
        return read(rollout)
    except UNUSUAL:
        return None


def read_all(read: Callable[[RunRollout], T], rollouts: list[RunRollout]) -> list[T | None]:
    """Read a value of each rollout, as `safely` does."""
    try:
        return [*map(read, rollouts)]
    except UNUSUAL:
        return [cast("T | None", safely(read, rollout)) for rollout in rollouts]


def stored_names(manifest: Manifest) -> JsonDict:
    """Names of the stored columns of a run, which an index must have been built for."""
    reader = RowReader.of(manifest)
    return {"numbers": [*reader.numbers], "words": [*reader.words], "flags": [*FLAG_BITS]}


def safe_text(read: Callable[[], str]) -> str:
    """The text that a function returns; "" if a message has a form that it does not expect."""
    try:
        return read()
    except (AttributeError, TypeError, ValueError, RecursionError):
        return ""


def preview(text: object) -> str:
    """The beginning of a text, in one line."""
    known = text if isinstance(text, str) else str(text)
    shown = known[:PREVIEW]
    if shown.isascii() and shown.isprintable() and "  " not in shown and shown.strip() == shown:
        return shown  # as it is
    shown = " ".join(known[: 3 * PREVIEW].split())[:PREVIEW]
    return shown if shown.isascii() else shown.encode("utf-8", "replace").decode()


@contextmanager
def without_search_for_garbage() -> Generator[None]:
    """Context manager in which Python does not search for objects that refer to each other in a circle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
