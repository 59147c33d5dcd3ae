"""Dataset of a run: `data/*.parquet`, one row per rollout, built from the journal. During a run, `checkpoint` adds a
file with the rollouts completed since the last one. At the end, `finish` writes all rows again, sorted and with the
newest scores, and replaces the old files atomically. The metadata of each file states which part of the journal
it covers, so that a resumed run can continue; if the files are inconsistent, the rows are rebuilt. The columns are
defined in `rows`, the card in `card`."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.core.errors import StoreError
from harness.store.arrow import arrow, parquet
from harness.store.atomic import (
    discard,
    make_folder,
    new_file,
    new_folder,
    replacement,
    swap_folder,
    sync_file,
    sync_folder,
    translated,
)
from harness.store.card import rebuild_card, refresh_card
from harness.store.completeness import final_name, sweep
from harness.store.journal_index import Recorded
from harness.store.outcomes import Outcome, in_order, outcomes
from harness.store.rows import BATCH_BYTES, BATCH_ROWS, WRITER_OPTIONS, RowFile, RowShape
from harness.store.rundir import RunDir
from harness.store.safe_files import is_folder, open_binary

NOTES = b"bench"
"""Key in a parquet file's metadata whose value is JSON written by this module."""

SORTED = -1
"""Value of `level` for a file that has all rows in their final order."""

FAN_IN = 64
"""Number of checkpoint files of the same level that are merged into one, so that frequent checkpoints do not leave one
file per rollout."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One parquet file, described by its metadata."""

    start: int
    """Journal offset where the part of the journal that the file covers begins."""
    end: int
    """Journal offset where the part of the journal that the file covers ends."""
    level: int = 0
    """How often the rows in the file have been merged; `SORTED` for final rows."""
    waiting: int = 0
    """Number of rows whose rollout had no score yet."""

    @property
    def file_name(self) -> str:
        """File name, which is never reused for other rows, so that a reader with an outdated list of files gets an
        error instead of wrong rows."""
        if self.level == SORTED:
            return final_name(self.end) if not self.waiting else f"train-{self.end:015d}-waiting.parquet"
        return f"part-{self.start:015d}-{self.end:015d}.parquet"


