"""Keeper process between the parent and an isolated environment's process. It runs no environment code. When the
environment's process ends or the parent exits, the keeper ends all descendants of the environment's process.

    parent ──► keeper ──► the environment's process ──► its child processes
                 ▲                                          │
                 └──────────── adopts orphans ──────────────┘

On Linux, the keeper adopts orphaned descendants, even daemons. Elsewhere, it ends the environment's session. It spares
the process that removes the environment's containers, which ends by itself.
"""

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
"""Seconds to wait for killed processes to exit."""

LOOK = 1.0
"""Seconds between checks that the parent still runs: another process forked from the parent may hold its pipe open."""

_SPARED = b"bench-container-cleanup"
"""An argument of the process that removes containers: `harness.sandbox.leftovers.HELPER`, which is not imported, so
that this process stays small."""

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def keep(life: int, pipes: Sequence[int]) -> None:
    """Fork, and return in the new process only. This process becomes the keeper and exits when the new process exits.

    Args:
        life: A pipe that is closed when the parent exits or requests termination.
        pipes: Pipes of the new process; closed in the keeper, and not inherited by the new process's children.
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
        signal.signal(number, signal.SIG_IGN)  # the parent decides about termination
    for fd in pipes:
        os.close(fd)
    status = _wait(pid, parent, life, woken)
    _kill_all(pid, woken)
    _end_like(status)


def stand_between(pipes: Sequence[int]) -> None:
    """Fork, and return in the new process only. This process ends as the new one does, and does nothing else.

    Args:
        pipes: Pipes of the new process; closed in this one.
    """
    pid = os.fork()
    if pid == 0:
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for fd in pipes:
        os.close(fd)
    _, status = os.waitpid(pid, 0)
    _end_like(status)


def ignore(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal. Unlike SIG_IGN, this handler is not inherited by programs that the process starts."""


def _wait(pid: int, parent: int, life: int, woken: int) -> int | None:
    """Wait until process `pid` ends, and return its status; None if the parent exits or requests termination."""
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
    """Return the process id and the status of each child that has ended since the last call."""
    found: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _kill_all(pid: int, woken: int) -> None:
    """Kill the environment's process and all its descendants, including those that this process has adopted."""
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
    """Return the process ids of this process's children to end; only `pid` if the system does not list them."""
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children", encoding="ascii") as file:
            return [child for word in file.read().split() if not _is_spared(child := int(word))]
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return []
    return [pid]


def _is_spared(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return _SPARED in file.read().split(b"\0")
    except OSError:
        return False


def _kill(pid: int, *, group: bool = False) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)


def _drain(woken: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(woken, 4096):
            pass


def _end_like(status: int | None) -> None:
    """Exit with the status of the environment's process, so that the parent receives this status."""
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
