"""What each way of running code does the same: runs, sessions, and the queue before the processors. Owns how many runs
go at once; how a process is contained is each way's own."""

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
"""More would take each other's processors, and a right answer would run out of its time."""

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _gate() -> asyncio.Semaphore:
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(RUNS_AT_ONCE))


class SandboxBackend(ABC):
    """A sandbox, but for how it contains a process."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As `find_sandbox` takes it."""

    @abstractmethod
    def launch(self, limits: Limits) -> AbstractContextManager[Launch]:
        """How to start one process; leaving the context lets go of what that took, once the process has ended."""

    async def ended(self, launch: Launch) -> None:  # noqa: B027  # most ways have nothing to do
        """Called when a process has ended or was killed, before its launch is left."""

    async def run(
        self, files: Files, argv: Sequence[str], stdin: str | bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> Result:
        """See `Sandbox`."""
        async with _gate(), self._contained(files, argv, limits) as process:
            process.wire.write(stdin.encode() if isinstance(stdin, str) else stdin)
            process.wire.close_stdin()
            return await process.finish()

    @asynccontextmanager
    async def session(
        self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> AsyncGenerator[Session, None]:
        """See `Sandbox`."""
        session = await self.open_session(files, argv, limits)
        try:
            yield session
        finally:
            await session.close()

    async def open_session(self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Session:
        """See `Sandbox`."""
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
                    process.kill()  # first and without waiting: nothing can come between
                    await process.end()
                finally:
                    await self.ended(launch)


class LiveSession:
    """A program that is talked to. See `Session`."""

    def __init__(self, process: Contained, context: AbstractAsyncContextManager[Contained]) -> None:
        self._process = process
        self._context = context
        self._result: Result | None = None

    @property
    def is_running(self) -> bool:
        """See `Session`."""
        return self._result is None and self._process.is_running

    async def send(self, data: bytes) -> None:
        """See `Session`."""
        wire = self._process.wire
        wire.write(data)
        while not wire.can_write and not wire.is_over:
            await self._process.changed()

    async def read_line(self, timeout: float) -> bytes:
        """See `Session`."""
        wire = self._process.wire
        async with asyncio.timeout(timeout):
            while (line := wire.take_line()) is None:
                await self._process.changed()
        return line

    async def close(self) -> Result:
        """See `Session`."""
        if self._result is None:
            self._process.wire.drop_unread()
            await self._process.last_words()
            await self._context.__aexit__(None, None, None)
            self._result = self._process.result()
        return self._result
