"""Pool of the worker processes of one isolated environment, shared by its runs. Decides which process executes which
order (to generate or score a rollout), and when processes that die are no longer replaced."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from harness.core.errors import EnvironmentFault, WorkerDied
from harness.core.types import JsonDict
from harness.engine.isolation.process import Worker
from harness.engine.isolation.spawned import Recipe

logger = logging.getLogger(__name__)

MAX_FAILURES = 10
"""Maximum number of worker deaths or load failures in a row without a finished rollout."""

_GRACE = 5.0
"""Seconds in which a process must end, in addition to the environment's own cleanup time."""


@dataclass(eq=False, slots=True)
class _Seat:
    """Slot for one worker process, with the number of orders (to generate or score a rollout) that it executes."""

    worker: Worker | None = None
    busy: int = 0
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock for a slot that executes one order at a time."""

    @property
    def load(self) -> int:
        """Number of orders that it executes, or will: rollouts are scored where they were generated."""
        return self.busy + (0 if self.worker is None else self.worker.held)


class Pool:
    """Worker processes of one environment.

    Args:
        recipe: How to start each process.
        size: Number of concurrent processes.
        first: The process that was already started to describe the environment.
        patience: Seconds that the environment's own cleanup may take.
    """

    def __init__(self, recipe: Recipe, size: int, first: Worker, patience: float) -> None:
        self._recipe = recipe
        self._size = size
        self._patience = patience
        self._seats = [_Seat() for _ in range(size)]
        self._seats[0].worker = first
        # Additional slots for retries of work whose process died: the work may be the cause, so it runs alone.
        self._apart = [_Seat() for _ in range(max(2, size))]
        self._runs: dict[int, JsonDict] = {}
        self._failures = 0
        self._deaths: Counter[str] = Counter()
        """Number of processes that ended unexpectedly, by reason."""

    def open_run(self, order: JsonDict) -> int:
        """Send a run's settings to all current and future processes.

        Args:
            order: The message with the settings.

        Returns:
            The number of the run in later messages.
        """
        number = len(self._runs)
        self._runs[number] = {"type": "open", "run": number, **order}
        for seat in self._all():
            if seat.worker is not None and seat.worker.is_started:
                seat.worker.send(self._runs[number])
        return number

    @asynccontextmanager
    async def place(self, wanted: Worker | None = None, number: int | None = None) -> AsyncGenerator[Worker]:
        """Context manager that assigns a process, by default the least busy one, to one rollout or scoring.

        Args:
            wanted: Preferred process, used if it is alive.
            number: Otherwise, select process `number` modulo the pool size, to keep related work together.

        Raises:
            EnvironmentFault: processes repeatedly died before a rollout was finished.
            HarnessError: the environment failed to load.
        """
        if wanted is not None and wanted.death is None:
            seat = next((seat for seat in self._apart if seat.worker is wanted), None)
            if seat is not None:
                async with self._turn(seat) as worker:
                    yield worker
                return
            seats = [seat for seat in self._seats if seat.worker is wanted] or self._seats
        elif number is None:
            seats = self._seats[: self._now()]
        else:  # by the first size, so that all members of a group find the same process
            seats = [self._seats[number % self._size]]
        seat = min(seats, key=lambda seat: seat.load)
        seat.busy += 1
        try:
            yield await self._worker_of(seat)
        finally:
            seat.busy -= 1

    @asynccontextmanager
    async def alone(self, *, fresh: bool) -> AsyncGenerator[Worker]:
        """Context manager that assigns a process exclusively to one rollout or scoring; raises as `place` does.

        Args:
            fresh: Require a process that has executed nothing before.
        """
        seat = min(self._apart, key=lambda seat: (seat.busy, seat.worker is None))
        async with self._turn(seat, fresh=fresh) as worker:
            yield worker

    def has_finished(self) -> None:
        """Record that a rollout or its scoring has finished."""
        self._failures = 0

    def has_failed(self) -> None:
        """Count a rollout whose generation or scoring has again ended the process that ran it."""
        self._failures += 1

    def note(self) -> str:
        """Message about replaced processes for the run's result; "" if none was replaced."""
        if not self._deaths:
            return ""
        number, prefix = self._deaths.total(), f"the process of {self._recipe.name} "
        ways = [
            f"one {words.removeprefix(prefix)}" + (f" ({times} times)" if times > 1 else "")
            for words, times in self._deaths.most_common(3)
        ]
        more = " …" if len(self._deaths) > len(ways) else ""
        return f"{number} process{'es were' if number > 1 else ' was'} replaced: {'; '.join(ways)}{more}"

    async def end(self) -> None:
        """End all processes, each after its environment's teardown; idempotent."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for seat in self._all():
                    worker, seat.worker = seat.worker, None
                    if worker is not None:
                        tasks.create_task(self._end(worker))
        finally:
            if self._recipe.host is not None:
                await asyncio.to_thread(self._recipe.host.close)

    def kill(self) -> None:
        """Kill the processes of an environment that was loaded but will not be used. Blocking."""
        for seat in self._all():
            if seat.worker is not None:
                seat.worker.kill_and_wait()

    def _now(self) -> int:
        """Number of slots to use now, which are added if the host has room for more than before."""
        size = self._size if self._recipe.host is None else self._recipe.host.size
        self._seats += [_Seat() for _ in range(size - len(self._seats))]
        return size

    def _all(self) -> list[_Seat]:
        return [*self._seats, *self._apart]

    async def _end(self, worker: Worker) -> None:
        if worker.is_loaded and not worker.is_started and worker.death is None:  # never used, but torn down
            try:
                await worker.start()
            except WorkerDied as death:
                logger.warning("%s", death)
        await worker.end(self._patience + _GRACE)

    @asynccontextmanager
    async def _turn(self, seat: _Seat, *, fresh: bool = False) -> AsyncGenerator[Worker]:
        seat.busy += 1
        try:
            async with seat.turn:
                if fresh and seat.worker is not None and not seat.worker.is_fresh:
                    worker, seat.worker = seat.worker, None
                    await worker.end(self._patience + _GRACE)
                yield await self._worker_of(seat)
        finally:
            seat.busy -= 1

    async def _worker_of(self, seat: _Seat) -> Worker:
        async with seat.starting:
            while True:
                worker = seat.worker
                if worker is not None and worker.death is None and worker.is_started:
                    return worker
                if worker is None or worker.death is not None:
                    if worker is not None:
                        await worker.end(0.0)
                    if self._failures >= MAX_FAILURES:
                        raise EnvironmentFault(
                            f"processes of {self._recipe.name} died {self._failures} times in a row without finishing "
                            "a rollout; run a single rollout (num_examples = 1, rollouts_per_example = 1) to find the "
                            "cause"
                        )
                    worker = seat.worker = Worker(self._recipe)
                try:
                    worker.on_death = self._has_died
                    await worker.start()
                    for order in self._runs.values():
                        worker.send(order)
                except WorkerDied:  # loading failed, and may succeed the next time
                    self._failures += 1
                except BaseException:
                    worker.kill()
                    raise

    def _has_died(self, death: WorkerDied) -> None:
        words = str(death)
        if not self._deaths[words]:
            logger.warning("%s; the unfinished rollouts of this process are repeated", words)
        self._deaths[words] += 1
