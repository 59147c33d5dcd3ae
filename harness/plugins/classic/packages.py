"""Static analysis of a classic environment's package before import: its modules, their source text and its
requirements. Only reads files and metadata; does not import the package."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from harness.plugins.classic.generation import Generation, generation_of, parse_requirements, requires_verifiers
from harness.plugins.classic.source_text import asks
from harness.settings.packages import FoundEnvironment

_PROJECT_LEVELS = 3
"""Maximum number of parent folders of a module that are searched for pyproject.toml."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package that imports the classic API of `verifiers`."""

    generation: Generation
    roots: frozenset[str]
    """Top-level modules that get the classic API on `import verifiers`."""
    libraries: dict[str, Generation] = field(default_factory=dict[str, Generation])
    """Top-level modules of required libraries that use the classic API themselves, with the generation of each."""


def read_package(found: FoundEnvironment) -> Package | None:
    """Read source text and metadata of an environment's package, to find out whether and how it uses the classic API.

    Args:
        found: The environment.

    Returns:
        The package; None if it does not use the classic API.
    """
    texts, roots = list(_texts(found.source_files)), _roots(found)
    requirements = _requirements(found)
    libraries = {name: dist for dist in _libraries(requirements) for name in top_levels(dist)}
    uses_api = any(map(asks, texts)) or requires_verifiers(requirements)
    if not uses_api and not libraries:
        return None
    if found.dist_name is not None:
        with suppress(importlib.metadata.PackageNotFoundError):
            roots.update(top_levels(importlib.metadata.distribution(found.dist_name)))
    generation = generation_of(requirements, texts)
    return Package(
        generation,
        frozenset(roots),
        {name: generation_of(dist.requires or (), ()) for name, dist in libraries.items() if name not in roots},
    )


def _roots(found: FoundEnvironment) -> set[str]:
    """Return the names of an environment's own top-level modules: a package, or a single file and the modules beside
    it that it imports."""
    main = next((path for path in found.source_files if path.stem == found.module), None)
    packaged = any(path.name == "__init__.py" and path.parent.name == found.module for path in found.source_files)
    if main is None or packaged or next(main.parent.glob("*.dist-info"), None) is not None:
        return {found.module}  # in a folder of installed packages, modules beside the file are other libraries
    tops = {path.relative_to(main.parent).parts[0].removesuffix(".py") for path in found.source_files}
    return {found.module, *(tops - sys.stdlib_module_names)}


def _texts(files: Iterable[Path]) -> Iterator[str]:
    for path in files:
        try:
            yield path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue


def _requirements(found: FoundEnvironment) -> list[str]:
    """Return the package's requirements, from its installed metadata or else from the pyproject.toml of its source
    folder."""
    if found.dist_name is not None:
        try:
            return list(importlib.metadata.requires(found.dist_name) or ())
        except importlib.metadata.PackageNotFoundError:
            return []
    folder = found.source_files[0].parent if found.source_files else None
    for _ in range(_PROJECT_LEVELS):
        if folder is None:
            break
        declared = _project_requirements(folder / "pyproject.toml")
        if declared is not None:
            return declared
        folder = folder.parent
    return []


def _project_requirements(path: Path) -> list[str] | None:
    try:
        document: object = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    project = cast("dict[str, object]", document).get("project")
    if not isinstance(project, dict):
        return None
    listed = cast("dict[str, object]", project).get("dependencies")
    return [str(item) for item in cast("list[object]", listed)] if isinstance(listed, list) else []


def _libraries(requirements: Iterable[str]) -> Iterator[importlib.metadata.Distribution]:
    """Find the required distributions that themselves require `verifiers`, directly or indirectly."""
    waiting, seen = list(parse_requirements(requirements)), {"verifiers"}
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop().name).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            dist = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        needs = dist.requires or []
        if requires_verifiers(needs):
            waiting.extend(parse_requirements(needs))
            yield dist


def top_levels(dist: importlib.metadata.Distribution) -> set[str]:
    """Return the names of the top-level modules of a distribution, from its list of files."""
    files = [file for file in dist.files or () if len(file.parts) > 1 or file.suffix in (".py", ".so", ".pyd")]
    names = {file.parts[0].partition(".")[0] if len(file.parts) == 1 else file.parts[0] for file in files}
    return {name for name in names if name.isidentifier() and not name.startswith("__")} - {"harness", "verifiers"}
