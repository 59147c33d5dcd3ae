"""Keys of an environment's examples, computed in new processes. Run as a module, this file reads a request from stdin
and writes the keys, one per line, to the file named in the request. The comparison of keys is in `rows_check`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import HarnessError

TIMEOUT = 600.0
"""Timeout in seconds for loading the environment and reading all rows."""


def keys_elsewhere(
    request: Sequence[object], hash_seeds: Sequence[int], folder: Path
) -> list[tuple[str, list[str] | str]]:
    """Compute the example keys in new processes that run in parallel.

    Args:
        request: Environment to load: its id, its arguments, and `extra_env_kwargs`.
        hash_seeds: `PYTHONHASHSEED` of each process.
        folder: Folder for the output files of the processes.

    Returns:
        For each process: its description, and the keys or an error message.
    """
    running = [(seed, folder / f"keys-{seed}", _start(request, seed, folder / f"keys-{seed}")) for seed in hash_seeds]
    try:
        return [(f"a process with PYTHONHASHSEED={seed}", _result(child, out)) for seed, out, child in running]
    finally:
        for _, _, child in running:
            if child.poll() is None:
                child.kill()
            child.communicate()


def _start(request: Sequence[object], seed: int, out: Path) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "PYTHONHASHSEED": str(seed),
        # The environment may be in a folder that only this process has on its import path.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the process has ended; its exit code has the reason
        child.stdin.write(json.dumps([*request, str(out)]))
        child.stdin.close()
    child.stdin = None  # closed, so `communicate` must not flush it
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
    from harness.authoring.rows_check import scan_rows
    from harness.engine.environment_loader import load_environment

    env_id, env_args, extra, out = json.load(sys.stdin)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            environment = load_environment(env_id, **env_args)
            environment.set_kwargs(**extra)
            rows = scan_rows(environment)
    except HarnessError as error:
        sys.stderr.write(f"\nerror: {' '.join(str(error).split())}\n")
        return 1
    Path(out).write_text("".join(f"{key}\n" for key in rows.keys), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.stdout = sys.stderr
    sys.exit(_main())
