"""Values of one column for all rollouts of a run, for sorting and grouping, from the index or, for all other columns,
from the journal until a deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np

from harness.plugins.view.index_columns import CONSTANTS, MISSING, safely
from harness.plugins.view.query_arrays import Progress, kept, plain_word, unread
from harness.plugins.view.run_index import Array, RunIndex
from harness.report.rollout_columns import RunRollout
from harness.report.selection import LONGEST_VALUE, value_text
from harness.store.query import QueryError
from harness.store.query_match import QueryColumn, is_missing

UNREAD = -2
"""Code of a rollout whose value was not read yet."""

MOST_VALUES = 200_000
"""Maximum number of different values that are kept of a column that is read from the journal."""

OTHER = "(more values)"
"""Text of the values beyond that number."""


@dataclass
class ColumnValues:
    """Values of a column: numbers, or codes of different values."""

    column: QueryColumn[RunRollout]
    numbers: Array | None = None
    """A float for each rollout, NaN if missing; None for a column of other values."""
    codes: Array = field(default_factory=lambda: np.zeros(0, "i4"))
    """For each rollout the position of its value; negative if it is missing or was not read."""
    values: Sequence[object] = ()
    """The different values; of long ones, only the beginning of the text."""

    @cached_property
    def different(self) -> Array:
        """The different numbers of a column of numbers, sorted."""
        assert self.numbers is not None
        return np.unique(self.numbers[~np.isnan(self.numbers)])

    def text(self, number: int) -> str | None:
        """Value of a rollout as one line of text; None if it is missing."""
        if self.numbers is not None:
            value = float(self.numbers[number])
            return None if math.isnan(value) else value_text(value)
        code = int(self.codes[number])
        return None if code < 0 else value_text(self.values[code])[:LONGEST_VALUE]

    def shown(self, number: int) -> object:
        """Value of a rollout for JSON: a number, a text, or None if it is missing."""
        if self.numbers is not None:
            value = float(self.numbers[number])
            return None if math.isnan(value) else value
        return self.text(number)

    def keys(self) -> tuple[Array, Array]:
        """Sort keys of all rollouts, and which of them have a value. Numbers are sorted as numbers, texts ignoring
        case, numbers before texts."""
        if self.numbers is not None:
            return self.numbers, ~np.isnan(self.numbers)
        sortable = [_sortable(value) for value in self.values]
        ranks = np.zeros(len(sortable) + 1)
        known: dict[object, int] = {}
        for key in sorted(set(sortable)):
            known[key] = len(known)
        ranks[:-1] = [known[key] for key in sortable]
        has = self.codes >= 0
        return ranks[np.where(has, self.codes, len(sortable))], has


def _sortable(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return 0, float(value), ""
        except OverflowError:
            return 0, math.inf if value > 0 else -math.inf, ""
    return 1, 0.0, value_text(value).casefold()


def column_of(index: RunIndex, name: str) -> QueryColumn[RunRollout]:
    """The column with a name.

    Raises:
        QueryError: there is no such column.
    """
    return index.columns.column(name)


def values_of(index: RunIndex, name: str, needed: Array, progress: Progress) -> ColumnValues:
    """The values of a column.

    Args:
        index: The index of the run.
        name: Name of the column.
        needed: The rollouts whose values are needed.
        progress: Deadline of reads from the journal.

    Raises:
        QueryError: there is no such column.
    """
    if not name:
        raise QueryError("the name of a column is missing", name, 0)
    column = column_of(index, name)
    name, storage = column.name, index.storage(column.name)
    if storage == "number":
        return ColumnValues(column, index.numbers(name))
    if storage == "words":
        return ColumnValues(column, None, index.codes(name), [plain_word(word) for word in index.words(name)])
    if name in CONSTANTS:
        value = column.read(RunRollout(index.entry.id, index.manifest, cast(Any, None)))
        return ColumnValues(column, None, np.full(index.count, MISSING if is_missing(value) else 0, "i4"), [value])
    return _read(index, column, needed, progress)


def _read(index: RunIndex, column: QueryColumn[RunRollout], needed: Array, progress: Progress) -> ColumnValues:
    """Values of a column that is not stored, from the journal. They are kept for later calls."""
    key = ("values", column.name)
    codes, lines = kept(index, key, UNREAD)
    known: dict[object, tuple[int, object]] = index.lasting.setdefault(("known", column.name), {})
    index.lasting.move_to_end(("known", column.name))
    if not known:
        codes[:] = UNREAD  # the values were dropped
    for number, rollout in unread(index, column.name, needed & (codes == UNREAD), progress):
        value = None if rollout is None else safely(column.read, rollout)
        codes[number] = MISSING if is_missing(value) else _code(known, value)
        lines[number] = index.newest_lines[number]
    progress.of += int(needed.sum())
    return ColumnValues(column, None, codes, [value for _, value in known.values()] or [""])


def _code(known: dict[object, tuple[int, object]], value: object) -> int:
    text = value_text(value)
    is_long = len(text) > LONGEST_VALUE
    key = (text[:LONGEST_VALUE], hash(text)) if is_long else text
    if key not in known:
        if len(known) >= MOST_VALUES:
            key, value = OTHER, OTHER
        is_plain = isinstance(value, str | int | float)
        known.setdefault(key, (len(known), text[:LONGEST_VALUE] if is_long or not is_plain else value))
    return known[key][0]