class DatasetWriter:
    """Writer of one run's dataset. The caller holds the run's lock; methods may be called from any thread.

    Args:
        run_dir: The run folder; its journal exists.
        columns: Columns of the rows.
    """

    def __init__(self, run_dir: Path, columns: RowShape) -> None:
        self._run = RunDir(run_dir)
        self._columns = columns
        self._data = self._run.data_path
        self._guard = threading.Lock()
        self._recorded = Recorded(self._run.journal_path)
        self._due: set[int] = set()
        """Journal numbers of completed rollouts that have no row on disk."""
        self._written = bytearray()
        """1 at the journal number of every rollout that has a row on disk."""
        self._parts: list[_Part] = []
        self._rebuild = False
        """Whether the files on disk cannot be extended, so that the next checkpoint must replace them."""
        self._is_restored = False

    def checkpoint(self) -> int:
        """Add rows for the rollouts completed since the last checkpoint.

        A rollout that has a row keeps it until `finish`, even if it was retried or scored again.

        Returns:
            Number of rows added.

        Raises:
            StoreError: the journal cannot be read, or the rows cannot be written.
        """
        with self._turn():
            count = self._replace(with_waiting=False) if self._rebuild else self._add()
            if count:
                refresh_card(self._run)
            return count

    def catch_up(self) -> Recorded:
        """Read the journal to its end, and return its index; the writer continues to use and change the same object.

        Raises:
            StoreError: the journal cannot be read.
        """
        with self._turn():
            self._note_outcomes()
            return self._recorded

    def finish(self) -> int:
        """Write all rows, sorted by example and rollout, and rebuild the card of the parent folder.

        A rollout without a score also gets a row: unscored, `not scored`. The card shows `summary.json`, so write that
        first.

        Returns:
            Number of rows in the dataset.

        Raises:
            StoreError: as in `checkpoint`.
        """
        rows = self.complete()
        rebuild_card(self._run.parent)
        return rows

    def complete(self, on_row: Callable[[int, Outcome], object] | None = None) -> int:
        """Write all rows, sorted, as `finish` does, but do not rebuild the card.

        Args:
            on_row: Called with each rollout's journal number and outcome when its row is written, so that the caller
                need not read the journal again; not called if the files already have all rows.

        Returns:
            Number of rows in the dataset.

        Raises:
            StoreError: as in `checkpoint`.
        """
        with self._turn():
            if not self._is_final():
                self._replace(with_waiting=True, on_row=on_row)
            return len(self._recorded)

    @contextlib.contextmanager
    def _turn(self) -> Generator[None]:
        """Context manager that admits one thread at a time. The first call loads the existing files, which takes
        seconds for a large run."""
        with self._guard:
            if not self._is_restored:
                self._restore()
                self._is_restored = True
            yield

    def _restore(self) -> None:
        """Load the files of an earlier process, if they agree with the journal."""
        sweep(self._run)
        if not self._run.has_data():
            self._rebuild = os.path.lexists(self._data) and not is_folder(self._data)  # a file, or a link
            return
        try:
            parts = [_read_part(path, self._columns) for path in self._data.glob("*.parquet")]
        except StoreError:
            self._rebuild = True
            return
        parts.sort(key=lambda part: part.start)
        for number, _, document in self._recorded.advance(stop=parts[-1].end):
            if document["type"] != "generated":
                self._note_written([number])
        joined = all(a.end == b.start for a, b in itertools.pairwise(parts)) and parts[0].start == 0
        # Rollouts without a score, or to be retried, may have a row; one rollout must not get two.
        again = any(had and not self._recorded.is_done(number) for number, had in enumerate(self._written))
        if again or any(part.waiting for part in parts) or not joined or self._recorded.end != parts[-1].end:
            self._rebuild = True
            return
        self._parts = parts

    def _note_outcomes(self) -> None:
        for number, _, document in self._recorded.advance():
            has_row = number < len(self._written) and self._written[number]
            if document["type"] != "generated" and not has_row:
                self._due.add(number)

    def _add(self) -> int:
        self._note_outcomes()
        fresh = sorted(filter(self._recorded.is_done, self._due), key=self._recorded.place)
        if not fresh:
            return 0
        start = self._parts[-1].end if self._parts else 0
        with translated("create", self._data):
            make_folder(self._data, private=self._run.is_closed)
        part = _Part(start, self._recorded.end)
        path = self._data / part.file_name
        with translated("write", path), replacement(path) as temporary:
            self._write(temporary, part, fresh)
        self._parts.append(part)
        self._note_written(fresh)
        self._merge()
        return len(fresh)

    def _replace(self, *, with_waiting: bool, on_row: Callable[[int, Outcome], object] | None = None) -> int:
        """Build the whole dataset in a new folder, and exchange the folders."""
        for _ in self._recorded.advance():
            pass
        recorded = self._recorded
        done = [recorded.is_done(n) for n in range(len(recorded))]
        waiting = done.count(False) if with_waiting else 0
        if not waiting and not any(done):
            # Existing rows belong to rollouts that the journal does not have.
            with contextlib.suppress(OSError):
                discard(self._data)
            self._parts, self._rebuild = [], False
            return 0
        part = _Part(0, recorded.end, SORTED, waiting)
        with self._staging() as folder:
            rows = [n for n in in_order(recorded) if with_waiting or done[n]]
            count = self._write(folder / part.file_name, part, rows, on_row)
        self._parts = [part]
        self._due.clear()
        self._written = bytearray()
        self._note_written(n for n, is_done in enumerate(done) if is_done)
        self._rebuild = waiting > 0
        return count

    def _merge(self) -> None:
        """Merge the newest files into one if there are `FAN_IN` files of the same level."""
        while True:
            level = self._parts[-1].level
            tail = self._parts[-FAN_IN:]
            if len(tail) < FAN_IN or any(part.level != level for part in tail):
                return
            kept, merged = self._parts[:-FAN_IN], _Part(tail[0].start, tail[-1].end, level + 1)
            with self._staging() as folder:
                for part in kept:
                    source, target = self._data / part.file_name, folder / part.file_name
                    try:
                        os.link(source, target)
                    except OSError:
                        shutil.copy2(source, target)  # a file system without hard links
                        sync_file(target)
                sources = [self._data / part.file_name for part in tail]
                _concatenate(sources, folder / merged.file_name, _notes(merged))
            self._parts = [*kept, merged]

    @contextlib.contextmanager
    def _staging(self) -> Generator[Path]:
        """Context manager that creates a temporary folder, which replaces `data/` if the block succeeds."""
        folder = self._run.path / f".data.{secrets.token_hex(4)}"
        try:
            with translated("write", folder):
                new_folder(folder, private=self._run.is_closed)
                yield folder
                sync_folder(folder)
                swap_folder(folder, self._data)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _write(
        self,
        path: Path,
        part: _Part,
        numbers: Sequence[int],
        on_row: Callable[[int, Outcome], object] | None = None,
    ) -> int:
        """Write a parquet file and sync it; return its number of rows."""
        with translated("write", path):
            new_file(path).close()  # Arrow would ignore private permissions
        with RowFile(path, self._columns, _notes(part)) as file:
            for number, outcome in zip(numbers, outcomes(self._recorded, numbers), strict=True):
                file.add(outcome)
                if on_row is not None:
                    on_row(number, outcome)
        with translated("sync", path):
            sync_file(path)
        return file.rows

    def _is_final(self) -> bool:
        """Return whether the files on disk already have all rows, sorted and with the newest scores."""
        if self._rebuild or len(self._parts) != 1 or self._parts[0].level != SORTED:
            return False
        with translated("read", self._run.journal_path):
            size = self._run.journal_path.lstat().st_size
        return self._parts[0].end == size and self._recorded.end == size

    def _note_written(self, numbers: Iterable[int]) -> None:
        self._written.extend(bytes(max(0, len(self._recorded) - len(self._written))))
        for number in numbers:
            self._written[number] = 1
            self._due.discard(number)


