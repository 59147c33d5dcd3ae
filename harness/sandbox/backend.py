"""The interface of sandboxes and of their sessions, and the limit on concurrent runs. Backends implement the
isolation."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from weakref import WeakKeyDictionary

from harness.sandbox.api import DEFAULT_LIMITS, Files, Limits, Result
from harness.sandbox.launch_data import Launch
from harness.sandbox.process import SandboxedProcess

RUNS_AT_ONCE = max(2, 2 * (os.cpu_count() or 1))
"""Maximum number of concurrent runs. More would compete for the CPUs, so that correct programs could time out."""

_run_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class Sandbox(ABC):
    """Interface of sandboxes, which run untrusted code.

    The paths of `files` are relative to the work folder, which contains nothing else and is the program's current
    directory. `argv[0] == "python"` means the sandbox's Python interpreter."""

    name: str
    """`bubblewrap`, `docker`, `podman` or `unsafe-local`."""

    @abstractmethod
    def launch(self, limits: Limits) -> AbstractContextManager[Launch]:
        """Prepare the start of one process. Leaving the context after the process has ended frees the resources."""

    async def ended(self, launch: Launch) -> None:  # noqa: B027  # an optional hook
        """Clean up after a process that has ended or was killed, before its `launch` context is left."""

    async def run(
        self, files: Files, argv: Sequence[str], stdin: str | bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> Result:
        """Run a program to completion. Cancelling kills its whole process tree.

        The number of concurrent runs is limited by the machine; waiting for a turn does not count towards any limit.

        Args:
            files: Contents of the work folder.
            argv: The program and its arguments.
            stdin: The program's whole input.
            limits: Resource limits. Exceeding one is a result, not an error.

        Raises:
            ConfigError: invalid `files` or `argv`; nothing was started.
            SandboxError: the sandbox itself failed, not the program; the run must not be scored.
        """
        slots = _run_slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(RUNS_AT_ONCE))
        async with slots, self._process(files, argv, limits) as process:
            process.pipes.write(stdin.encode() if isinstance(stdin, str) else stdin)
            process.pipes.close_stdin()
            return await process.finish()

    @asynccontextmanager
    async def session(
        self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> AsyncGenerator[Session, None]:
        """Run a program until the `async with` block ends. Arguments and errors as for `run`. Never queued."""
        session = await self.open_session(files, argv, limits)
        try:
            yield session
        finally:
            await session.close()

    async def open_session(self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Session:
        """Start a long-running program like `session`, for callers without `async with`; they must call `close`."""
        context = self._process(files, argv, limits, pauses_when_full=True)
        return Session(await context.__aenter__(), context)

    @asynccontextmanager
    async def _process(
        self, files: Files, argv: Sequence[str], limits: Limits, pauses_when_full: bool = False
    ) -> AsyncGenerator[SandboxedProcess, None]:
        with self.launch(limits) as launch:
            process = SandboxedProcess(self.name, launch, limits, pauses_when_full)
            try:
                await process.start(files, argv)
                yield process
            finally:
                try:
                    process.kill()  # at once and without awaiting, so that it cannot be interrupted
                    await process.end()
                finally:
                    await self.ended(launch)


class Session:
    """A long-running program with line-based input and output, created by `Sandbox.session`. Leaving its `async with`
    block kills its whole process tree."""

    def __init__(self, process: SandboxedProcess, context: AbstractAsyncContextManager[SandboxedProcess]) -> None:
        self._process = process
        self._context = context
        self._result: Result | None = None

    @property
    def is_running(self) -> bool:
        """Whether the program is running."""
        return self._result is None and self._process.is_running

    async def send(self, data: bytes) -> None:
        """Write to the program's stdin. Waits while the program does not read.

        If the program has ended or closed its stdin, the data is dropped; the next `read_line` reports the end."""
        pipes = self._process.pipes
        pipes.write(data)
        while not pipes.can_write and not pipes.is_over:
            await self._process.changed()

    async def read_line(self, timeout: float) -> bytes:
        r"""Read the next line of stdout with its `\n`, or the rest at the end of output; `b""` at the end.

        A line longer than `output_bytes` is returned in parts. Unread output is buffered up to `output_bytes`; then the
        program has to wait.

        Raises:
            TimeoutError: no complete line within `timeout` seconds. A partial line is kept for the next call.
        """
        async with asyncio.timeout(timeout):
            while (line := self._process.pipes.take_line()) is None:
                await self._process.changed()
        return line

    async def close(self) -> Result:
        """Kill the program and its children if they are running, and return the result with the unread stdout.

        A program that had to be killed has the outcome `signalled`. May be called repeatedly."""
        if self._result is None:
            self._process.pipes.stop_pausing()
            await self._process.wait_for_final_report()
            await self._context.__aexit__(None, None, None)
            self._result = self._process.result()
        return self._result
