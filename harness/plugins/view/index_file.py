"""The file of an index: a SQLite database in the user's cache folder, which may be removed at any time. Each column is
stored in parts of 8,192 rollouts, as an array of numbers, so that a whole column is read in a few milliseconds.

Row `n` of every column belongs to the rollout with the number `n` in `store.journal_index.Recorded`."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.core.errors import RunLocked, StoreError
from harness.core.types import JsonDict
from harness.store.atomic import make_folder
from harness.store.rundir import RunLock
from harness.store.safe_files import open_binary

if TYPE_CHECKING:
    import numpy as np

FORMAT = 3
"""Version of the file's content. An index of another version is rebuilt."""

PART = 8192
"""Number of rollouts in a part of a column."""

_ENDS = 4096
"""Number of bytes at the beginning of a journal, and before the end of its known part, by which it is recognized."""

_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE part (part INTEGER PRIMARY KEY, stamp INTEGER);
CREATE TABLE piece (name TEXT, part INTEGER, data BLOB, PRIMARY KEY (name, part));
CREATE TABLE word (name TEXT, code INTEGER, value TEXT, PRIMARY KEY (name, code)) WITHOUT ROWID;
CREATE TABLE example (place INTEGER PRIMARY KEY, key TEXT, id TEXT, task TEXT, answer TEXT, prompt TEXT);
CREATE TABLE reply (number INTEGER PRIMARY KEY, text TEXT);
"""

LINES = ("place", "r", "example_line", "base_line", "score_line", "key")
"""Columns with the position of the example in tables, the rollout index, the offsets of the lines, and the number of
the key (`core.keys.key_number`)."""

TYPES: Mapping[str, str] = {"flags": "u1", **dict.fromkeys(LINES, "i8")}
"""Types of the columns that are neither numbers (`f8`) nor words (`i4`)."""


@cache
def cache_folder() -> Path:
    """The folder of all indexes, which only the user can enter; a temporary one if it cannot be created."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    folder = home / "bench" / "view"
    try:
        make_folder(folder, private=True)
        os.chmod(folder, 0o700)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, StoreError):
        pass
    return Path(tempfile.mkdtemp(prefix="bench-view-"))


def index_path(run: Path) -> Path:
    """Path of the index of a run, by the absolute path of its folder."""
    name = hashlib.sha256(os.fsencode(run.resolve())).hexdigest()[:32]
    return cache_folder() / f"{name}.sqlite"


def journal_head(path: Path, end: int) -> JsonDict | None:
    """Facts by which a journal is recognized: its inode, and a hash of its first bytes and of the last known ones,
    which are others if it was shortened and continued.

    Args:
        path: The journal.
        end: Number of bytes that are known, up to the end of a line.

    Returns:
        The facts; None if the journal does not exist, or has fewer bytes.
    """
    try:
        with open_binary(path) as file:
            found = os.fstat(file.fileno())
            if found.st_size < end:
                return None
            digest = hashlib.sha256(file.read(min(end, _ENDS)))
            file.seek(max(_ENDS, end - _ENDS))
            digest.update(file.read(max(0, end - file.tell())))
    except OSError:
        return None
    return {"inode": found.st_ino, "hash": digest.hexdigest()}


