"""Facts about an environment's package, found without importing it: its module, its distribution, its source files and
the defaults in its own `pyproject.toml`. Owns the search; needs the standard library alone, so that it can be tried
under every interpreter. The defaults are handed on unchecked."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

from harness.settings.paths import environment_path, local_modules, main_file

ENTRY_POINT_GROUP = "harness.environments"
"""Of installed environments: `name = "module"` or `name = "module:function"`."""

TABLES = ("harness", "verifiers")
"""`[tool.<name>.eval]`, in the order in which they count."""

_SITES = {"site-packages", "dist-packages"}

_PROJECT_LEVELS = 3
"""Folders above a source file in which its pyproject.toml may lie: `src/<package>/` layouts need two."""


@dataclass(frozen=True, slots=True)
class FoundEnvironment:
    """An environment that can be imported, and what is known of it without doing so."""

    module: str
    dist_name: str | None = None
    """The distribution that the module came with; None for a module that no distribution claims."""
    dist_version: str | None = None
    source_files: tuple[Path, ...] = ()
    """The module's own Python files, sorted."""
    defaults: dict[str, object] = field(default_factory=dict[str, object])
    """The table `[tool.harness.eval]`, else `[tool.verifiers.eval]`, as written."""
    defaults_source: str | None = None
    """File and table of the defaults."""
    notice: str | None = None
    """Why defaults that should be there were not taken."""
    path: Path | None = None
    """The file or folder by which the environment was named; None if it was named by its name."""


def module_name(env_id: str) -> str:
    """The module that an environment's name or path stands for: `org/my-env` and `./my_env.py` are `my_env`."""
    return env_id.rstrip("/").rsplit("/", 1)[-1].removesuffix(".py").replace("-", "_")


def find_environment(env_id: str, cwd: Path | None = None) -> FoundEnvironment | None:
    """Look `env_id` up among what could be imported.

    Args:
        env_id: The environment's name, with or without an organisation in front, or the path of its file or folder.
        cwd: Where a relative path begins; the working directory by default.

    Returns:
        What is known of it; None when no module of that name can be imported.

    Raises:
        EnvironmentNotFound: a path leads nowhere, or to a folder without an environment.
    """
    path = environment_path(env_id, cwd or Path())
    named = module_name(env_id)
    source = main_file(path) if path else _module_file(named)
    if source is None:
        named = declared_module(env_id)
        source = _module_file(named)
    if source is None:
        return None
    module = _code_root(source).stem if path else named
    dist = _distribution_of(module, source)
    pyproject, notice = _pyproject_of(module, source, dist)
    defaults, table = _defaults(pyproject)
    return FoundEnvironment(
        module,
        dist.name if dist else None,
        dist.version if dist else None,
        _source_files(source),
        defaults,
        f"{pyproject} [{table}]" if table else None,
        notice,
        path,
    )


def declared_environments() -> tuple[EntryPoint, ...]:
    """What installed distributions declare as environments. That stands in a file of each distribution; they are read
    again when a folder of the import path is another one, or has changed."""
    return _declared(tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=4)
