"""Import of environments in a separate process, so that one that exits, hangs or prints does no harm; contains both
parent and child. As a program, `-m harness.cli.doctor.imports FD FILE NAME…` appends one line of JSON to the file after
each import. Environments are not built, so nothing is downloaded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.core.errors import HarnessError
from harness.engine.environment_loader import find_function

PATIENCE = 20.0
"""Timeout in seconds of one import."""

_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

_START = 60.0
"""Timeout in seconds for the start of the process on a busy machine."""

_TICK = 0.02


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of one import."""

    name: str
    seconds: float
    problem: str = ""


def import_all(names: Sequence[str], patience: float = PATIENCE) -> list[Imported]:
    """Import environments in one process, or in several if one of them ends its process.

    Args:
        names: Names or paths, as in settings.
        patience: Timeout of each import in seconds.

    Returns:
        One result per environment, in the same order.
    """
    done: list[Imported] = []
    with tempfile.TemporaryDirectory(prefix="bench-doctor-") as folder:
        while len(done) < len(names):
            rest = names[len(done) :]
            told, why = _try(rest, Path(folder, str(len(done))), patience)
            done += told
            if len(told) < len(rest):
                done.append(Imported(rest[len(told)], 0.0, f"importing it {why}"))
    return done


def _try(names: Sequence[str], out: Path, patience: float) -> tuple[list[Imported], str]:
    """Import environments in one process; return its results, and how it ended if not normally."""
    out.touch()
    ours, theirs = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(ours), str(out), *names],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, **_OFFLINE}, pass_fds=(ours,),
        )  # fmt: skip
    finally:
        os.close(ours)
    try:
        why = _watch(child, out, patience)
    finally:
        os.close(theirs)
        # kill its process group: children may be left even after its end
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Imported(**json.loads(line)) for line in lines if line.endswith("}\n")], why


def _watch(child: subprocess.Popen[bytes], out: Path, patience: float) -> str:
    """Wait until the process ends or its output stalls; return how it ended."""
    size, since = 0, time.monotonic()
    while True:
        try:
            code = child.wait(_TICK)
        except subprocess.TimeoutExpired:
            now, grown = time.monotonic(), out.stat().st_size
            if grown != size:
                size, since = grown, now
            elif now - since > (patience if size else max(patience, _START)):
                return f"took more than {patience:g} seconds"
        else:
            if code < 0:
                return f"ended the process with signal {signal.Signals(-code).name}"
            return f"ended the process with exit code {code}"


def _end_with(lifeline: int) -> None:
    """Kill this process and its children when the other end of a pipe is closed, because the parent has ended."""
    os.set_inheritable(lifeline, False)

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _main(out: Path, names: Sequence[str]) -> None:
    out.write_text("\n", encoding="utf-8")  # from here on, the environments use up the time
    for name in names:
        begun = time.monotonic()
        try:
            find_function(name)
        except HarnessError as error:
            told = Imported(name, time.monotonic() - begun, str(error))
        else:
            told = Imported(name, time.monotonic() - begun)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(told)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of an environment may never end


if __name__ == "__main__":
    _end_with(int(sys.argv[1]))
    _main(Path(sys.argv[2]), sys.argv[3:])
