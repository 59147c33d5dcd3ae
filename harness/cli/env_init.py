"""Implement `bench env init NAME` and `bench env copy NAME`: create an environment with `authoring.scaffold`, and print
the next steps."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path

from harness.authoring.scaffold import KINDS, Created, copy_environment, create
from harness.cli.grouped import flag, positional
from harness.cli.output import FOLDER, shown, table, write
from harness.core.errors import ConfigError
from harness.settings.wording import suggestion


def init(
    name: str = positional("NAME", "Lower-case letters, digits and dashes: my-env.", ...),
    path: Path = flag("--path -p DIR", "The folder that gets the package's folder.", FOLDER),
    kind: str = flag("--kind -k KIND", "Kind of the example: single-turn, multi-turn or tool.", "single-turn", KINDS),
) -> None:
    """Start a new environment: a package that passes its own tests.

    It is a small working example with a dataset, rewards, a reference policy, tests and a README, to be replaced piece
    by piece.
    """
    if kind not in KINDS:
        raise ConfigError(f"--kind {kind}: unknown kind; {suggestion(kind, KINDS)}")
    write(_created_lines(create(name, path, kind)))


def _created_lines(created: Created) -> list[str]:
    module = created.names.module
    purposes = {
        f"{module}/__init__.py": "a working example, to be replaced",
        "README.md": "what it tests, its arguments, its metrics",
        f"tests/test_{module}.py": "what it promises",
        "pyproject.toml": "entry point, defaults of a run",
    }
    files = [(path, purposes[path]) for path in created.files if path in purposes]
    return [
        f"Created {shown(created.folder)}",
        *table(files, 200, indent="  "),
        "",
        "Next",
        *(f"  {step}" for step in _first_steps(created)),
        "",
        "To publish it",
        *(f"  {step}" for step in _last_steps(created)),
    ]


def _first_steps(created: Created) -> list[str]:
    """Return commands that try the new environment, ready to paste."""
    name, folder, bench, python = created.names.name, _folder(created), _bench(), _python()
    pytest = [] if importlib.util.find_spec("pytest") else [_install("pytest")]
    pip = [] if _has_pip() or shutil.which("uv") else [f"{python} -m ensurepip"]  # pip or uv must be there first
    return [
        *pip,
        f"{bench} env install {folder}",
        f"{bench} env check {name}",
        f"{bench} run {name} -n 5 -m reference/oracle",
        *pytest,
        f"{python} -m pytest {folder}",
    ]


def _last_steps(created: Created) -> list[str]:
    folder, python = _folder(created), _python()
    wheel = f"{folder}/dist/{created.names.module}-0.1.0-py3-none-any.whl"
    if shutil.which("uv"):
        return [f"uv build{_for_uv()} --wheel {folder}", f"uv publish {wheel}"]
    twine = [] if importlib.util.find_spec("twine") else [_install("twine")]
    return [
        f"{python} -m pip wheel --no-deps -w {folder}/dist {folder}",
        *twine,
        f"{python} -m twine upload {wheel}",
    ]


def _install(package: str) -> str:
    if _has_pip() or not shutil.which("uv"):
        return f"{_python()} -m pip install {package}"
    return f"uv pip install{_for_uv()} {package}"


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None


def _for_uv() -> str:
    """Return the option that makes uv use this interpreter; by default, uv uses the active virtual environment."""
    active = os.environ.get("VIRTUAL_ENV")
    is_active = active is not None and Path(active).resolve() == Path(sys.prefix).resolve()
    return "" if is_active else f" --python {shlex.quote(sys.executable)}"


def _folder(created: Created) -> str:
    return shlex.quote(shown(created.folder))


def _python() -> str:
    """Return the shell command that runs this interpreter."""
    found = shutil.which("python")
    return "python" if found and Path(found).parent == Path(sys.executable).parent else shlex.quote(sys.executable)


def _bench() -> str:
    return "bench" if shutil.which("bench") else f"{_python()} -m harness.cli.main"


def copy(
    name: str = positional("NAME", "An environment of `bench env list`.", ...),
    path: Path = flag("--path -p DIR", "The folder that gets the project's folder.", FOLDER),
) -> None:
    """Copy an environment into a folder of your own, to change it.

    The copy has the same name, and replaces the original when it is installed. Runs of changed code have a different
    identity from runs of the original.
    """
    copied = copy_environment(name, path)
    where = shown(copied.folder)
    folder = shlex.quote(where if Path(where).is_absolute() else f"./{where}")
    write(
        [
            f"Copied {copied.package.name} {copied.package.version} to {where} ({copied.files} files)",
            "",
            "Next",
            f"  edit {where}/{copied.module}/__init__.py",
            f"  bench run {folder} -n 5 -m reference/oracle",
            f"  bench env install {folder}    # then {name} is your copy",
        ]
    )
