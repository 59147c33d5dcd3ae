"""Builds the index of a run from its journal, and follows the journal while it grows."""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict
from collections.abc import Iterator
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
    MOST_WORDS,
    PREVIEW,
    NotStorable,
    RowReader,
    Word,
    as_number,
    as_word,
    preview,
    read_all,
    safe_text,
    stored_names,
    without_search_for_garbage,
)
from harness.plugins.view.index_file import FORMAT, LINES, PART, TYPES, IndexFile, journal_head
from harness.report.rollout_columns import RunRollout
from harness.report.transcript import last_text
from harness.store.codec import record_of
from harness.store.journal import JournalReader
from harness.store.journal_index import NOWHERE, Recorded
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome
from harness.store.rundir import RunDir

BATCH = 8 << 20
"""Number of bytes of the journal to read before the index is written."""

SLICE = 1 << 20
"""Number of bytes of the journal whose lines are in memory at once. Python does not search for garbage meanwhile."""

_PARTS_KEPT = 4
"""Number of parts of the columns to keep in memory between two batches."""

_EXAMPLES_KEPT = 500
"""Number of examples to keep in memory."""

_MOST_CHARACTERS = 20_000_000
"""Maximum number of characters of all words of a column."""

_PLAIN = frozenset({float, int, type(None)})
"""Types of values that are converted to floats all at once."""

Array = np.ndarray[Any, Any]
Part = dict[str, Array]
NewWord: TypeAlias = tuple[str, int, Word]
"""Column, code and word."""


