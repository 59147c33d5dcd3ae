"""`status.json` in the folder of a run in progress: rollouts in flight, remaining time, and reasons of delays. Written
by a thread, at most once a second and only if it has changed. For readers in other processes; a run never reads it, and
a failure to write it has no effect on the run."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.core.types import JsonDict
from harness.engine.prepare import LiveRun
from harness.engine.progress import Pace, RunProgress
from harness.store.atomic import new_file
from harness.store.codec import to_text

PERIOD = 1.0
"""Seconds between two updates of the file."""

LONGEST_REASON = 500
"""Maximum number of characters of the reason of a delay."""

logger = logging.getLogger(__name__)


class LiveStatus:
    """The file `status.json` of one run in progress.

    Args:
        folder: The run's folder, whose lock this process holds.
        progress: The run's counters; only read.
    """

    def __init__(self, folder: Path, progress: RunProgress) -> None:
        self.path = folder / "status.json"
        self._pace = Pace(progress)
        self._written: JsonDict | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def write(self, now: float, wall: float) -> None:
        """Replace the file if the status has changed. Does nothing after `close`, or if the file cannot be written.

        Args:
            now: Monotonic seconds.
            wall: Seconds since 1970.
        """
        self._pace.observe(now)
        status = _status_of(self._pace, now, wall)
        with self._lock:
            if self._is_closed or status == self._written:
                return
            with suppress(OSError):  # such as a full disk: the run matters more, and the next call tries again
                _replace(self.path, to_text({**status, "time": round(wall, 3)}).encode())
                self._written = status

    def close(self) -> None:
        """Remove the file, since the run ends; idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                with suppress(OSError):
                    self.path.unlink()


def _status_of(pace: Pace, now: float, wall: float) -> JsonDict:
    """The content of the file; the keys are documented in docs/reference/run-folder.md."""
    progress, rate, left = pace.progress, pace.rate(now), pace.left(now)
    return {
        "state": progress.state,
        "planned": progress.total,
        "done": progress.done,
        "scored": progress.scored,
        "generating": progress.generating,
        "scoring": progress.backlog + progress.scoring,
        "per_minute": None if rate is None else round(60 * rate, 1),
        "left": None if left is None else round(left),
        "delays": [
            {
                "reason": each.reason[:LONGEST_REASON],
                "until": None if each.seconds is None else round(wall + each.seconds),
            }
            for each in progress.delays()
        ],
    }


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically, without the syncs of `store.atomic`: the file is of no use after a crash.

    Raises:
        OSError: the file cannot be written; the former one is unchanged.
    """
    temporary = path.with_name(f".{path.name}.tmp")  # one name, so that killed processes leave at most one
    with suppress(FileNotFoundError):
        temporary.unlink()
    try:
        with new_file(temporary) as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


class StatusThread:
    """Context manager with a thread that keeps `status.json` of runs in progress up to date. The file of a run is
    removed when the run is released, at the latest at the end.

    Args:
        runs: The runs; those that are not saved have no file.
    """

    def __init__(self, runs: Sequence[LiveRun]) -> None:
        self._files: list[LiveStatus] = []
        for run in runs:
            if run.is_saved:
                self._files.append(LiveStatus(run.folder.path, run.progress))
                run.on_release = self._files[-1].close
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-status", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)
        for file in self._files:
            file.close()

    def _run(self) -> None:
        try:
            while True:
                now, wall = time.monotonic(), time.time()
                for file in self._files:
                    file.write(now, wall)
                if self._stop.wait(PERIOD):
                    return
        except Exception as error:  # boundary: an error here must not end the run, nor print a traceback
            logger.info("status.json is not updated any more: %s: %s", type(error).__name__, error)
