"""Implement `bench env copy NAME`: copy an environment with `authoring.scaffold`."""

from __future__ import annotations

import shlex
from pathlib import Path

from harness.authoring.scaffold import copy_environment
from harness.cli.grouped import flag, positional
from harness.cli.output import FOLDER, shown, write


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
