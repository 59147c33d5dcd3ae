"""That a private run stays private when it goes on, and that what is written of it elsewhere is. Owns these rules; who
may read which file of a run folder is the store's to see to."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from harness.core.errors import ResumeRefused, UsageError
from harness.settings.resolver import ResolvedRun
from harness.store.atomic import is_closed, make_folder, translated
from harness.store.manifest import PRIVATE, Manifest
from harness.store.rundir import RunDir


def stay_private(resolved: ResolvedRun, manifest: Manifest, folder: RunDir) -> tuple[ResolvedRun, Manifest]:
    """Settings and manifest of a run that goes on: private, if the run was, whether or not that was said again.

    Args:
        resolved: Its settings as they were asked for.
        manifest: What they make of it.
        folder: Of the earlier run.

    Raises:
        ResumeRefused: it was private, and is now asked to be open, or to be published.
    """
    earlier = folder.read_manifest()
    save, origins = resolved.settings.save, resolved.origins
    if not earlier.is_private or save.private:
        return resolved, manifest
    if save.save_to_hf_hub:
        raise ResumeRefused(
            f"{folder.path} is private, and {origins['save.save_to_hf_hub'].source} would publish it: leave that out; "
            "when it has ended, bench push RUN --allow-private does it"
        )
    if origins[PRIVATE].layer != "builtin":
        raise ResumeRefused(
            f"{folder.path} is private and stays so: leave {origins[PRIVATE].source} out. To let others read it, "
            "change the modes of its files (chmod) when it has ended"
        )
    settings = resolved.settings.model_copy(update={"save": save.model_copy(update={"private": True})})
    resolved = replace(resolved, settings=settings)
    kept = {name: {**table} for name, table in (("settings", manifest.settings), ("origins", manifest.origins))}
    kept["settings"][PRIVATE] = True
    kept["origins"][PRIVATE] = earlier.origins.get(PRIVATE, kept["origins"].get(PRIVATE))
    return resolved, replace(manifest, settings=kept["settings"], origins=kept["origins"])


def check_own_folder(folder: Path, name: str) -> None:
    """Refuse a folder that others may enter, where files of a private run would go to.

    Args:
        folder: As it was asked for.
        name: What it was asked for with.

    Raises:
        UsageError: names it, and what to do.
    """
    if folder.is_dir() and not is_closed(folder):
        raise UsageError(
            f"{name} {folder}: others may enter this folder, and files of a private run would go there; close it "
            f"(chmod 700 {shlex.quote(str(folder))}), or name another"
        )


def own_folder(folder: Path, name: str) -> None:
    """Make a folder for files of a private run, for its owner only; one that is there must be so.

    Args:
        folder: As it was asked for.
        name: What it was asked for with.

    Raises:
        UsageError: others may enter it.
        StoreError: it cannot be made.
    """
    check_own_folder(folder, name)
    with translated("create", folder):
        make_folder(folder.absolute(), private=True)
