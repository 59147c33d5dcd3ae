"""Create the project of a new environment from the templates in the folder `templates`, whose placeholders look like
`@name@`, or copy a package to edit it. Package, module and class are named after the environment."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.resources
import importlib.util
import keyword
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from harness.authoring.package import Package, code_path, package_of
from harness.core.errors import ConfigError, StoreError
from harness.settings.environment_lookup import require_environment

Kind: TypeAlias = Literal["single-turn", "multi-turn", "tool"]

KINDS: tuple[Kind, ...] = get_args(Kind)

SUFFIX = ".in"
"""Suffix of template files, which keeps Python tools from reading them as modules of this package."""

_PLACEHOLDER = re.compile(r"@(name|module|class|bench)@")

_MADE = shutil.ignore_patterns("__pycache__", ".*", "dist", "build", "outputs")
"""Names of files that tools generate, which are not copied."""

LONGEST = 50
"""Maximum characters of an environment's name, which is also used as a folder and in repository names."""

_SHAPE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_TAKEN = {
    "agent_eval": "it is the built-in environment for agents",
    "multi_eval": "it is the built-in environment for lists of tasks",
    "bench": "it is this program's own command",
    "environments": "it is the default folder of environments",
    "harness": "it is the module that environments import",
    "src": "it is a common name of source folders",
    "tests": "it is the folder of an environment's tests",
    "verifiers": "it is the module that classic environments import",
}
"""Names that a new environment cannot have, each with the reason."""


_BASES = ("MultiTurnEnv", "SingleTurnEnv", "ToolEnv")
"""Base classes; the class of a new environment must not have one of these names."""

_GIVEN = re.compile(r"(?:(?P<organisation>\w[\w.-]*)/)?(?P<name>[^/]*)")


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one environment as a package, a module and a class."""

    name: str
    """Name of the distribution, and of the environment in `bench run NAME`."""

    @property
    def module(self) -> str:
        """Name of the Python module and of the project's folder."""
        return self.name.replace("-", "_")

    @property
    def class_name(self) -> str:
        """Name of the environment's class."""
        words = "".join(part[:1].upper() + part[1:] for part in self.name.split("-"))
        is_complete = self.name.endswith("-env") and words not in _BASES
        return words if is_complete else words + "Env"


@dataclass(frozen=True, slots=True)
class Created:
    """A project that was created."""

    names: Names
    folder: Path
    files: tuple[str, ...]
    """Paths relative to the folder, in reading order."""


def create(name: str, parent: Path, kind: Kind = "single-turn") -> Created:
    """Create the project of a new environment. On an error, nothing is left behind.

    Args:
        name: Name for `bench run`; an organisation before the name is dropped.
        parent: Folder in which the project's folder is created; created if missing.
        kind: Kind of working example that becomes the project.

    Raises:
        ConfigError: the name is invalid, or is in use here or by an installed package.
        StoreError: the files cannot be written.
    """
    names = read_name(name)
    before, slash, _ = name.strip().partition("/")
    if slash and Path(before).is_dir() and Path(before).resolve() != parent.resolve():
        raise ConfigError(
            f"{name!r} is ambiguous: {before!r} may be a folder or an organisation",
            remedy="use {init_path} {before} for the folder {before}, or the bare name {bare}",
            before=before,
            bare=names.name,
        )
    for taken in (parent / names.module, parent / names.name):
        if os.path.lexists(taken):
            raise ConfigError(
                f"{taken} already exists", remedy="choose another name, or another folder with {init_path}"
            )
    files = _render(names, kind)
    with _new_folder(parent / names.module) as folder:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    return Created(names, parent / names.module, tuple(files))


def _render(names: Names, kind: Kind) -> dict[str, str]:
    """Contents of the project's files by relative path. The files that an author edits come first."""
    root = importlib.resources.files("harness.authoring") / "templates"
    values = {
        "name": names.name,
        "module": names.module,
        "class": names.class_name,
        "bench": importlib.metadata.version("bench-harness"),
    }

    def reading_order(path: str) -> tuple[bool, bool, str]:
        return path.startswith("tests/"), "/" not in path, path  # the package, then files beside it, then tests

    def filled(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], text)

    return {
        filled(path.removesuffix(SUFFIX)): filled(source.read_text(encoding="utf-8"))
        for folder in (root / kind.replace("-", "_"), root / "base")
        for path, source in sorted(_walk(folder), key=lambda item: reading_order(item[0]))
    }


