"""Facts about an environment's package, found without importing it. Finds module, distribution, source files and the
defaults in its `pyproject.toml`, which are not validated here. Uses only the standard library, so that it can be tested
under every Python version."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from harness.core.plugins import ENVIRONMENTS, PluginEntry, entries_of
from harness.settings.environment_sources import FoundEnvironment, find_in_source, source_of
from harness.settings.paths import environment_path, local_modules, main_file

TABLES = ("harness", "verifiers")
"""Names for which a table `[tool.<name>.eval]` may contain defaults of an environment, by precedence."""

BUNDLED = Path(__file__).parents[1] / "bundled"
"""Folder of the environments that the wheel of bench brings, in the form in which pip installs them; absent in a
checkout. The import path ends with it, so any other installed copy of an environment has precedence."""

if BUNDLED.is_dir() and str(BUNDLED) not in sys.path:
    sys.path.append(str(BUNDLED))

_SITES = {"site-packages", "dist-packages"}

_PROJECT_LEVELS = 3
"""Maximum distance in folders from a source file up to its pyproject.toml: `src/<package>/` layouts need two."""


def module_name(env_id: str) -> str:
    """Return the module for an environment's name or path: `my_env` for `org/my-env` and for `./my_env.py`."""
    return env_id.rstrip("/").rsplit("/", 1)[-1].removesuffix(".py").replace("-", "_")


def find_environment(env_id: str, cwd: Path | None = None) -> FoundEnvironment | None:
    """Find an environment without importing it.

    Args:
        env_id: Name of the environment, with or without an organisation in front, or the path of its file or folder.
        cwd: Folder to which a relative path refers; by default the working directory.

    Returns:
        Facts about the environment; None if no module of that name can be imported.

    Raises:
        EnvironmentNotFound: a path does not exist, or is a folder without an environment; or the environment source for
            the id's prefix has no such name.
        EnvironmentLoadError: code of the environment source failed.
    """
    path = environment_path(env_id, cwd or Path())
    if path is None and (sourced := source_of(env_id)) is not None:
        return find_in_source(*sourced, env_id)
    named = module_name(env_id)
    file = main_file(path) if path else _module_file(named)
    if file is None and (entry := declared_environment(env_id)) is not None:
        named = entry.module.partition(".")[0]
        file = _module_file(named)
    if file is None:
        return None
    module = _code_root(file).stem if path else named
    dist = _distribution_of(module, file)
    pyproject, notice = _pyproject_of(module, file, dist)
    defaults, table = _defaults(pyproject)
    return FoundEnvironment(
        module,
        dist.name if dist else None,
        dist.version if dist else None,
        _source_files(file),
        defaults,
        f"{pyproject} [{table}]" if table else None,
        notice,
        path,
    )


def comes_with_bench(found: FoundEnvironment) -> bool:
    """Return whether the code of an environment is the one in the wheel of bench."""
    return any(BUNDLED in file.parents for file in found.source_files)


def is_bundled(dist: Distribution) -> bool:
    """Return whether a distribution was installed as part of the wheel of bench."""
    return Path(str(dist.locate_file(""))) == BUNDLED


def declared_environment(env_id: str) -> PluginEntry | None:
    """Return the entry point of an installed environment; None if no entry point has this name."""
    names = {env_id, module_name(env_id), module_name(env_id).replace("_", "-")}
    return next((entry for entry in entries_of(ENVIRONMENTS) if entry.name in names), None)


def installed_environments() -> tuple[str, ...]:
    """Return the names of installed environments, sorted."""
    return tuple(dict.fromkeys(entry.name for entry in entries_of(ENVIRONMENTS)))


def local_environments(folder: Path) -> dict[str, Path]:
    """Return the environment projects in `folder`, installed or not, by the name with which they are run."""
    if not folder.is_dir():
        return {}
    projects = sorted(path.parent for path in folder.glob("*/pyproject.toml"))
    return {_project_name(path / "pyproject.toml") or path.name.replace("_", "-"): path for path in projects}


def _module_file(module: str) -> Path | None:
    """Return the source file of a module; None for a missing module, a namespace package or the standard library."""
    if not module.isidentifier() or module in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # ValueError: a module in sys.modules without a spec
        return None
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    return Path(spec.origin)


def _code_root(source: Path) -> Path:
    """Return the folder of a package, or the file of a single module."""
    return source.parent if source.stem == "__init__" else source


def _source_files(source: Path) -> tuple[Path, ...]:
    root = _code_root(source)
    if root.is_dir():
        return tuple(sorted(root.rglob("*.py")))
    # In site-packages, neighbouring modules are unrelated; beside a user's file, they may be its parts.
    return (root,) if root.parent.name in _SITES else local_modules(root)


def _distribution_of(module: str, source: Path) -> Distribution | None:
    """Return the distribution that contains `source`. Likely ones are checked first, as reading file lists is slow."""
    declaring = (entry.package for entry in entries_of(ENVIRONMENTS) if entry.module.partition(".")[0] == module)
    for name in (module, *declaring):
        with suppress(PackageNotFoundError):
            if _owns(dist := importlib.metadata.distribution(name), module, source):
                return dist
    roots = [root for root in dict.fromkeys(sys.path) if _leads_to(Path(root), source)]
    for dist in importlib.metadata.distributions(path=roots):
        if _owns(dist, module, source):
            return dist
    return None


