"""Installation of environments with pip or uv into the running interpreter's environment. Parses an install target (a
folder, a distribution file or a name) and runs the installer. The module `installed` then verifies the result."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import cast

from harness.authoring.package import of_project
from harness.core.errors import ConfigError, HarnessError
from harness.core.redact import redactor
from harness.settings.built_in import BUILT_INS, as_built_in
from harness.settings.packages import installed_environments, is_bundled, local_environments, module_name
from harness.settings.paths import looks_like_path
from harness.settings.wording import nearest

_ARCHIVES = (".whl", ".tar.gz", ".zip")

_NAMED = re.compile(
    r"(?:[A-Za-z0-9][\w.-]*/)?"  # an organisation; package indexes do not have these
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?P<rest>(?:\[[^\]]*\])?\s*(?:[=<>!~@].*)?)"
)
_EXACT = re.compile(r"@\s*(?P<version>[0-9][\w.!+-]*)")
"""Pattern of `name@1.2`, the notation of environment hubs; pip needs `name==1.2`."""

_PINNED = re.compile(r"(?:\[[^\]]*\])?\s*==")

_DIRECT = re.compile(r"[A-Za-z0-9][\w.-]*\s*@\s*\w+\S*://")
"""Pattern of a requirement with a URL, such as `name @ https://…`."""


@dataclass(frozen=True, slots=True)
class InstallTarget:
    """A package or folder to install."""

    given: str
    """The target as the user wrote it."""
    requirement: str
    """Argument for the installer: a path, or name and version."""
    distribution: str
    """Name of the distribution; "" if it is known only after installation."""
    is_editable: bool = False
    doubt: str = ""
    """Reason why the index's package of this name may be by a different author; "" if there is no such risk."""


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """Options of an installation."""

    editable: bool = True
    """Install folders in editable mode."""
    upgrade: bool = False
    build_isolation: bool = True
    folder: Path = Path("environments")
    """Folder searched for a name before the package index."""


def read_target(text: str, options: InstallOptions) -> InstallTarget:
    """Parse one target of `bench env install`.

    Raises:
        ConfigError: the target is neither a project's folder, nor a distribution file, nor a name.
    """
    if "://" in text:
        return InstallTarget(text, text, text.partition("@")[0].strip() if _DIRECT.match(text) else "")
    path = Path(text).expanduser()
    if text.endswith(_ARCHIVES):
        if not path.is_file():
            raise ConfigError(f"{text}: there is no such file")
        return InstallTarget(text, str(path.resolve()), path.name.partition("-")[0] if text.endswith(".whl") else "")
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
        raise ConfigError(
            f"{text} need not be installed, and a package of this name would be by another author; {ours.about}",
            remedy=ours.remedy,
        )
    if _origin(match["name"]) == "bundled" and not match["rest"]:
        raise ConfigError(
            f"{text}: nothing to install, because it comes with bench",
            remedy="to change it, copy it: {copy_command} {text}",
            text=text,
        )
    # A mistyped path such as `environments/nothere` has the form of `org/NAME`.
    before, slash, name = text.partition("/")
    if slash and (Path(before).is_dir() or Path(before).absolute() == options.folder.absolute()):
        remedy = "to install the package {name}: {install_command} {name}"
        raise ConfigError(f"{text}: there is no such folder", remedy=remedy, name=name)
    exact = _EXACT.fullmatch(match["rest"].strip())
    rest = f"=={exact['version']}" if exact else match["rest"]
    is_exact = _PINNED.match(rest) is not None and "*" not in rest
    doubt = _doubt(text, match["name"], is_exact=is_exact, options=options)
    return InstallTarget(text, f"{match['name']}{rest}", match["name"], doubt=doubt)


def _doubt(text: str, name: str, *, is_exact: bool, options: InstallOptions) -> str:
    """Reason to ask the user before installing a name from the package index, where anybody can register names; "" for
    a distribution that was installed from an index before, and for an exact version. A name with an organisation always
    has a reason, since package indexes have no organisations."""
    organisation, slash, _ = text.strip().partition("/")
    known = _origin(name)
    if known == "index" or (is_exact and not slash):
        return ""
    if known == "bundled":
        return f"{name} comes with bench, and the package of that name in the index may be another project"
    if known:
        return f"{name} is installed from {known}, and the package of that name in the index may be another project"
    near = nearest(name, [*local_environments(options.folder), *installed_environments(), *BUILT_INS])
    meant = f" (did you mean {near!r}?)" if near and module_name(near) != module_name(name) else ""
    if slash:
        return f"package indexes have no organisations, so their package {name} may not be from {organisation}{meant}"
    return (
        f"no environment here is called {name}, so it would be installed from the package index, where anybody can "
        f"register that name{meant}"
    )


def _origin(name: str) -> str:
    """Origin of an installed distribution: `bundled`, `index` or an address; "" if it is not installed."""
    try:
        dist = importlib.metadata.distribution(name)
        if is_bundled(dist):
            return "bundled"
        record: object = json.loads(dist.read_text("direct_url.json") or "null")  # PEP 610 (`direct_url.json`)
    except PackageNotFoundError:
        return ""
    except ValueError:
        return "an unknown place"
    if not isinstance(record, dict):
        return "index"
    url = str(cast("dict[str, object]", record).get("url", "")).removeprefix("file://")
    return redactor.text(url) or "an unknown place"


def _project(text: str, path: Path, options: InstallOptions) -> InstallTarget:
    if path.is_file() and path.suffix == ".py":
        remedy = "run it directly: {run_command} {text}"
        raise ConfigError(f"{text}: a single file does not need to be installed", remedy=remedy, text=text)
    if not path.is_dir():
        raise ConfigError(f"{text}: there is no such folder")
    if not (path / "pyproject.toml").is_file() and not (path / "setup.py").is_file():
        raise ConfigError(f"{text}: the folder has no pyproject.toml, so it cannot be installed")
    project = of_project(path)
    return InstallTarget(text, str(path.resolve()), project.name if project else "", options.editable)


def command_for(targets: Sequence[InstallTarget], options: InstallOptions) -> list[str]:
    """Command line of the installer: pip of this interpreter, otherwise uv.

    Raises:
        HarnessError: neither pip nor uv is available.
    """
    if importlib.util.find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise HarnessError(
            f"no installer found: {sys.executable} has no pip, and there is no uv on the PATH; run "
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
    """Run the installer, and pass each line of its output to `on_line`.

    Returns:
        Exit code of the installer.
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
