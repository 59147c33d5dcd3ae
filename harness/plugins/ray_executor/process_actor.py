"""Actor on a node of a Ray cluster: starts one process of an environment there, as `--isolate` does, and passes the
messages on. When the actor ends, for whatever reason, the process ends with it (see `isolation.keeper`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections import deque
from typing import Any

from harness.engine.isolation.spawned import Recipe, Spawned
from harness.engine.provenance import bench_version

BEAT = 2.0
"""Seconds after which `fetch` returns although the process has said nothing, as a sign of life."""

_CHUNK = 1 << 20
_SETTLE = 2.0
"""Seconds to wait for the exit code of a process whose output has ended."""


class ProcessActor:
    """Owner of one process. Its methods are called remotely, `feed` and `fetch` by one caller each.

    Args:
        recipe: How to start the process, as keyword arguments of `Recipe`.
    """

    def __init__(self, recipe: dict[str, Any]) -> None:
        self._printed: deque[str] = deque()
        self._spawned = Spawned(Recipe(**recipe), self._printed.append)
        os.set_blocking(self._spawned.reports, False)

    async def where(self) -> tuple[str, str]:
        """Name of the node's computer, and its version of bench."""
        return platform.node(), bench_version()

    async def feed(self, data: bytes) -> None:
        """Pass messages on to the process; returns when it has taken all of them."""
        await asyncio.to_thread(self._write, data)

    async def fetch(self) -> tuple[bytes, list[str], str | None]:
        """Wait for messages of the process, at most `BEAT` seconds.

        Returns:
            The messages, the lines that it has printed, and how it ended if it has.
        """
        loop = asyncio.get_running_loop()
        data: bytes | None = None
        readable = asyncio.Event()
        loop.add_reader(self._spawned.reports, readable.set)
        try:
            async with asyncio.timeout(BEAT):
                await readable.wait()
            data = os.read(self._spawned.reports, _CHUNK)
        except (TimeoutError, BlockingIOError):
            pass
        finally:
            loop.remove_reader(self._spawned.reports)
        if data != b"":
            return data or b"", self._lines(), None
        end = await asyncio.to_thread(self._spawned.how_it_ended, _SETTLE)
        return b"", self._lines(), end

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # `fetch` reports how the process ended
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._spawned.orders, rest) :]

    def _lines(self) -> list[str]:
        return [self._printed.popleft() for _ in range(len(self._printed))]
