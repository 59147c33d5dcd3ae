"""Environments given as paths: which names are paths, the main file of a folder, and the local modules of a file.
Nothing is imported. Settings and environment loader use the same rules."""

from __future__ import annotations

import ast
import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from harness.core.errors import EnvironmentNotFound
from harness.core.syntax import parse

_THIS_PACKAGE = Path(__file__).resolve().parent.parent


def looks_like_path(env_id: str) -> bool:
    """Return whether an id can only be a path, such as `./my_env.py`, `../envs/my-env`, `~/my_env` or `/srv/my_env`.
    `org/my-env` may be a name or a path; it is a path if such a file or folder exists."""
    return env_id.endswith(".py") or env_id.startswith((".", "~", "/"))


def environment_path(env_id: str, cwd: Path) -> Path | None:
    """Return the file or folder if an id is a path; None if the id is a name.

    An id without a slash is never a path, so that a folder cannot hide an installed package.

    Args:
        env_id: The id as typed.
        cwd: Folder to which a relative path refers.

    Raises:
        EnvironmentNotFound: the id is a path that does not exist.
    """
    if not looks_like_path(env_id) and "/" not in env_id:
        return None
    path = cwd / Path(env_id).expanduser()
    if path.exists():
        return path.resolve()
    if looks_like_path(env_id):
        raise EnvironmentNotFound(f"{env_id}: no environment found, because this file or folder does not exist")
    return None


def beside_cwd(env_id: str, cwd: Path) -> str | None:
    """Return the path that a name probably means: `./NAME.py`, or `./NAME` if that folder has an environment."""
    last = env_id.rsplit("/", 1)[-1]
    for name in dict.fromkeys([last, last.replace("-", "_"), last.replace("_", "-")]):
        if (cwd / f"{name}.py").is_file():
            return f"./{name}.py"
        with contextlib.suppress(EnvironmentNotFound):
            if (cwd / name).is_dir() and main_file(cwd / name):
                return f"./{name}"
    return None


def path_name(path: Path) -> str:
    """Return the name of an environment given as a path: `my_env` for `a/my_env.py`, `my-env` for `a/my-env`."""
    if path.name == "__init__.py":
        return path.parent.name
    return path.stem if path.suffix == ".py" else path.name


def main_file(path: Path) -> Path:
    """Return the main file of an environment: `path` itself, or the module in the folder `path`.

    In a folder, these are tried: `my_env.py`, `my_env/`, the same below `src/`, the folder itself as a package, and the
    module that its pyproject.toml declares.

    Raises:
        EnvironmentNotFound: the folder has no such file, or `path` is a file of another type.
    """
    if path.is_file():
        if path.suffix != ".py":
            raise EnvironmentNotFound(f"{path} cannot be an environment, because it is not a Python file")
        return path
    name = path.name.replace("-", "_")
    inside = [*_places(name), "__init__.py"]
    declared = _declared_module(path / "pyproject.toml")
    if declared and declared != name:
        inside += _places(declared)
    found = next((path / each for each in inside if (path / each).is_file()), None)
    if found is None:
        raise EnvironmentNotFound(f"{path}: no environment in this folder, which contains none of {', '.join(inside)}")
    return found


def local_modules(source: Path, root: Path | None = None) -> tuple[Path, ...]:
    """Return the file of a single-file environment and the local modules that it imports, directly or indirectly.

    They are found from `import` statements, at any depth; nothing is imported. The package `harness` itself, used from
    a checkout, is excluded.

    Args:
        source: The file.
        root: Base folder of absolute imports; default: the folder of the file.
    """
    root = root or source.parent
    found: dict[Path, None] = {}
    waiting = [source]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = None
        for name in _imported(file):
            file_beside, folder_beside = root / f"{name}.py", root / name
            if file_beside.is_file():
                waiting.append(file_beside)
            if next(folder_beside.glob("*.py"), None) is not None and folder_beside != _THIS_PACKAGE:
                waiting += sorted(folder_beside.rglob("*.py"))
    return tuple(sorted(found))


def _imported(file: Path) -> Iterator[str]:
    """Return the top-level names that a file imports; empty if the file is not valid Python."""
    try:
        tree = parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _places(module: str) -> tuple[str, ...]:
    return (f"{module}.py", f"{module}/__init__.py", f"src/{module}/__init__.py")


def _declared_module(pyproject: Path) -> str:
    """Return the module of a project's entry point, or else of the project's name; "" if there is no project."""
    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
        points = cast("dict[str, str]", project.get("entry-points", {}).get("harness.environments", {}))
        named = next(iter(points.values()), str(project.get("name", "")))
    except (OSError, ValueError, AttributeError):
        return ""
    return named.partition(":")[0].partition(".")[0].replace("-", "_")
