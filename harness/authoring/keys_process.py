"""The keys of an environment's examples, as another process sees them. Owns that process: what it is started with
and what it writes; the comparison is in `rows_check`.

Run as a module, it reads a request on stdin and writes keys, one a line, to the file that is named there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.types import JsonDict

TIMEOUT = 600.0
"""Seconds that a process may take to load the environment and read all rows."""


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """Which environment, how built."""

    env_id: str
    env_args: JsonDict
    extra_env_kwargs: JsonDict


def keys_elsewhere(
    request: EnvironmentRequest, hash_seeds: Sequence[int], folder: Path
) -> list[tuple[str, list[str] | str]]:
    """The keys as new processes see them, side by side.

    Args:
        request: What is loaded.
        hash_seeds: `PYTHONHASHSEED` of each process.
        folder: For their files.

    Returns:
        For each: where that was, and the keys, or why there are none.
    """
    running = [(seed, folder / f"keys-{seed}", _start(request, seed, folder / f"keys-{seed}")) for seed in hash_seeds]
    try:
        return [(f"a process with PYTHONHASHSEED={seed}", _result(child, out)) for seed, out, child in running]
    finally:
        for _, _, child in running:
            if child.poll() is None:
                child.kill()
            child.communicate()


def _start(request: EnvironmentRequest, seed: int, out: Path) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "PYTHONHASHSEED": str(seed),
        # What can be imported here must be there, too; an environment may lie in a folder that only this process has.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: its exit code says so
        child.stdin.write(json.dumps([request.env_id, request.env_args, request.extra_env_kwargs, str(out)]))
        child.stdin.close()
    child.stdin = None  # closed: `communicate` must not flush it
    return child


def _result(child: subprocess.Popen[str], out: Path) -> list[str] | str:
    try:
        _, said = child.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return f"it took more than {TIMEOUT:g} seconds"
    if child.returncode == 0:
        return out.read_text(encoding="ascii").splitlines()
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "")
    return last.removeprefix("error: ") or f"it ended with exit code {child.returncode}"


def _main() -> int:
    from harness.authoring.rows_check import walk
    from harness.engine.loader import load_environment

    env_id, env_args, extra, out = json.load(sys.stdin)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            environment = load_environment(env_id, **env_args)
            environment.set_kwargs(**extra)
            rows = walk(environment)
    except HarnessError as error:
        sys.stderr.write(f"\nerror: {' '.join(str(error).split())}\n")
        return 1
    Path(out).write_text("".join(f"{key}\n" for key in rows.keys), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.stdout = sys.stderr
    sys.exit(_main())
