"""Full-text index of a run, in a SQLite file beside the index: for each rollout, all parts of three characters of its
messages, folded as queries fold text. It only excludes rollouts; those that are left are compared by the query itself,
so answers are the same without it. It is built when a run is first searched, and may be removed at any time.

Documents are numbered from 1 in the order of the journal. Document `n` is the newest line of a rollout at the time, and
stays when the rollout is generated again: its line is then no longer that of a rollout."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import OrderedDict
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from harness.core.errors import StoreError
from harness.core.types import JsonDict
from harness.plugins.view.index_columns import safely
from harness.plugins.view.index_file import FORMAT, IndexFile, journal_head, remove_index
from harness.report.rollout_columns import RunRollout, rollout_columns
from harness.store.journal import JournalReader
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome
from harness.store.query_match import fold
from harness.store.rundir import RunDir

logger = logging.getLogger(__name__)

LARGEST_FILE = 4 << 30
"""Number of bytes of a file after which nothing is added to it; the journal is read for the other rollouts."""

FEWEST = 2_000
"""Number of rollouts from which on a run gets a full-text index; for fewer, reading the journal is as fast."""

_TABLE = """
CREATE VIRTUAL TABLE words
USING fts5(text, content='', columnsize=0, detail='none', tokenize='trigram case_sensitive 1')
"""

_SEARCHED = frozenset({"text", "prompt", "completion", "reasoning"})
"""Columns whose text is part of the column `text`."""

_MOST_PARTS = 16
"""Maximum number of parts of a text that are looked up."""

_DOCUMENTS = 500
"""Maximum number of documents that are added at once."""

_LONGEST = 4_000_000
"""Maximum number of characters of a document; the journal is read for rollouts with longer text."""

_SEARCHES_KEPT = 12
"""Number of searches whose results are kept."""

_DAMAGES = (sqlite3.Error, OSError, ValueError, KeyError, TypeError, IndexError)
"""Errors when the file cannot be used."""

_NO_DAMAGE = (sqlite3.OperationalError, OSError)
"""Those of them after which the file is kept: it is locked, the disk is full, and the like."""

Array = np.ndarray[Any, Any]


class TextFile(IndexFile):
    """A connection to the file of a full-text index. Arguments and errors as for `IndexFile`."""

    SCHEMA = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE document (first INTEGER PRIMARY KEY, lines BLOB);
{_TABLE}"""

    def add_documents(self, first: int, lines: Array, texts: list[str]) -> None:
        """Add documents, given the number of the first one and the offsets of their lines. Called within `change`."""
        self._db.execute("INSERT INTO document VALUES (?, ?)", (first, lines.astype("i8").tobytes()))
        self._db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", enumerate(texts, first))

    def lines(self, first: int) -> Array:
        """Offsets of the lines of all documents from the number `first` on, which begins an addition."""
        rows = self._db.execute("SELECT lines FROM document WHERE first >= ? ORDER BY first", (first,))
        return np.frombuffer(b"".join(row[0] for row in rows), "i8")

    def having(self, parts: tuple[str, ...], first: int) -> Array:
        """Numbers of the documents from `first` on that have all parts."""
        quoted = " AND ".join('"' + part.replace('"', '""') + '"' for part in parts)
        rows = self._db.execute("SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ?", (quoted, first))
        return np.fromiter((row[0] for row in rows), "i8")


@cache
def is_supported() -> bool:
    """Return whether this SQLite has FTS5 and its tokenizer for parts of three characters."""
    try:
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute(_TABLE)
    except sqlite3.Error:
        return False
    return True


