"""Actor on a node of a Ray cluster: starts one process of an environment there, as `--isolate` does, and passes the
messages on. However the actor ends, the process ends with it (see `isolation.keeper`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections import deque
from typing import Any

from harness.engine.isolation.spawned import Recipe, Spawned
from harness.engine.isolation.wire import pack
from harness.engine.provenance import bench_version

BEAT = 3.0
"""Seconds after which `fetch` returns although the process has said nothing but that it lives. Less than
`isolation.spawned.OVERDUE`, and than half of `remote_process.LOST_AFTER`."""

_HEARTBEAT = pack({"type": "beat"})
_CHUNK = 1 << 20
_SETTLE = 2.0
"""Seconds to wait for the exit code of a process whose output has ended."""

_MOST_LINES = 10_000
"""Maximum number of printed lines that wait for the driver."""


class ProcessActor:
    """Owner of one process. Its methods are called remotely, `feed` and `fetch` by one caller each."""

    def __init__(self) -> None:
        self._printed: deque[str] = deque(maxlen=_MOST_LINES)
        self._left_out = 0
        self._spawned: Spawned | None = None

    async def begin(self, version: str, recipe: dict[str, Any]) -> str:
        """Start the process.

        Args:
            version: The driver's version of bench.
            recipe: How to start the process, as keyword arguments of `Recipe`.

        Returns:
            Why it was not started; "" if it was.
        """
        if version != bench_version():
            return f"was refused: bench is {bench_version()} on {platform.node()} and {version} on the driver"
        self._spawned = Spawned(Recipe(**recipe), self._keep, is_apart=True)
        os.set_blocking(self._spawned.reports, False)
        return ""

    async def feed(self, data: bytes) -> None:
        """Pass messages on to the process; returns when it has taken all of them."""
        await asyncio.to_thread(self._write, data)

    async def fetch(self) -> tuple[bytes, list[str], str | None]:
        """Wait for messages of the process, at most `BEAT` seconds. Heartbeats alone are kept back for so long: to
        pass each on would take a fifth of the driver's CPU for a hundred processes.

        Returns:
            The messages, the lines that it has printed, and how it ended if it has.
        """
        assert self._spawned is not None
        loop = asyncio.get_running_loop()
        data, chunk = b"", _HEARTBEAT
        readable = asyncio.Event()
        loop.add_reader(self._spawned.reports, readable.set)
        try:
            async with asyncio.timeout(BEAT):
                while chunk == _HEARTBEAT:
                    await readable.wait()
                    readable.clear()
                    chunk = os.read(self._spawned.reports, _CHUNK)
                    data += chunk
        except (TimeoutError, BlockingIOError):
            pass
        finally:
            loop.remove_reader(self._spawned.reports)
        end = None if chunk != b"" else await asyncio.to_thread(self._spawned.how_it_ended, _SETTLE)
        lines = [self._printed.popleft() for _ in range(len(self._printed))]
        if self._left_out:
            lines.insert(0, f"({self._left_out} lines left out: printed faster than they are passed on)")
            self._left_out = 0
        return data, lines, end

    def _keep(self, line: str) -> None:
        self._left_out += len(self._printed) == _MOST_LINES
        self._printed.append(line)

    def _write(self, data: bytes) -> None:
        assert self._spawned is not None
        with contextlib.suppress(BrokenPipeError):  # `fetch` reports how the process ended
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._spawned.orders, rest) :]
