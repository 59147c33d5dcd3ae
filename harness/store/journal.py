"""Journal of a run: an append-only file from which all other result files are built. Implements appending, recovery and
reading. One thread per journal writes: it takes all queued lines, writes them with one write(2), syncs them with one
fsync(2), and then acknowledges the batch on the event loop. The next batch is queued meanwhile, so a busier run needs
fewer syncs per line. Lines are encoded in `codec` and indexed in `journal_index`."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import queue
import threading
from asyncio import Future
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from harness.core.errors import EnvironmentFault, JournalDamaged, StoreError
from harness.core.records import Record
from harness.core.size_limits import LINE, size_text
from harness.core.types import JsonDict
from harness.store.atomic import durable_sync, file_mode, is_closed, store_error, sync_folder, translated, write_all
from harness.store.codec import UnknownType, encode, parse, record_of
from harness.store.safe_files import open_binary, open_regular, open_to_append

READ_BUFFER = 1 << 20
"""Bytes of read-ahead when streaming a journal; larger buffers do not help."""

LOOK_UP = 1 << 13
"""Bytes of the first read of a single line: enough for most lines."""

BLOCK = 1 << 16
"""Bytes of a block that a reader keeps, because the lines of a rollout and of its neighbours are near each other. Each
read gives up the interpreter's lock, and waiting to get it back takes longer than the read."""

BLOCKS_KEPT = 8
"""Number of blocks that a reader keeps: enough for the lines of the rollouts that were in flight together."""

_Entry: TypeAlias = tuple[bytes, Future[int]]
_Ack: TypeAlias = tuple[Future[int], int]