class Builder:
    """Builds the index of one run. The caller holds the lock of the index.

    Args:
        file: The file of the index.
        folder: The run's folder.
        manifest: The run's manifest.
    """

    def __init__(self, file: IndexFile, folder: RunDir, manifest: Manifest) -> None:
        self._file, self._folder, self._manifest = file, folder, manifest
        self._reader = RowReader.of(manifest)
        self._number_names = (*self._reader.numbers, EXAMPLE)
        self._word_names = (*self._reader.words, EXAMPLE)
        self._start()

    def _start(self) -> None:
        """Forget everything that was read."""
        self._recorded: Recorded | None = None
        self._meta: JsonDict = {
            "format": FORMAT, "names": stored_names(self._manifest), "run": str(self._folder.path), "end": 0,
            "rollouts": 0, "stamp": 0, "left_out": [], "error": "", "journal": None, "build": os.urandom(8).hex(),
        }  # fmt: skip
        self._codes: dict[str, dict[Word, int]] = {name: {} for name in self._word_names}
        self._characters = dict.fromkeys(self._word_names, 0)
        self._parts: OrderedDict[int, Part] = OrderedDict()
        self._examples: OrderedDict[int, Example] = OrderedDict()
        self._failed_at: tuple[int, int] | None = None
        """Size and time of the journal when a line could not be read."""

    def resume(self, *, anew: bool = False) -> None:
        """Continue with the content of the file if it is an index of the same journal; otherwise clear the file.

        Args:
            anew: Whether to clear it in any case.
        """
        meta = None if anew else self._file.meta()
        if meta is not None and self._is_current(meta):
            self._meta = meta
            for name in self._word_names:
                words = self._file.words(name, 0)
                self._codes[name] = {_word(word): code for code, word in enumerate(words)}
                self._characters[name] = sum(map(len, self._codes[name]))
            return
        self._start()
        with self._file.change():
            self._file.clear()
            self._file.set_meta(self._meta)

    def _is_current(self, meta: JsonDict) -> bool:
        if meta.get("names") != stored_names(self._manifest):
            return False
        end = meta.get("end", 0)
        return not end or meta.get("journal") == journal_head(self._folder.journal_path, end)

    def advance(self) -> Iterator[int]:
        """Read the lines that were added to the journal, in batches.

        Yields:
            The number of bytes that are left to be read, after each batch.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        if not self._is_current(self._meta):
            self.resume(anew=True)
        while self._left() > 0:
            state = self._state()
            if state == self._failed_at:
                return  # a damaged journal is read again when it has changed
            if not self._batch():
                self._failed_at = state if self._meta["error"] else None
                return
            yield max(0, self._left())

    def _state(self) -> tuple[int, int] | None:
        try:
            found = self._folder.journal_path.lstat()
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns

    def _left(self) -> int:
        state = self._state()
        return 0 if state is None else state[0] - cast(int, self._meta["end"])

    def _batch(self) -> bool:
        """Read one batch; return whether anything was read."""
        end, error = cast(int, self._meta["end"]), ""
        news = _News()
        try:
            recorded = self._journal()
            most = BATCH if recorded.end else SLICE  # the first page is shown early
            for stop in range(recorded.end + SLICE, recorded.end + most + 1, SLICE):
                if stop - SLICE > recorded.end:
                    break  # the end of the journal
                error = self._slice(recorded, stop, news)
                if error:
                    break
        except StoreError as problem:
            error = str(problem)
        recorded = self._recorded
        if recorded is None or (recorded.end == end and error == self._meta["error"]):
            if error != self._meta["error"]:
                self._save({"error": error})
            return False
        self._write(recorded, news, error)
        return not error

    def _slice(self, recorded: Recorded, stop: int, news: _News) -> str:
        """Read the lines that begin before `stop`.

        Returns:
            Why a line cannot be read; "" if all can.
        """
        error, touched = "", dict[int, tuple[JsonDict | None, JsonDict | None]]()
        with without_search_for_garbage():  # which visits all lines, and finds none
            try:
                for number, _, document in recorded.advance(stop):
                    if document["type"] != "scored":
                        touched[number] = (document, None)
                    else:
                        touched[number] = (touched[number][0] if number in touched else None, document)
            except StoreError as problem:
                error = str(problem)
            return self._rows(recorded, touched, news) or error if touched else error

    def _journal(self) -> Recorded:
        """The state of the journal up to the end of the last batch."""
        if self._recorded is None:
            recorded = Recorded(self._folder.journal_path)
            if end := cast(int, self._meta["end"]):
                for _ in recorded.advance(end):
                    pass
                if recorded.end != end or len(recorded) != self._meta["rollouts"]:
                    self._meta["journal"] = None  # another journal: rebuilt by the next call
                    raise StoreError("the journal was changed")
            self._recorded = recorded
        return self._recorded

    def _rows(
        self, recorded: Recorded, touched: dict[int, tuple[JsonDict | None, JsonDict | None]], news: _News
    ) -> str:
        """Compute the rows of rollouts.

        Returns:
            Why a rollout cannot be read; "" if all can.
        """
        error, numbers = "", sorted(touched)
        lines = [recorded.row(number) for number in numbers]
        held: list[RunRollout] = []
        readable: list[int] = []
        with JournalReader(recorded.path) as reader:
            for at, number in enumerate(numbers):
                try:
                    outcome, is_new = self._outcome(reader, recorded, number, touched[number])
                except (StoreError, ValueError) as problem:
                    error = error or str(problem)
                    continue
                held.append(RunRollout(self._folder.id, self._manifest, outcome))
                readable.append(at)
                if is_new:
                    news.examples.append(_example_row(lines[at][0], outcome.example))
        self._place(np.array(numbers), np.array(readable, "i8"), np.array(lines, "i8"), self._columns(held, news.words))
        replies = read_all(lambda rollout: preview(rollout.reply), held)
        news.replies.update((numbers[at], text or "") for at, text in zip(readable, replies, strict=True))
        news.parts.update({number // PART for number in numbers})
        return error

    def _write(self, recorded: Recorded, news: _News, error: str) -> None:
        """Write a batch to the file."""
        end = recorded.end
        with self._file.change():
            self._file.add_texts(news.examples, news.replies.items())
            self._file.add_words((name, code, json.dumps(word)) for name, code, word in news.words)
            self._meta["stamp"] += 1
            for part in sorted(news.parts):
                self._file.write_part(part, self._meta["stamp"], self._parts[part])
            journal = journal_head(recorded.path, end)
            self._meta |= {"end": end, "rollouts": len(recorded), "error": error, "journal": journal}
            self._file.set_meta(self._meta)
        while len(self._parts) > _PARTS_KEPT:
            self._parts.popitem(last=False)

    def _save(self, changes: JsonDict) -> None:
        self._meta |= {**changes, "stamp": self._meta["stamp"] + 1}
        with self._file.change():
            self._file.set_meta(self._meta)

    def _outcome(
        self, reader: JournalReader, recorded: Recorded, number: int, known: tuple[JsonDict | None, JsonDict | None]
    ) -> tuple[Outcome, bool]:
        """A rollout, and whether its example was read now."""
        lines = recorded.lines(number)
        example = self._examples.get(lines.example)
        is_new = example is None
        if example is None:
            example = self._examples[lines.example] = cast(Example, reader.record(lines.example))
            if len(self._examples) > _EXAMPLES_KEPT:
                self._examples.popitem(last=False)
        document, score = known
        base = cast("Generated | Failed", reader.record(lines.base) if document is None else record_of(document))
        if lines.score == NOWHERE:
            return Outcome(example, base, None), is_new
        record = reader.record(lines.score) if score is None else record_of(score)
        return Outcome(example, base, cast(Scored, record)), is_new

    def _columns(self, rollouts: list[RunRollout], new: list[NewWord]) -> Part:
        """The stored values of rollouts, by column; new words are added to `new`."""
        found: Part = {}
        for name, read in self._reader.numbers.items():
            found[name] = self._numbers(name, read_all(read, rollouts))
        for name, read in self._reader.words.items():
            found[f"word:{name}"] = self._words(name, read_all(read, rollouts), new)
        ids = read_all(self._reader.example, rollouts)
        found[EXAMPLE] = self._numbers(EXAMPLE, [None if isinstance(each, str) else each for each in ids])
        found[f"word:{EXAMPLE}"] = self._words(EXAMPLE, [each if isinstance(each, str) else None for each in ids], new)
        flags = np.zeros(len(rollouts), "u1")
        for bit, test in enumerate(self._reader.flags):
            flags |= np.array(read_all(test, rollouts), bool).astype("u1") << bit
        return {**found, "flags": flags}

    def _numbers(self, name: str, values: list[object]) -> Array:
        """Values of a column as floats; NaN is missing."""
        if {*map(type, values)} <= _PLAIN:  # as usual
            with suppress(OverflowError):
                array = np.array(values, "f8")
                if not (np.abs(array) >= LARGEST).any():
                    return array
        return np.array([self._number(name, value) for value in values], "f8")

    def _number(self, name: str, value: object) -> float:
        try:
            return as_number(value)
        except NotStorable:
            self._leave_out(name)
            return math.nan

    def _words(self, name: str, values: list[object], new: list[NewWord]) -> Array:
        """Values of a column as codes of words; new words are added."""
        try:
            codes = {value: self._code(name, value, new) for value in dict.fromkeys(values)}
        except TypeError:  # a value that has no hash
            return np.array([self._code(name, value, new) for value in values], "i4")
        return np.array([codes[value] for value in values], "i4")

    def _leave_out(self, name: str) -> None:
        """Note that a column cannot be stored exactly."""
        left_out = cast("list[str]", self._meta["left_out"])
        if name not in left_out:
            left_out.append(name)

    def _code(self, name: str, value: object, new: list[NewWord]) -> int:
        """The code of a value as a word; a new word is added."""
        try:
            word = as_word(value)
        except NotStorable:
            self._leave_out(name)
            return MISSING
        codes = self._codes[name]
        code = MISSING if word is None else codes.get(word)
        if code is None:
            assert word is not None
            self._characters[name] += len(word) if isinstance(word, str) else sum(map(len, word))
            if len(codes) >= MOST_WORDS or self._characters[name] > _MOST_CHARACTERS:
                self._leave_out(name)
                return MISSING
            code = codes[word] = len(codes)
            new.append((name, code, word))
        return code

    def _place(self, rows: Array, readable: Array, lines: Array, values: Part) -> None:
        """Put rows into the parts of the columns.

        Args:
            rows: Numbers of the rollouts.
            readable: Positions in `rows` of the rollouts that could be read. The others get no values.
            lines: Values of the columns `LINES` for each row.
            values: Values of the other columns for each readable row.
        """
        columns: Part = dict(zip(LINES, lines.T, strict=True))
        for name, known in values.items():
            empty = 0 if name == "flags" else MISSING if name.startswith("word:") else math.nan
            columns[name] = np.full(len(rows), empty, column_type(name))
            columns[name][readable] = known
        for part in np.unique(rows // PART).tolist():
            chosen = rows // PART == part
            target = self._part(part)
            for name, column in columns.items():
                target[name][rows[chosen] - part * PART] = column[chosen]

    def _part(self, part: int) -> Part:
        """A part of all columns: from memory, from the file, or new."""
        found = self._parts.get(part)
        if found is None:
            names = [*TYPES, *self._number_names, *(f"word:{name}" for name in self._word_names)]
            if part * PART < self._meta["rollouts"]:
                found = {name: self._file.read_part(name, part).copy() for name in names}
            else:
                found = {name: np.zeros(PART, column_type(name)) for name in names}
        self._parts[part] = found
        self._parts.move_to_end(part)
        return found


@dataclass
class _News:
    """What a batch adds to the file."""

    examples: list[tuple[int, str, str, str, str, str]] = field(
        default_factory=list[tuple[int, str, str, str, str, str]]
    )
    replies: dict[int, str] = field(default_factory=dict[int, str])
    words: list[NewWord] = field(default_factory=list[NewWord])
    parts: set[int] = field(default_factory=set[int])
    """Numbers of the parts that have changed."""


def column_type(name: str) -> str:
    """The type of a column as in `numpy.dtype`."""
    return TYPES.get(name, "i4" if name.startswith("word:") else "f8")


def _word(value: object) -> Word:
    return value if isinstance(value, str) else tuple(cast("list[str]", value))


def _example_row(place: int, example: Example) -> tuple[int, str, str, str, str, str]:
    prompt = safe_text(lambda: last_text(example.prompt, "user", PREVIEW))
    texts = preview(example.task), preview(example.answer), preview(prompt)
    return place, json.dumps(example.key), json.dumps(example.example_id), *texts
