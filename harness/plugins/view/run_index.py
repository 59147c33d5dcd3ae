"""The index of a run as the pages use it: columns as arrays, table order, examples. A thread builds the index and
follows the journal; when another process builds it, this one only reads."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, cast

import numpy as np

from harness.core.errors import RunLocked, StoreError
from harness.core.types import JsonDict
from harness.plugins.view.index_build import BATCH, Builder, column_type
from harness.plugins.view.index_columns import CONSTANTS, EXAMPLE, FLAG_BITS, NUMBERS, WORDS, stored_names
from harness.plugins.view.index_file import FORMAT, PART, IndexFile, index_lock, index_path, journal_head, remove_index
from harness.plugins.view.note_columns import NOTE_NUMBERS, NOTE_WORDS, NOTED, NoteColumns, NoteFile
from harness.plugins.view.text_index import TextBuilder, TextIndex
from harness.report.rollout_columns import RunRollout, rollout_columns
from harness.store.catalogue import ListedRun
from harness.store.journal import JournalReader
from harness.store.journal_index import LineOffsets, read_rollout
from harness.store.manifest import Manifest
from harness.store.outcomes import Outcome
from harness.store.query_match import QueryColumns

logger = logging.getLogger(__name__)

FOLLOW = 0.5
"""Seconds between two looks at a journal."""

_RETRY = 3.0
"""Seconds until the next attempt after an error, or while another process holds the lock of the index."""

_COLUMN_BYTES = 48 << 20
"""Maximum number of bytes of the columns of a run to keep in memory, besides those of the last few columns."""

_COLUMNS_KEPT = 4
"""Number of columns that are kept in any case."""

Array = np.ndarray[Any, Any]


class RunIndex:
    """The index of one run. Reads are made inside `reading`, by one thread at a time.

    Args:
        entry: The run.
    """

    def __init__(self, entry: ListedRun) -> None:
        assert entry.manifest is not None
        self.entry = entry
        self.manifest: Manifest = entry.manifest
        self.columns: QueryColumns[RunRollout] = rollout_columns([self.manifest])
        self.count = 0
        """Number of rollouts."""
        self.stamp: int = 0
        """Number of changes of the index; values computed from the columns are valid for one stamp."""
        self.derived: dict[object, Any] = {}
        """Values computed from the columns at this stamp, by name."""
        self.lasting: OrderedDict[object, Any] = OrderedDict()
        """Values that stay valid for rollouts whose lines do not change, by name."""
        self.note_file = NoteFile(entry.run)
        self.changed = threading.Condition()
        self._meta: JsonDict = {}
        self._path = index_path(entry.run.path)
        self.text_index = TextIndex(self._path, entry.run.journal_path)
        self._file: IndexFile | None = None
        self._arrays: OrderedDict[str, Array] = OrderedDict()
        self._words: dict[str, list[object]] = {}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._seen = 0
        self._caught_up = False
        self._thread = threading.Thread(target=self._build, name=f"index of {entry.id}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop building. Memory is released when the last reader ends."""
        self._stop.set()

    def is_long(self) -> bool:
        """Return whether the journal is so long that its beginning is shown before the rest is indexed."""
        with suppress(OSError):
            return self.entry.run.journal_path.lstat().st_size > BATCH
        return False

    def is_closed(self) -> bool:
        """Return whether `close` was called."""
        return self._stop.is_set()

    # Building, in a thread of its own.

    def _build(self) -> None:
        while not self._stop.is_set():
            try:
                with index_lock(self._path):
                    self._follow()
            except RunLocked:  # another process builds the index
                with suppress(StoreError, OSError), self.reading():
                    self._caught_up = self._meta.get("end") == self.entry.run.journal_path.lstat().st_size
                self._notice()
                self._stop.wait(FOLLOW)
            except (sqlite3.Error, OSError, StoreError) as error:
                logger.info("the index of %s is rebuilt: %s", self.entry.id, error)
                if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                    remove_index(self._path)
                self._stop.wait(_RETRY)
            except Exception:
                logger.warning("the index of %s cannot be built", self.entry.id, exc_info=True)
                return

    def _follow(self) -> None:
        """Build the index, and follow the journal until the index is closed or its file is removed."""
        self._caught_up, file = False, IndexFile(self._path)
        text_builder = TextBuilder(self._path, self.entry.run, self.manifest)
        try:
            builder = Builder(file, self.entry.run, self.manifest)
            builder.resume()
            while not self._stop.is_set() and file.is_there():
                for left in builder.advance():
                    self._caught_up = not left
                    self._notice()
                    if self._stop.is_set():
                        return
                if not self._caught_up:
                    self._caught_up = True
                    self._notice()
                if self.entry.state == "done":
                    builder.rest()
                with self.reading():
                    lines = self.array("base_line"), self.array("example_line")
                if not text_builder.advance(*lines):
                    self._stop.wait(FOLLOW)
        finally:
            file.close()
            text_builder.close()

    def _notice(self) -> None:
        """Wake those who wait for a change."""
        self._seen += 1
        with self.changed:
            self.changed.notify_all()

    def wait(self, seconds: float, *, seen: int | None = None) -> int:
        """Wait until the index has all of the journal, or has changed.

        Args:
            seconds: Maximum time.
            seen: Number of changes that are known; None to wait only for the end of the journal.

        Returns:
            The number of changes.
        """
        self._caught_up = self._caught_up and self._path.exists()  # a file that was removed is rebuilt
        with self.changed:
            self.changed.wait_for(lambda: self._caught_up or (seen is not None and self._seen != seen), seconds)
        return self._seen

    # Reading.

    @contextmanager
    def reading(self) -> Generator[None]:
        """Context manager in which the columns have one consistent state, the newest one."""
        with self._lock:
            try:
                if self.note_file.refresh():
                    self.derived = {}
                file = self._opened()
                if file is None:
                    self._caught_up = False
                    self._reset({})
                    yield
                    return
                with file.snapshot():
                    self._refresh(file)
                    yield
            except sqlite3.Error as error:
                logger.info("the index of %s cannot be read: %s", self.entry.id, error)
                self._close_file()
                raise StoreError(f"the index of {self.entry.id} is being rebuilt; try again") from error

    def status(self) -> JsonDict:
        """State of the index as JSON: number of rollouts, whether it has all of them, and why it stopped."""
        error = self._meta.get("error", "")
        with suppress(OSError):
            size = self.entry.run.journal_path.lstat().st_size
            is_done = self._meta.get("end") == size or bool(error) or self._caught_up
            return {"rollouts": self.count, "done": is_done, "error": error}
        return {"rollouts": self.count, "done": True, "error": error}

    def _opened(self) -> IndexFile | None:
        if self._file is not None and not self._file.is_there():
            self._close_file()
        if self._file is None:
            if not self._path.exists():
                return None
            self._file = IndexFile(self._path)
        return self._file

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None
        self._reset({})

    def _reset(self, meta: JsonDict) -> None:
        self._arrays.clear()
        self._words.clear()
        self.derived = {}
        self.lasting.clear()
        self._meta, self.count, self.stamp = meta, 0, 0

    def _refresh(self, file: IndexFile) -> None:
        """Read the parts of the columns that have changed."""
        try:
            meta = file.meta()
        except (ValueError, sqlite3.OperationalError):
            meta = None
        if meta is None or meta.get("format") != FORMAT or meta.get("names") != stored_names(self.manifest):
            self._reset({})
            return
        end = cast(int, meta["end"])
        if end and meta["journal"] != journal_head(self.entry.run.journal_path, end):
            self._reset({})  # the index of another journal, which will be rebuilt
            return
        if meta["build"] != self._meta.get("build"):
            self._reset({})  # rebuilt, perhaps of another journal
        if meta["stamp"] == self.stamp:
            return
        changed = file.changed_parts(self.stamp)
        self._meta, self.count, self.stamp, self.derived = meta, meta["rollouts"], meta["stamp"], {}
        for name, array in self._arrays.items():
            self._arrays[name] = self._filled(file, name, array, changed)
        for name, words in self._words.items():
            words += file.words(name, len(words))

    def _filled(self, file: IndexFile, name: str, array: Array, parts: list[int]) -> Array:
        """The values of a column, after some of its parts have changed. If all are the same, they share the memory of
        one."""
        size, kind = -(-self.count // PART) * PART, "i4" if name == "r" else column_type(name)
        if array.strides == (0,) or not len(array):
            parts, one = list(range(size // PART)), b""
            for part in parts:
                values = file.read_part(name, part)[: self.count - part * PART].astype(kind)
                one = one or values[:1].tobytes()
                if values.tobytes() != one * len(values):
                    break
            else:
                return np.broadcast_to(np.frombuffer(one, kind), (size,))
            array = np.zeros(0, kind)
        array = np.concatenate([array, np.zeros(size - len(array), kind)])  # a copy: answers may use the old one
        for part in parts:
            array[part * PART : (part + 1) * PART] = file.read_part(name, part)
        return array

    def array(self, name: str) -> Array:
        """The values of a stored column for each rollout."""
        found = self._arrays.get(name)
        if found is None:
            if self._file is None or not self.count:
                return np.zeros(0, column_type(name))
            found = self._filled(self._file, name, np.zeros(0, column_type(name)), list(range(-(-self.count // PART))))
            self._arrays[name] = found
            while len(self._arrays) > _COLUMNS_KEPT and sum(map(_bytes, self._arrays.values())) > _COLUMN_BYTES:
                self._arrays.popitem(last=False)
        self._arrays.move_to_end(name)
        return found[: self.count]

    def numbers(self, name: str) -> Array:
        """A column of numbers; NaN is missing."""
        return self.note_columns.numbers[name] if name in NOTE_NUMBERS else self.array(name)

    def codes(self, name: str) -> Array:
        """A column of words: for each rollout the position of its value in `words`; -1 is missing."""
        return self.note_columns.codes[name] if name in NOTE_WORDS else self.array(f"word:{name}")

    def words(self, name: str) -> list[object]:
        """The different values of a column of words, in the order of their codes: strings, or lists of strings."""
        if name in NOTE_WORDS:
            return self.note_columns.words[name]
        if name not in self._words:
            self._words[name] = [] if self._file is None or not self.count else self._file.words(name, 0)
        return self._words[name]

    def flag(self, name: str) -> Array:
        """Whether a property holds for each rollout."""
        return self.note_columns.noted if name == NOTED else (self.array("flags") & FLAG_BITS[name]) != 0

    @property
    def note_columns(self) -> NoteColumns:
        """The columns of people's notes."""
        if "notes" not in self.derived:
            self.derived["notes"] = NoteColumns(self.manifest, self.note_file.notes, self.array("key"))
        return self.derived["notes"]

    def storage(self, name: str) -> str:
        """How a column is stored: `number`, `words`, `constant`, or "" if it has to be read from the journal."""
        if name in CONSTANTS:
            return "constant"
        if name in self._meta.get("left_out", ()):
            return ""
        if name == EXAMPLE:
            has_words = bool(self.words(EXAMPLE))
            if has_words and not np.isnan(self.numbers(EXAMPLE)).all():
                return ""
            return "words" if has_words else "number"
        if (
            name in NUMBERS
            or name in NOTE_NUMBERS
            or (name.startswith("metric.") and self.columns.find(name) is not None)
        ):
            return "number"
        return "words" if name in WORDS or name in NOTE_WORDS else ""

    @property
    def order(self) -> Array:
        """Numbers of all rollouts in table order: by example, then by rollout index."""
        if "order" not in self.derived:
            places, r = self.array("place"), self.array("r")
            before = (places[:-1] < places[1:]) | ((places[:-1] == places[1:]) & (r[:-1] <= r[1:]))
            order = np.arange(self.count) if before.all() else np.lexsort((r, places))
            self.derived["order"] = order.astype("i4")
        return self.derived["order"]

    @property
    def starts(self) -> Array:
        """Position in `order` of the first rollout of each example."""
        if "starts" not in self.derived:
            places = self.array("place")[self.order]
            first = np.ones(len(places), bool)
            first[1:] = places[1:] != places[:-1]
            self.derived["starts"] = np.flatnonzero(first).astype("i4")
        return self.derived["starts"]

    def find(self, place: int, rollout: int) -> int | None:
        """Number of a rollout, given the position of its example and its index; None if there is no such rollout."""
        found = np.flatnonzero((self.array("place") == place) & (self.array("r") == rollout))
        return int(found[0]) if len(found) else None

    def siblings(self, place: int) -> list[int]:
        """Numbers of all rollouts of an example, by rollout index."""
        found = np.flatnonzero(self.array("place") == place)
        return found[np.argsort(self.array("r")[found], kind="stable")].tolist()

    @property
    def keys(self) -> dict[int, tuple[str, object]]:
        """Key and id of every example, by its position in tables. The key is a hash of the example's content."""
        if "keys" not in self.derived:
            self.derived["keys"] = {} if self._file is None else self._file.keys()
        return self.derived["keys"]

    def texts(self, places: list[int], numbers: list[int]) -> tuple[dict[int, Any], dict[int, str]]:
        """Beginnings of texts: of examples by their position, of replies by the number of the rollout."""
        if self._file is None:
            return {}, {}
        return self._file.examples(places), self._file.replies(numbers)

    def reader(self) -> JournalReader:
        """Open the journal.

        Raises:
            StoreError: it cannot be read.
        """
        return JournalReader(self.entry.run.journal_path)

    def lines(self, number: int) -> LineOffsets:
        """Offsets of the newest lines of a rollout."""
        example, base, score = (int(self.array(f"{kind}_line")[number]) for kind in ("example", "base", "score"))
        return LineOffsets(example, base, score)

    def outcome(self, reader: JournalReader, number: int) -> Outcome:
        """Read a rollout from the journal.

        Raises:
            StoreError: its lines cannot be read.
        """
        lines = self.lines(number)
        return Outcome(cast(Any, reader.record(lines.example)), *read_rollout(reader, lines))

    @property
    def newest_lines(self) -> Array:
        """Offset of the newest line of each rollout, by which a change of the rollout is recognized."""
        if "newest" not in self.derived:
            self.derived["newest"] = np.maximum(self.array("base_line"), self.array("score_line"))
        return self.derived["newest"]


def _bytes(array: Array) -> int:
    """Number of bytes of a column in memory."""
    return array.nbytes if array.strides != (0,) else array.itemsize
