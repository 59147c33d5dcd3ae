"""List of available environments: installed ones and projects in a folder that are not installed. Installed
environments are found by entry point, or as packages for the classic `verifiers` API. Only metadata is read; no
environment is imported."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from packaging.utils import canonicalize_name

from harness.authoring.arguments import find_loader
from harness.authoring.package import FUNCTION, Package, code_path, of_distribution, of_project, toml_fault
from harness.core.errors import EnvironmentNotFound
from harness.core.plugins import ENVIRONMENTS, load_plugins
from harness.settings.environment_sources import ENVIRONMENT_SOURCES, EnvironmentSource
from harness.settings.packages import FoundEnvironment, find_environment, local_environments, module_name

Status: TypeAlias = Literal["bundled", "installed", "editable", "not installed"]

_CLASSIC_HINT = re.compile(rb"\bdef +load_environment\b|\bload_environment\b")


@dataclass(frozen=True, slots=True)
class ListedEnvironment:
    """One environment in the list; its fields are those of `bench env list --json`."""

    name: str
    """Name to pass to `bench run`."""
    status: Status
    version: str = ""
    summary: str = ""
    distribution: str = ""
    module: str = ""
    path: str = ""
    """Folder or file of the code; for an environment that is not installed, the project's folder."""
    is_classic: bool = False
    """Whether the environment uses the classic `verifiers` API and has no `harness.environments` entry point."""
    defaults: dict[str, object] = field(default_factory=dict[str, object])
    """Default settings of a run, from the package's `[tool.harness.eval]`."""
    problem: str = ""
    """Error in the environment's `pyproject.toml`, or while importing the environment; "" if there is none."""


def catalogue(folder: Path) -> list[ListedEnvironment]:
    """List all environments: first the installed ones, then local projects, each sorted by name.

    Args:
        folder: Folder with projects of environments, which need not be installed.
    """
    installed = sorted(_installed(), key=lambda entry: entry.name)
    own = [entry for entry in installed if entry.status != "bundled"]  # a copy of a bundled one is listed, too
    known = {canonicalize_name(name) for entry in own for name in (module_name(entry.name), entry.distribution)}
    local = [
        _local(name, path)
        for name, path in sorted(local_environments(folder).items())
        if canonicalize_name(name) not in known
    ]
    return [*installed, *(entry for entry in local if entry is not None)]


def _installed() -> Iterator[ListedEnvironment]:
    for name, source in load_plugins(ENVIRONMENT_SOURCES, EnvironmentSource).items():
        if source.summary and (found := find_environment(name)) is not None:
            yield _entry(name, found.module, Package("bundled", "", summary=source.summary), found)
    seen: set[str] = set()
    for dist in importlib.metadata.distributions():
        declared = ENVIRONMENTS in (dist.read_text("entry_points.txt") or "")
        # Most distributions are not environments; a text search is faster than parsing the metadata of each.
        if not declared and "verifiers" not in (dist.read_text("METADATA") or ""):
            continue
        package = of_distribution(dist)
        key = canonicalize_name(package.name)
        if key in seen or key == "verifiers":
            continue  # with two copies on the path, Python imports the first
        seen.add(key)
        if package.entry_points:
            for name, value in package.entry_points.items():
                module = value.partition(":")[0].partition(".")[0].strip()
                yield _entry(name, module, package, find_environment(module))
        elif package.is_classic:  # a package that depends on `verifiers` need not be an environment
            found = find_environment(module_name(package.name))
            if found is not None and canonicalize_name(found.dist_name or "") == key and _has_loader(found):
                yield _entry(package.name, found.module, package, found)


def _has_loader(found: FoundEnvironment) -> bool:
    """Whether the source code defines, or at least mentions, `load_environment`."""
    if find_loader(found.source_files, FUNCTION) is not None:
        return True
    top = [path for path in found.source_files if path.stem in ("__init__", found.module)][:1]
    return any(_CLASSIC_HINT.search(path.read_bytes()) for path in top)  # or an import


def _entry(name: str, module: str, package: Package, found: FoundEnvironment | None) -> ListedEnvironment:
    return ListedEnvironment(
        name,
        package.kind if package.kind in ("bundled", "editable") else "installed",
        package.version,
        package.summary,
        package.name,
        module,
        code_path(found) if found else "",
        package.is_classic and not package.entry_points,
        found.defaults if found else {},
    )


def _local(name: str, folder: Path) -> ListedEnvironment | None:
    fault = toml_fault(folder)
    if fault:
        return ListedEnvironment(name, "not installed", path=str(folder), problem=fault)
    package = of_project(folder)
    if package is None:
        return None
    try:
        found = find_environment(str(folder.resolve()))
    except EnvironmentNotFound:  # a project without an environment
        found = None
    if not package.entry_points and (found is None or not _has_loader(found)):
        return None
    called = next(iter(package.entry_points), name)
    entry = _entry(called, found.module if found else module_name(called), package, found)
    return replace(entry, status="not installed", path=str(folder))