def _leads_to(root: Path, source: Path) -> bool:
    """Return whether a distribution in the folder `root` can contain a source file: the file is inside the folder, or a
    path file or import hook in the folder refers to it. If not, no file list needs to be read."""
    if source.is_relative_to(root) or source.resolve().is_relative_to(root.resolve()):
        return True
    with suppress(OSError):
        hooks = (name for name in os.listdir(root) if name.endswith(".pth") or "editable" in name)
        return any(_hooks(root / name, _code_root(source)) for name in hooks)
    return False


def _hooks(path: Path, code: Path) -> bool:
    """Return whether a file of an editable install in site-packages refers to `code`: a path file that contains the
    folder, or an import hook that contains the path as a string literal."""
    if path.suffix == ".pth":
        lines = [line.strip() for line in _text(path).splitlines()]
        paths = [line for line in lines if line and not line.startswith(("#", "import ", "import\t"))]
        return any(_same(Path(line), code.parent) for line in paths)
    if path.suffix != ".py" or "editable" not in path.name:
        return False
    target = re.escape(repr(str(code.with_suffix("") if code.suffix == ".py" else code))[1:-1])
    return re.search(rf"['\"]{target}(?:\.py|[\\/][^'\"]*)?['\"]", _text(path)) is not None


def _owns(dist: Distribution, module: str, source: Path) -> bool:
    """Return whether `dist` contains the module, according to its file list or as an editable install."""
    code = _code_root(source)
    files = {_listed_as(source), _listed_as(source.resolve())}
    for name, path in _recorded(dist, (*files, ".pth", "editable")):
        if (name.endswith(tuple(files)) and _same(path, source)) or ("/" not in name and _hooks(path, code)):
            return True
    # An install without a file list, by an `.egg-info` beside the source.
    if dist.read_text("RECORD") is not None or module not in (dist.read_text("top_level.txt") or "").split():
        return False
    return _same(Path(str(dist.locate_file(code.name))), code)


def _listed_as(source: Path) -> str:
    """Last part of a module's path in a distribution's file list. For a package, the part includes its folder, since
    `__init__.py` alone matches most lists."""
    return source.name if _code_root(source) == source else f"{source.parent.name}/{source.name}"


def _recorded(dist: Distribution, words: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Return the entries of a distribution's file list that contain one of `words`. The list is searched as text, since
    parsing all lists would be the slowest part of starting a run."""
    record = dist.read_text("RECORD") or ""
    if any(word in record for word in words):
        root = Path(str(dist.locate_file("")))
        for line in record.splitlines():
            if any(word in line for word in words):
                name = line.rsplit(",", 2)[0].strip('"')
                yield name, root / name


def _same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _pyproject_of(module: str, source: Path, dist: Distribution | None) -> tuple[Path | None, str | None]:
    """Return the distribution's own pyproject.toml, and a notice if the file that was found is another project's."""
    name = _normal(dist.name if dist else module)
    listed = _recorded(dist, ("pyproject.toml",)) if dist else ()
    shipped = [path for _, path in listed if path.name == "pyproject.toml"]
    project = editable_project(dist)
    # An editable install may leave a copy in site-packages, which may be outdated.
    edited = [] if project is None else [project / "pyproject.toml"]
    beside = (folder / "pyproject.toml" for folder in source.parents[:_PROJECT_LEVELS])
    for path in (*edited, *shipped, *beside):
        if (found := _project_name(path)) and _normal(found) == name:
            return path, None
    if shipped:
        found = _project_name(shipped[0])
        what = f"belongs to {found!r}" if found else "cannot be read"
        return (
            None,
            f"{module}: default settings of the environment are not used, because {shipped[0]} {what}; reinstall "
            f"{name} to use them",
        )
    return None, None


def editable_project(dist: Distribution | None) -> Path | None:
    """Return the project folder of an editable install (PEP 610); None for any other install."""
    try:
        record: object = json.loads((dist.read_text("direct_url.json") if dist else None) or "null")
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    origin = cast("dict[str, object]", record)
    url = origin.get("url")
    # A plain install is a copy, and its source may have changed.
    is_editable = table_at(origin, "dir_info").get("editable") is True
    if not is_editable or not isinstance(url, str) or not url.startswith("file:"):
        return None
    return Path(url2pathname(urlsplit(url).path))


def _toml(path: Path) -> dict[str, object]:
    with suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(_text(path))
    return {}


def table_at(parent: dict[str, object], *names: str) -> dict[str, object]:
    """Return the table at a path of names in a TOML document; empty if it is missing or not a table."""
    for name in names:
        child = parent.get(name)
        parent = cast("dict[str, object]", child) if isinstance(child, dict) else {}
    return parent


def _project_name(path: Path) -> str | None:
    name = table_at(_toml(path), "project").get("name")
    return name if isinstance(name, str) and name else None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _defaults(path: Path | None) -> tuple[dict[str, object], str | None]:
    document = _toml(path) if path else {}
    for tool in TABLES:
        if table := table_at(document, "tool", tool, "eval"):
            return table, f"tool.{tool}.eval"
    return {}, None
