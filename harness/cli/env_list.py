"""Implement `bench env list`: print installed environments and local projects, found by `authoring.catalogue`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from harness.authoring.catalogue import ListedEnvironment, catalogue
from harness.cli.grouped import flag
from harness.cli.output import FOLDER, shown, table, write_fitted
from harness.core.errors import ConfigError
from harness.report.text import plain_json

_SHORT = {"num_examples": "-n", "rollouts_per_example": "-r", "pass_threshold": "--pass-threshold"}


def list_environments(
    path: Path | None = flag("--path -p DIR", "Where projects lie that are not installed [environments]."),
    as_json: bool = flag("--json", "Print the list as JSON on stdout.", False),
) -> None:
    """List the environments that are installed here, and those in ./environments that are not yet.

    Reads metadata only: no environment is imported.
    """
    if path is not None and not path.is_dir():
        raise ConfigError(f"--path {path}: no such folder")
    entries = catalogue(path or FOLDER)
    if as_json:
        typer.echo(plain_json({"environments": [asdict(entry) for entry in entries]}))
        return
    write_fitted(lambda width: _lines(entries, width))


def _lines(entries: Sequence[ListedEnvironment], width: int) -> list[str]:
    if not entries:
        return [
            "No environment is installed here. Start one: bench env init my-env",
            "Or install one: bench env install NAME",
        ]
    head = ("environment", "version", "defaults", "from", "summary")
    rows = [(entry.name, entry.version or "–", _defaults(entry), _origin(entry), _summary(entry)) for entry in entries]
    lines = table(rows, width, head=head)
    missing = [entry for entry in entries if entry.status == "not installed"]
    bundled = sum(entry.status == "bundled" for entry in entries)
    count = len(entries) - len(missing) - bundled
    here = [f"{bundled} bundled with bench"] * bool(bundled) + [f"{count} installed"] * bool(count or not bundled)
    lines += ["", ", ".join(here) + _not_installed(missing)]
    sound = [shown(entry.path) for entry in missing if not entry.problem]
    if sound:
        lines.append(shlex.join(["bench", "env", "install", *sound]))
    return lines


def _defaults(entry: ListedEnvironment) -> str:
    known = [f"{flag} {entry.defaults[name]}" for name, flag in _SHORT.items() if name in entry.defaults][:2]
    more = len(entry.defaults) - len(known)
    return " ".join([*known, *([f"+{more}"] if more else [])]) or "–"


def _not_installed(missing: Sequence[ListedEnvironment]) -> str:
    if not missing:
        return ""
    return f", {len(missing)} not" + ("; to install:" if any(not entry.problem for entry in missing) else "")


def _summary(entry: ListedEnvironment) -> str:
    if not entry.problem:
        return entry.summary
    path, rest = entry.problem[: len(entry.path)], entry.problem[len(entry.path) :]
    return shown(path) + rest


def _origin(entry: ListedEnvironment) -> str:
    if entry.status == "not installed":
        return "not installed"
    return f"{entry.status}, classic" if entry.is_classic else entry.status