def _walk(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(SUFFIX):
            found.append((f"{prefix}{entry.name}", entry))
    return found


@contextmanager
def _new_folder(target: Path) -> Generator[Path]:
    """Context manager with a temporary folder that becomes the project's folder unless there is an error.

    Raises:
        StoreError: the files cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            yield scratch
            scratch.chmod(0o755)  # mkdtemp makes it private
            scratch.rename(target)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        raise StoreError(f"cannot create {target}: {error.strerror or error}") from error


def read_name(text: str) -> Names:
    """Validate the name of a new environment. An organisation in front (`org/my-env`) is dropped.

    Raises:
        ConfigError: the text is a path, is not a valid name, or is in use.
    """
    given = _GIVEN.fullmatch(text.strip())
    if given is None or (given["organisation"] and not given["name"]):
        raise _is_a_path(text.strip())
    name = given["name"]
    plain = name.replace("_", "-")
    if not _SHAPE.fullmatch(plain):
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
        near = re.sub(r"[^a-z0-9]+", "-", spaced.lower()).strip("-").lstrip("0123456789-")[:LONGEST]
        hint = f"; perhaps {near!r}?" if _SHAPE.fullmatch(near.strip("-")) else ""
        raise ConfigError(
            f"{text!r} is not a valid environment name: use lower-case letters, digits and dashes, and begin with a "
            f"letter{hint}"
        )
    if len(plain) > LONGEST:
        raise ConfigError(
            f"{text!r} is too long for a name: {len(plain)} characters, but at most {LONGEST} are allowed"
        )
    names = Names(plain)
    reason = _clash(names)
    if reason:
        raise ConfigError(f"an environment cannot be called {plain!r}: {reason}; choose another name")
    return names


def _is_a_path(text: str) -> ConfigError:
    """Make the error for a path that was given as an environment's name: `./sub/thing`, `/srv/thing`, `../up`,
    `org/`."""
    folder, _, name = text.rstrip("/").rpartition("/")
    if not folder and not text.startswith("/"):
        return ConfigError(f"{text!r} is a folder, or an organisation without a name: add a name, as in {name}/my-env")
    name = name if _SHAPE.fullmatch(name.replace("_", "-")) else "NAME"
    return ConfigError(
        f"{text!r} is a path, not a name",
        remedy="name the folder as the path, as in: {init_command} {name} {init_path} {folder}",
        name=name,
        folder=shlex.quote(folder or "/"),
    )


def _clash(names: Names) -> str:
    """Describe why a new environment cannot have this name, such as an installed package of that name; "" if the name
    is free."""
    module = names.module
    if module in _TAKEN:
        return _TAKEN[module]
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return f"{module} is a Python keyword"
    if module in sys.stdlib_module_names:
        return f"{module} is a module of the Python standard library"
    with contextlib.suppress(PackageNotFoundError):
        return f"{names.name} {importlib.metadata.version(names.name)} is already installed"
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.origin is not None:
        return f"a module {module} already exists ({spec.origin})"
    return ""


@dataclass(frozen=True, slots=True)
class Copied:
    """A project that was copied from an installed package."""

    package: Package
    """The package that was copied."""
    module: str
    """Name of the package's module, and of the project's folder."""
    folder: Path
    files: int
    """Number of files in the project's folder."""


def copy_environment(name: str, parent: Path) -> Copied:
    """Make a project from the files of a package. On an error, nothing is left behind.

    The project has the name of the original package, so that it replaces the original when it is installed.

    Args:
        name: Name of an environment that is bundled or installed, or the path of its folder.
        parent: Folder in which the project's folder is created; created if missing.

    Raises:
        EnvironmentNotFound: no environment of this name is installed.
        ConfigError: the environment is a single file or has no `pyproject.toml`, or the project's folder exists.
        StoreError: the files cannot be written.
    """
    found = require_environment(name, name, Path.cwd())
    package, code = package_of(found), Path(code_path(found))
    if package.kind == "file":
        raise ConfigError(f"{name} is a single file without a project; copy the file {code} yourself")
    source = package.project or code
    if not (source / "pyproject.toml").is_file():
        raise ConfigError(f"{name}: its package has no pyproject.toml; copy it from the repository of {package.name}")
    target = parent / found.module
    if target.exists():
        raise ConfigError(f"{target} already exists", remedy="name another folder with {init_path}")
    with _new_folder(target) as folder:
        shutil.copytree(source, folder / ("" if package.project else found.module), ignore=_MADE, dirs_exist_ok=True)
        if not package.project:
            (folder / found.module / "pyproject.toml").rename(folder / "pyproject.toml")
            (folder / "README.md").write_text(package.readme + "\n", encoding="utf-8")
    return Copied(package, found.module, target, sum(1 for path in target.rglob("*") if path.is_file()))
