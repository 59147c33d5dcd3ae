"""Keep private runs private on resume and in derived files. `harness.store` sets the file modes of run folders."""

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
    """Return the settings and the manifest of a resumed run; both are private if the earlier run was private.

    Args:
        resolved: The requested settings.
        manifest: Manifest created from these settings.
        folder: Folder of the earlier run.

    Raises:
        ResumeRefused: the earlier run is private, and the settings would make it public or publish it.
    """
    earlier = folder.read_manifest()
    save, origins = resolved.settings.save, resolved.origins
    if not earlier.is_private or save.private:
        return resolved, manifest
    if save.save_to_hf_hub:
        raise ResumeRefused(
            f"{folder.path} is a private run, and {origins['save.save_to_hf_hub'].source} would publish it",
            remedy="remove that setting; when the run has ended, `{push_command} RUN {allow_private}` publishes it",
        )
    if origins[PRIVATE].layer != "builtin":
        raise ResumeRefused(
            f"{folder.path} is a private run and must stay private: remove {origins[PRIVATE].source}. To let other "
            "users read its files, change their modes (chmod) when the run has ended"
        )
    settings = resolved.settings.model_copy(update={"save": save.model_copy(update={"private": True})})
    resolved = replace(resolved, settings=settings)
    kept = {name: {**table} for name, table in (("settings", manifest.settings), ("origins", manifest.origins))}
    kept["settings"][PRIVATE] = True
    kept["origins"][PRIVATE] = earlier.origins.get(PRIVATE, kept["origins"].get(PRIVATE))
    return resolved, replace(manifest, settings=kept["settings"], origins=kept["origins"])


def check_own_folder(folder: Path, name: str) -> None:
    """Raise an error if other users may enter a folder into which files of a private run would be written.

    Args:
        folder: The requested folder.
        name: Name of the option or argument, for the message.

    Raises:
        UsageError: other users may enter the folder; the message says how to change this.
    """
    if folder.is_dir() and not is_closed(folder):
        raise UsageError(
            f"{name} {folder}: other users may enter this folder, and files of a private run would be written there; "
            f"run chmod 700 {shlex.quote(str(folder))}, or name another folder"
        )


def own_folder(folder: Path, name: str) -> None:
    """Create a folder for files of a private run that only its owner can access. An existing folder must be private.

    Args:
        folder: The requested folder.
        name: Name of the option or argument, for the message.

    Raises:
        UsageError: other users may enter the folder.
        StoreError: the folder cannot be created.
    """
    check_own_folder(folder, name)
    with translated("create", folder):
        make_folder(folder.absolute(), private=True)
