"""Remove indexes that are of no more use: of runs whose folder is gone, and those that were not used for a month."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from harness.core.errors import RunLocked, StoreError
from harness.plugins.view.index_file import index_lock, remove_index
from harness.plugins.view.text_index import text_path

UNUSED = 30 * 86400.0
"""Seconds after which an index that was not opened is removed."""


def sweep(folder: Path, now: float | None = None) -> list[Path]:
    """Remove the files of old indexes. An index that a server builds or follows is skipped, since it holds the lock.

    Args:
        folder: The folder of all indexes.
        now: Seconds since 1970; by default the time.

    Returns:
        The removed files.
    """
    removed: list[Path] = []
    limit = (time.time() if now is None else now) - UNUSED
    names: list[str] = []
    with suppress(OSError):  # the folder was removed
        names = sorted(os.listdir(folder))
    for name in names:
        path = folder / name
        with suppress(RunLocked, StoreError, OSError):
            if path.suffix == ".lock" and not path.with_suffix(".sqlite").exists():
                path = path.with_suffix(".sqlite")  # the index was removed, or is about to be built
            elif path.suffix == ".text" and not path.with_suffix(".sqlite").exists():
                path = path.with_suffix(".sqlite")  # the index was removed, but not its full-text index
            elif path.suffix != ".sqlite":
                continue
            with index_lock(path):
                if not path.exists() or path.stat().st_mtime < limit or _is_run_gone(path):
                    remove_index(path)
                    remove_index(text_path(path))
                    os.unlink(path.with_suffix(".lock"))
                    removed.append(path)
    return removed


def _is_run_gone(path: Path) -> bool:
    """Return whether the folder of an index's run does not exist; False if the index does not name its run."""
    try:
        with closing(sqlite3.connect(path, timeout=1)) as database:
            row = database.execute("SELECT value FROM meta WHERE name = 'run'").fetchone()
        return row is not None and not os.path.isdir(json.loads(row[0]))
    except (sqlite3.Error, ValueError, TypeError):
        return False
