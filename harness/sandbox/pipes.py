"""The pipes of a sandboxed process: bounded buffers for its output, and the launcher's reports in its stderr."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from typing import cast

from harness.core.types import JsonDict

KILL_FACTOR = 8
"""A run is killed when it writes more than this many times its output limit."""


class BoundedOutput:
    """The first bytes of a stream.

    Args:
        bound: Maximum number of bytes to store.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.data = bytearray()
        self.seen = 0

    def add(self, chunk: bytes) -> None:
        """Add a chunk; store as much of it as fits."""
        self.seen += len(chunk)
        if len(self.data) < self.bound:
            self.data += chunk[: self.bound - len(self.data)]

    @property
    def is_truncated(self) -> bool:
        """Whether bytes were dropped."""
        return self.seen > self.bound

    @property
    def is_above_kill_limit(self) -> bool:
        """Whether the stream is so long that the run must be killed."""
        return self.seen > self.bound * KILL_FACTOR

    @property
    def text(self) -> str:
        """The stored bytes as text; a character that was cut at the end is omitted."""
        if self.is_truncated:
            return self.data.decode("utf-8", "replace").removesuffix("�")
        return self.data.decode("utf-8", "replace")


class LauncherReports:
    """Separates the launcher's reports from the program's stderr. Each report starts with the nonce.

    Args:
        nonce: A secret of the launcher that programs in the sandbox do not know.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = f"\n\x1e{nonce} ".encode()
        self._held = b""
        self.seen: list[JsonDict] = []

    def add(self, chunk: bytes) -> bytes:
        """Parse a chunk; return the program's own part of it."""
        data = self._held + chunk
        own = b""
        while (at := data.find(self._mark)) >= 0:
            end = data.find(b"\n", at + len(self._mark))
            if end < 0:
                self._held = data[at:]
                return own + data[:at]
            self.seen.append(cast(JsonDict, json.loads(data[at + len(self._mark) : end])))
            own, data = own + data[:at], data[end + 1 :]
        keep = _overlap(data, self._mark)
        self._held = data[len(data) - keep :]
        return own + data[: len(data) - keep]

    def rest(self) -> bytes:
        """Data that was held back as the possible start of a report; for use at the end of the stream."""
        held, self._held = self._held, b""
        return held


def _overlap(data: bytes, mark: bytes) -> int:
    """Length of the longest suffix of `data` that is a prefix of `mark`."""
    return next((size for size in range(min(len(data), len(mark) - 1), 0, -1) if mark.startswith(data[-size:])), 0)


class Pipes(asyncio.SubprocessProtocol):
    """The pipes of a process: buffered output, and input.

    Args:
        nonce: Prefix of the launcher's reports.
        bound: Maximum number of bytes stored of each stream.
        pauses_when_full: Whether a process with too much unread stdout has to wait for its reader; otherwise the excess
            is dropped.
        notify: Called after every event.
    """

    def __init__(self, nonce: str, bound: int, pauses_when_full: bool, notify: Callable[[], None]) -> None:
        self.stdout = BoundedOutput(bound)
        self.stderr = BoundedOutput(bound)
        self.reports = LauncherReports(nonce)
        self.unread = bytearray()
        """Unread stdout, if `pauses_when_full`."""
        self.stdout_ended = False
        self.exit_code: int | None = None
        """Exit code of the outer process (the sandbox program), once it has ended."""
        self.is_over = False
        """Whether the process has ended and its pipes are closed."""
        self.can_write = True
        self.transport: asyncio.SubprocessTransport | None = None
        self._pauses_when_full = pauses_when_full
        self._paused = False
        self._notify = notify

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.stderr.add(self.reports.add(data))
        elif self._pauses_when_full:
            self.unread += data
            self._regulate()
        else:
            self.stdout.add(data)
        self._notify()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self.stdout_ended = True
        elif fd == 2:
            self.stderr.add(self.reports.rest())
        else:
            self.can_write = True  # nothing more will be written, so writers must not wait
        self._notify()

    def process_exited(self) -> None:
        if self.transport is not None:
            self.exit_code = self.transport.get_returncode()
        self._notify()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = self.stdout_ended = self.can_write = True
        self._notify()

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
        self._notify()

    def write(self, data: bytes) -> None:
        """Write to the process's stdin, if it is open."""
        pipe = self._pipe(0)
        if data and pipe is not None and not pipe.is_closing():
            cast(asyncio.WriteTransport, pipe).write(data)

    def close_stdin(self) -> None:
        """Close the process's stdin."""
        pipe = self._pipe(0)
        if pipe is not None:
            pipe.close()

    def take_line(self) -> bytes | None:
        """Return the next unread line of stdout; None if it is not complete yet. A line that is too long, or the last
        one, may be returned in parts; `b""` at the end of output."""
        end = self.unread.find(b"\n") + 1
        if not end and (self.stdout_ended or len(self.unread) >= self.stdout.bound):
            end = len(self.unread)
        elif not end:
            return None
        line = bytes(self.unread[:end])
        del self.unread[:end]
        self._regulate()
        return line

    def stop_pausing(self) -> None:
        """Stop waiting for a reader: from now on, store output up to the limit and drop the rest."""
        self.stdout.add(bytes(self.unread))
        self.unread.clear()
        self._pauses_when_full = False
        self._regulate()

    def _regulate(self) -> None:
        full = self._pauses_when_full and len(self.unread) >= self.stdout.bound
        pipe = self._pipe(1)
        if full == self._paused or pipe is None or pipe.is_closing():
            return
        self._paused = full
        reader = cast(asyncio.ReadTransport, pipe)
        reader.pause_reading() if full else reader.resume_reading()

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self.transport.get_pipe_transport(fd) if self.transport is not None else None


_COUNT = re.compile(r"\d+ errors? occurred:$")
"""A line above the error itself."""


def last_line(output: bytes | bytearray) -> str:
    """The last line of an error output, without its middle if it is long; or the last one that mentions an error, since
    advice may follow."""
    lines = [
        line for line in output.decode("utf-8", "replace").splitlines() if not _COUNT.search(line) and line.strip()
    ]
    if not lines:
        return f"no error message (as user {os.geteuid()})"
    line = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1]).strip(" \t\r*")
    return shortened(line, 500)


def shortened(line: str, limit: int) -> str:
    """A line without its middle if it has more characters than `limit`."""
    return line if len(line) <= limit else f"{line[: limit // 2]}…{line[len(line) + limit // 2 + 1 - limit :]}"
