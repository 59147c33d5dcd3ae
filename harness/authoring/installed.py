"""Check installed environments in new processes, since this process has cached the state before an installation.

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
    listed, ending = _run_child([], PATIENCE)
    if listed is None:
        raise HarnessError(f"cannot list the installed environments: listing them {ending}")
    return [Verified(**entry) for entry in cast("list[JsonDict]", listed)]


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
        problem, ending = _run_child([entry.name], patience)
        checked.append(replace(entry, problem=f"importing it {ending}" if problem is None else str(problem)))
    return checked


def _run_child(arguments: Sequence[str], patience: float) -> tuple[object, str]:
    """Run this module in a new process. Return its JSON result and ""; or None and how the process ended."""
    with tempfile.TemporaryDirectory(prefix="bench-installed-") as folder:
        out, log = Path(folder, "result"), Path(folder, "log")
        with log.open("wb") as stream:  # a file: a pipe would stay open as long as any subprocess of the import
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
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
        return None, f"{ended}; its last output: {last}" if last else ended


def _main(out: Path, name: str | None) -> None:
    if name is not None:
        result: object = ""
        try:
            find_function(name)
        except HarnessError as error:
            result = str(error)
    else:
        result = [
            asdict(Verified(entry.name, entry.distribution, entry.version, entry.path))
            for entry in catalogue(Path(os.devnull))
            if entry.status != "not installed"
        ]
    scratch = out.with_suffix(".new")
    scratch.write_text(json.dumps(result), encoding="utf-8")
    scratch.rename(out)  # atomic


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
