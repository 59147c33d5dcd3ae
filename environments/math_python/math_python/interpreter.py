"""One rollout's Python interpreter: started in the sandbox with the first piece of code, kept until the rollout ends,
replaced when it dies. Owns what the model reads of it; the interpreter is that of `harness.sandbox.workbench`."""

from __future__ import annotations

import importlib.util

from harness.sandbox import Limits, Sandbox
from harness.sandbox.workbench import Lost, Workbench

PACKAGES = ("numpy", "sympy", "mpmath")
"""Brought into the sandbox if they are installed beside the harness."""

LIMITS = Limits(
    wall_seconds=86_400, cpu_seconds=600, memory_mb=1024, processes=32, file_mb=64, disk_mb=256, output_bytes=4_000_000
)
"""Of a whole rollout. Real time is bounded for each call; between calls the model thinks."""


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
        self._bench = Workbench(sandbox, LIMITS)
        self._seconds = seconds

    async def run(self, code: str) -> str:
        """Run a piece of code; what the model is to read.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        done = await self._bench.python(code, self._seconds)
        if isinstance(done, Lost):
            return f"[{done}]"
        return done.output.rstrip("\n") or "[no output]"

    async def close(self) -> None:
        """End the interpreter, if there is one."""
        await self._bench.close()
