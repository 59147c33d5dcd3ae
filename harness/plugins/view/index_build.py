"""Builds the index of a run from its journal, and follows the journal while it grows."""

from __future__ import annotations

import json
import math
import os
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np

from harness.core.errors import StoreError
from harness.core.types import JsonDict
from harness.plugins.view.index_columns import (
    EXAMPLE,
    MISSING,
    MOST_WORDS,
    SHOWN,
    RowReader,
    Word,
    as_stored,
    stored_names,
    without_search_for_garbage,
)
from harness.plugins.view.index_file import FORMAT, LINES, PART, TYPES, IndexFile, journal_head
from harness.plugins.view.index_helper import Helper, helpers_of
from harness.plugins.view.index_rows import ExampleRow, Lines, RowMaker, Rows
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

BATCH = 8 << 20
"""Number of bytes of the journal to read before the index is written."""

LONG = 64 << 20
"""Number of bytes of the journal from which on other processes help."""

_LONG_BATCH = 32 << 20
"""Number of bytes to read in place of `BATCH` while they help."""

SLICE = 1 << 20
"""Number of bytes of the journal whose lines are in memory at once. Python does not search for garbage meanwhile."""

_MOST_WAITING = 32
"""Maximum number of slices that were read and wait for the rows of an earlier one."""

_PARTS_KEPT = 4
"""Number of parts of the columns to keep in memory between two batches."""