class IndexFile:
    """A connection to the file of an index. For one thread at a time.

    Args:
        path: The file, which is created if it is missing.

    Raises:
        sqlite3.Error: the file cannot be opened, or is not a database.
    """

    SCHEMA = _SCHEMA

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            os.chmod(path, 0o600)
            os.utime(path)  # when it was used last; see `index_sweep`
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=OFF")  # the content can be rebuilt
            self._db.execute("PRAGMA trusted_schema=OFF")
            self._inode = os.stat(path).st_ino
        except (sqlite3.Error, OSError):
            self._db.close()
            raise

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._db.close()

    def is_there(self) -> bool:
        """Return whether the file still exists under its path."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False

    def is_empty(self) -> bool:
        """Return whether the file has no tables."""
        return not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def meta(self) -> JsonDict | None:
        """Facts about the index; None if the file is new, or of another version."""
        found = self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'meta'").fetchone()
        if not found[0]:
            return None
        meta = {name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM meta")}
        return meta if meta.get("format") == FORMAT else None

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Context manager in which all reads see the same state."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self._db.execute("COMMIT")

    @contextmanager
    def change(self) -> Generator[None]:
        """Context manager for changes, which are all made or, after an exception, all undone."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def clear(self) -> None:
        """Remove all content. Called within `change`."""
        names = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            quoted = str(name).replace('"', '""')
            self._db.execute(f'DROP TABLE "{quoted}"')
        for statement in filter(str.strip, self.SCHEMA.split(";")):
            self._db.execute(statement)

    def set_meta(self, values: Mapping[str, object]) -> None:
        """Replace facts about the index."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def write_part(self, part: int, stamp: int, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Replace a part of all columns. If all its values are the same, only one is stored."""
        rows: list[tuple[str, int, bytes]] = []
        for name, values in columns.items():
            data = values.tobytes()
            one = data[: values.itemsize]
            rows.append((name, part, one if data == one * len(values) else data))
        self._db.executemany("INSERT OR REPLACE INTO piece VALUES (?, ?, ?)", rows)
        self._db.execute("INSERT OR REPLACE INTO part VALUES (?, ?)", (part, stamp))

    def changed_parts(self, stamp: int) -> list[int]:
        """Numbers of the parts that changed after a change with the number `stamp`."""
        return [row[0] for row in self._db.execute("SELECT part FROM part WHERE stamp > ?", (stamp,))]

    def read_part(self, name: str, part: int) -> np.ndarray[Any, Any]:
        """A part of a column: `PART` values, of which those beyond the last rollout have no meaning."""
        import numpy as np

        kind = TYPES.get(name, "i4" if name.startswith("word:") else "f8")
        row = self._db.execute("SELECT data FROM piece WHERE name = ? AND part = ?", (name, part)).fetchone()
        if row is None:
            raise sqlite3.DatabaseError(f"the column {name} has no part {part}")
        values = np.frombuffer(cast(bytes, row[0]), kind)
        if len(values) not in (1, PART):
            raise sqlite3.DatabaseError(f"the column {name} has a damaged part {part}")
        return np.broadcast_to(values, (PART,)) if len(values) == 1 else values

    def add_words(self, rows: Iterable[tuple[str, int, str]]) -> None:
        """Add words as (column, code, JSON)."""
        self._db.executemany("INSERT OR REPLACE INTO word VALUES (?, ?, ?)", rows)

    def words(self, name: str, first: int) -> list[object]:
        """The words of a column from a code on, in order."""
        rows = self._db.execute("SELECT value FROM word WHERE name = ? AND code >= ? ORDER BY code", (name, first))
        return [json.loads(value) for (value,) in rows]

    def add_texts(
        self, examples: Iterable[tuple[int, str, str, str, str, str]], replies: Iterable[tuple[int, str]]
    ) -> None:
        """Add the beginnings of texts: of examples as (position, key and id as JSON, task, answer, prompt), and of
        replies as (rollout, text)."""
        self._db.executemany("INSERT OR REPLACE INTO example VALUES (?, ?, ?, ?, ?, ?)", examples)
        self._db.executemany("INSERT OR REPLACE INTO reply VALUES (?, ?)", replies)

    def keys(self) -> dict[int, tuple[str, object]]:
        """Key and id of every example, by its position."""
        rows = self._db.execute("SELECT place, key, id FROM example").fetchall()
        pairs = json.loads(f"[{','.join(f'[{key},{example_id}]' for _, key, example_id in rows)}]")
        return {row[0]: (key, example_id) for row, (key, example_id) in zip(rows, pairs, strict=True)}

    def examples(self, places: Sequence[int]) -> dict[int, tuple[object, str, str, str]]:
        """Id, task, and the beginnings of answer and prompt, of the examples at some positions."""
        found: dict[int, tuple[object, str, str, str]] = {}
        for place in places:
            row = self._db.execute("SELECT id, task, answer, prompt FROM example WHERE place = ?", (place,)).fetchone()
            if row is not None:
                found[place] = (json.loads(row[0]), row[1], row[2], row[3])
        return found

    def replies(self, numbers: Sequence[int]) -> dict[int, str]:
        """Beginnings of the replies of some rollouts."""
        found: dict[int, str] = {}
        for number in numbers:
            row = self._db.execute("SELECT text FROM reply WHERE number = ?", (number,)).fetchone()
            if row is not None:
                found[number] = row[0]
        return found


@contextmanager
def index_lock(path: Path) -> Generator[None]:
    """Context manager that locks an index, so that only this process builds or removes it.

    Args:
        path: The file of the index; its folder is created if it is missing.

    Raises:
        RunLocked: another process holds the lock.
        StoreError: the lock file cannot be created.
        OSError: the folder cannot be created.
    """
    make_folder(path.parent, private=True)
    lock_path = path.with_suffix(".lock")
    with RunLock.take(lock_path, "the index") as lock:
        if not lock.is_at(lock_path):  # removed with an old index before this process had the lock
            raise RunLocked("the lock of the index was removed")
        yield


def remove_index(path: Path) -> None:
    """Remove the file of an index, with the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(OSError):
            os.unlink(f"{path}{suffix}")
