"""Copy an environment into a project folder that the user can edit."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.authoring.package import Package, code_path, package_of
from harness.core.errors import ConfigError, StoreError
from harness.settings.environment_lookup import require_environment

_MADE = shutil.ignore_patterns("__pycache__", ".*", "dist", "build", "outputs")
"""Files that tools make, which are not copied."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A project that was copied from an installed package."""

    package: Package
    """The package that was copied."""
    module: str
    """Name of its module, and of the project's folder."""
    folder: Path
    files: int
    """Number of files in the folder."""


def copy_environment(name: str, parent: Path) -> Copied:
    """Make a project from the files of a package. On an error, nothing is left behind.

    The project has the same name, so that, once installed, it takes the place of the original.

    Args:
        name: Name of an environment that is bundled or installed, or the path of its folder.
        parent: Folder in which the project's folder is created; created if missing.

    Raises:
        EnvironmentNotFound: no environment of this name is installed.
        ConfigError: it is a single file, its package has no `pyproject.toml`, or the project's folder exists.
        StoreError: the files cannot be written.
    """
    found = require_environment(name, name, Path.cwd())
    package, code = package_of(found), Path(code_path(found))
    if package.kind == "file":
        raise ConfigError(f"{name} is a single file: copy {code}")
    source = package.project or code
    if not (source / "pyproject.toml").is_file():
        raise ConfigError(f"{name}: its package has no pyproject.toml; copy it from the repository of {package.name}")
    target = parent / found.module
    if target.exists():
        raise ConfigError(f"{target} exists already", remedy="name another folder with {init_path}")
    try:
        parent.mkdir(parents=True, exist_ok=True)
        # Written to a temporary folder and renamed, so that an error leaves no incomplete project.
        scratch = Path(tempfile.mkdtemp(prefix=f".{found.module}-", dir=parent))
        try:
            project = scratch / ("" if package.project else found.module)
            shutil.copytree(source, project, ignore=_MADE, dirs_exist_ok=True)
            if not package.project:
                (project / "pyproject.toml").rename(scratch / "pyproject.toml")
                (scratch / "README.md").write_text(package.readme + "\n", encoding="utf-8")
            scratch.chmod(0o755)  # mkdtemp makes it private
            scratch.rename(target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        raise StoreError(f"cannot create {target}: {error.strerror or error}") from error
    return Copied(package, found.module, target, sum(1 for path in target.rglob("*") if path.is_file()))
