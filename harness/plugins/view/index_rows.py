"""The rows of an index that some lines of a journal give, in the form in which they are added to the index. A row
depends on nothing but the journal and the manifest, so another process can compute it."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from harness.core.errors import StoreError
from harness.core.records import Example, Failed, Generated, Scored
from harness.core.types import JsonDict
from harness.plugins.view.index_columns import (
    EXAMPLE,
    LARGEST,
    MISSING,
    PREVIEW,
    NotStorable,
    RowReader,
    Word,
    as_number,
    as_word,
    preview,
    read_all,
    safe_text,
    without_search_for_garbage,
)
from harness.report.rollout_columns import RunRollout
from harness.report.transcript import last_text
from harness.store.codec import record_of
from harness.store.journal import JournalReader, scan
from harness.store.journal_index import NOWHERE
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome
from harness.store.rundir import RunDir

_EXAMPLES_KEPT = 500
"""Number of examples to keep in memory."""

_PLAIN = frozenset({float, int, type(None)})
"""Types of values that are converted to floats all at once."""

Array: TypeAlias = np.ndarray[Any, Any]
ExampleRow: TypeAlias = tuple[int, str, str, str, str, str]
"""Position in tables, key and id as JSON, task, and the beginnings of answer and prompt."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Rollouts that some lines of a journal are about."""

    start: int
    """Offset of the first of these lines."""
    stop: int
    """Offset after the last one."""
    rollouts: Array
    """`Recorded.row` of each rollout."""


@dataclass(slots=True)
class Rows:
    """Rows of rollouts, by column."""

    readable: Array
    """Positions of the rollouts that could be read, which all that follows is about."""
    numbers: dict[str, Array]
    """Values of the columns of numbers; NaN is missing."""
    words: dict[str, tuple[list[Word], Array]]
    """Different values of each column of words, and for each rollout the position of its own; -1 is missing."""
    flags: Array
    replies: list[str]
    """Beginnings of the replies."""
    examples: list[ExampleRow]
    """Examples, at least those that were not among the rows before."""
    left_out: set[str] = field(default_factory=set[str])
    """Columns with a value that cannot be stored exactly."""
    error: str = ""
    """Why a rollout cannot be read."""


class RowMaker:
    """Computes rows of one run.

    Args:
        folder: The run's folder.
        manifest: The run's manifest.
    """

    def __init__(self, folder: RunDir, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._columns = RowReader.of(manifest)
        self._examples: OrderedDict[int, Example] = OrderedDict()

    def rows(self, lines: Lines, known: Mapping[int, JsonDict] | None = None) -> Rows:
        """Compute the rows of rollouts.

        Args:
            lines: The rollouts.
            known: Parsed lines by offset; None to read those from `start` to `stop` all at once.

        Raises:
            StoreError: the journal cannot be opened.
        """
        with without_search_for_garbage():  # which visits all lines, and finds none
            return self._rows(lines, self._scanned(lines) if known is None else known)

    def _scanned(self, lines: Lines) -> Mapping[int, JsonDict]:
        known: dict[int, JsonDict] = {}
        with suppress(StoreError):  # the rows without a line say why
            known.update((at, document) for at, _, document in scan(self._folder.journal_path, lines.start, lines.stop))
        return known

    def _rows(self, lines: Lines, known: Mapping[int, JsonDict]) -> Rows:
        error, held, readable, examples = "", list[RunRollout](), list[int](), list[ExampleRow]()
        rollouts: list[list[int]] = lines.rollouts.tolist()
        with JournalReader(self._folder.journal_path) as reader:
            for at, (place, _, example_line, base_line, score_line, _) in enumerate(rollouts):
                try:
                    example = self._examples.get(example_line)
                    if example is None:
                        example = self._example(reader, example_line)
                        examples.append(_example_row(place, example))
                    document = known.get(base_line)
                    base = reader.record(base_line) if document is None else record_of(document)
                    score = None
                    if score_line != NOWHERE:
                        document = known.get(score_line)
                        score = reader.record(score_line) if document is None else record_of(document)
                except (StoreError, ValueError) as problem:
                    error = error or str(problem)
                    continue
                outcome = Outcome(example, cast("Generated | Failed", base), cast("Scored | None", score))
                held.append(RunRollout(self._folder.id, self._manifest, outcome))
                readable.append(at)
        found = self._values(held)
        found.readable, found.examples, found.error = np.array(readable, "i8"), examples, error
        return found

    def _example(self, reader: JournalReader, line: int) -> Example:
        found = self._examples[line] = cast(Example, reader.record(line))
        if len(self._examples) > _EXAMPLES_KEPT:
            self._examples.popitem(last=False)
        return found

    def _values(self, rollouts: list[RunRollout]) -> Rows:
        columns, left_out = self._columns, set[str]()
        numbers = {name: _numbers(name, read_all(read, rollouts), left_out) for name, read in columns.numbers.items()}
        words = {name: _words(name, read_all(read, rollouts), left_out) for name, read in columns.words.items()}
        ids = read_all(columns.example, rollouts)
        numbers[EXAMPLE] = _numbers(EXAMPLE, [None if isinstance(each, str) else each for each in ids], left_out)
        words[EXAMPLE] = _words(EXAMPLE, [each if isinstance(each, str) else None for each in ids], left_out)
        flags = np.zeros(len(rollouts), "u1")
        for bit, test in enumerate(columns.flags):
            flags |= np.array(read_all(test, rollouts), bool).astype("u1") << bit
        replies = [text or "" for text in read_all(lambda rollout: preview(rollout.reply), rollouts)]
        return Rows(np.zeros(0, "i8"), numbers, words, flags, replies, [], left_out)


def _numbers(name: str, values: list[object], left_out: set[str]) -> Array:
    """Values of a column as floats; NaN is missing."""
    if {*map(type, values)} <= _PLAIN:  # as usual
        with suppress(OverflowError):
            array = np.array(values, "f8")
            if not (np.abs(array) >= LARGEST).any():
                return array

    def as_float(value: object) -> float:
        try:
            return as_number(value)
        except NotStorable:
            left_out.add(name)
            return math.nan

    return np.array([as_float(value) for value in values], "f8")


def _words(name: str, values: list[object], left_out: set[str]) -> tuple[list[Word], Array]:
    """The different values of a column, and for each value its position among them; `MISSING` if it has none."""
    words: dict[Word, int] = {}

    def code(value: object) -> int:
        try:
            word = as_word(value)
        except NotStorable:
            left_out.add(name)
            return MISSING
        return MISSING if word is None else words.setdefault(word, len(words))

    try:
        codes = {value: code(value) for value in dict.fromkeys(values)}
    except TypeError:  # a value that has no hash
        return [*words], np.array([code(value) for value in values], "i4")
    return [*words], np.array([codes[value] for value in values], "i4")


def _example_row(place: int, example: Example) -> ExampleRow:
    prompt = safe_text(lambda: last_text(example.prompt, "user", PREVIEW))
    texts = preview(example.task), preview(example.answer), preview(prompt)
    return place, json.dumps(example.key), json.dumps(example.example_id), *texts
