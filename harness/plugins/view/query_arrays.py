"""Evaluation of a query over all rollouts of a run, as arrays. Conditions on stored columns are evaluated for all
rollouts at once, with the functions of `store.query_match`: for numbers by the same formulas, for words by one call for
each different word. All other conditions are evaluated rollout by rollout, from the journal, until a deadline; another
evaluation continues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from harness.core.errors import StoreError
from harness.plugins.view.index_columns import EXAMPLE, safely
from harness.plugins.view.run_index import Array, RunIndex
from harness.plugins.view.text_index import parts_of
from harness.report.rollout_columns import RunRollout
from harness.store.journal_index import read_rollout
from harness.store.outcomes import Outcome
from harness.store.query import AllOf, Negation, Node, Term, query_text
from harness.store.query_match import (
    HAS,
    IS,
    SAME,
    Query,
    QueryColumn,
    QueryColumns,
    compile_query,
    finite_number,
    fold,
    is_missing,
)

SCAN_SECONDS = 0.7
"""Seconds for which one answer may read the journal."""

_SCANS_KEPT = 12
"""Maximum number of scans of a run whose results are kept."""

_SCANNED_KEPT = 4_000_000
"""Maximum number of rollouts in these results, which take 12 bytes for each; those of two scans are always kept."""

_QUERIES_KEPT = 16
"""Maximum number of queries whose results are kept."""

UNKNOWN, NO, YES = 0, 1, 2
"""Results of a scan for a rollout."""


@dataclass
class Progress:
    """Deadline of the reads from the journal for one answer, and how many are left."""

    deadline: float = field(default_factory=lambda: time.monotonic() + SCAN_SECONDS)
    left: int = 0
    """Number of rollouts that were not read before the deadline."""
    of: int = 0
    """Number of rollouts that had to be read, now or earlier."""

    @property
    def json(self) -> dict[str, int] | None:
        """The state of an unfinished scan as JSON; None if nothing is left."""
        return {"scanned": self.of - self.left, "of": self.of} if self.left else None


def parsed_query(index: RunIndex, text: str) -> Query[RunRollout]:
    """Parse a query, and check its names and values.

    Raises:
        QueryError: the query is invalid.
    """
    return compile_query(text, index.columns)


def matching(index: RunIndex, query: Query[RunRollout], progress: Progress) -> Array:
    """Return for each rollout whether it matches a query; those not read yet do not match."""
    known: dict[str, Array] = index.derived.setdefault("queries", {})
    if query.text not in known:
        before = progress.left
        found, _ = _Evaluation(index, progress).node(query.tree, np.ones(index.count, bool))
        if progress.left > before:
            return found
        if len(known) >= _QUERIES_KEPT:
            known.clear()
        known[query.text] = found
    return known[query.text]


class _Evaluation:
    """Evaluation of the conditions of one query. Each result has two arrays: the rollouts that match, and those that do
    not; rollouts that were not read are in neither."""

    def __init__(self, index: RunIndex, progress: Progress) -> None:
        self._index, self._progress = index, progress

    def node(self, node: Node, needed: Array) -> tuple[Array, Array]:
        """Evaluate a condition, for the rollouts for which it is needed."""
        if isinstance(node, Term):
            return self._term(node, needed)
        if isinstance(node, Negation):
            yes, no = self.node(node.part, needed)
            return no, yes
        is_all = isinstance(node, AllOf)
        yes, no = np.full(len(needed), is_all), np.full(len(needed), not is_all)
        for part in sorted(node.parts, key=self._needs_journal):
            # A rollout is decided by the first part that does not match, or for alternatives by the first that does.
            part_yes, part_no = self.node(part, needed & ~(no if is_all else yes))
            if is_all:
                yes, no = yes & part_yes, no | part_no
            else:
                yes, no = yes | part_yes, no & part_no
        return yes, no

    def _needs_journal(self, node: Node) -> bool:
        if isinstance(node, Term):
            return self._stored(node) is None
        return any(map(self._needs_journal, [node.part] if isinstance(node, Negation) else node.parts))

    def _term(self, term: Term, needed: Array) -> tuple[Array, Array]:
        stored = self._stored(term)
        if stored is not None:
            yes = stored()
            return yes, ~yes
        matches = compile_query(query_text(term), self._index.columns).matches
        column = term.value if term.column == HAS else term.column
        key, progress = ("term", term), self._progress
        if term.operator == ":" and (parts := parts_of(term.column, term.value)):
            self._exclude(key, parts, needed)
        results = scan(self._index, column, key, lambda rollout: bool(safely(matches, rollout)), needed, progress)
        return results == YES, results == NO

    def _exclude(self, key: object, parts: tuple[str, ...], needed: Array) -> None:
        """Note that rollouts do not match which the full-text index excludes."""
        index = self._index
        results, lines = kept(index, key, UNKNOWN)
        if (unknown := needed & (results == UNKNOWN)).any():
            excluded = unknown & index.text_index.excluded(parts, index.array("base_line"))
            results[excluded], lines[excluded] = NO, index.newest_lines[excluded]

    def _stored(self, term: Term) -> Callable[[], Array] | None:
        """Function that evaluates a condition from the index; None if the journal is needed."""
        index = self._index
        if index.columns.find(term.column) is None and term.column in (HAS, IS):
            if term.column == IS:
                return lambda: index.flag(fold(term.value))
            kind, name = index.storage(term.value), term.value
        else:
            kind, name = index.storage(term.column), term.column
        if kind == "number":
            return lambda: self._numbers(term, index.numbers(name), is_id=name == EXAMPLE)
        if kind == "words":
            return lambda: self._words(term, name)
        if kind == "constant":
            column = cast("QueryColumn[RunRollout]", index.columns.find(name))
            value = column.read(RunRollout(index.entry.id, index.manifest, cast(Any, None)))
            return lambda: np.full(index.count, value_matcher(term, column)(value))
        return None

    def _numbers(self, term: Term, values: Array, *, is_id: bool) -> Array:
        is_there = ~np.isnan(values)
        if term.column == HAS:
            return is_there
        wanted = finite_number(term.value)
        if wanted is None:  # the id of an example is compared with a text
            return is_there & (term.operator == "!=")
        return compared(values, term.operator, wanted) & is_there

    def _words(self, term: Term, name: str) -> Array:
        codes = self._index.codes(name)
        if term.column == HAS:
            return codes >= 0
        column = cast("QueryColumn[RunRollout]", self._index.columns.find(name))
        matches = value_matcher(term, column)
        found = [matches(plain_word(word)) for word in self._index.words(name)]
        return np.array([*found, False], bool)[codes]


def plain_word(word: object) -> object:
    """A stored word as the column's value: a string, or a tuple of strings."""
    return tuple(cast("list[object]", word)) if isinstance(word, list) else word


