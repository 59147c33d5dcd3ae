"""Import environments in new processes, so that one that exits, hangs or prints does no harm, and newly installed ones
are found. Run as a module with the arguments `FD FOLDER TASK`, this file reads the task's arguments from the folder and
writes the result into it, since an environment and its subprocesses may write to stdout and stderr."""

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Self, cast

from packaging.utils import canonicalize_name

from harness.authoring.catalogue import ListedEnvironment, catalogue
from harness.core.errors import HarnessError
from harness.core.types import JsonDict
from harness.engine.environment_loader import find_function, load_environment

PATIENCE = 60.0
"""Timeout for importing one environment, in seconds."""

_START = 60.0
"""Timeout for the start of the process, in seconds; long enough for a busy machine."""

_TICK = 0.02


class ChildTask:
    """Context manager that runs a task in a new process. When the block or the calling process ends, that process and
    all processes that it has started are ended.

    Args:
        task: Key of `_TASKS`.
        arguments: JSON arguments of the task's function.
        environ: Additional environment variables.
    """

    def __init__(self, task: str, arguments: Sequence[object] = (), environ: Mapping[str, str] | None = None) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="bench-child-")
        self._folder = Path(self._scratch.name)
        (self._folder / "arguments").write_text(json.dumps(arguments), encoding="utf-8")
        ours, self._lifeline = os.pipe()
        try:
            with (self._folder / "log").open("wb") as log:  # a pipe would stay open as long as any subprocess
                self._child = subprocess.Popen(
                    [sys.executable, "-P", "-m", __name__, str(ours), str(self._folder), task],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(ours,),
                    env={**os.environ, **(environ or {})},
                )  # fmt: skip
        finally:
            os.close(ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lifeline)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)  # children may be left even after its end
        self._child.wait()
        self._scratch.cleanup()

    def result(self, patience: float) -> tuple[object, str]:
        """Wait for the JSON result.

        Args:
            patience: Timeout of the task in seconds, counted from the start of its function.

        Returns:
            The result and ""; or None and a description of how the process ended.
        """
        ended, since = "", time.monotonic()
        while not ended:
            has_started = (self._folder / "started").exists()
            try:
                code = self._child.wait(_TICK)
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                ended = f"ended the process with {how}"
            except subprocess.TimeoutExpired:
                if not has_started and (self._folder / "started").exists():
                    since = time.monotonic()
                elif time.monotonic() - since > (patience if has_started else max(patience, _START)):
                    ended = f"took more than {patience:g} seconds"
        if (result := self._folder / "result").exists():
            return json.loads(result.read_text(encoding="utf-8")), ""
        lines = (self._folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
        return None, f"{ended}; its last output: {last}" if last else ended


def import_problem(
    name: str, patience: float = PATIENCE, environ: Mapping[str, str] | None = None
) -> tuple[str, float]:
    """Try to import an environment in a separate process, without building it.

    Args:
        name: Name or path, as in settings.
        patience: Timeout in seconds.
        environ: Additional environment variables.

    Returns:
        The reason why it cannot be imported, or ""; and the seconds that the import took.
    """
    with ChildTask("find", [name], environ) as child:
        found, ended = child.result(patience)
    return (f"importing it {ended}", 0.0) if found is None else cast("tuple[str, float]", found)


def installed_now() -> list[ListedEnvironment]:
    """List installed environments from a new process, since this process has cached the import path.

    The environments are not imported; `verify` does that.

    Raises:
        HarnessError: the process ended without a list.
    """
    with ChildTask("list") as child:
        listed, ended = child.result(PATIENCE)
    if listed is None:
        raise HarnessError(f"cannot list the installed environments: the child process {ended}")
    return [ListedEnvironment(**entry) for entry in cast("list[JsonDict]", listed)]


def verify(distributions: Sequence[str], patience: float = PATIENCE) -> list[ListedEnvironment]:
    """Check that the environments of some distributions can be imported and define their function.

    Args:
        distributions: Names of distributions.
        patience: Timeout of each import, in seconds.

    Returns:
        The environments; if one cannot be imported, its `problem` has the reason.
    """
    names = {canonicalize_name(name) for name in distributions}
    wanted = [entry for entry in installed_now() if canonicalize_name(entry.distribution) in names]
    return [replace(entry, problem=import_problem(entry.name, patience)[0]) for entry in wanted]


def _find(name: str) -> tuple[str, float]:
    begun, problem = time.monotonic(), ""
    try:
        find_function(name)
    except HarnessError as error:
        problem = str(error)
    return problem, time.monotonic() - begun


def _list() -> list[JsonDict]:
    return [asdict(entry) for entry in catalogue(Path(os.devnull))]


def _keys(env_id: str, env_args: JsonDict, extra: JsonDict) -> list[str] | str:
    """Keys of an environment's examples, or the reason why it does not load."""
    from harness.authoring.rows_check import scan_rows

    try:
        environment = load_environment(env_id, **env_args)
        environment.set_kwargs(**extra)
        return scan_rows(environment).keys
    except HarnessError as error:
        return " ".join(str(error).split())


_TASKS = {"find": _find, "list": _list, "keys": _keys}


def _main(lifeline: int, folder: Path, task: str) -> None:
    os.set_inheritable(lifeline, False)

    def end_with_parent() -> None:
        os.read(lifeline, 1)  # until the other end is closed
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    arguments = json.loads((folder / "arguments").read_text(encoding="utf-8"))
    (folder / "started").touch()
    result: object = _TASKS[task](*arguments)
    (folder / "new").write_text(json.dumps(result, default=str), encoding="utf-8")
    (folder / "new").rename(folder / "result")  # atomic
    os._exit(0)  # threads of an environment may never end


if __name__ == "__main__":
    _main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
