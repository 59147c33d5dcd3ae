"""Paths of the running interpreter and its packages: which of them a sandbox shows and which it hides."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import site
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import EnvironmentFault

SYSTEM = ("/usr", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives")
"""Programs and libraries of the machine that are needed to run anything."""

ROOT_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Usually symbolic links into /usr."""


def base_interpreter() -> str:
    """Path of the interpreter itself, outside of any virtual environment."""
    return os.path.realpath(str(getattr(sys, "_base_executable", "") or sys.executable))


def shown() -> list[str]:
    """Folders and files that are visible in the sandbox, read-only, under their own paths."""
    folders = [Path(sys.base_prefix, name) for name in ("bin", "lib", "lib64")]
    paths = [path for path in (*map(Path, SYSTEM), *folders, Path(base_interpreter()).parent) if path.exists()]
    result: list[str] = []
    for path in sorted({str(path) for path in paths}):
        if not any(_is_below(path, other) for other in result):
            result.append(path)
    return result


def hidden(shown_paths: Sequence[str]) -> list[str]:
    """Folders below the visible ones that are hidden in the sandbox: installed packages (which include environments'
    tests), the harness's own folder, the user's home and the current folder."""
    house = Path(__file__).resolve().parents[2]
    private = [*_package_folders(), house, Path("/usr/src")]
    for find in (Path.home, Path.cwd, lambda: Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError, RuntimeError):  # no home, or a deleted folder
            private.append(find())
    needed = [Path("/usr/bin"), Path("/usr/lib"), Path(base_interpreter()), Path(os.__file__).resolve()]
    result: list[str] = []
    for path in sorted({str(path) for one in private for path in (one, one.resolve())}):
        is_needed = any(_is_below(str(other), path) for other in needed)
        if not is_needed and any(_is_below(path, other) for other in shown_paths) and os.path.isdir(path):
            result.append(path)
    return result


def package_paths(packages: Sequence[str]) -> dict[str, str]:
    """Map the name of each package in the packages folder to the package's path outside.

    Raises:
        EnvironmentFault: a package is not installed, or is not a regular package or module.
    """
    found: dict[str, str] = {}
    for package in packages:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        origin = spec.origin if spec is not None else None
        if origin is None or not os.path.isfile(origin):
            raise EnvironmentFault(
                f"the package {package!r}, which the code in the sandbox needs, is not installed as a regular package "
                f"or module; install it: pip install {package}"
            )
        path = Path(origin)
        path = path.parent if path.stem == "__init__" else path
        for one in (path, path.with_name(f"{package}.libs")):  # folder in which wheels store shared libraries
            if one.exists():
                found[one.name] = str(one)
    return found


def _package_folders() -> list[Path]:
    names = [*site.getsitepackages(), site.getusersitepackages()]
    for prefix in (sys.prefix, sys.base_prefix):
        values = {"base": prefix, "platbase": prefix, "installed_base": prefix, "installed_platbase": prefix}
        names += [sysconfig.get_path(kind, vars=values) for kind in ("purelib", "platlib")]
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    names += [f"/usr/lib/{version}/dist-packages", "/usr/lib/python3/dist-packages"]
    names += [f"/usr/local/lib/{version}/{kind}-packages" for kind in ("site", "dist")]
    return [Path(name) for name in names]


def _is_below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
