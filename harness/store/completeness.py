"""Whether the files of a run that is done are all there, and what a killed process has left beside them. Owns the name
of the file with all rows, and the removal of what was to take the place of something and never did; the rows are
`dataset`'s."""

from __future__ import annotations

import contextlib

from harness.store.atomic import discard
from harness.store.card import rebuild_card
from harness.store.rundir import RunDir
from harness.store.safe_files import is_folder

_ASIDE = (".data.*", ".*.tmp")
"""Names under which files and folders are made before they take their place."""


def final_name(end: int) -> str:
    """Name of the file with all rows of a journal of so many bytes, each with its outcome."""
    return f"train-{end:015d}.parquet"


def is_complete(run: RunDir) -> bool:
    """Whether the summary can be read, and the rows on disk are all that the journal holds. Without a journal there is
    nothing that either could be made from."""
    try:
        size = run.journal_path.lstat().st_size
    except FileNotFoundError:
        return True
    rows = [path.name for path in run.row_files()]
    return rows == [final_name(size)] and run.known_summary() is not None


def sweep(run: RunDir) -> None:
    """Remove what a process that was killed has left beside the files of a run. The caller holds the run's lock."""
    found = [path for pattern in _ASIDE for path in run.path.glob(pattern)]
    for stale in [*found, *(run.data_path.glob(".*.tmp") if is_folder(run.data_path) else ())]:
        with contextlib.suppress(OSError):
            discard(stale)


def tidy(run: RunDir) -> None:
    """Do for a run that is done what a process that was killed at its very end may not have come to.

    Raises:
        StoreError: the folder cannot be written, or another process writes it.
    """
    with run.lock():
        sweep(run)
    rebuild_card(run.parent)