def parts_of(column: str, value: str) -> tuple[str, ...]:
    """Parts of three characters that the messages of each rollout have that matches `column:value`.

    Returns:
        The parts; empty if the index cannot help.
    """
    wanted = fold(value)
    if column not in _SEARCHED:
        return ()
    # Reasoning of several messages is joined by blanks, and other text may be between them.
    pieces = wanted.split(" ") if column == "reasoning" else [wanted]
    every = dict.fromkeys(piece[at : at + 3] for piece in pieces for at in range(len(piece) - 2))
    parts = [part for part in every if part == _storable(part)]
    return tuple(parts[:: -(-len(parts) // _MOST_PARTS) or 1])


def _storable(text: str) -> str:
    """The text without characters at which SQLite stops or fails."""
    return text.replace("\0", "?").encode("utf-8", "replace").decode()


class TextIndex:
    """The full-text index of a run as queries use it. For one thread at a time.

    Args:
        index: Path of the index of the run.
        journal: The journal.
    """

    def __init__(self, index: Path, journal: Path) -> None:
        self._path, self._journal = text_path(index), journal
        self._file: TextFile | None = None
        self._forget()

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._lines: Array = np.zeros(0, "i8")
        self._found: OrderedDict[tuple[str, ...], tuple[int, Array]] = OrderedDict()
        """By parts, the number of documents that were searched, and those found."""

    def excluded(self, parts: tuple[str, ...], lines: Array) -> Array:
        """Return for each rollout whether it certainly lacks one of the parts.

        Args:
            parts: The parts, at least one.
            lines: Offset of the newest `generated` or `failed` line of each rollout.
        """
        nothing = np.zeros(len(lines), bool)
        if len(lines) < FEWEST or not is_supported():
            return nothing
        try:
            if self._file is None or not self._file.is_there():
                self._forget()
                self._file = TextFile(self._path)  # its existence tells the process that builds the index to fill it
            with self._file.snapshot():
                meta = self._file.meta()
                if meta is None or meta["journal"] != journal_head(self._journal, meta["end"]):
                    return nothing
                self._lines = np.concatenate([self._lines, self._file.lines(len(self._lines) + 1)])
                if not len(self._lines):
                    return nothing
                lacks = np.ones(len(self._lines), bool)
                lacks[self._having(parts) - 1] = False
        except _DAMAGES as error:
            logger.info("the full-text index %s is not used: %s", self._path, error)
            self._forget()
            if not isinstance(error, _NO_DAMAGE):
                remove_index(self._path)
            return nothing
        at = np.minimum(np.searchsorted(self._lines, lines), len(self._lines) - 1)
        return (self._lines[at] == lines) & lacks[at]

    def _having(self, parts: tuple[str, ...]) -> Array:
        """Numbers of all documents that have some parts."""
        assert self._file is not None
        done, found = self._found.pop(parts, (0, np.zeros(0, "i8")))
        if done < len(self._lines):
            found = np.concatenate([found, self._file.having(parts, done + 1)])
        self._found[parts] = len(self._lines), found
        while len(self._found) > _SEARCHES_KEPT:
            self._found.popitem(last=False)
        return found


class TextBuilder:
    """Builds the full-text index of a run. The caller holds the lock of the run's index.

    Args:
        index: Path of the index of the run.
        run: The run's folder.
        manifest: The run's manifest.
    """

    def __init__(self, index: Path, run: RunDir, manifest: Manifest) -> None:
        self._path, self._run, self._manifest = text_path(index), run, manifest
        self._read = rollout_columns([manifest]).columns["text"].read
        self._examples: OrderedDict[int, Any] = OrderedDict()
        self._file: TextFile | None = None
        self._forget()

    def _forget(self) -> None:
        self.close()
        self._todo: tuple[Array, Array] = np.zeros(0, "i8"), np.zeros(0, "i8")
        """Offsets of the lines that are to be added, in order, and of the lines of their examples."""
        self._last, self._end, self._count, self._is_full = 0, 0, 0, False
        self._head: JsonDict | None = None

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def advance(self, lines: Array, example_lines: Array) -> bool:
        """Add some documents if the full-text index is wanted, which its file shows.

        Args:
            lines: Offset of the newest `generated` or `failed` line of each rollout.
            example_lines: Offset of the line of its example.

        Returns:
            Whether more may be added at once.

        Raises:
            StoreError: the journal cannot be read.
        """
        if not is_supported() or not self._path.exists():
            self._forget()
            return False
        try:
            self._open()
            if self._is_full:
                return False
            if not len(self._todo[0]):
                chosen = np.flatnonzero(lines > self._last)
                chosen = chosen[np.argsort(lines[chosen])]
                self._todo = lines[chosen], example_lines[chosen]
            if not len(self._todo[0]):
                return False
            self._add()
        except _DAMAGES as error:
            logger.info("the full-text index %s is built again: %s", self._path, error)
            self._forget()
            if not isinstance(error, _NO_DAMAGE):
                remove_index(self._path)
            return False
        return True

    def _open(self) -> None:
        """Open the file, and continue with its content if that belongs to the journal."""
        head = journal_head(self._run.journal_path, self._end)
        if self._file is not None and self._file.is_there() and (not self._last or self._head == head):
            return
        self._forget()
        file = self._file = TextFile(self._path)
        meta = file.meta()
        if meta is not None and meta["journal"] == journal_head(self._run.journal_path, meta["end"]):
            self._last, self._end = meta["last"], meta["end"]
            self._count, self._is_full = meta["documents"], meta["full"]
            self._head = meta["journal"]
        elif meta is not None or not file.is_empty():  # of another journal, or of another version
            file.close()
            remove_index(self._path)
            file = self._file = TextFile(self._path)
        if file.is_empty():
            with file.change():
                file.clear()

    def _add(self) -> None:
        assert self._file is not None
        lines, example_lines = (each[:_DOCUMENTS] for each in self._todo)
        texts: list[str] = []
        known: list[int] = []
        with JournalReader(self._run.journal_path) as reader:
            for line, example_line in zip(lines.tolist(), example_lines.tolist(), strict=True):
                text = None
                with suppress(StoreError):
                    outcome = Outcome(self._example(reader, example_line), cast(Any, reader.record(line)), None)
                    text = safely(self._read, RunRollout(self._run.id, self._manifest, outcome))
                if isinstance(text, str) and len(text) <= _LONGEST:  # the journal is read for others
                    texts.append(_storable(fold(text)))
                    known.append(line)
            last = int(lines[-1])
            end = last + len(reader.line(last)) + 1
        size = os.stat(self._path).st_size
        head = journal_head(self._run.journal_path, end)
        with self._file.change():
            if texts:
                self._file.add_documents(self._count + 1, np.array(known), texts)
            facts = {"last": last, "end": end, "journal": head, "documents": self._count + len(texts)}
            is_full = size > LARGEST_FILE
            self._file.set_meta({**facts, "format": FORMAT, "run": str(self._run.path), "full": is_full})
        self._last, self._end, self._head = last, end, head
        self._count, self._is_full = self._count + len(texts), is_full
        self._todo = self._todo[0][_DOCUMENTS:], self._todo[1][_DOCUMENTS:]

    def _example(self, reader: JournalReader, line: int) -> Any:
        found = self._examples.get(line)
        if found is None:
            found = self._examples[line] = reader.record(line)
            if len(self._examples) > _DOCUMENTS:
                self._examples.popitem(last=False)
        return found


def text_path(index: Path) -> Path:
    """Path of the full-text index that belongs to an index."""
    return index.with_suffix(".text")
