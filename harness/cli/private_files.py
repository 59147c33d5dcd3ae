"""Files that a command writes beside the folders of its runs, and who may read them where a run is private. Owns where
debug traces go then; what is in a run folder is the store's to see to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.engine.prepare import Prepared
from harness.engine.privacy import check_own_folder, own_folder
from harness.settings.resolver import ResolvedRun

_DEBUG_DIR = "--debug-dir"


def any_private(runs: Sequence[Prepared]) -> bool:
    """Whether what is written of these runs together is for their owner only."""
    return any(run.resolved.settings.save.private for run in runs)


def check_traces(runs: Sequence[ResolvedRun]) -> None:
    """Refuse a folder of debug traces that others may enter, where a run is private.

    Raises:
        UsageError: names it, and what to do.
    """
    for folder in _traces(runs):
        check_own_folder(folder, _DEBUG_DIR)


def begin_traces(runs: Sequence[Prepared]) -> None:
    """Make the folder of debug traces of private runs, so that it is theirs alone; the files in it will be, too.

    Raises:
        StoreError: it cannot be made.
    """
    for folder in _traces([run.resolved for run in runs]):
        own_folder(folder, _DEBUG_DIR)


def _traces(runs: Sequence[ResolvedRun]) -> Iterator[Path]:
    for run in runs:
        folder = run.settings.env.env_args.get("debug_dir")
        if run.settings.save.private and isinstance(folder, str):
            yield Path(folder)
