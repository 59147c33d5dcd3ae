"""Checks of processors, memory and open files, including the limits of a container."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.models.pool import FILES_BESIDE

LITTLE_MEMORY = 1 << 30
"""Minimum free bytes; below it, a run of many rollouts or a dataset may be killed."""

FILES_FEW = 1024

_CGROUP = Path("/sys/fs/cgroup")


def check_processors() -> list[Diagnosis]:
    """Report the number of processors that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = _processor_share()
    words = f"{count} processor{'s' if count != 1 else ''}"
    if share is not None and share < count:
        words += f", of which this container may use {share:g}"
    usable = min(float(count), share or float(count))
    if usable < 1:
        fix = "give the container a processor, or lower --max-concurrent"
        return [note("machine", "processors", f"{words}: scoring will be slow", fix)]
    return [ok("machine", "processors", words)]


def _processor_share(root: Path = _CGROUP) -> float | None:
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def check_memory() -> list[Diagnosis]:
    """Check the free memory."""
    total, free = _memory()
    limit = _memory_bound()
    if total is None and limit is None:
        return [ok("machine", "memory", "how much there is cannot be told on this system")]
    if limit is not None and (total is None or limit[0] < total):
        total, free, whose = limit[0], min(limit[1], free if free is not None else limit[1]), " for this container"
    else:
        whose = ""
    words = f"{_size(total or 0)}{whose}" + ("" if free is None else f", {_size(free)} of it free")
    if free is not None and free < LITTLE_MEMORY:
        fix = "end other programs, or lower --max-concurrent and the number of runs at once"
        return [note("machine", "memory", f"{words}: a large dataset or many runs may be killed by the system", fix)]
    return [ok("machine", "memory", words)]


def _memory() -> tuple[int | None, int | None]:
    """Total and free memory in bytes."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        fields = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return fields["MemTotal"], fields.get("MemAvailable")
    except (OSError, ValueError, KeyError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    except (OSError, ValueError):
        return None, None


def _memory_bound(root: Path = _CGROUP) -> tuple[int, int] | None:
    """Memory limit of the container and the rest of it, in bytes; None without a limit."""
    try:
        bound = (root / "memory.max").read_text().strip()
        used = int((root / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if not bound.isdecimal() else (int(bound), max(0, int(bound) - used))


def check_open_files(in_flight: int) -> list[Diagnosis]:
    """Check that the limit of open files allows one connection per request in flight.

    Args:
        in_flight: Concurrent requests of all runs together.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return [ok("machine", "open files", "as many as bench wants")]
    wanted = in_flight + FILES_BESIDE
    words = f"{hard:,} at most" + (f" (now {soft:,}; runs raise it themselves)" if 0 <= soft < hard else "")
    if hard < wanted:
        says = f"{words}, and {in_flight:,} requests in flight want {wanted:,}"
        fix = f"raise the hard limit: ulimit -Hn {wanted} (or LimitNOFILE, --ulimit nofile), or lower --max-concurrent"
        return [problem("machine", "open files", says, fix)]
    if hard < FILES_FEW:
        fix = f"raise the hard limit (ulimit -Hn {FILES_FEW * 4}) before using a large --max-concurrent"
        return [note("machine", "open files", words, fix)]
    return [ok("machine", "open files", words)]


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
