"""Write dataset checkpoints, so that the dataset on disk is at most `save_every` rollouts behind the journal.
`store.dataset` writes in a thread, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from harness.core.errors import StoreError
from harness.store.dataset import DatasetWriter

logger = logging.getLogger(__name__)


class Checkpoints:
    """Context manager that writes the rows of finished rollouts periodically.

    Args:
        writer: Writer of the run's dataset; None writes nothing.
        every: Rollouts between two checkpoints; −1 for none until the run ends.
    """

    def __init__(self, writer: DatasetWriter | None, every: int) -> None:
        self._writer = writer if every > 0 else None
        self._every = every
        self._waiting = 0
        self._due = asyncio.Event()
        self._closing = False
        self._task = asyncio.TaskGroup()

    def outcome(self) -> None:
        """Count one finished rollout, and trigger a checkpoint if one is due."""
        self._waiting += 1
        if self._waiting >= self._every and self._writer is not None:
            self._due.set()

    async def __aenter__(self) -> Self:
        if self._writer is not None:
            await self._task.__aenter__()
            self._task.create_task(self._write(self._writer))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is None:
            return
        self._closing = True
        self._due.set()
        # Do not pass the body's error to the task group: it would wrap the error, and a write in progress may finish.
        await self._task.__aexit__(None, None, None)

    async def _write(self, writer: DatasetWriter) -> None:
        while True:
            await self._due.wait()
            if self._closing:
                return
            self._due.clear()
            self._waiting = 0
            try:
                await asyncio.to_thread(writer.checkpoint)
            except StoreError as error:
                # The journal is complete: the dataset is rebuilt from it at the end of the run, or an error is reported
                # then.
                logger.warning("the dataset on disk is behind; the next checkpoint tries again: %s", error)
