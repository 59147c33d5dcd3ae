"""What is installed, told by processes that began after the installation. Owns these processes: what they are started
with and what they write. Run as a module, it writes one JSON document to the file that is named: the list of what is
installed, of which metadata is all that is read, or, with a name, what is wrong with that environment once imported.

Nothing travels over stdout or stderr: an environment, and what it starts, may write there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from harness.authoring.catalogue import catalogue, normal
from harness.core.errors import HarnessError
from harness.core.types import JsonDict
from harness.engine.loader import find_function

PATIENCE = 60.0
"""Seconds that importing one environment may take."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One environment after an installation."""

    name: str
    distribution: str
    version: str
    path: str
    problem: str = ""
    """Why it does not work; "" if `load_environment` was found, or was not looked for."""


def installed_now() -> list[Verified]:
    """What a new process finds installed: this one has read the import path before anything changed.

    Nothing is imported; see `verify`.

    Raises:
        HarnessError: the process ended without a list.
    """
    told, why = _ask([], PATIENCE)
    if told is None:
        raise HarnessError(f"cannot look at what is installed: the process {why}")
    return [Verified(**entry) for entry in cast("list[JsonDict]", told)]


def verify(distributions: Sequence[str], patience: float = PATIENCE) -> list[Verified]:
    """Whether the environments of these distributions can be imported and have their function. Each is imported in a
    process of its own, so that one that ends its process, or never comes back, says nothing of the others.

    Args:
        distributions: By name.
        patience: Seconds that each may take.
    """
    names = {normal(name) for name in distributions}
    wanted = [entry for entry in installed_now() if normal(entry.distribution) in names]
    return [replace(entry, problem=_problem(entry.name, patience)) for entry in wanted]


def _problem(name: str, patience: float) -> str:
    told, why = _ask([name], patience)
    return f"importing it {why}" if told is None else str(told)


def _ask(arguments: Sequence[str], patience: float) -> tuple[object, str]:
    """What a process wrote; or None, and how it ended instead."""
    with tempfile.TemporaryDirectory(prefix="bench-installed-") as folder:
        out, said = Path(folder, "told"), Path(folder, "said")
        with said.open("wb") as stream:  # a file: a pipe would stay open as long as anything that an import started
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(out), *arguments],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip
        try:
            ended = _ending(child.wait(patience))
        except subprocess.TimeoutExpired:
            ended = f"took more than {patience:g} seconds"
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)  # with whatever it started
                child.wait()
        if out.exists():
            return json.loads(out.read_text(encoding="utf-8")), ""
        last = _last_line(said)
        return None, f"{ended}; its last words: {last}" if last else ended


def _ending(code: int) -> str:
    if code < 0:
        return f"ended the process with signal {signal.Signals(-code).name}"
    return f"ended the process with exit code {code}"


def _last_line(said: Path) -> str:
    lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


def _main(out: Path, name: str | None) -> None:
    if name is not None:
        told: object = _why_not(name)
    else:
        told = [
            asdict(Verified(entry.name, entry.distribution, entry.version, entry.path))
            for entry in catalogue(Path(os.devnull))
            if entry.status != "not installed"
        ]
    scratch = out.with_suffix(".new")
    scratch.write_text(json.dumps(told), encoding="utf-8")
    scratch.rename(out)  # there whole, or not at all


def _why_not(name: str) -> str:
    """Why the environment cannot be used; "" if its function is there."""
    try:
        find_function(name)
    except HarnessError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
