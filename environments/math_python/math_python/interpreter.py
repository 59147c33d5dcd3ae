"""One rollout's Python interpreter: started in the sandbox with the first piece of code, kept until the rollout ends,
replaced when it dies. Owns the session and what the model is told of its end; the program inside is `repl`."""

from __future__ import annotations

import importlib.util
import json
from importlib.resources import files
from typing import Any, cast

from harness.errors import SandboxError
from harness.sandbox import Limits, Result, Sandbox, Session

PACKAGES = ("numpy", "sympy", "mpmath")
"""Brought into the sandbox if they are installed beside the harness."""

LIMITS = Limits(wall_seconds=86_400, cpu_seconds=600, memory_mb=1024, processes=32, file_mb=64, disk_mb=256)
"""Of a whole rollout. Real time is bounded for each call; between calls the model thinks."""

START_SECONDS = 120.0
"""An interpreter that has not started by then never will."""

ENDS = {
    "memory": f"It used more than {LIMITS.memory_mb} MB of memory",
    "cpu": f"It used more than {LIMITS.cpu_seconds:g} s of CPU time in all",
    "processes": f"It started more than {LIMITS.processes} processes",
    "disk": f"It wrote more than {LIMITS.disk_mb} MB to disk",
    "output": "It wrote too much",
    "timeout": "It ran for too long",
}
FRESH = "The interpreter starts afresh with the next call: all variables, functions and imports are gone."


def packages() -> tuple[str, ...]:
    """Those of `PACKAGES` that are installed."""
    return tuple(name for name in PACKAGES if importlib.util.find_spec(name) is not None)


class Interpreter:
    """A Python interpreter that remembers.

    Args:
        sandbox: Where it runs.
        seconds: How long one piece of code may take.
    """

    def __init__(self, sandbox: Sandbox, seconds: float) -> None:
        self._sandbox = sandbox
        self._seconds = seconds
        self._session: Session | None = None

    async def run(self, code: str) -> str:
        """Run a piece of code; what the model is to read.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        session = await self._open()
        await session.send(json.dumps({"code": code}).encode() + b"\n")
        try:
            line = await session.read_line(self._seconds)
        except TimeoutError:
            await self.close()
            return f"[The code ran for more than {self._seconds:g} s and was stopped. {FRESH}]"
        if not line.endswith(b"\n"):
            self._session = None
            return f"[{_end(await session.close())}. {FRESH}]"
        try:
            reply = cast("dict[str, Any]", json.loads(line))
            output = str(reply["output"])
        except (ValueError, KeyError, TypeError):  # the code wrote to the interpreter's own pipe
            await self.close()
            return f"[The code wrote over the interpreter's replies. {FRESH}]"
        return output.rstrip("\n") or "[no output]"

    async def close(self) -> None:
        """End the interpreter, if there is one."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open(self) -> Session:
        if self._session is None:
            program = files("math_python").joinpath("repl.py").read_text(encoding="utf-8")
            self._session = await self._sandbox.open_session({"repl.py": program}, ["python", "repl.py"], LIMITS)
            try:
                ready = await self._session.read_line(START_SECONDS)
            except TimeoutError:
                ready = b""
            if ready != b'{"ready": true}\n':
                session, self._session = self._session, None
                result = await session.close()
                raise SandboxError(f"the Python interpreter does not start ({result.outcome}): {result.stderr[-500:]}")
        return self._session


def _end(result: Result) -> str:
    """Why an interpreter is gone."""
    if result.outcome in ENDS:
        return ENDS[result.outcome]
    if result.outcome == "exited":
        return f"The code ended the interpreter (exit code {result.exit_code})"
    return f"The interpreter was ended by signal {result.signal}" if result.signal else "The interpreter was ended"
