"""The process of an engine's client: its pipes, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Callable

from harness.sandbox.pipes import Pipes
from harness.sandbox.tree import usage

BUILD_END_SECONDS = 10.0
"""How long the client of a cancelled build may take to remove its container."""

END_BYTES = 1 << 16
"""How much of the end of a client's output is stored, at least."""

REST_SECONDS = 1.0
"""How long output is read after the end of a process if another one keeps its pipes open."""


class ClientPipes(Pipes):
    """Pipes of an engine's client. Also stores the end of its output."""

    def __init__(self, notify: Callable[[], None]) -> None:
        super().__init__(secrets.token_hex(16), 1 << 24, False, notify)
        self.end = bytearray()
        """The last bytes of stdout and stderr, in the order of arrival."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.end += data
        if len(self.end) > 2 * END_BYTES:  # seldom, since this copies it
            del self.end[:-END_BYTES]
        super().pipe_data_received(fd, data)


async def client_end(pipes: Pipes, changed: asyncio.Event) -> None:
    """Wait for the end of a process, and briefly for the rest of its output, whose pipes others may keep open."""
    while pipes.exit_code is None:
        changed.clear()
        await changed.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            while not pipes.is_over:
                changed.clear()
                await changed.wait()


async def end_build(pipes: Pipes, changed: asyncio.Event) -> None:
    """End a build. The client of podman runs the commands of the Dockerfile itself, in sessions of their own; once they
    are killed, it removes its container, and ends. A client without such programs is killed.

    Args:
        pipes: The pipes of the client.
        changed: The event of the pipes.
    """
    pid = pipes.transport.get_pid() if pipes.transport is not None else None
    if pid is None or pipes.exit_code is not None:
        return
    with contextlib.suppress(ProcessLookupError, TimeoutError):
        os.killpg(pid, signal.SIGSTOP)  # so that it starts no other program meanwhile
        found = usage(pid)
        programs = [each for each in found.pids if _is_in_another_session(each, pid)] if found is not None else []
        for each in programs:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        os.killpg(pid, signal.SIGCONT if programs else signal.SIGKILL)
        try:
            async with asyncio.timeout(BUILD_END_SECONDS):
                await client_end(pipes, changed)
        finally:
            if pipes.exit_code is None:
                os.killpg(pid, signal.SIGKILL)


def _is_in_another_session(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) != session
    except OSError:
        return False


def end_client(pipes: Pipes) -> None:
    """Kill the process of these pipes if it is running, and close them."""
    if pipes.transport is not None:
        if pipes.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                pipes.transport.kill()
        pipes.transport.close()
