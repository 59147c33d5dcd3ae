"""Base class of the sandbox backends: runs, sessions, and the limit on concurrent runs."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from weakref import WeakKeyDictionary

from harness.sandbox.api import DEFAULT_LIMITS, Files, Limits, Result, Session
from harness.sandbox.contained import Contained
from harness.sandbox.orders import Launch

RUNS_AT_ONCE = max(2, 2 * (os.cpu_count() or 1))
"""Maximum number of concurrent runs. More would compete for the CPUs, so that correct programs could time out."""

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _gate() -> asyncio.Semaphore:
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(RUNS_AT_ONCE))


class SandboxBackend(ABC):
    """A sandbox without the isolation, which subclasses implement."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the sandbox, as in `find_sandbox`."""

    @abstractmethod
    def launch(self, limits: Limits) -> AbstractContextManager[Launch]:
        """Prepare the start of one process. Leaving the context after the process has ended frees the resources."""

    async def ended(self, launch: Launch) -> None:  # noqa: B027  # an optional hook
        """Called when a process has ended or was killed, before its `launch` context is left."""

    async def run(
        self, files: Files, argv: Sequence[str], stdin: str | bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> Result:
        """Run a program to completion; see `Sandbox.run`."""
        async with _gate(), self._contained(files, argv, limits) as process:
            process.wire.write(stdin.encode() if isinstance(stdin, str) else stdin)
            process.wire.close_stdin()
            return await process.finish()

    @asynccontextmanager
    async def session(
        self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> AsyncGenerator[Session, None]:
        """Start a long-running program; see `Sandbox.session`."""
        session = await self.open_session(files, argv, limits)
        try:
            yield session
        finally:
            await session.close()

    async def open_session(self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Session:
        """Start a long-running program that the caller must close; see `Sandbox.open_session`."""
        context = self._contained(files, argv, limits, holds_back=True)
        process = await context.__aenter__()
        return LiveSession(process, context)

    @asynccontextmanager
    async def _contained(
        self, files: Files, argv: Sequence[str], limits: Limits, holds_back: bool = False
    ) -> AsyncGenerator[Contained, None]:
        with self.launch(limits) as launch:
            process = Contained(self.name, launch, limits, holds_back)
            try:
                await process.start(files, argv)
                yield process
            finally:
                try:
                    process.kill()  # at once and without awaiting, so that it cannot be interrupted
                    await process.end()
                finally:
                    await self.ended(launch)


class LiveSession:
    """A running program in a sandbox; implements `Session`."""

    def __init__(self, process: Contained, context: AbstractAsyncContextManager[Contained]) -> None:
        self._process = process
        self._context = context
        self._result: Result | None = None

    @property
    def is_running(self) -> bool:
        """Whether the program is running."""
        return self._result is None and self._process.is_running

    async def send(self, data: bytes) -> None:
        """Write to the program's stdin; see `Session.send`."""
        wire = self._process.wire
        wire.write(data)
        while not wire.can_write and not wire.is_over:
            await self._process.changed()

    async def read_line(self, timeout: float) -> bytes:
        """Read the next line of the program's stdout; see `Session.read_line`."""
        wire = self._process.wire
        async with asyncio.timeout(timeout):
            while (line := wire.take_line()) is None:
                await self._process.changed()
        return line

    async def close(self) -> Result:
        """Kill the program if it is running, and return its result; see `Session.close`."""
        if self._result is None:
            self._process.wire.drop_unread()
            await self._process.last_words()
            await self._context.__aexit__(None, None, None)
            self._result = self._process.result()
        return self._result