def _declared(_folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def declared_module(env_id: str) -> str:
    """The top-level module of the entry point that answers to `env_id`; "" if there is none."""
    names = {env_id, module_name(env_id), module_name(env_id).replace("_", "-")}
    return next((point.module.partition(".")[0] for point in declared_environments() if point.name in names), "")


def installed_environments() -> tuple[str, ...]:
    """Names that installed distributions declare as environments, sorted."""
    return tuple(sorted({point.name for point in declared_environments()}))


def local_environments(folder: Path) -> dict[str, Path]:
    """Environment projects under `folder` by the name that they would be run by, installed or not."""
    if not folder.is_dir():
        return {}
    projects = sorted(path.parent for path in folder.glob("*/pyproject.toml"))
    return {_project_name(path / "pyproject.toml") or path.name.replace("_", "-"): path for path in projects}


def _module_file(module: str) -> Path | None:
    """Where the module's code lies; None for what no environment can be: nothing, a namespace, the standard library."""
    if not module.isidentifier() or module in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # ValueError: a module in sys.modules that has no spec
        return None
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    return Path(spec.origin)


def _code_root(source: Path) -> Path:
    """The package's folder, or the single module's file."""
    return source.parent if source.stem == "__init__" else source


def _source_files(source: Path) -> tuple[Path, ...]:
    root = _code_root(source)
    if root.is_dir():
        return tuple(sorted(root.rglob("*.py")))
    # Beside an installed module stands everything that is installed; beside a file of the author's, what it is made of.
    return (root,) if root.parent.name in _SITES else local_modules(root)


def _distribution_of(module: str, source: Path) -> Distribution | None:
    """The distribution that put `source` there. Likely names first: asking all of them reads every file list."""
    for dist in _likely(module):
        if dist is not None and _owns(dist, module, source):
            return dist
    roots: dict[Path, bool] = {}
    for dist in importlib.metadata.distributions():
        root = Path(str(dist.locate_file("")))
        if root not in roots:
            roots[root] = _leads_to(root, source)
        if roots[root] and _owns(dist, module, source):
            return dist
    return None


def _leads_to(root: Path, source: Path) -> bool:
    """Whether anything that is installed in `root` can be where `source` comes from: it lies there, or a path file or
    import hook there leads to it. Most often neither, and then no file list is read."""
    if source.is_relative_to(root) or source.resolve().is_relative_to(root.resolve()):
        return True
    code = _code_root(source)
    return any(_hooks(path, code) for path in _hook_files(root))


def _hook_files(root: Path) -> list[Path]:
    try:
        names = os.listdir(root)
    except OSError:
        return []
    return [root / name for name in names if name.endswith(".pth") or (name.endswith(".py") and "editable" in name)]


def _hooks(path: Path, code: Path) -> bool:
    """Whether what an editable install leaves at the top of site-packages leads to `code`."""
    if path.suffix == ".pth":
        return _pth_names(path, code.parent)
    return path.suffix == ".py" and "editable" in path.name and _finder_names(path, code)


def _likely(module: str) -> Iterator[Distribution | None]:
    yield _by_name(module)
    for point in declared_environments():
        if point.value.partition(":")[0].partition(".")[0] == module:
            yield point.dist


def _by_name(module: str) -> Distribution | None:
    try:
        return importlib.metadata.distribution(module)
    except PackageNotFoundError:
        return None


def _owns(dist: Distribution, module: str, source: Path) -> bool:
    """Whether `dist` is where the module comes from: by its file list, or as an editable install."""
    code = _code_root(source)
    files = {_listed_as(source), _listed_as(source.resolve())}
    for name, path in _recorded(dist, (*files, ".pth", "editable")):
        if name.endswith(tuple(files)) and _same(path, source):
            return True
        if "/" not in name and _hooks(path, code):
            return True
    return _is_development(dist, module, code)


def _listed_as(source: Path) -> str:
    """How its line in a file list ends; a package's with its folder, since an `__init__.py` stands in every list."""
    return source.name if _code_root(source) == source else f"{source.parent.name}/{source.name}"


def _recorded(dist: Distribution, words: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Entries of the distribution's file list that hold one of `words`.

    Read as lines: to parse the lists of all distributions would take longer than all else before a run's first request.
    """
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


def _pth_names(pth: Path, folder: Path) -> bool:
    """Whether a path file puts `folder` on the import path."""
    lines = (line.strip() for line in _text(pth).splitlines())
    return any(
        line and not line.startswith(("#", "import ", "import\t")) and _same(Path(line), folder) for line in lines
    )


def _finder_names(finder: Path, code: Path) -> bool:
    """Whether an editable install's import hook maps to `code`; hooks hold the path as a string literal."""
    target = re.escape(repr(str(code.with_suffix("") if code.suffix == ".py" else code))[1:-1])
    return re.search(rf"['\"]{target}(?:\.py|[\\/][^'\"]*)?['\"]", _text(finder)) is not None


def _is_development(dist: Distribution, module: str, code: Path) -> bool:
    """Installs without a file list: an `.egg-info` beside the source that names the module."""
    top_level = (dist.read_text("top_level.txt") or "").split()
    return (
        dist.read_text("RECORD") is None and module in top_level and _same(Path(str(dist.locate_file(code.name))), code)
    )


def _pyproject_of(module: str, source: Path, dist: Distribution | None) -> tuple[Path | None, str | None]:
    """The pyproject.toml that is this distribution's own, and a notice when another's stands in its place."""
    name = _normal(dist.name if dist else module)
    listed = _recorded(dist, ("pyproject.toml",)) if dist else ()
    shipped = [path for _, path in listed if path.name == "pyproject.toml"]
    project = editable_project(dist)
    # An editable install may leave a copy of the file in site-packages, which is as old as the install.
    edited = [] if project is None else [project / "pyproject.toml"]
    for path in (*edited, *shipped, *_beside(source)):
        if (found := _project_name(path)) and _normal(found) == name:
            return path, None
    if shipped:
        found = _project_name(shipped[0])
        what = f"belongs to {found!r}" if found else "cannot be read"
        return None, f"{module}: its defaults are not taken, since {shipped[0]} {what}; reinstall {name} to have them"
    return None, None


def _beside(source: Path) -> Iterator[Path]:
    """Where a source checkout has its pyproject.toml, nearest first."""
    folder = source.parent
    for _ in range(_PROJECT_LEVELS):
        yield folder / "pyproject.toml"
        folder = folder.parent


def editable_project(dist: Distribution | None) -> Path | None:
    """The folder that an editable install was made from (PEP 610); None for any other install."""
    try:
        record: object = json.loads((dist.read_text("direct_url.json") if dist else None) or "null")
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    origin = cast("dict[str, object]", record)
    url = origin.get("url")
    editable = (
        _table(origin, "dir_info").get("editable") is True
    )  # a plain install is a copy: its source may have moved on
    if not editable or not isinstance(url, str) or not url.startswith("file:"):
        return None
    return Path(url2pathname(urlsplit(url).path))


def _toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError:
        return {}


def _table(parent: dict[str, object], *names: str) -> dict[str, object]:
    for name in names:
        child = parent.get(name)
        parent = cast("dict[str, object]", child) if isinstance(child, dict) else {}
    return parent


def _project_name(path: Path) -> str | None:
    name = _table(_toml(path), "project").get("name")
    return name if isinstance(name, str) and name else None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _defaults(path: Path | None) -> tuple[dict[str, object], str | None]:
    document = _toml(path) if path else {}
    for tool in TABLES:
        if table := _table(document, "tool", tool, "eval"):
            return table, f"tool.{tool}.eval"
    return {}, None
