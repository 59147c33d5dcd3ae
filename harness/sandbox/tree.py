"""Resource usage of a process tree, read from Linux's /proc. On other systems the result is always None."""

from __future__ import annotations

import os
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

_READINGS = 3
"""Number of times that the memory of a tree is read if it seems to exceed its limit."""


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """Resource usage of a process tree at one moment.

    Args:
        pids: The processes, root first, parents before children.
        threads: Number of threads of all processes.
        memory: Bytes, with shared pages counted once per process; an upper bound of the actual memory.
        cpu_seconds: CPU time of running processes and of ended ones that a running one has waited for.
    """

    pids: tuple[int, ...]
    threads: int
    memory: int
    cpu_seconds: float


def usage(root: int) -> TreeUsage | None:
    """Resource usage of the process `root` and all of its descendants; None if it has ended or /proc cannot be read."""
    pids, threads, pages, ticks = [root], 0, 0, 0
    for pid in pids:  # grows during iteration
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
    """Memory of these processes in bytes, with each shared page divided among its users. Slow: reads their page
    tables."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                lines = file.read().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith((b"Pss:", b"SwapPss:")))
        except OSError:
            fields = _stat(pid)
            total += int(fields[21]) * _PAGE if fields else 0
    return total


def holds_more(root: int, bound: int) -> bool:
    """Return whether the process `root` and all of its descendants use more than `bound` bytes.

    Processes are read one after another. If processes that share pages end in between, the pages may be counted too
    often. So the tree must exceed the bound in every one of several readings."""
    for _ in range(_READINGS):
        used = usage(root)
        if used is None or used.memory <= bound or exact_memory(used.pids) <= bound:
            return False
    return True


def files_in(pid: int, folder: str) -> int | None:
    """Number of files in the file system that contains `folder`, as seen by the process; None if it cannot be read."""
    try:
        found = os.statvfs(f"/proc/{pid}/root{folder}")
    except OSError:
        return None
    return found.f_files - found.f_ffree


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on. The second is the program's name, which may contain any
    characters."""
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
    """Find child processes by the parent id of all processes; a slower way for kernels that do not list children."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    stats = ((other, _stat(other)) for other in pids)
    return [other for other, fields in stats if fields is not None and int(fields[1]) == pid]
