"""Temporary folder of an unsaved run, for prompts and replies. It is removed when the run ends; after a killed process,
the next run removes it."""

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
"""Name of the lock file, which is locked as long as the run's process is alive."""


class Scratch:
    """A new, private folder in the system's temporary folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX)
        self.name = self._folder.name
        new = Path(self.name, f"{LOCK}.new")
        self._lock = os.fdopen(open_regular(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(Path(self.name, LOCK))  # renamed when locked: an unlocked file means a dead process

    def cleanup(self) -> None:
        """Remove the temporary folder."""
        self._folder.cleanup()
        self._lock.close()


def remove_stale() -> None:
    """Remove folders left by killed processes of this user."""
    with contextlib.suppress(OSError):
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):  # another process removes it, or holds the lock
                if path.lstat().st_uid == os.getuid() and not path.is_symlink():
                    with os.fdopen(open_regular(path / LOCK, os.O_RDWR)) as lock:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(path)
