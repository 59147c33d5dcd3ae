"""The process in which environments are imported, so that one that ends its process, hangs or prints does no harm. Owns
both ends of it. As a program, `-m harness.cli.doctor.imports FD FILE NAME…` appends one line of JSON to the file for
each environment, as soon as it is known. Environments are imported and not built: nothing is downloaded."""

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
from harness.engine.loader import find_function

PATIENCE = 20.0
"""Seconds without news after which an import hangs."""

_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

_START = 60.0
"""Seconds that the process may take to begin, on a machine that is busy."""

_TICK = 0.02


@dataclass(frozen=True, slots=True)
class Imported:
    """How an import went."""

    name: str
    seconds: float
    problem: str = ""


def import_all(names: Sequence[str], patience: float = PATIENCE) -> list[Imported]:
    """Import each of these environments in one process, or in as many as they end.

    Args:
        names: Names or paths, as settings have them.
        patience: Seconds that each may take.

    Returns:
        How each went, in their order.
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
    """What one process said, and how it ended if it did not come to the end."""
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
        # With whatever it has started: also of a process that has ended, of its group some may be left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Imported(**json.loads(line)) for line in lines if line.endswith("}\n")], why


def _watch(child: subprocess.Popen[bytes], out: Path, patience: float) -> str:
    """Wait until the process ends or says nothing more; returns how it ended."""
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
    """End this process and all that it has started when the other end of a pipe is closed: when its parent is gone."""
    os.set_inheritable(lifeline, False)

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _main(out: Path, names: Sequence[str]) -> None:
    out.write_text("\n", encoding="utf-8")  # from now on, the time is the environments'
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
    os._exit(0)  # threads that an environment has started need not end


if __name__ == "__main__":
    _end_with(int(sys.argv[1]))
    _main(Path(sys.argv[2]), sys.argv[3:])
