"""The folder of a run that is not saved. It holds prompts and replies until the run has ended; what a process that was
killed leaves of it, the next run removes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from harness.store.safe_files import open_regular

PREFIX = "bench-unsaved-"
LOCK = ".in-use"
"""Locked as long as the process of the run lives, however it ends."""


class Scratch:
    """A new folder in the temporary folder, for its owner only."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX)
        self.name = self._folder.name
        new = Path(self.name, f"{LOCK}.new")
        self._lock = os.fdopen(open_regular(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(Path(self.name, LOCK))  # only now: a lock that is free means that the process is gone

    def cleanup(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()
        self._lock.close()


def remove_stale() -> None:
    """Remove the folders that killed processes of this user have left."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            _remove_if_stale(path)


def _remove_if_stale(path: Path) -> None:
    with contextlib.suppress(OSError):  # another process removes it, or holds the lock
        found = path.lstat()
        if found.st_uid != os.getuid() or path.is_symlink():
            return
        with os.fdopen(open_regular(path / LOCK, os.O_RDWR)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
