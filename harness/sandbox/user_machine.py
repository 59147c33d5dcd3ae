"""The container of a rollout for a model or an agent: programs, and the reading and writing of files, have the rights
of one user. Container engines read and write files as root."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.core.errors import SandboxError
from harness.sandbox.api import Result
from harness.sandbox.machine import FILE_BYTES, FOLDER_BYTES, Exec, Machine

T = TypeVar("T")

FILE_SECONDS = 60.0

_READ = '[ -f "$1" ] && exec cat -- "$1"; exit 1'

_WRITE = """
case $1 in */*) mkdir -p -- "${1%/*}" ;; esac
[ ! -e "$1" ] || [ -f "$1" ] || { echo "not a regular file" >&2; cat >/dev/null; exit 1; }
if [ -e "$1" ]; then cat >"$1"; else cat >"$1" && chmod -- "$2" "$1"; fi || { cat >/dev/null; exit 1; }
"""
"""Writes the input to a file. Reads all of it even if this fails, since podman may otherwise lose the error message."""


class UserMachine(Machine):
    """A container whose default user is the given one, for the turns of a rollout. Copies of folders are made as root,
    as in every machine.

    Args:
        machine: The rollout's container, which the caller closes.
        user: The user; None for that of the image.
    """

    def __init__(self, machine: Machine, user: str | None) -> None:
        self.name = machine.name
        self._machine = machine
        self._user = user
        self._calls: set[asyncio.Task[Any]] = set()

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, which `close` cancels."""
        if self.failure is not None:
            work.close()
            raise self.failure
        task = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await task

    async def run(self, call: Exec) -> Result:
        """Run a program; see `Machine.exec`."""
        return await self._call(self._machine.run(replace(call, user=call.user or self._user)))

    async def read_file(self, path: str, limit: int = FILE_BYTES) -> bytes:
        """Read a file; see `Machine.read_file`."""
        parts: list[bytes] = []

        def keep(stream: str, data: bytes) -> None:
            if stream == "stdout":
                parts.append(data)

        done = await self.exec(
            ["sh", "-c", _READ, "sh", path], timeout=FILE_SECONDS, output_bytes=limit, on_output=keep
        )
        if done.outcome == "output" or done.stdout_truncated:
            raise ValueError(f"{path} has more than {limit:,} bytes")
        if done.exit_code != 0:
            raise FileNotFoundError(f"{path} is not a file that the user may read")
        return b"".join(parts)

    async def write_file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file; see `Machine.write_file`. An existing file keeps its mode and its owner."""
        done = await self.exec(["sh", "-c", _WRITE, "sh", path, f"{mode:o}"], stdin=data, timeout=FILE_SECONDS)
        if done.exit_code != 0:
            raise OSError(f"{path} cannot be written in the machine: {done.stderr.strip()[-500:]}")

    async def copy_in(self, source: Path, target: str) -> None:
        """Copy a folder into the machine as root; see `Machine.copy_in`."""
        await self._call(self._machine.copy_in(source, target))

    async def copy_out(self, source: str, target: Path, limit: int = FOLDER_BYTES) -> None:
        """Copy a folder out of the machine as root; see `Machine.copy_out`."""
        await self._call(self._machine.copy_out(source, target, limit))

    async def restart(self) -> None:
        """End all processes; see `Machine.restart`."""
        await self._call(self._machine.restart())

    async def close(self) -> None:
        """Cancel the calls in progress, and wait until their programs have been killed. Later calls fail. The caller of
        the constructor closes the machine."""
        self.failure = SandboxError("the turns of this rollout are over; `verify` gets a machine of its own")
        for task in self._calls:
            if not task.cancelling():  # else its program is being killed
                task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
