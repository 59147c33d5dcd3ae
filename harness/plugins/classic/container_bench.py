"""The sandbox of a rollout of `vf.SandboxEnv` with an image of its own: a container, which starts with the first
command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from harness.core.errors import SandboxError
from harness.sandbox.find import find_machines
from harness.sandbox.machine import BASH_OR_SH, Machine, MachineSpec
from harness.sandbox.workbench import OUTPUT_BYTES, Ran


class ContainerBench:
    """A container with the methods of a `Workbench` that `vf.SandboxEnv` uses.

    Args:
        spec: Description of the container.
        start: Command that is started in the background on opening.
        seconds: How long its commands may run after the opening, in seconds.
    """

    def __init__(self, spec: MachineSpec, start: str | None, seconds: float) -> None:
        self._spec, self._start, self._seconds = spec, start, seconds
        self._is_closed = False
        self._opened = 0.0
        self._machine: Machine | None = None
        self._lock = asyncio.Lock()
        self.open_seconds = 0.0
        """Seconds that the start took."""
        self.failure: SandboxError | None = None
        """The first failure of the container. Code that catches it must not reach a result."""

    async def command(
        self, command: str, seconds: float, folder: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Ran:
        """Run a command in a new shell; see `Workbench.command`."""
        try:
            machine = await self._open()
            seconds = min(seconds, self._opened + self._seconds - time.monotonic())
            if seconds <= 0:
                return Ran("", f"the sandbox has reached its lifetime of {self._seconds:g} s", 137, True)
            done = await machine.exec(
                ["sh", "-c", BASH_OR_SH, "sh", command], timeout=seconds, cwd=folder, env=environment or {},
            )  # fmt: skip
        except SandboxError as error:
            self.failure = self.failure or error
            raise
        code = 137 if done.exit_code is None else done.exit_code
        return Ran(_shortened(done.stdout), _shortened(done.stderr), code, done.outcome == "timeout")

    async def close(self) -> None:
        """Remove the container, if it was started."""
        async with self._lock:  # a container that is being opened is closed, too
            self._is_closed = True
            if self._machine is not None:
                await self._machine.close()

    async def _open(self) -> Machine:
        async with self._lock:
            if self._is_closed:
                raise SandboxError("the sandbox of this rollout is closed")
            if self._machine is None:
                started = time.monotonic()
                self._machine = await find_machines(self._spec).open(self._spec)
                self._opened = time.monotonic()
                self.open_seconds = self._opened - started
                if self._start is not None:
                    await self._machine.exec(["sh", "-c", 'nohup sh -c "$1" >/dev/null 2>&1 &', "sh", self._start])
            return self._machine


def _shortened(text: str) -> str:
    """Omit the middle of a long output."""
    half, left_out = OUTPUT_BYTES // 2, len(text) - OUTPUT_BYTES
    return text if left_out <= 0 else f"{text[:half]}\n[… {left_out} characters left out …]\n{text[-half:]}"