class Journal:
    """A journal open for appending. Use it in one event loop at a time; the caller holds the run's lock."""

    def __init__(self, path: Path, fd: int, end: int, fsync: Callable[[int], None]) -> None:
        self.path = path
        self._fd = fd
        self._end = end
        self._fsync = fsync
        self._failure: StoreError | None = None
        self._closed = False
        self._has_name = _links(fd) > 0
        """Whether the file system counts links; if not, removal of the file during the run cannot be detected."""
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        # A daemon thread, so that exiting does not wait for a hung disk. Lost lines were never acknowledged.
        self._writer = threading.Thread(target=self._write, name=f"journal {path.parent.name}", daemon=True)
        self._writer.start()

    @classmethod
    def open(cls, path: Path, *, verified: int = 0, fsync: Callable[[int], None] = durable_sync) -> Journal:
        """Open a journal for appending; create it if missing, and sync its folder.

        An incomplete last line is cut off first, since it was never acknowledged.

        Args:
            path: The journal.
            verified: Number of bytes that the caller has just read (`Recorded.end`); these are not read again.
            fsync: Function that syncs a file.

        Raises:
            JournalDamaged: a line before the last one cannot be read.
            StoreError: the file cannot be opened or synced.
        """
        with translated("open", path):
            mode = file_mode(private=is_closed(path.parent))
            fd = open_to_append(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
            try:
                end = _recover(path, fd, verified, fsync)
            except BaseException:
                os.close(fd)
                raise
        return cls(path, fd, end, fsync)

    @property
    def synced(self) -> int:
        """Number of bytes on stable storage."""
        return self._end

    def submit(self, record: Record) -> Future[int]:
        """Queue a record; later changes to the object have no effect.

        Returns:
            A future of this event loop: the line's byte offset once it is on disk, or `StoreError`. Lines are written
            and acknowledged in the order of `submit`. Cancelling the future does not remove the line.

        Raises:
            StoreError: an earlier line could not be written, or the journal is closed.
            EnvironmentFault: the record has a value that is not JSON, or is too large; the journal is unchanged.
        """
        line = encode(record)
        if len(line) > LINE:  # readers reject longer lines
            raise EnvironmentFault(
                f"a {record.kind} record of {len(line) >> 20} MiB is not recorded: a line of the journal has at most "
                f"{size_text(LINE)}; shorten the messages or the state of the rollout"
            )
        return self._put(line)

    async def append(self, record: Record) -> int:
        """Write a record; return its byte offset once it is on disk.

        Raises:
            StoreError: the record was not written; later lines cannot be written either.
            EnvironmentFault: the record has a value that is not JSON; the journal is unchanged.
        """
        return await self.submit(record)

    async def flush(self) -> None:
        """Wait until all submitted lines are on disk.

        Raises:
            StoreError: a line was not written.
        """
        await self._put(b"")

    def close(self) -> None:
        """Write queued lines and close the file; idempotent. Futures resolve in the loop's next iteration.

        Raises:
            StoreError: a line was not written, now or earlier.
        """
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._writer.join()
            os.close(self._fd)
        if self._failure is not None:
            raise self._failure

    def _put(self, data: bytes) -> Future[int]:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise StoreError(f"{self.path} is closed")
        future: Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put((data, future))
        return future

    def _write(self) -> None:
        """Main function of the writer thread."""
        more = True
        while more:
            batch, more = self._take()
            if not batch:
                continue
            loop = batch[0][1].get_loop()
            if self._failure is None:
                try:
                    acks = self._commit(batch)
                except StoreError as error:
                    self._failure = error
                except OSError as error:
                    self._failure = store_error("write", self.path, error)
                except Exception as error:
                    # Thread entry: an uncaught exception would leave all callers waiting.
                    self._failure = StoreError(f"cannot write {self.path}: {type(error).__name__}: {error}")
                else:
                    _schedule(loop, _acknowledge, acks)
                    continue
            _schedule(loop, _fail, [future for _, future in batch], self._failure)

    def _take(self) -> tuple[list[_Entry], bool]:
        """Wait for at least one queued entry, and take all; also return whether the journal stays open."""
        entry = self._queue.get()
        batch: list[_Entry] = []
        while entry is not None:
            batch.append(entry)
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: list[_Entry]) -> list[_Ack]:
        data = b"".join([line for line, _ in batch])
        if data:
            write_all(self._fd, data)
            self._fsync(self._fd)
            if self._has_name and _links(self._fd) == 0:
                raise StoreError(f"{self.path} was removed during the run, so further results would be lost")
        acks: list[_Ack] = []
        for line, future in batch:
            acks.append((future, self._end))
            self._end += len(line)
        return acks


def _links(fd: int) -> int:
    return os.fstat(fd).st_nlink


def _schedule(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object) -> None:
    # Schedule a call on the event loop, unless the loop is closed and has no waiting callers.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def _acknowledge(acks: list[_Ack]) -> None:
    for future, offset in acks:
        if not future.done():
            future.set_result(offset)


def _fail(futures: list[Future[int]], failure: StoreError) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(failure)
            # Mark the exception as retrieved: it is raised again by the next submit, or by close.
            future.exception()


def _recover(path: Path, fd: int, verified: int, fsync: Callable[[int], None]) -> int:
    """Cut off an incomplete last line; return the offset for the next line."""
    size = os.fstat(fd).st_size
    sync_folder(path.parent)
    if size == 0:
        return 0
    end = min(verified, size)
    for _, after, _ in scan(path, end):
        end = after
    if end < size:
        os.ftruncate(fd, end)
    # Also for lines that an earlier process wrote but did not sync, since the caller relies on them.
    fsync(fd)
    return end