def _notes(part: _Part) -> dict[str, str]:
    notes = {"start": part.start, "end": part.end, "level": part.level, "waiting": part.waiting}
    return {NOTES.decode(): json.dumps(notes)}


def _read_part(path: Path, columns: RowShape) -> _Part:
    """Parse the metadata of a file.

    Raises:
        StoreError: the file is damaged, written by another program, or has other columns.
    """
    pa = arrow()
    try:
        with open_binary(path) as file:
            schema = parquet().read_schema(file)
        notes = json.loads(cast(bytes, (schema.metadata or {})[NOTES]))
        if tuple(schema.names) != columns.names:
            raise StoreError(f"the columns of {path} differ from those of this run")
        part = _Part(notes["start"], notes["end"], notes["level"], notes["waiting"])
        if path.name != part.file_name:
            raise StoreError(f"{path} was renamed; according to its metadata, its name was {part.file_name}")
        return part
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as error:
        raise StoreError(f"cannot use {path}: {error}") from error


def _concatenate(sources: list[Path], target: Path, notes: dict[str, str]) -> None:
    """Copy the rows of `sources` into one new file, one row group at a time."""
    pa = arrow()
    with open_binary(sources[0]) as first:
        schema = parquet().read_schema(first).with_metadata(notes)
    with translated("write", target):
        new_file(target).close()
    with translated("write", target), parquet().ParquetWriter(target, schema, **WRITER_OPTIONS) as writer:
        held: list[Any] = []
        for source in sources:
            # Threads and read-ahead would use 20 MB permanently, and save only milliseconds.
            with open_binary(source) as opened, parquet().ParquetFile(opened, pre_buffer=False) as file:
                for group in range(file.num_row_groups):
                    held.append(file.read_row_group(group, use_threads=False).cast(schema))
                    if sum(t.num_rows for t in held) >= BATCH_ROWS or sum(t.nbytes for t in held) >= BATCH_BYTES:
                        writer.write_table(pa.concat_tables(held))
                        held = []
        if held:
            writer.write_table(pa.concat_tables(held))
    with translated("sync", target):
        sync_file(target)
