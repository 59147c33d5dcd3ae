"""A machine in bubblewrap or without isolation: a `Workbench` that lasts for the whole rollout. Programs see those of
this computer and a private folder in memory. There are no images, users or network."""

from __future__ import annotations

import base64
import shlex
import time
from typing import Any

from harness.core.errors import SandboxError
from harness.sandbox.api import Limits, Result
from harness.sandbox.backend import Sandbox
from harness.sandbox.machine import FILE_BYTES, Exec, Machine, MachineSpec
from harness.sandbox.workbench import Lost, Workbench

DISK_MB = 1024
"""Default disk space in MB. It is in memory."""

_DAY = 86_400.0
_LONGEST_REPLY = 64 << 20


class Workbenches:
    """Starts machines in a sandbox without images.

    Args:
        sandbox: The sandbox.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def open(self, spec: MachineSpec) -> Machine:
        """Start a machine; see `open_machine`."""
        spec.refuse(self._sandbox.name)
        disk = spec.disk_mb or DISK_MB
        limits = Limits(_DAY, _DAY, spec.memory_mb, spec.processes, disk, disk, _LONGEST_REPLY)
        machine = WorkbenchMachine(self._sandbox.name, Workbench(self._sandbox, limits, spec.env))
        try:
            await machine.exec(["true"])  # an error of the sandbox is one of the start
        except BaseException:
            await machine.close()
            raise
        return machine


class WorkbenchMachine(Machine):
    """A machine in a workbench.

    Args:
        name: Name of the sandbox.
        bench: The workbench.
    """

    def __init__(self, name: str, bench: Workbench) -> None:
        self.name = name
        self._bench = bench

    async def run(self, call: Exec) -> Result:
        """Run a program; see `Machine.exec`."""
        MachineSpec(user=call.user).refuse(self.name)
        command, started = f"exec {shlex.join(call.argv)}", time.monotonic()
        with self.working():
            done = await self._bench.command(
                command,
                call.timeout,
                call.cwd,
                call.env,
                call.input,
                min(call.output_bytes, _LONGEST_REPLY // 13),  # six bytes for each
            )
        if isinstance(done, Lost):
            return Result(None, "", str(done), "timeout" if done.timed_out else "signalled", call.timeout)
        for stream, text in (("stdout", done.stdout), ("stderr", done.stderr)):
            if call.on_output is not None and text:
                call.on_output(stream, text.encode())
        return Result(
            exit_code=None if done.timed_out else done.exit_code,
            stdout=done.stdout,
            stderr=done.stderr,
            outcome="timeout" if done.timed_out else "exited",
            wall_seconds=time.monotonic() - started,
            stdout_truncated=done.is_cut[0],
            stderr_truncated=done.is_cut[1],
        )

    async def read_file(self, path: str, limit: int = FILE_BYTES) -> bytes:
        """Read a file; see `Machine.read_file`."""
        reply = await self._file(path, limit=min(limit, _LONGEST_REPLY // 2))
        if "missing" in reply:
            raise FileNotFoundError(f"{path}: {reply['missing']}")
        if "size" in reply:
            raise ValueError(f"{path} has {reply['size']:,} bytes, more than {limit:,}")
        return base64.b64decode(reply["data"])

    async def write_file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file; see `Machine.write_file`."""
        content = data.encode() if isinstance(data, str) else data
        await self._file(path, data=base64.b64encode(content).decode(), mode=mode)

    async def close(self) -> None:
        """Remove the machine; see `Machine.close`."""
        self.failure = SandboxError("the machine of this rollout is closed")
        await self._bench.close()

    async def _file(self, path: str, **request: object) -> dict[str, Any]:
        with self.working():
            reply = await self._bench.file(path, **request)
        if isinstance(reply, Lost):
            raise FileNotFoundError(f"{path}: {reply}")
        if "error" in reply:
            raise OSError(f"{path}: {reply['error']}")
        return reply