def scan(path: Path, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, JsonDict]]:
    """Stream a journal's lines from offset `start`, as (offset, offset of the next line, JSON object).

    An incomplete last line (no newline, or invalid JSON) and lines that begin at `stop` or later are omitted.

    Raises:
        JournalDamaged: a line before the last one is not JSON; the message names file and line.
        StoreError: the file cannot be read.
    """
    with translated("read", path), io.BufferedReader(io.FileIO(open_regular(path)), READ_BUFFER) as file:
        file.seek(start)
        offset = start
        # A binary file splits only at b"\n"; str.splitlines also splits at Unicode separators.
        while line := file.readline(LINE + 1):
            end = offset + len(line)
            if end - offset > LINE:
                raise line_error(path, offset, f"it is longer than the limit of {size_text(LINE)}")
            if not line.endswith(b"\n") or (stop is not None and offset >= stop):
                return
            try:
                document = parse(line)
            except ValueError as error:
                if not file.peek(1):
                    return
                raise line_error(path, offset, error) from error
            yield offset, end, document
            offset = end


def read(path: Path, start: int = 0) -> Iterator[tuple[int, Record]]:
    """Stream a journal's records with their byte offsets, from the line at offset `start`.

    Raises:
        JournalDamaged: a line before the last one cannot be read, or a complete line is not a record; the message names
            file and line.
        StoreError: the file cannot be read, or has lines of a newer version.
    """
    for offset, _, document in scan(path, start):
        yield offset, as_record(path, offset, document)


class JournalReader:
    """Random access to lines of a journal. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with translated("read", path):
            self._fd: int = open_regular(path)
        self._blocks: dict[int, bytes] = {}
        """The blocks that were read last, by number, the oldest first."""

    def document(self, offset: int) -> JsonDict:
        """The JSON object of the line at an offset.

        Raises:
            JournalDamaged: there is no complete line.
        """
        try:
            return parse(self.line(offset))
        except ValueError as error:
            raise line_error(self._path, offset, error) from error

    def record(self, offset: int) -> Record:
        """The record of the line at an offset.

        Raises:
            JournalDamaged: there is no record.
        """
        return as_record(self._path, offset, self.document(offset))

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def line(self, offset: int) -> bytes:
        """Bytes of the line at an offset, without its newline."""
        number, start = divmod(offset, BLOCK)
        block = self._blocks.get(number) or self._block(number)
        stop = block.find(b"\n", start)
        if stop >= 0:
            return block[start:stop]
        if len(block) < BLOCK:
            del self._blocks[number]  # the end of the journal, to which lines may have been added
        with translated("read", self._path):
            chunk = os.pread(self._fd, LOOK_UP, offset)
            size = LOOK_UP
            while (stop := chunk.find(b"\n")) < 0 and len(chunk) == size and size <= LINE:
                size *= 8
                chunk = os.pread(self._fd, size, offset)
        return chunk[:stop] if stop >= 0 else chunk

    def _block(self, number: int) -> bytes:
        if len(self._blocks) >= BLOCKS_KEPT:
            del self._blocks[next(iter(self._blocks))]
        with translated("read", self._path):
            block = self._blocks[number] = os.pread(self._fd, BLOCK, number * BLOCK)
        return block


def as_record(path: Path, offset: int, document: JsonDict) -> Record:
    """Convert the object of a line to a record.

    Raises:
        JournalDamaged: the object is not a record; the message names file and line.
        StoreError: the line was written by a newer version.
    """
    try:
        return record_of(document)
    except ValueError as error:
        raise line_error(path, offset, error) from error


def line_error(path: Path, offset: int, error: Exception | str) -> StoreError:
    """Error for a line that cannot be read; `JournalDamaged` unless a newer version wrote it."""
    # 1-based line number of an offset; computed only for messages.
    number, left = 1, offset
    with open_binary(path) as file:
        while left > 0 and (chunk := file.read(min(left, READ_BUFFER))):
            number += chunk.count(b"\n")
            left -= len(chunk)
    if isinstance(error, UnknownType):
        return StoreError(f"{path}:{number}: {error}; update bench to read this run")
    return JournalDamaged(
        f"{path}:{number} (byte {offset}): the line cannot be read ({error}). "
        f"Restore the file from a copy, keep the lines before it (truncate -s {offset} {path.name}), or "
        "start a new run; nothing was changed"
    )
