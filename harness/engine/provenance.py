"""Provenance of a run: versions of the software and the Git commit of the working directory."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess

from harness.core.types import JsonDict
from harness.settings.resolver import ResolvedRun

IN_PLACE = "where the recorded run lies"
"""Text that names where the output folder of a resumed or derived run was set."""


def versions_of(resolved: ResolvedRun) -> JsonDict:
    """Return the versions of Python, of this package and of the environment's package."""
    found = resolved.found
    versions: JsonDict = {"python": platform.python_version(), "bench-harness": bench_version()}
    if found is not None and found.dist_name is not None:
        versions[found.dist_name] = found.dist_version
    return versions


def bench_version() -> str:
    """The installed version of this package."""
    try:
        return importlib.metadata.version("bench-harness")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def git_state() -> JsonDict:
    """Return the working directory's Git commit, and whether it has uncommitted changes; empty outside a repository."""
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}
