"""Access rights of files that a command writes outside of run folders: debug traces of private runs. The store protects
files in run folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.engine.prepare import LiveRun
from harness.engine.privacy import check_own_folder, own_folder
from harness.settings.resolver import ResolvedRun

_DEBUG_DIR = "--debug-dir"


def any_private(runs: Sequence[LiveRun]) -> bool:
    """Whether any of these runs is private, so that files written for them together must be private too."""
    return any(run.plan.resolved.settings.save.private for run in runs)


def check_traces(runs: Sequence[ResolvedRun]) -> None:
    """Reject a folder of debug traces that other users can enter, if a run is private.

    Raises:
        UsageError: other users can enter the folder.
    """
    for folder in _traces(runs):
        check_own_folder(folder, _DEBUG_DIR)


def begin_traces(runs: Sequence[LiveRun]) -> None:
    """Create the folder of debug traces of private runs, readable only by the owner.

    Raises:
        StoreError: the folder cannot be created.
    """
    for folder in _traces([run.plan.resolved for run in runs]):
        own_folder(folder, _DEBUG_DIR)


def _traces(runs: Sequence[ResolvedRun]) -> Iterator[Path]:
    for run in runs:
        folder = run.settings.env.env_args.get("debug_dir")
        if run.settings.save.private and isinstance(folder, str):
            yield Path(folder)
