"""Schedule one run's work: generation, backlog, scoring. The schedule starts items (planned rollouts) in order and
updates the live counters; the executor executes them, and the journal stores the records.

    todos ──► generation workers ──► backlog ──► scoring workers
                 │ generated/failed                  │ scored
                 └────────────► journal ◄────────────┘

Each stage has a fixed number of workers. A generation worker is free again once its rollout has ended, unless the
backlog is full; then it waits for scoring. A rollout is counted only when its line is on disk. In a run that stops at
its first error, the worker that generated a rollout also scores it before it begins the next one.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

from harness.core.errors import EnvironmentFault, HarnessError, SystemicError
from harness.core.records import BUDGET_SPENT, Failed, Generated, Record, Scored
from harness.engine.backlog import Backlog, Batch
from harness.engine.executors import Executor, Finished, unwritable
from harness.engine.progress import RunProgress
from harness.engine.remaining_work import Aside, RolloutGroup, Todo, Todos
from harness.store.outcome_kinds import unscored


class Ledger(Protocol):
    """The part of the journal's interface that the scheduler uses."""

    def submit(self, record: Record) -> Future[int]:
        """Queue a record; the future returns its byte offset once it is on disk, or raises `StoreError`."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Concurrency limits of a run's stages, and its stopping conditions."""

    generation: int
    """Maximum number of rollouts being generated; −1 is unlimited."""
    scoring: int
    """Maximum number of rollouts being scored; −1 is unlimited."""
    total: int
    """Maximum number of rollouts, and so of workers of a stage."""
    group_size: int = 1
    """Number of rollouts that are scored together and count as one entry of the backlog."""
    joint: AbstractAsyncContextManager[object] = field(default_factory=nullcontext[None])
    """Semaphore that each rollout holds while it is generated, to limit several runs together."""
    fail_fast: bool = False
    """Start nothing new after the first rollout without a score."""
    max_failures: int | None = None
    """Start nothing new after more than this many rollouts without a score; None is no limit."""
    may_start: Callable[[], bool] = lambda: True
    """Called before each rollout starts. If it returns False, nothing new starts, and work in flight continues."""

    @property
    def generators(self) -> int:
        """Number of workers that generate rollouts."""
        return _workers(self.generation, self.total)

    @property
    def scorers(self) -> int:
        """Number of workers that score, each of which scores all rollouts of a group together."""
        return max(1, _workers(self.scoring, self.total) // self.group_size)

    @property
    def backlog(self) -> int:
        """Maximum number of groups waiting to be scored: enough for all rollouts that may be generated at once."""
        return max(1, self.generators // self.group_size)


def _workers(gate: int, total: int) -> int:
    return max(1, min(gate, total) if gate > 0 else total)


class Schedule:
    """Scheduler of one run.

    Args:
        todos: The remaining items, created lazily; the items of an example are adjacent.
        executor: Executes the rollouts.
        ledger: Stores every result before it is counted.
        progress: The run's live counters, updated here.
        bounds: The run's limits.
        on_outcome: Called with each finished rollout and its score, once its line is on disk.
        score: Whether to score generated rollouts; if False, they are left to a later pass over the journal.
    """

    def __init__(
        self,
        todos: Iterator[Todo],
        executor: Executor,
        ledger: Ledger,
        progress: RunProgress,
        bounds: Bounds,
        *,
        on_outcome: Callable[[Generated | Failed, Scored | None], None],
        score: bool = True,
    ) -> None:
        self._on_outcome = on_outcome
        self._step = todos.step if isinstance(todos, Todos) else partial(next, todos, None)
        self._aside: asyncio.Queue[Aside | None] = asyncio.Queue()
        self._seeking = 0
        self._executor = executor
        # Optional, so that executors of other packages need not have it.
        self._holder_of: Callable[[str], object] = getattr(executor, "holder_of", _no_holder)
        self._ledger = ledger
        self._progress = progress
        self._score = score
        self._bounds = bounds
        self._failures_left = 0 if bounds.fail_fast else bounds.max_failures
        self._backlog = Backlog(bounds.backlog)
        self._workers: list[Task[None]] = []
        self._stopping = False
        self._judge_gone: SystemicError | None = None
        self.last_error: Failed | Scored | None = None
        """The failure that exceeded the limit on failures; None if it was not exceeded."""
        self._last: Future[int] | None = None

    async def run(self) -> SystemicError | None:
        """Execute the run's work until nothing is left or `stop` is called.

        Returns:
            The error that made an endpoint of the model or of a judge unusable, if that ended the run early.

        Raises:
            HarnessError: the journal can no longer be written.
        """
        systemic: SystemicError | None = None
        try:
            async with asyncio.TaskGroup() as scoring:
                self._workers += [scoring.create_task(self._score_worker()) for _ in range(self._bounds.scorers)]
                scoring.create_task(self._count_aside())
                try:
                    async with asyncio.TaskGroup() as generation:
                        starts = range(self._bounds.generators)
                        self._workers += [generation.create_task(self._generation_worker()) for _ in starts]
                except* SystemicError as group:
                    # The group has cancelled the other generations: they would fail with the same error.
                    systemic = cast(SystemicError, _first(group))
                self._aside.put_nowait(None)
                for _ in range(self._bounds.scorers):
                    self._backlog.end()
        except* HarnessError as group:
            raise _first(group) from None
        if self._last is not None:
            await self._last
            await asyncio.sleep(0)  # let the callbacks that count outcomes run
        return systemic or self._judge_gone

    def stop(self) -> None:
        """Start nothing new; work in flight continues."""
        self._stopping = True

    def cancel(self) -> None:
        """Cancel work in flight. If the run is resumed, generated rollouts are scored and unfinished ones repeated."""
        self._stopping = True
        for task in self._workers:
            task.cancel()

    async def _generation_worker(self) -> None:
        while True:
            # Take the next item only inside the joint limit, so that no item waits there after a stop.
            async with self._bounds.joint:
                todo = await self._next()
                if todo is None:
                    return
                record: Generated | Failed | None = todo.recorded
                if record is None:
                    if todo.introduce:
                        self._submit(todo.item.example)
                    self._progress.generating += 1
                    try:
                        record = await self._executor.generate(todo.item)
                    finally:
                        self._progress.generating -= 1
            if todo.recorded is not None:
                await self._admit(todo, todo.recorded, None)
                continue
            self._progress.usage += record.usage
            try:
                acknowledged = self._submit(record)
            except EnvironmentFault as error:  # the record holds a value that is no JSON
                self._executor.forget(todo.item.key)
                record = unwritable(record, error)
                acknowledged = self._submit(record)
            if isinstance(record, Failed):
                self._note_error(record)
                acknowledged.add_done_callback(partial(self._count_failed, todo.item.example.index, record))
                await self._close_out(todo.group, lost=1)
            else:
                await self._admit(todo, record, acknowledged)

    async def _next(self) -> Todo | None:
        """Return the next item; None at the end. Other tasks may run while finished items are counted."""
        while not self._stopping and self._bounds.may_start():
            step = self._step()
            if step is None or isinstance(step, Todo):
                return step
            if self._progress.target is not None:  # the rewards so far decide whether anything begins
                step()
                continue
            self._aside.put_nowait(step)
            self._seeking += 1
            try:
                await asyncio.sleep(0)
            finally:
                self._seeking -= 1
        return None

    async def _count_aside(self) -> None:
        while (count := await self._aside.get()) is not None:
            while self._seeking:  # noqa: ASYNC110 - workers that seek work have priority, one loop turn at a time
                await asyncio.sleep(0)
            count()
            await asyncio.sleep(0)

    async def _admit(self, todo: Todo, record: Generated, acknowledged: Future[int] | None) -> None:
        """Queue a generated rollout for scoring; waits while the backlog is full. If scoring is left to a later pass,
        only rollouts whose state cannot be stored in the journal are queued."""
        finished = Finished(todo.item.example, record)
        if todo.group is not None:
            todo.group.finished.append(finished)
            await self._close_out(todo.group)
        elif self._score or record.lost:
            await self._enqueue([(finished, acknowledged)])
        else:
            self._executor.forget(record.key)

    async def _close_out(self, group: RolloutGroup | None, *, lost: int = 0) -> None:
        if group is None:
            return
        group.lost += lost
        if not group.is_closed or not group.finished:
            return
        if not self._score and (group.lost or not any(finished.record.lost for finished in group.finished)):
            for finished in group.finished:
                self._executor.forget(finished.record.key)
            return
        if group.lost:
            for finished in group.finished:
                self._executor.forget(finished.record.key)
                self._record_score(finished, unscored(finished.record.key, "group incomplete"))
        else:
            # Sort by index, as in a later scoring: rewards must not depend on the order of completion. The journal
            # acknowledges in order, so the last line's acknowledgement covers the whole group.
            members = sorted(group.finished, key=lambda finished: finished.record.rollout_index)
            await self._enqueue([(finished, self._last) for finished in members])

    async def _enqueue(self, rollouts: Batch) -> None:
        if self._bounds.fail_fast:
            self._progress.backlog += len(rollouts)
            await self._score_batch(rollouts)
            return
        try:
            # Also added if the endpoint becomes unusable meanwhile: generated rollouts are scored.
            await self._backlog.put(rollouts, self._holder_of(rollouts[0][0].record.key))
        finally:
            self._progress.backlog += len(rollouts)

    async def _score_worker(self) -> None:
        while (batch := await self._backlog.get()) is not None:
            await self._score_batch(batch)

    async def _score_batch(self, batch: Batch) -> None:
        self._progress.backlog -= len(batch)
        if self._judge_gone is not None:
            for finished, _ in batch:
                self._executor.forget(finished.record.key)
            return
        self._progress.scoring += len(batch)
        try:
            for _, acknowledged in batch:
                if acknowledged is not None:
                    await acknowledged
            rollouts = [finished for finished, _ in batch]
            for finished, scored in zip(rollouts, await self._executor.score(rollouts), strict=True):
                self._record_score(finished, scored)
        except SystemicError as error:
            # A judge's endpoint is unusable. Rollouts in generation are paid for and kept; a resume scores them.
            self._judge_gone = self._judge_gone or error
            self._stopping = True
        finally:
            self._progress.scoring -= len(batch)

    def _note_error(self, record: Failed | Scored) -> None:
        is_budget = isinstance(record, Failed) and record.reason == BUDGET_SPENT  # a reached budget is not an error
        if self._failures_left is None or is_budget:
            return
        self._failures_left -= 1
        if self._failures_left < 0:
            self._stopping = True
            self.last_error = self.last_error or record

    def _record_score(self, finished: Finished, scored: Scored) -> None:
        if scored.reward is None:
            self._note_error(scored)
        self._submit(scored).add_done_callback(partial(self._count_scored, finished, scored))

    def _submit(self, record: Record) -> Future[int]:
        self._last = self._ledger.submit(record)
        return self._last

    def _count_failed(self, index: int, record: Failed, acknowledged: Future[int]) -> None:
        if _on_disk(acknowledged):
            self._progress.count_failed(index, record)
            self._on_outcome(record, None)

    def _count_scored(self, finished: Finished, scored: Scored, acknowledged: Future[int]) -> None:
        if _on_disk(acknowledged):
            self._progress.count(finished.example.index, finished.record, scored)
            self._on_outcome(finished.record, scored)


def _no_holder(key: str) -> None:
    return None


def _on_disk(acknowledged: Future[int]) -> bool:
    # Whether the record was written. Reading the exception marks it as retrieved; the run's next submit raises it.
    return not acknowledged.cancelled() and acknowledged.exception() is None


def _first(group: BaseExceptionGroup[HarnessError]) -> HarnessError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, HarnessError)
    return error
