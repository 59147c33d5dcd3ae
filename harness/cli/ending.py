"""The end of a process in which environments ran: it comes whatever they have left running, and what that is gets said.
Owns the wait and the words; ends no program of theirs."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.report.text import clean

PATIENCE = 3.0
"""Seconds that threads get to end, once there is nothing else to do."""

AT_EXIT = 30.0
"""Seconds that functions of `atexit` get: some send what they have gathered; one that never returns would keep the
process, and whoever waits for its exit code, for ever."""

_SHOWN = 3
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "harness/rubrics/math_worker.py")
"""Processes of Python's own and of ours, which end with this one."""


def end_in_time(code: int) -> None:
    """See to it that this process ends soon. Python waits for all threads that are no daemons, and for all functions of
    `atexit`, however long they take.

    Args:
        code: The exit code.
    """
    children = list(_children())
    if children:
        _say(f"note: left running: {_listed(children)}")
    with contextlib.suppress(RuntimeError):  # no thread can be started, so that there is little to wait for
        threading.Thread(target=_end_anyway, args=(code,), name="bench-ending", daemon=True).start()


def _end_anyway(code: int) -> None:
    end = time.monotonic() + PATIENCE
    while _strays() and time.monotonic() < end:
        time.sleep(0.05)
    if strays := _strays():
        _say(f"note: ended without waiting for threads that were left running: {_listed(strays)}")
    else:
        time.sleep(AT_EXIT)  # a daemon ends with the process
        _say(f"note: ended without waiting for what an environment does at exit (atexit), after {AT_EXIT:g} s")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever reads went away
            stream.flush()
    os._exit(code)


def _strays() -> list[str]:
    """The names of the threads that Python would wait for."""
    main = threading.main_thread()
    return [each.name for each in threading.enumerate() if each is not main and not each.daemon and each.is_alive()]


def _children() -> Iterator[str]:
    """The programs that this process has started and that go on, each with its number. Only Linux tells."""
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
    with contextlib.suppress(OSError, ValueError):  # whoever reads went away
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()
