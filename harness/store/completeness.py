"""Check that the files of a finished run are complete, and clean up after killed processes."""

from __future__ import annotations

import contextlib

from harness.store.atomic import discard
from harness.store.card import rebuild_card
from harness.store.rundir import RunDir
from harness.store.safe_files import is_folder

_ASIDE = (".data.*", ".*.tmp")
"""Temporary names of files and folders before they are renamed."""


def final_name(end: int) -> str:
    """Name of the parquet file that has all rows of a run whose journal has `end` bytes."""
    return f"train-{end:015d}.parquet"


def is_complete(run: RunDir) -> bool:
    """Return whether the summary is readable and the rows cover the whole journal. True if there is no journal."""
    try:
        size = run.journal_path.lstat().st_size
    except FileNotFoundError:
        return True
    rows = [path.name for path in run.row_files()]
    return rows == [final_name(size)] and run.known_summary() is not None


def sweep(run: RunDir) -> None:
    """Remove temporary files left by a killed process. The caller holds the run's lock."""
    found = [path for pattern in _ASIDE for path in run.path.glob(pattern)]
    for stale in [*found, *(run.data_path.glob(".*.tmp") if is_folder(run.data_path) else ())]:
        with contextlib.suppress(OSError):
            discard(stale)


def tidy(run: RunDir) -> None:
    """Catch up on the final steps of a finished run, in case its process was killed before completing them.

    Raises:
        StoreError: the folder cannot be written, or another process writes it.
    """
    with run.lock():
        sweep(run)
    rebuild_card(run.parent)
