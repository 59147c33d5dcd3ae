"""Checks of the output folder: free space, permissions, speed, and features of the file system. Probe files go to a
temporary folder that is removed afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness.cli.doctor.findings import Diagnosis, note, ok, problem
from harness.settings.wording import shown_path
from harness.store.atomic import durable_sync, exchange_folders, store_error

TOO_LITTLE = 100 * 2**20
LITTLE = 2 * 2**30
"""Minimum free bytes. Transcripts of a large run take hundreds of megabytes, and twice as much while saved."""

SYNCS = 5
SLOW_SYNC = 0.1
"""Maximum duration of one sync in seconds. The journal syncs after every few rollouts."""

_FORGETFUL = ("tmpfs", "ramfs")
_MOUNTS = Path("/proc/self/mounts")
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def check_disk(folder: Path) -> list[Diagnosis]:
    """Check that runs can be saved in an output folder.

    Args:
        folder: The output folder; may be missing, and is not created.
    """
    name = shown_path(folder, Path.cwd())
    # The folder itself, or its nearest existing parent.
    there = folder.absolute()
    while not there.exists() and there.parent != there:
        there = there.parent
    if not there.is_dir():
        return [problem("disk", name, f"{there} is a file, not a folder", "choose another output folder with -o")]
    try:
        probe = Path(tempfile.mkdtemp(prefix=".bench-doctor-", dir=there))
    except OSError as error:
        return [problem("disk", name, *_problem_and_advice("write in", there, error))]
    try:
        place = "is there" if there == folder.absolute() else f"does not exist yet, and can be created in {there}"
        return [*_room(name, there), *_abilities(name, probe, place)]
    except OSError as error:
        return [problem("disk", name, *_problem_and_advice("write in", there, error))]
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def _problem_and_advice(action: str, path: Path, error: OSError) -> tuple[str, str]:
    words, _, hint = str(store_error(action, path, error)).partition("; ")
    return words, hint or "choose another output folder with -o"


def _room(name: str, folder: Path) -> list[Diagnosis]:
    system = os.statvfs(folder)
    free = system.f_bavail * system.f_frsize
    words = f"{free / 2**30:,.1f} GiB free" if free >= 2**30 else f"{free / 2**20:,.1f} MiB free"
    if free < TOO_LITTLE:
        return [problem("disk", name, words, "free some space, or choose another output folder with -o")]
    if system.f_files and not system.f_favail:
        return [problem("disk", name, f"{words}, but no more files can be created (no inodes)", "remove files")]
    if free < LITTLE:
        return [note("disk", name, words, "free some space before a large run")]
    return [ok("disk", name, words)]


def _abilities(name: str, probe: Path, place: str) -> list[Diagnosis]:
    kind = file_system(probe)
    where = f" ({kind})" if kind else ""
    found: list[Diagnosis] = []
    seconds = _sync_seconds(probe)
    words = f"{place}{where}; a sync takes {seconds * 1000:.1f} ms"
    if kind in _FORGETFUL:
        found.append(
            note("disk", name, f"{words}; it is in memory, and lost at a restart", "choose another folder with -o")
        )
    elif seconds > SLOW_SYNC:
        fix = "choose an output folder on a local disk with -o"
        found.append(note("disk", name, f"{words}, which is slow: runs wait for syncs", fix))
    else:
        found.append(ok("disk", name, words))
    for what, can, fix in _TRIALS:
        why = can(probe)
        if why:
            found.append(problem("disk", name, f"the file system{where} {what}: {why}", fix))
    if not _exchanges(probe):
        says = (
            f"the file system{where} cannot exchange two folders: a run's dataset is missing for an instant whenever "
        )
        found.append(note("disk", name, says + "the dataset is updated", "load results when the run has ended"))
    return found


def _sync_seconds(probe: Path) -> float:
    """Return the median duration of a few syncs, in seconds."""
    taken: list[float] = []
    fd = os.open(probe / "synced", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(SYNCS):
            os.write(fd, b"x" * 512)
            begun = time.perf_counter()
            durable_sync(fd)
            taken.append(time.perf_counter() - begun)
    finally:
        os.close(fd)
    return statistics.median(taken)


def _renames(probe: Path) -> str:
    """Return the reason why a rename cannot replace a file; "" if it can."""
    old, new = probe / "old", probe / "new"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    try:
        os.replace(new, old)
    except OSError as error:
        return error.strerror or str(error)
    return "" if old.read_bytes() == b"new" and not new.exists() else "after the rename, both files still existed"


def _locks(probe: Path) -> str:
    """Return the reason why files cannot be locked, or why a lock does not exclude others; "" if locks work."""
    path = probe / "lock"
    with path.open("w") as one, path.open("w") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.strerror or str(error)
        with contextlib.suppress(OSError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return "a second lock on the same file was granted as well"
    return ""


_TRIALS: tuple[tuple[str, Callable[[Path], str], str], ...] = (
    ("cannot replace a file", _renames, "choose an output folder on another file system with -o"),
    ("cannot lock a file", _locks, "choose a folder on another file system with -o, or run one command at a time"),
)


def _exchanges(probe: Path) -> bool:
    one, other = probe / "one", probe / "other"
    for folder in (one, other):
        folder.mkdir()
    (one / "mark").touch()
    return exchange_folders(one, other) and (other / "mark").exists()


def file_system(path: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system of `path`; "" if unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real = path.resolve()
    best, kind = -1, ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1]
        for escape, letter in _ESCAPES.items():
            point = point.replace(escape, letter)
        if real.is_relative_to(point) and len(point) >= best:  # of two mounts on one path, the later one is visible
            best, kind = len(point), fields[2]
    return kind
