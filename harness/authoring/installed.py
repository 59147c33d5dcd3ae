"""Installed environments as seen by new processes, which were started after the installation.

Run as a module, this file writes one JSON document to the file named in its arguments: without a name, the list of
installed environments, read from metadata; with a name, the error of importing that environment.

Stdout and stderr are not used for results, because an environment and its subprocesses may write there.
"""

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
from harness.engine.environment_loader import find_function

PATIENCE = 60.0
"""Timeout of importing one environment, in seconds."""


@dataclass(frozen=True, slots=True)
class Verified:
    """One environment after an installation."""

    name: str
    distribution: str
    version: str
    path: str
    problem: str = ""
    """Error of the environment; "" if `load_environment` was found or was not checked."""


def installed_now() -> list[Verified]:
    """List installed environments from a new process, since this one has cached the import path.

    Nothing is imported; see `verify`.

    Raises:
        HarnessError: the process ended without a list.
    """
    told, why = _ask([], PATIENCE)
    if told is None:
        raise HarnessError(f"cannot list the installed environments: the process {why}")
    return [Verified(**entry) for entry in cast("list[JsonDict]", told)]


def verify(distributions: Sequence[str], patience: float = PATIENCE) -> list[Verified]:
    """Check that the environments of some distributions can be imported and define their function.

    Each is imported in its own process, so that a crash or a timeout of one does not affect the others.

    Args:
        distributions: Names of distributions.
        patience: Timeout of each import, in seconds.
    """
    names = {normal(name) for name in distributions}
    wanted = [entry for entry in installed_now() if normal(entry.distribution) in names]
    checked: list[Verified] = []
    for entry in wanted:
        problem, ending = _ask([entry.name], patience)
        checked.append(replace(entry, problem=f"importing it {ending}" if problem is None else str(problem)))
    return checked


def _ask(arguments: Sequence[str], patience: float) -> tuple[object, str]:
    """Start a process, and return its JSON result, or None with the way it ended."""
    with tempfile.TemporaryDirectory(prefix="bench-installed-") as folder:
        out, said = Path(folder, "told"), Path(folder, "said")
        with said.open("wb") as stream:  # a file: a pipe would stay open as long as any subprocess of the import
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(out), *arguments],
                stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip
        try:
            code = child.wait(patience)
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            ended = f"ended the process with {how}"
        except subprocess.TimeoutExpired:
            ended = f"took more than {patience:g} seconds"
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)  # the whole process group
                child.wait()
        if out.exists():
            return json.loads(out.read_text(encoding="utf-8")), ""
        lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
        return None, f"{ended}; its last output: {last}" if last else ended


def _main(out: Path, name: str | None) -> None:
    if name is not None:
        told: object = ""
        try:
            find_function(name)
        except HarnessError as error:
            told = str(error)
    else:
        told = [
            asdict(Verified(entry.name, entry.distribution, entry.version, entry.path))
            for entry in catalogue(Path(os.devnull))
            if entry.status != "not installed"
        ]
    scratch = out.with_suffix(".new")
    scratch.write_text(json.dumps(told), encoding="utf-8")
    scratch.rename(out)  # atomic


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
