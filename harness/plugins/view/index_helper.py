"""Processes that compute rows of an index, beside the one that reads the journal and writes the index. They end with
it, or when it closes their input."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeAlias, cast

from harness.plugins.view.index_rows import Lines, RowMaker, Rows
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

MOST_HELPERS = 2
"""Maximum number of processes for one index. More would wait for the one that reads the journal."""

_AHEAD = 2
"""Maximum number of tasks that a process has."""

_MAIN = "import sys; sys.path[:] = {path!r}; from harness.plugins.view.index_helper import serve; serve()"

_Task: TypeAlias = tuple[Lines, "Future[Rows]"]


def helpers_of(folder: RunDir, manifest: Manifest) -> list[Helper]:
    """Start a process for each further processor. Where none can be started, there are none.

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
    """A process that computes rows, and the thread that speaks with it.

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
        self._first = pickle.dumps((folder, manifest))
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._last = list[Future[Rows]]()
        threading.Thread(target=self._speak, name="helper of an index", daemon=True).start()

    def submit(self, lines: Lines) -> Future[Rows] | None:
        """Ask for rows.

        Returns:
            The rows, or why there are none; None if the process is busy, or failed before.
        """
        if any(each.done() and each.exception() for each in self._last):
            return None
        self._last = [each for each in self._last if not each.done()]
        if len(self._last) >= _AHEAD:
            return None
        future: Future[Rows] = Future()
        self._last.append(future)
        self._tasks.put((lines, future))
        return future

    def close(self) -> None:
        """End the process; idempotent. Rows that were asked for are not computed."""
        self._tasks.put(None)
        self._process.kill()

    def _speak(self) -> None:
        """Main function of the thread. It writes and reads in turns, so neither side waits for the other forever."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with process, suppress(OSError):  # the process was ended
            has_first = False
            while (task := self._tasks.get()) is not None:
                lines, future = task
                try:
                    if not has_first:
                        process.stdin.write(self._first)
                        has_first = True
                    pickle.dump(lines, process.stdin)
                    process.stdin.flush()
                    future.set_result(cast(Rows, pickle.load(process.stdout)))
                except Exception as error:
                    future.set_exception(error)


def serve() -> None:
    """Main function of the process: computes rows until its input ends."""
    source, target = sys.stdin.buffer, sys.stdout.buffer
    with suppress(EOFError, OSError, KeyboardInterrupt):
        folder, manifest = cast("tuple[RunDir, Manifest]", pickle.load(source))
        maker = RowMaker(folder, manifest)
        while True:
            pickle.dump(maker.rows(cast(Lines, pickle.load(source))), target, pickle.HIGHEST_PROTOCOL)
            target.flush()
