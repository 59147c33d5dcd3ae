"""What stands between an isolated environment's process and everything that it starts: a process that runs no code of
the environment's, and ends all of it when the environment's process ends, or when the parent is gone. Owns that end
alone; knows nothing of environments.

    parent ──► keeper ──► the environment's process ──► whatever it starts
                 ▲                                          │
                 └──────────── orphans come here ───────────┘

On Linux a keeper adopts whatever the environment leaves behind, also a program that has made itself a daemon. Elsewhere
it ends the environment's session."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

PATIENCE = 5.0
"""Seconds that killed processes get to be gone."""

LOOK = 1.0
"""Seconds between looks at whether the parent is still there: a process that somebody else has forked off it may hold
its pipe open."""

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def keep(life: int, pipes: Sequence[int]) -> None:
    """Fork. Returns in the new process, which lives no longer than this one; this one never returns, and ends as the
    new one ends.

    Args:
        life: A pipe that ends when the parent does, or when it wants all of this to end.
        pipes: The new process's; they are not kept open here, nor by what it starts.
    """
    parent, keeper = os.getppid(), os.getpid()
    _prctl(_SET_CHILD_SUBREAPER, 1)
    for fd in (life, *pipes):
        os.set_inheritable(fd, False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, ignore)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in (life, woken, wake):
            os.close(fd)
        os.setsid()
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it is the parent that decides
    for fd in pipes:
        os.close(fd)
    status = _wait(pid, parent, life, woken)
    _kill_all(pid, woken)
    _end_like(status)


def ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler of signals that does nothing; programs that are started do not inherit it."""


def _wait(pid: int, parent: int, life: int, woken: int) -> int | None:
    """Until that process ends, and how it did; None where the parent wants it to end, or is gone."""
    poll = select.poll()
    poll.register(life, select.POLLIN)
    poll.register(woken, select.POLLIN)
    while True:
        ready = poll.poll(LOOK * 1000)
        _drain(woken)
        for ended, status in _reaped():
            if ended == pid:
                return status
        if any(fd == life for fd, _ in ready) or os.getppid() != parent:
            return None


def _reaped() -> list[tuple[int, int]]:
    """The children that have ended since the last look, with their states."""
    found: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _kill_all(pid: int, woken: int) -> None:
    """End the environment's process and all that comes of it: what a process leaves behind is a child of this one."""
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    end = time.monotonic() + PATIENCE
    _kill(pid, group=True)
    while (children := _children(pid)) and time.monotonic() < end:
        for child in children:
            _kill(child)
        poll.poll(20)
        _drain(woken)
        _reaped()


def _children(pid: int) -> list[int]:
    """The processes whose parent is this one; that one alone where the system does not tell."""
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return []
    return [pid]


def _kill(pid: int, *, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)


def _drain(woken: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(woken, 4096):
            pass


def _end_like(status: int | None) -> None:
    """End as the environment's process did, so that whoever waits for this one learns it."""
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(0 if status is None else os.WEXITSTATUS(status))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
