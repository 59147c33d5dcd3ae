"""Removing run folders. Owns the order in which it happens, so that a crash leaves a run whole or gone and never half a
run: locked, renamed to a name that nobody reads, then deleted; and what becomes of the folder around it."""

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
"""Names of what is about to go. They begin with a dot, so no list, card or dataset sees them."""


def remove_runs(runs: Sequence[RunDir]) -> None:
    """Remove run folders: all of them, or none if one is in use or cannot be written when this begins.

    Args:
        runs: Each once.

    Raises:
        RunLocked: a process writes one of them; nothing was removed, unless it began to write just now.
        UsageError: one is a symbolic link; nothing was removed.
        StoreError: a folder cannot be renamed or deleted; what was removed before it stays removed.
    """
    refuse_linked(runs)
    parents = dict.fromkeys(run.parent for run in runs)
    for run in runs:  # one after the other: a process may have few files open, and be asked to remove thousands
        run.lock().release()
    for parent in parents:
        _sweep(parent)
    aside: list[Path] = []
    try:
        for run in runs:
            with run.lock():
                aside.append(_put_aside(run))
    finally:
        _finish(list(parents), aside)


def refuse_linked(runs: Sequence[RunDir]) -> None:
    """Refuse runs that lie elsewhere than where their path says: what a link leads to is not removed, nor locked.

    Raises:
        UsageError: the run's folder, or one above it in its output folder, is a symbolic link.
    """
    for run in runs:
        path = run.path.absolute()
        above = (path.parent, path.parent.parent) if path.parent.parent.name == "evals" else ()
        if link := next((each for each in (path, *above) if each.is_symlink()), None):
            shown = run.path if link == path else link
            raise UsageError(f"{shown} is a symbolic link; remove the link and what it leads to by hand")


def _put_aside(run: RunDir) -> Path:
    """From here on the run is gone for everybody."""
    aside = run.parent / f".{run.id[:100]}.{secrets.token_hex(4)}.removed"
    with translated("remove", run.path):
        os.rename(run.path, aside)
    return aside


def _finish(parents: Sequence[Path], aside: Sequence[Path]) -> None:
    """What follows when runs are gone for everybody. What one step cannot do keeps no other from being done."""
    for parent in parents:
        with translated("remove", parent), contextlib.suppress(FileNotFoundError):
            sync_folder(parent)
    try:
        for parent in parents:
            _settle(parent)
    finally:
        for path in aside:
            _delete(path)
        for parent in parents:
            _drop_if_empty(parent)


def _delete(path: Path) -> None:
    with translated("remove", path):
        while path.exists():
            # Another removal may sweep the same files away.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(path)


def _sweep(parent: Path) -> None:
    """Delete what an earlier removal was kept from deleting."""
    with contextlib.suppress(OSError):
        for path in parent.iterdir():
            if _REMOVED.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)


def _settle(parent: Path) -> None:
    """Make the card say what there is now. A folder that has none of ours, such as one that a run was copied to, keeps
    the README that it has."""
    if os.path.lexists(parent / _CARD_LOCK):
        try:
            rebuild_card(parent)
        except StoreError:
            if parent.exists():  # else another removal has taken the last run
                raise


def _drop_if_empty(parent: Path) -> None:
    """Remove the folder of an environment and model that has no run left."""
    ours = {_CARD, _CARD_LOCK} if os.path.lexists(parent / _CARD_LOCK) else set[str]()
    if not ours and parent.absolute().parent.name != "evals":
        return  # a folder of somebody else's, which is none of our business even if it is empty now
    with contextlib.suppress(OSError):  # something else lies in it, or another run begins there at this moment
        if set(os.listdir(parent)) <= ours:
            for name in ours:
                (parent / name).unlink(missing_ok=True)
            parent.rmdir()
            sync_folder(parent.parent)
