"""Package metadata of an environment, and its checks: entry point, default settings, README. An environment is in a
distribution, a project's folder or a single file. Nothing is imported."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Literal, TypeAlias, cast

from harness.authoring.arguments import LoaderFunction
from harness.authoring.findings import Finding, fail, ok, skipped
from harness.core.messages import COMMANDS
from harness.core.plugins import ENVIRONMENTS
from harness.settings.packages import FoundEnvironment, editable_project, is_bundled, table_at

Kind: TypeAlias = Literal["bundled", "installed", "editable", "folder", "file"]
"""`bundled`: the environment comes with bench. `folder`: a project that is not installed. `file`: a Python module
without a project."""

FUNCTION = "load_environment"

_NO_PACKAGE = f"a single file: put it into a package (`{COMMANDS['init_command']}`) to publish it"

_LEVELS = 3
"""Maximum distance in folders from a source file up to its project, as in `settings.packages`."""

_HEADER = re.compile(r"^(Name|Version|Summary): *(.*)$", re.MULTILINE)
_CLASSIC = re.compile(r"^Requires-Dist: *verifiers\b(?![-_.]\w)", re.MULTILINE | re.IGNORECASE)
_CLASSIC_DEPENDENCY = re.compile(r"verifiers\b(?![-_.]\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Package:
    """Package that contains an environment."""

    kind: Kind
    name: str
    version: str = ""
    summary: str = ""
    readme: str = ""
    entry_points: dict[str, str] = field(default_factory=dict[str, str])
    """Entry points of the group `harness.environments`: name → `module:function`."""
    is_classic: bool = False
    """Whether the environment depends on the package `verifiers`."""
    project: Path | None = None
    """Folder of the project, if known."""


def toml_fault(folder: Path) -> str:
    """Error message if the `pyproject.toml` of a folder cannot be parsed; "" if the file is valid or missing."""
    file = folder / "pyproject.toml"
    try:
        tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{file}: {error.strerror or error}"
    except ValueError as error:  # not UTF-8, or not TOML
        return f"{file}: not valid TOML: {error}"
    return ""


def package_of(found: FoundEnvironment) -> Package:
    """The package that contains an environment."""
    if found.dist_name:
        with contextlib.suppress(PackageNotFoundError):
            return of_distribution(importlib.metadata.distribution(found.dist_name))
    for folder in _folders(found):
        project = of_project(folder) if (folder / "pyproject.toml").is_file() else None
        if project is not None and project.name.replace("-", "_").replace(".", "_").lower() == found.module.lower():
            return project
    return Package("bundled" if found.module.startswith("harness.plugins.") else "file", found.module)


def code_path(found: FoundEnvironment) -> str:
    """Folder or file of an environment's code; "" if it has no source file."""
    inits = [path for path in found.source_files if path.name == "__init__.py"]
    top = min(inits, key=lambda path: len(path.parts), default=None)
    return str(top.parent if top else found.source_files[0]) if found.source_files else ""


def _folders(found: FoundEnvironment) -> list[Path]:
    """Folders, nearest first, that may contain the project of an environment that is not installed."""
    source = found.source_files[0] if found.source_files else found.path
    return [] if source is None else [found.path or source, *source.parents[: _LEVELS + 1]]


def of_distribution(dist: Distribution) -> Package:
    """Read the package of an installed distribution. Searching the metadata as text is faster than parsing it."""
    text = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    head, _, body = text.partition("\n\n")
    fields = {match[1]: match[2].strip() for match in _HEADER.finditer(head)}
    listed = dist.read_text("entry_points.txt") or ""
    points = [point for point in dist.entry_points if point.group == ENVIRONMENTS] if (
        ENVIRONMENTS in listed) else []  # fmt: skip
    project = editable_project(dist)
    return Package(
        "editable" if project is not None else "bundled" if is_bundled(dist) else "installed",
        fields.get("Name", ""),
        fields.get("Version", ""),
        fields.get("Summary", ""),
        body.strip(),
        {point.name: point.value for point in points},
        _CLASSIC.search(head) is not None,
        project,
    )


