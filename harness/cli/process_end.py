"""End of the process after environments ran in it: waits a limited time for their threads, and warns about threads and
processes that still run. Kills none of them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.core.safe_text import clean

PATIENCE = 3.0
"""Timeout in seconds for threads at the end of the process."""

AT_EXIT = 30.0
"""Timeout in seconds for functions of `atexit`: some send collected data, and a function that hangs must not block the
process and its caller."""

_SHOWN = 3
_HELPERS = (
    "multiprocessing.resource_tracker", "multiprocessing.forkserver", "harness/rubrics/math_worker.py",
    "bench-container-cleanup",
)  # fmt: skip
"""Helper processes of Python and bench, which end with this process."""


def end_in_time(code: int) -> None:
    """End this process after a limited wait. Python itself would wait indefinitely for all non-daemon threads and
    `atexit` functions.

    Args:
        code: The exit code.
    """
    children = list(_children())
    if children:
        _say(f"note: these child processes are still running: {_listed(children)}")
    with contextlib.suppress(RuntimeError):  # no thread can be started, so few can be left
        threading.Thread(target=_end_anyway, args=(code,), name="bench-ending", daemon=True).start()


def _end_anyway(code: int) -> None:
    end = time.monotonic() + PATIENCE
    while _strays() and time.monotonic() < end:
        time.sleep(0.05)
    if strays := _strays():
        _say(f"note: ended without waiting for threads that are still running: {_listed(strays)}")
    else:
        time.sleep(AT_EXIT)  # a daemon thread ends with the process
        _say(f"note: ended without waiting for `atexit` functions of the environment, after {AT_EXIT:g} s")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader has closed the pipe
            stream.flush()
    os._exit(code)


def _strays() -> list[str]:
    """Return the names of the threads that would delay the exit."""
    main = threading.main_thread()
    return [each.name for each in threading.enumerate() if each is not main and not each.daemon and each.is_alive()]


def _children() -> Iterator[str]:
    """Iterate over running child processes of this process, each with its pid. Linux only."""
    for task in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for pid in task.read_text().split():
                command = (
                    Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                )
                if command and not any(helper in command for helper in _HELPERS):  # one that has ended has none
                    yield f"{clean(command, 60)} (process {pid})"


def _listed(names: Iterable[str]) -> str:
    counts = Counter(names)
    words = [name if number == 1 else f"{name} ({number} of that name)" for name, number in counts.items()]
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return clean(", ".join(words[:_SHOWN]) + more)


def _say(words: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the reader has closed the pipe
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()
