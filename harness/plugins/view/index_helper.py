"""Processes that compute rows of an index, beside the one that reads the journal and writes the index. They end with
it, or when it closes their input. Both sides write messages: a line of JSON, and arrays as bytes."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import numpy as np

from harness.core.types import JsonDict
from harness.plugins.view.index_columns import as_stored
from harness.plugins.view.index_file import LINES
from harness.plugins.view.index_rows import Array, ExampleRow, Lines, RowMaker, Rows
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

MOST_HELPERS = 2
"""Maximum number of processes for one index. More would wait for the one that reads the journal."""

_AHEAD = 3
"""Maximum number of tasks that a process has, so that it need not wait for the next one."""

_MAIN = "import sys; sys.path[:] = {path!r}; from harness.plugins.view.index_helper import serve; serve()"


def helpers_of(folder: RunDir, manifest: Manifest) -> list[Helper]:
    """Start a process for each further processor; fewer where the system refuses.

    Args:
        folder: The run's folder.
        manifest: The run's manifest.
    """
    found: list[Helper] = []
    with suppress(OSError):
        for _ in range(min(MOST_HELPERS, (os.cpu_count() or 1) - 1)):
            found.append(Helper(folder, manifest))  # noqa: PERF401 - those before an error are kept
    return found


class Helper:
    """A process that computes rows. One thread writes to it and another one reads from it, so neither side waits for
    the other forever.

    Args:
        folder: The run's folder.
        manifest: The run's manifest.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, folder: RunDir, manifest: Manifest) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAIN.format(path=sys.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._run = {"run": str(folder.path), "manifest": manifest.to_json()}
        self._tasks: queue.SimpleQueue[Lines | None] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[Future[Rows] | None] = queue.SimpleQueue()
        self._last = list[Future[Rows]]()
        for main in (self._write, self._read):
            threading.Thread(target=main, name="helper of an index", daemon=True).start()

    def submit(self, lines: Lines) -> Future[Rows] | None:
        """Ask for rows.

        Returns:
            The rows, or the error; None if the process is busy, or failed before.
        """
        if any(each.done() and each.exception() for each in self._last):
            return None
        self._last = [each for each in self._last if not each.done()]
        if len(self._last) >= _AHEAD:
            return None
        future: Future[Rows] = Future()
        self._last.append(future)
        self._tasks.put(lines)
        self._asked.put(future)
        return future

    def close(self) -> None:
        """End the process; idempotent. Rows that were asked for are not computed."""
        self._tasks.put(None)
        self._asked.put(None)
        self._process.kill()

    def _write(self) -> None:
        file = self._process.stdin
        assert file is not None
        with suppress(OSError, ValueError):  # the process ended, which the other thread sees
            put(file, self._run, [])
            while (lines := self._tasks.get()) is not None:
                put(file, {"start": lines.start, "stop": lines.stop}, [lines.rollouts.ravel()])

    def _read(self) -> None:
        file = self._process.stdout
        assert file is not None
        while (future := self._asked.get()) is not None:
            try:
                future.set_result(unpacked(*get(file)))
            except Exception as error:
                future.set_exception(error)
        with suppress(OSError), self._process:
            pass


def serve() -> None:
    """Main function of the process: computes rows until its input ends."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, OSError, KeyboardInterrupt):
        run, _ = get(source)
        maker = RowMaker(RunDir(Path(cast(str, run["run"]))), Manifest.from_json(run["manifest"]))
        while True:
            facts, (rollouts,) = get(source)
            lines = Lines(cast(int, facts["start"]), cast(int, facts["stop"]), rollouts.reshape(-1, len(LINES)))
            put(target, *packed(maker.rows(lines)))


def packed(rows: Rows) -> tuple[JsonDict, list[Array]]:
    """Rows as a message."""
    facts: JsonDict = {
        "numbers": [*rows.numbers], "words": {name: words for name, (words, _) in rows.words.items()},
        "replies": rows.replies, "examples": rows.examples, "left_out": sorted(rows.left_out), "error": rows.error,
    }  # fmt: skip
    return facts, [rows.readable, rows.flags, *rows.numbers.values(), *(codes for _, codes in rows.words.values())]


def unpacked(facts: JsonDict, arrays: list[Array]) -> Rows:
    """Rows from a message."""
    found: dict[str, list[object]] = cast("dict[str, list[object]]", facts["words"])
    names = cast("list[str]", facts["numbers"])
    readable, flags, *columns = arrays
    return Rows(
        readable, dict(zip(names, columns, strict=False)),
        {name: ([*map(as_stored, words)], codes)
         for (name, words), codes in zip(found.items(), columns[len(names) :], strict=True)},
        flags, cast("list[str]", facts["replies"]),
        [cast(ExampleRow, tuple(row)) for row in cast("list[list[object]]", facts["examples"])],
        set(cast("list[str]", facts["left_out"])), cast(str, facts["error"]),
    )  # fmt: skip


def put(file: IO[bytes], facts: JsonDict, arrays: list[Array]) -> None:
    """Write a message."""
    shapes = [(each.dtype.str, len(each)) for each in arrays]
    file.write(json.dumps([facts, shapes]).encode() + b"\n")
    file.writelines(each.tobytes() for each in arrays)
    file.flush()


def get(file: IO[bytes]) -> tuple[JsonDict, list[Array]]:
    """Read a message.

    Raises:
        EOFError: the other side ended.
    """
    if not (line := file.readline()).endswith(b"\n"):
        raise EOFError
    facts, shapes = cast("tuple[JsonDict, list[tuple[str, int]]]", json.loads(line))
    return facts, [np.frombuffer(file.read(np.dtype(kind).itemsize * count), kind) for kind, count in shapes]
