"""Provenance of a run: versions and the commit of the working directory."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess

from harness.core.types import JsonDict
from harness.settings.resolver import ResolvedRun

IN_PLACE = "where the recorded run lies"
"""Source of the output folder of a resumed or derived run."""


def versions_of(resolved: ResolvedRun) -> JsonDict:
    """Versions of Python, of this package, and of the environment's distribution."""
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
    """Commit of the working directory, and whether it has changes; empty outside a repository. Never a remote."""
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}
