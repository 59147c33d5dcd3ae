"""Installing environments into the environment of the running interpreter. Owns what a target means (a folder, a file
of a distribution, a name) and the installer's call; whether it worked is looked at by `installed`."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.authoring.package import of_project
from harness.config.built_in import as_built_in
from harness.config.packages import local_environments, module_name
from harness.config.paths import looks_like_path
from harness.errors import ConfigError, HarnessError

_ARCHIVES = (".whl", ".tar.gz", ".zip")

_NAMED = re.compile(
    r"(?:[A-Za-z0-9][\w.-]*/)?"  # an organisation, which the index does not know
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?P<rest>(?:\[[^\]]*\])?\s*(?:[=<>!~@].*)?)"
)
_EXACT = re.compile(r"@\s*(?P<version>[0-9][\w.!+-]*)")
"""`name@1.2`, as hubs write it; pip wants `name==1.2`."""

_DIRECT = re.compile(r"[A-Za-z0-9][\w.-]*\s*@\s*\w+\S*://")
"""`name @ https://…`"""


@dataclass(frozen=True, slots=True)
class Target:
    """Something to install."""

    given: str
    """As the user wrote it."""
    requirement: str
    """As the installer takes it: a path, or name and version."""
    distribution: str
    """The distribution that it brings; "" if only the installer knows."""
    is_editable: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """How to install."""

    editable: bool = True
    """Folders are linked to, so that edits count at once."""
    upgrade: bool = False
    build_isolation: bool = True
    folder: Path = Path("environments")
    """Where a name is looked for before the index is asked."""


def read_target(text: str, options: Options) -> Target:
    """What one word of the command line means.

    Raises:
        ConfigError: it is neither a folder of a project, nor a distribution's file, nor a name.
    """
    if "://" in text:
        return Target(text, text, text.partition("@")[0].strip() if _DIRECT.match(text) else "")
    path = Path(text).expanduser()
    if text.endswith(_ARCHIVES):
        if not path.is_file():
            raise ConfigError(f"{text}: there is no such file")
        return Target(text, str(path.resolve()), path.name.partition("-")[0] if text.endswith(".whl") else "")
    if looks_like_path(text) or path.is_absolute() or ("/" in text and path.exists()):
        return _project(text, path, options)
    match = _NAMED.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is neither a folder nor a name; names look like my-env, org/my-env or my-env==1.2")
    if not match["rest"]:
        local = {module_name(name): folder for name, folder in local_environments(options.folder).items()}
        if module_name(text) in local:
            return _project(text, local[module_name(text)], options)
    if (ours := as_built_in(match["name"])) is not None:
        raise ConfigError(f"{text}: nothing to install, and a package of that name would be a stranger's; {ours.about}")
    _refuse_lost_path(text, options)
    exact = _EXACT.fullmatch(match["rest"].strip())
    rest = f"=={exact['version']}" if exact else match["rest"]
    return Target(text, f"{match['name']}{rest}", match["name"])


def _refuse_lost_path(text: str, options: Options) -> None:
    """Refuse `environments/nothere`: it reads like `org/NAME`, but what stands before the slash is a folder here, and a
    mistyped path must never become some stranger's package."""
    before, slash, name = text.partition("/")
    if slash and (Path(before).is_dir() or Path(before).absolute() == options.folder.absolute()):
        raise ConfigError(f"{text}: there is no such folder; if the package {name} is meant: bench env install {name}")


def _project(text: str, path: Path, options: Options) -> Target:
    if path.is_file() and path.suffix == ".py":
        raise ConfigError(f"{text}: a single file needs no installing; run it as it is: bench run {text}")
    if not path.is_dir():
        raise ConfigError(f"{text}: there is no such folder")
    if not (path / "pyproject.toml").is_file() and not (path / "setup.py").is_file():
        raise ConfigError(f"{text}: the folder has no pyproject.toml, so it cannot be installed")
    project = of_project(path)
    return Target(text, str(path.resolve()), project.name if project else "", options.editable)


def command_for(targets: Sequence[Target], options: Options) -> list[str]:
    """The installer's command line: pip of this interpreter, else uv.

    Raises:
        HarnessError: there is neither.
    """
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise HarnessError(
            f"nothing to install with: {sys.executable} has no pip, and there is no uv on the PATH; run "
            f"`{sys.executable} -m ensurepip`, or install uv"
        )
    if options.upgrade:
        command.append("--upgrade")
    if not options.build_isolation:
        command.append("--no-build-isolation")
    for target in targets:
        command += ["--editable", target.requirement] if target.is_editable else [target.requirement]
    return command


def run_installer(command: Sequence[str], on_line: Callable[[str], None]) -> int:
    """Run it, and hand on what it says, line by line.

    Returns:
        Its exit code.
    """
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                on_line(line.rstrip("\n"))
        except BaseException:
            child.terminate()
            raise
    return child.returncode
