"""Removal of run folders. A crash leaves each run complete or removed. A run is locked, renamed to a hidden name, and
then deleted. Afterwards the card of its parent folder is updated."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import StoreError, UsageError
from harness.store.atomic import sync_folder, translated
from harness.store.card import rebuild_card
from harness.store.rundir import RunDir

_CARD, _CARD_LOCK = "README.md", ".card.lock"

_REMOVED = re.compile(r"\..+\.[0-9a-f]{8}\.removed")
"""Names of folders that are being removed. They begin with a dot, so lists, cards and datasets ignore them."""


def remove_runs(runs: Sequence[RunDir]) -> None:
    """Remove run folders: all of them, or none if one is in use or cannot be written.

    Args:
        runs: Run folders, without duplicates.

    Raises:
        RunLocked: another process writes one of the runs; no run was removed, unless the process began only just now.
        UsageError: one of the folders is a symbolic link; nothing was removed.
        StoreError: a folder cannot be renamed or deleted; runs removed before it stay removed.
    """
    refuse_linked(runs)
    parents = dict.fromkeys(run.parent for run in runs)
    for run in runs:  # one at a time, because of the limit on open files
        run.lock().release()
    for parent in parents:
        with contextlib.suppress(OSError):  # remains of earlier, interrupted removals
            for path in parent.iterdir():
                if _REMOVED.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
    aside: list[Path] = []
    try:
        for run in runs:
            with run.lock():
                # A hidden name removes the run for readers.
                hidden = run.parent / f".{run.id[:100]}.{secrets.token_hex(4)}.removed"
                with translated("remove", run.path):
                    os.rename(run.path, hidden)
                aside.append(hidden)
    finally:
        _finish(list(parents), aside)


def refuse_linked(runs: Sequence[RunDir]) -> None:
    """Raise an error if a run's path contains a symbolic link, since the link's target must not be removed.

    Raises:
        UsageError: the run's folder, or one above it in its output folder, is a symbolic link.
    """
    for run in runs:
        path = run.path.absolute()
        above = (path.parent, path.parent.parent) if path.parent.parent.name == "evals" else ()
        if link := next((each for each in (path, *above) if each.is_symlink()), None):
            shown = run.path if link == path else link
            raise UsageError(f"{shown} is a symbolic link; remove the link and its target by hand")


def _finish(parents: Sequence[Path], aside: Sequence[Path]) -> None:
    """Delete renamed runs and update their parent folders. A failed step does not prevent the others."""
    for parent in parents:
        with translated("remove", parent), contextlib.suppress(FileNotFoundError):
            sync_folder(parent)
    try:
        for parent in parents:
            if not os.path.lexists(parent / _CARD_LOCK):
                continue  # a README that was not written by bench is kept
            try:
                rebuild_card(parent)
            except StoreError:
                if parent.exists():  # otherwise another removal took the last run
                    raise
    finally:
        for path in aside:
            with translated("remove", path):
                while path.exists():
                    # Another removal may delete the same files.
                    with contextlib.suppress(FileNotFoundError):
                        shutil.rmtree(path)
        for parent in parents:
            _drop_if_empty(parent)


def _drop_if_empty(parent: Path) -> None:
    """Remove the folder of an environment and model if it has no run left."""
    ours = {_CARD, _CARD_LOCK} if os.path.lexists(parent / _CARD_LOCK) else set[str]()
    if not ours and parent.absolute().parent.name != "evals":
        return  # not created by bench, so it is kept even if empty
    with contextlib.suppress(OSError):  # other files are in it, or a run was just created
        if set(os.listdir(parent)) <= ours:
            for name in ours:
                (parent / name).unlink(missing_ok=True)
            parent.rmdir()
            sync_folder(parent.parent)