_MOST_CHARACTERS = 20_000_000
"""Maximum number of characters of all words of a column."""

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
        reader = RowReader.of(manifest)
        self._number_names, self._word_names = (*reader.numbers, EXAMPLE), (*reader.words, EXAMPLE)
        self._helpers: list[Helper] = []
        self._start()

    def _start(self) -> None:
        """Forget everything that was read."""
        self._recorded: Recorded | None = None
        self._maker = RowMaker(self._folder, self._manifest)
        self._meta: JsonDict = {
            "format": FORMAT, "names": stored_names(self._manifest), "run": str(self._folder.path), "end": 0,
            "rollouts": 0, "stamp": 0, "left_out": [], "error": "", "journal": None, "build": os.urandom(8).hex(),
        }  # fmt: skip
        self._codes: dict[str, dict[Word, int]] = {name: {} for name in self._word_names}
        self._characters = dict.fromkeys(self._word_names, 0)
        self._parts: OrderedDict[int, Part] = OrderedDict()
        self._waiting: deque[_Slice] = deque()
        """Slices that were read and are not added yet."""
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
                words = [] if self._is_needless(name) else self._file.words(name, 0)
                self._codes[name] = {as_stored(word): code for code, word in enumerate(words)}
                self._characters[name] = sum(map(len, self._codes[name]))
            return
        self._start()
        with self._file.change():
            self._file.clear()
            self._file.set_meta(self._meta)

    def rest(self) -> None:
        """Forget what only serves to follow the journal; it is read again if it grows."""
        self._recorded = None
        self._parts.clear()

    def _is_current(self, meta: JsonDict) -> bool:
        if meta.get("names") != stored_names(self._manifest):
            return False
        end = meta.get("end", 0)
        return not end or meta.get("journal") == journal_head(self._folder.journal_path, end)

    def advance(self) -> Iterator[int]:
        """Read the lines that were added to the journal, in batches. If they are many, other processes help.

        Yields:
            The number of bytes that are left to be read, after each batch.

        Raises:
            sqlite3.Error: the file cannot be written.
        """
        if not self._is_current(self._meta):
            self.resume(anew=True)
        try:
            while self._left() > 0:
                state = self._state()
                if state == self._failed_at:
                    return  # a damaged journal is read again when it has changed
                if not self._batch():
                    self._failed_at = state if self._meta["error"] else None
                    return
                yield max(0, self._left())
                if not self._helpers and self._left() > LONG:  # after the first page
                    self._helpers = helpers_of(self._folder, self._manifest)
        finally:
            while self._helpers:
                self._helpers.pop().close()

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
        """Read one batch; return whether anything was read. Further lines may be read as well, so that other processes
        do not wait while the batch is written."""
        news, error = _News(cast(int, self._meta["end"]), cast(int, self._meta["rollouts"])), ""
        before, recorded = news.end, None
        try:
            recorded = self._journal()
        except StoreError as problem:
            error = str(problem)
        # The first page is shown early.
        stop = news.end + (SLICE if not news.end else _LONG_BATCH if self._helpers else BATCH)
        has_more = True
        while recorded is not None and news.end < stop and not error and (has_more or self._waiting):
            if has_more:
                start = recorded.end
                error = self._slice(recorded)
                has_more = recorded.end > start
            while self._waiting and not error and (not has_more or self._waiting[0].is_ready or self._is_far_ahead):
                error = self._merge(self._waiting.popleft(), news)
        while error and self._waiting:
            error = self._merge(self._waiting.popleft(), news) or error
        if recorded is None or (news.end == before and error == self._meta["error"]):
            if error != self._meta["error"]:
                self._save({"error": error})
            return False
        self._write(news, error)
        return not error

    @property
    def _is_far_ahead(self) -> bool:
        return len(self._waiting) > _MOST_WAITING

    def _slice(self, recorded: Recorded) -> str:
        """Read some lines, and note the rollouts that they are about, with their rows if no process helps with them.

        Returns:
            Why a line cannot be read; "" if all can.
        """
        error, start, known, touched = "", recorded.end, dict[int, JsonDict](), set[int]()
        with without_search_for_garbage():
            try:
                for number, offset, document in recorded.advance(start + SLICE):
                    known[offset] = document
                    touched.add(number)
            except StoreError as problem:
                error = str(problem)
            numbers = sorted(touched)
            rows = np.array([recorded.row(number) for number in numbers], "i8").reshape(-1, len(LINES))
            lines = Lines(start, recorded.end, rows)
            asked = next((each for helper in self._helpers if (each := helper.submit(lines)) is not None), None)
            found = self._maker.rows(lines, known) if asked is None and numbers else asked
            self._waiting.append(_Slice(np.array(numbers, "i8"), lines, len(recorded), found))
        return error

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

    def _merge(self, part: _Slice, news: _News) -> str:
        """Add rows to the parts of the columns, and note in `news` what else they add to the file.

        Returns:
            Why a rollout cannot be read; "" if all can.
        """
        news.end, news.rollouts = part.lines.stop, part.rollouts
        rows, numbers = part.rows, part.numbers
        if isinstance(rows, Future):  # if the process failed, the rows are computed here
            rows = self._maker.rows(part.lines) if rows.exception() else rows.result()
        if rows is None:
            return ""
        values = {**rows.numbers, "flags": rows.flags}
        for name, (words, codes) in rows.words.items():
            if self._is_needless(name):
                self._codes[name].clear()
                continue
            own = np.array([*(self._code(name, word, news.words) for word in words), MISSING], "i4")
            values[f"word:{name}"] = own[codes]
        for name in sorted(rows.left_out):
            self._leave_out(name)
        self._place(numbers, rows.readable, part.lines.rollouts, values)
        news.examples += rows.examples
        news.replies.update(zip(numbers[rows.readable].tolist(), rows.replies, strict=True))
        news.parts.update(np.unique(numbers // PART).tolist())
        return rows.error

    def _write(self, news: _News, error: str) -> None:
        """Write a batch to the file."""
        with self._file.change():
            self._file.add_texts(news.examples, news.replies.items())
            self._file.add_words((name, code, json.dumps(word)) for name, code, word in news.words)
            self._meta["stamp"] += 1
            for part in sorted(news.parts):
                self._file.write_part(part, self._meta["stamp"], self._parts[part])
            journal = journal_head(self._folder.journal_path, news.end)
            self._meta |= {"end": news.end, "rollouts": news.rollouts, "error": error, "journal": journal}
            self._file.set_meta(self._meta)
        while len(self._parts) > _PARTS_KEPT:
            self._parts.popitem(last=False)

    def _save(self, changes: JsonDict) -> None:
        self._meta |= {**changes, "stamp": self._meta["stamp"] + 1}
        with self._file.change():
            self._file.set_meta(self._meta)

    def _is_needless(self, name: str) -> bool:
        """Return whether the codes of a column are of no use: it is left out, and no table shows the known words."""
        return name in self._meta["left_out"] and name not in SHOWN

    def _leave_out(self, name: str) -> None:
        """Note that a column cannot be stored exactly."""
        left_out = cast("list[str]", self._meta["left_out"])
        if name not in left_out:
            left_out.append(name)

    def _code(self, name: str, word: Word, new: list[NewWord]) -> int:
        """The code of a word; a new one is added, also to `new`."""
        codes = self._codes[name]
        code = codes.get(word)
        if code is None:
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


@dataclass(frozen=True, slots=True)
class _Slice:
    """A part of the journal that was read."""

    numbers: Array
    """Numbers of the rollouts that its lines are about."""
    lines: Lines
    rollouts: int
    """Number of rollouts up to its end."""
    rows: Rows | Future[Rows] | None
    """The rows of the rollouts, or the request for them; None if there are no rollouts."""

    @property
    def is_ready(self) -> bool:
        """Whether the rows are known."""
        return not isinstance(self.rows, Future) or self.rows.done()


@dataclass
class _News:
    """What a batch adds to the file."""

    end: int
    """Offset after the last line."""
    rollouts: int
    """Number of rollouts up to there."""
    examples: list[ExampleRow] = field(default_factory=list[ExampleRow])
    replies: dict[int, str] = field(default_factory=dict[int, str])
    words: list[NewWord] = field(default_factory=list[NewWord])
    parts: set[int] = field(default_factory=set[int])
    """Numbers of the parts that have changed."""


def column_type(name: str) -> str:
    """The type of a column as in `numpy.dtype`."""
    return TYPES.get(name, "i4" if name.startswith("word:") else "f8")