def of_project(folder: Path) -> Package | None:
    """Read the package from a `pyproject.toml`; None if the file has no valid project."""
    try:
        document = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    project = table_at(document, "project")
    name = project.get("name")
    if not isinstance(name, str) or not name:
        return None
    version, summary = (
        value if isinstance(value := project.get(key), str) else "" for key in ("version", "description")
    )
    points = table_at(project, "entry-points", ENVIRONMENTS)
    wanted = project.get("dependencies")
    dependencies = [str(each) for each in cast("list[object]", wanted)] if isinstance(wanted, list) else []
    return Package(
        "folder",
        name,
        version,
        summary,
        _readme(folder),
        {key: value for key, value in points.items() if isinstance(value, str)},
        any(_CLASSIC_DEPENDENCY.match(each) for each in dependencies),
        folder,
    )


def function_of(package: Package, module: str) -> str:
    """Name of the function that builds the environment, from `module`'s entry point; default `load_environment`."""
    for value in package.entry_points.values():
        target, _, attribute = value.partition(":")
        if target.partition(".")[0] == module and attribute:
            return attribute.partition("[")[0].strip()
    return FUNCTION


def _readme(folder: Path) -> str:
    for path in sorted(folder.glob("[Rr][Ee][Aa][Dd][Mm][Ee]*")):
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            continue
    return ""


def package_findings(found: FoundEnvironment, package: Package, loader: LoaderFunction | None) -> Iterable[Finding]:
    """Findings about the package of an environment."""
    folders = [package.project] if package.project else _folders(found)
    nearest = next((folder for folder in folders if folder and (folder / "pyproject.toml").is_file()), None)
    fault = toml_fault(nearest) if nearest and package.kind != "installed" else ""
    obstacle = _NO_PACKAGE if package.kind == "file" else ""
    if fault:
        yield fail(
            "pyproject",
            fault,
            "correct this line: otherwise the project cannot be installed, and its settings are ignored",
        )
        obstacle = "not possible: pyproject.toml cannot be read"
    if obstacle:
        yield from (skipped(name, obstacle) for name in ("entry point", "defaults", "README"))
        return
    yield _entry_point(found, package)
    yield _defaults(found, package)
    yield _readme_finding(package, loader)


def _entry_point(found: FoundEnvironment, package: Package) -> Finding:
    ours = {
        name: value
        for name, value in package.entry_points.items()
        if value.partition(":")[0].partition(".")[0].strip() == found.module
    }
    if ours:
        return ok("entry point", ", ".join(f"{name} = {value}" for name, value in ours.items()))
    if package.is_classic:
        return skipped("entry point", f"a classic package: it is found by its module's name, {found.module}")
    return fail("entry point", "no entry point of the group harness.environments",
                f'add to pyproject.toml: [project.entry-points."harness.environments"] and below it '
                f'{package.name} = "{found.module}:{FUNCTION}"')  # fmt: skip


def _defaults(found: FoundEnvironment, package: Package) -> Finding:
    if found.notice and not found.defaults:
        return fail("defaults", found.notice, "include the package's own pyproject.toml in its module")
    if found.defaults:
        table = (found.defaults_source or "").rpartition(" [")[2].rstrip("]")
        values = ", ".join(f"{name} = {value}" for name, value in found.defaults.items())
        return ok("defaults", f"[{table}] {values}")
    advice = "add [tool.harness.eval] with num_examples and rollouts_per_example to pyproject.toml"
    if package.kind in ("bundled", "installed"):
        advice += f", and include that file in the wheel, as `{COMMANDS['init_command']}` does"
    return fail("defaults", "no [tool.harness.eval]: a run has 5 examples by default", advice)


def _readme_finding(package: Package, loader: LoaderFunction | None) -> Finding:
    if not package.readme:
        return fail("README", "missing or empty", "describe the task, the source of the data, the arguments and the "
                    "grading; name the file in [project] readme")  # fmt: skip
    names = [each.name for each in loader.arguments] if loader else []
    unnamed = [name for name in names if not re.search(rf"(?<!\w){re.escape(name.lstrip('*'))}(?!\w)", package.readme)]
    words = f"{len(package.readme.splitlines())} lines"
    return ok("README", words + (f"; it does not name the argument {', '.join(unnamed)}" if unnamed else ""))
