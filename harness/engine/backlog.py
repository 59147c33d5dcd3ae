"""Queue of rollouts that are generated and wait to be scored."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from typing import TypeAlias

from harness.engine.executors import Finished

Batch: TypeAlias = list[tuple[Finished, Future[int] | None]]
"""Rollouts that are scored together, each with a future that is done when its line is on disk, or None if it is."""


class Backlog:
    """Queue of rollouts that wait to be scored, with limited room. Those of different worker processes take turns, so
    that no process is idle while another one has all the scoring to do.

    Args:
        limit: Maximum number of entries, after which `put` waits.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._batches: dict[object, deque[Batch]] = {}
        """The entries of each process; the process whose turn it is comes first."""
        self._ends = 0
        self._scorers: deque[Future[None]] = deque()
        """Futures of the workers that wait for an entry."""
        self._generators: deque[Future[None]] = deque()
        """Futures of the workers that wait for room."""

    async def put(self, batch: Batch, holder: object) -> None:
        """Add an entry of a process, after waiting for room; without, if the wait is cancelled."""
        try:
            while self._size >= self._limit:
                await _in_line(self._generators)
        finally:
            self._size += 1
            self._batches.setdefault(holder, deque()).append(batch)
            _wake(self._scorers)

    def end(self) -> None:
        """Tell a worker that no entries follow."""
        self._ends += 1
        _wake(self._scorers)

    async def get(self) -> Batch | None:
        """Remove and return the oldest entry of the next process, after waiting for one; None at the end."""
        while not self._batches:
            if self._ends:
                self._ends -= 1
                return None
            await _in_line(self._scorers)
        holder = next(iter(self._batches))
        batches = self._batches.pop(holder)
        batch = batches.popleft()
        if batches:
            self._batches[holder] = batches
        self._size -= 1
        if self._generators:
            _wake(self._generators)
        return batch


async def _in_line(waiting: deque[Future[None]]) -> None:
    future: Future[None] = asyncio.get_running_loop().create_future()
    waiting.append(future)
    try:
        await future
    except asyncio.CancelledError:
        if not future.cancelled():
            _wake(waiting)  # pass the turn on
        raise


def _wake(waiting: deque[Future[None]]) -> None:
    while waiting:
        future = waiting.popleft()
        if not future.done():
            future.set_result(None)
            return