def value_matcher(term: Term, column: QueryColumn[Any]) -> Callable[[object], bool]:
    """Make a function that decides whether a value of a column meets a condition."""
    read: Callable[[object], object] = lambda value: value  # noqa: E731
    plain: QueryColumn[object] = QueryColumn(term.column, column.kind, read, column.doc, column.choices)
    if term.column == HAS:
        return lambda value: not is_missing(value)
    return compile_query(query_text(term), QueryColumns({term.column: plain})).matches


def compared(values: Array, operator: str, wanted: float) -> Array:
    """Compare numbers by an operator of the query language, as `query_match.compare_numbers` does. NaN has no meaning
    in the result."""
    with np.errstate(invalid="ignore", over="ignore"):
        same = np.abs(values - wanted) <= SAME * np.maximum(np.maximum(1.0, np.abs(values)), abs(wanted))
        if operator in (":", "="):
            return same
        if operator == "!=":
            return ~same
        if operator in ("<", "<="):
            return (same | (values < wanted)) if operator == "<=" else (values < wanted) & ~same
        return (same | (values > wanted)) if operator == ">=" else (values > wanted) & ~same


def scan(
    index: RunIndex, column: str, key: object, test: Callable[[RunRollout], bool], needed: Array, progress: Progress
) -> Array:
    """Apply a function to rollouts, in table order, until the deadline. Results are kept for later calls.

    Args:
        index: The index of the run.
        column: The column that the function reads.
        key: Name of the function among the kept results.
        test: The function.
        needed: The rollouts for which the result is needed.
        progress: The deadline; counts the rollouts that are left.

    Returns:
        `YES`, `NO` or `UNKNOWN` for each rollout.
    """
    results, lines = kept(index, key, UNKNOWN)
    for number, rollout in unread(index, column, needed & (results == UNKNOWN), progress):
        results[number] = YES if rollout is not None and test(rollout) else NO
        lines[number] = index.newest_lines[number]
    progress.of += int(needed.sum())
    return results


def unread(index: RunIndex, column: str, todo: Array, progress: Progress) -> Iterator[tuple[int, RunRollout | None]]:
    """Read rollouts from the journal, in table order, until the deadline.

    Args:
        index: The index of the run.
        column: The column whose value is needed. If it depends only on the example, the rollouts have nothing else.
        todo: The rollouts.
        progress: The deadline; counts the rollouts that are left.

    Yields:
        Number and rollout; None in place of a rollout whose lines cannot be read.
    """
    numbers = index.order[todo[index.order]]
    if not len(numbers):
        return
    of_example = column.startswith("info.") or column in ("prompt", "answer", "task", EXAMPLE)
    example_lines, known = index.array("example_line"), (-1, cast(Any, None))
    with index.reader() as reader:
        for done, number in enumerate(map(int, numbers)):
            if time.monotonic() > progress.deadline:
                progress.left += len(numbers) - done
                return
            rollout = None
            with suppress(StoreError):
                line = int(example_lines[number])
                if line != known[0]:
                    known = (line, cast(Any, reader.record(line)))
                parts = (cast(Any, None), None) if of_example else read_rollout(reader, index.lines(number))
                rollout = RunRollout(index.entry.id, index.manifest, Outcome(known[1], *parts))
            yield number, rollout


def kept(index: RunIndex, key: object, unknown: int) -> tuple[Array, Array]:
    """Results of earlier reads, and the newest lines that they are about; those of changed rollouts are unknown.

    Args:
        index: The index of the run.
        key: Name of the results.
        unknown: Value for an unknown result.
    """
    results, lines = index.lasting.pop(key, (np.zeros(0, "i4"), np.zeros(0, "i8")))
    grown = max(0, index.count - len(results))
    results = np.concatenate([results, np.full(grown, unknown, "i4")])[: index.count]
    lines = np.concatenate([lines, np.full(grown, -1, "i8")])[: index.count]
    results[lines != index.newest_lines] = unknown
    index.lasting[key] = (results, lines)
    most = min(
        _SCANS_KEPT, max(4, _SCANNED_KEPT // max(1, index.count))
    )  # two: there may be a table of values for each
    while len(index.lasting) > most:
        index.lasting.popitem(last=False)
    return results, lines
