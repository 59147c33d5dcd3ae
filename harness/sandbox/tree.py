"""What a process tree uses, read from Linux's /proc by the harness outside. Owns the counting; sets no limit and kills
nothing. Elsewhere than on Linux it sees nothing, and says so with None."""

from __future__ import annotations

import os
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

_READINGS = 3
"""Of the memory of a tree that seems to hold too much."""


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """A tree's use of the machine at one moment.

    Args:
        pids: Its processes, the root first, parents before their children.
        threads: Of all of them.
        memory: Bytes, shared pages counted once for each process: never less than what the tree holds.
        cpu_seconds: Of the living, and of the dead that a living one has waited for.
    """

    pids: tuple[int, ...]
    threads: int
    memory: int
    cpu_seconds: float


def usage(root: int) -> TreeUsage | None:
    """What the process `root` and all that descend from it use; None when it is gone or /proc cannot be read."""
    pids, threads, pages, ticks = [root], 0, 0, 0
    for pid in pids:  # grows while it is walked
        fields = _stat(pid)
        if fields is None:
            if pid == root:
                return None
            continue
        threads += int(fields[17])
        pages += int(fields[21])
        ticks += sum(map(int, fields[11:15]))
        pids.extend(_children(pid))
    return TreeUsage(tuple(pids), threads, pages * _PAGE, ticks / _TICKS)


def exact_memory(pids: tuple[int, ...]) -> int:
    """Bytes that these processes hold, each shared page divided among its holders. Slow: walks their page tables."""
    return sum(_proportional(pid) for pid in pids)


def holds_more(root: int, bound: int) -> bool:
    """Whether the process `root` and all that descend from it hold more than `bound` bytes.

    Processes are read one after the other. What ten of them share is counted in part with the first and, if the others
    have ended meanwhile, whole with the last: only a tree that is over the bound each time is.
    """
    for _ in range(_READINGS):
        used = usage(root)
        if used is None or used.memory <= bound or exact_memory(used.pids) <= bound:
            return False
    return True


def files_in(pid: int, folder: str) -> int | None:
    """How many files the file system has that holds `folder`, as the process sees it; None when it cannot be seen."""
    try:
        found = os.statvfs(f"/proc/{pid}/root{folder}")
    except OSError:
        return None
    return found.f_files - found.f_ffree


def _proportional(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        fields = _stat(pid)
        return int(fields[21]) * _PAGE if fields else 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith((b"Pss:", b"SwapPss:")))


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on: the second is the program's name, which may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _children(pid: int) -> list[int]:
    """Children of all threads of a process."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    except FileNotFoundError:
        return found or _children_by_parent(pid)
    except OSError:
        return found
    return found


def _children_by_parent(pid: int) -> list[int]:
    """The slow way, for a kernel that keeps no list of children."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    stats = ((other, _stat(other)) for other in pids)
    return [other for other, fields in stats if fields is not None and int(fields[1]) == pid]
