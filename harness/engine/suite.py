"""All runs of one invocation, side by side on one event loop. Owns what they share (clients, embedded server, stopping)
and the order in which a run ends: journal, summary, dataset, card, manifest. Prints nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import ChainMap, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Literal, cast

from harness.clients.pool import ClientPool, Clients
from harness.engine.budget import Budget
from harness.engine.checkpoints import Checkpoints
from harness.engine.executors.local import LocalExecutor
from harness.engine.judges import RunPanel
from harness.engine.lanes import Lane
from harness.engine.prepare import Prepared
from harness.engine.progress import RunProgress, RunState
from harness.engine.replay import Replaying, ReplayLane
from harness.engine.scheduler import Bounds, Schedule
from harness.engine.watchdog import Watchdog
from harness.engine.worklist import Stage, Worklist
from harness.errors import HarnessError
from harness.offload import owner
from harness.records import Failed, Generated, Scored
from harness.redact import redactor
from harness.reference.server import ReferenceServer
from harness.rubrics.judge_port import judged_by
from harness.stats.summary import summarize
from harness.store.dataset import DatasetWriter
from harness.store.journal import Journal, JournalReader
from harness.store.manifest import RunStatus
from harness.store.recorded import NOWHERE, Recorded
from harness.store.rows import Columns
from harness.store.tally import tally

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""After the first interrupt: how long rollouts in flight may still finish. They are paid for, but whoever pressed
Ctrl-C is waiting."""

COLUMN_SAMPLE = 50
"""Rollouts that are searched for a state column before it is called empty."""


_LOST = (
    "{missing} rollouts ended without an outcome: code of the environment cancels the task that runs it; give it a "
    "task or a timeout of its own. --resume makes them again"
)


class Suite:
    """Runs that were prepared together.

    Args:
        runs: Each with its own folder and lock.
        drain: Seconds that rollouts in flight get after `interrupt`.
        in_flight: Rollouts that may generate at once in all runs together; None leaves each run its own bound alone.
        at_once: Runs that may be under way at once, the first ones first; None is all of them.
        pool: Where runs get their clients; by default a pool of its own; either is closed at the end.
        keys: API keys by the name of their variable, over those of the process's environment.
        budget: What they may spend together; by default there is no bound.
    """

    def __init__(
        self,
        runs: Sequence[Prepared],
        *,
        drain: float = DRAIN_SECONDS,
        in_flight: int | None = None,
        at_once: int | None = None,
        pool: Clients | None = None,
        keys: Mapping[str, str] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._runs = runs
        self._budget = budget or Budget()
        self._drain = drain
        self._joint = nullcontext() if in_flight is None else asyncio.Semaphore(in_flight)
        self._turns = nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        self._pool = pool
        self._keys = dict(keys or {})
        self._schedules: list[Schedule] = []
        self._interrupted = False
        self._lanes = count()

    async def run(self) -> None:
        """Make every rollout and leave every run with its summary, dataset and manifest on disk.

        A run that cannot go on is noted in its counters (`state`, `note`); the others are not touched by it.
        """
        judges = [seat for run in self._runs for seat in run.judges]
        given = {name: key for seat in judges for name, key in seat.literal_key.items()}
        pool = self._pool or ClientPool(environ=ChainMap(given, self._keys, os.environ))
        embedded = any(run.resolved.is_reference and run.asks_model for run in self._runs) or any(
            seat.is_embedded for seat in judges
        )
        server = ReferenceServer() if embedded else None
        timer = self._until_time_is_up()
        try:
            if server is not None:
                await server.start()
            with Watchdog(_sources(self._runs)):
                async with asyncio.TaskGroup() as tasks:
                    for run in self._runs:
                        tasks.create_task(self._contain(run, pool, server))
        finally:
            for handle in timer:
                handle.cancel()
            await pool.close()
            if server is not None:
                await server.stop()
            for environment in {id(run.environment): run.environment for run in self._runs}.values():
                await environment.teardown()

    def interrupt(self) -> None:
        """Start nothing new, and give what is in flight `drain` seconds to finish. For a signal handler."""
        if self._interrupted:
            return
        self._interrupted = True
        for schedule in self._schedules:
            schedule.stop()
        asyncio.get_running_loop().call_later(self._drain, self._give_up)

    def _until_time_is_up(self) -> list[asyncio.TimerHandle]:
        """When the budget's time is up, nothing new begins, and what is in flight gets as long as at an interrupt."""
        left = self._budget.seconds_left
        if left is None:
            return []
        loop = asyncio.get_running_loop()
        return [loop.call_later(left, self._budget.expire), loop.call_later(left + self._drain, self._give_up)]

    def _give_up(self) -> None:
        for schedule in self._schedules:
            schedule.cancel()

    async def _contain(self, run: Prepared, pool: Clients, server: ReferenceServer | None) -> None:
        """The boundary between runs: whatever ends one is noted there and stays there."""
        progress = run.progress
        state: RunState
        owner.set(run.folder.id)  # of this task and all that it starts
        progress.state = "waiting"
        try:
            async with self._turns:
                reason = await self._drive(run, pool, server)
        except Exception as error:  # of one run: the others go on
            state = _note_failure(progress, error)
        else:
            missing = progress.total - progress.done
            if reason is not None:
                state, progress.note = "stopped", reason
            elif self._interrupted and missing > 0:
                state = "interrupted"
            elif missing > 0 and self._budget.reached is not None:
                state, progress.note = "stopped", self._budget.note()
            elif missing > 0:
                state, progress.note = "failed", _LOST.format(missing=missing)
            else:
                state = "done"
        progress.finished = time.monotonic()
        progress.started = progress.started or progress.finished  # a run that failed before its first rollout
        if self._budget.limits:
            run.manifest = replace(run.manifest, budget=self._budget.to_json())
        try:
            await asyncio.to_thread(conclude, run, "stopped" if state == "failed" else state)
        except Exception as error:  # as above
            state = _note_failure(progress, error)
        progress.state = state

    async def _drive(self, run: Prepared, pool: Clients, server: ReferenceServer | None) -> str | None:
        """Make the run's rollouts; returns what stopped it early."""
        name = f"{next(self._lanes)}:{run.progress.name}"
        executor, waiting_note = _executor(name, run, pool, server, self._budget)
        run.progress.backing_off = waiting_note
        panel = RunPanel(name, run, pool, server, self._budget) if run.judges else None
        if panel is not None:
            run.progress.backing_off = lambda: ", ".join(filter(None, (waiting_note(), panel.waiting_note())))
        journal = Journal.open(run.folder.journal_path, verified=run.recorded.end if run.recorded else 0)
        try:
            if run.is_saved:
                run.writer = await asyncio.to_thread(DatasetWriter, run.folder.path, Columns.of(run.manifest))
            pool.open()
            run.progress.started = time.monotonic()
            async with Checkpoints(run.writer, run.resolved.settings.save.save_every) as checkpoints:
                with judged_by(panel):
                    reason = await self._passes(run, executor, journal, checkpoints)
            await journal.flush()
            return reason
        finally:
            await asyncio.to_thread(journal.close)

    async def _passes(
        self, run: Prepared, executor: LocalExecutor, journal: Journal, checkpoints: Checkpoints
    ) -> str | None:
        """Generate and score together, or one after the other: then the second pass reads the journal back."""
        settings = run.resolved.settings.env
        run.progress.state = "running"
        if settings.interleave_scoring or run.environment.rubric.needs_live_state:
            return await self._pass("both", run, executor, journal, checkpoints)
        reason = await self._pass("generate", run, executor, journal, checkpoints)
        await journal.flush()
        run.progress.state = "scoring"
        run.recorded = await asyncio.to_thread(Recorded.load, run.folder.journal_path)
        scoring = await self._pass("score", run, executor, journal, checkpoints)
        return reason or scoring

    async def _pass(
        self, stage: Stage, run: Prepared, executor: LocalExecutor, journal: Journal, checkpoints: Checkpoints
    ) -> str | None:
        """Returns what stopped it before its end: an unusable endpoint, or the first error where that is to."""
        settings = run.resolved.settings.model
        group_size = run.plan.rollouts_per_example if run.plan.is_group else 1
        work = Worklist(
            run.plan,
            run.recorded,
            retry_failed=run.retry_failed,
            progress=None if stage == "score" else run.progress,
        )
        todos = work.todos(stage)
        schedule = Schedule(
            todos,
            executor,
            journal,
            run.progress,
            Bounds(
                settings.max_concurrent_generation,
                settings.max_concurrent_scoring,
                run.plan.total,
                group_size,
                self._joint,
                run.fail_fast,
                # What is generated is paid for: where no judge is asked for it, its score is still made.
                self._budget.may_score if stage == "score" and not run.judges else self._budget.may_start,
            ),
            on_outcome=checkpoints.outcome,
            score=stage != "generate",
        )
        self._schedules.append(schedule)
        if self._interrupted:
            schedule.stop()
        systemic = await schedule.run()
        if stage != "score" and run.recorded is not None and self._budget.reached is not None:
            deque(todos, maxlen=0)  # counts what was done before: a run that lacks nothing is done, whatever is spent
        if systemic is not None:
            return str(systemic)
        error = schedule.first_error
        return _first_error(error) if error is not None and run.progress.done < run.progress.total else None


def _executor(
    name: str, run: Prepared, pool: Clients, server: ReferenceServer | None, budget: Budget
) -> tuple[LocalExecutor, Callable[[], str]]:
    """What carries out a run's rollouts, and what says what holds them up."""
    settings = run.resolved.settings.env
    if run.derive is not None and not run.asks_model:
        recording = ReplayLane(run.derive.recorded, run.resolved, run.environment)
        replaying = Replaying(
            run.environment, recording, timeout=settings.timeout, scoring_timeout=settings.scoring_timeout
        )
        return replaying, recording.waiting_note
    lane = Lane(name, run.resolved, run.environment, pool, server if run.resolved.is_reference else None, budget)
    executor = LocalExecutor(
        run.environment,
        lane,
        timeout=settings.timeout,
        max_retries=settings.max_retries,
        scoring_timeout=settings.scoring_timeout,
    )
    return executor, lane.waiting_note


def _sources(runs: Sequence[Prepared]) -> dict[Path, str]:
    """The files of the environments, each with the name of a run that it belongs to."""
    names: dict[Path, str] = {}
    for run in runs:
        found = run.resolved.found
        files = run.environment.source_files if found is None else (*found.source_files, *run.environment.source_files)
        names.update(dict.fromkeys(files, run.progress.name))
    return names


def _first_error(record: Failed | Scored) -> str:
    words = record.error if isinstance(record, Failed) else next(iter(record.reasons.values()), record.reason)
    return f"as asked, at its first error: {words}"


def _note_failure(progress: RunProgress, error: Exception) -> Literal["failed"]:
    """Say in a run's counters what ended it; of two failures the first counts, since it may have caused the second."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    words = str(error)
    if not isinstance(error, HarnessError):
        logger.error("run %s", progress.name, exc_info=error)
        words = f"internal error: {type(error).__name__}: {error}"
    progress.note = progress.note or redactor.text(words)
    return "failed"


def conclude(run: Prepared, status: RunStatus) -> None:
    """Rebuild summary and dataset from the journal, and say in the manifest how the run ended. Blocking.

    Raises:
        StoreError: the folder cannot be written.
    """
    progress, manifest = run.progress, run.manifest
    wall, resumed = (progress.finished or progress.started) - progress.started, progress.resumed
    earlier = run.folder.read_summary() if run.recorded is not None else None
    if earlier is not None and resumed == progress.done:
        wall, resumed = earlier["wall_s"], earlier["resumed"]  # nothing was left to do: the time is that of the work
    try:
        recorded = run.writer.catch_up() if run.writer else Recorded.load(run.folder.journal_path)
        run.summary = summarize(
            tally(recorded),
            pass_threshold=run.resolved.settings.env.pass_threshold,
            rollouts_per_example=run.plan.rollouts_per_example,
            planned=run.plan.total,
            reward_range=manifest.reward_range,
            wall_s=wall,
            resumed=resumed,
        )
        if run.on_recorded is not None:
            run.on_recorded(recorded)
        if run.is_saved:
            run.folder.write_summary(run.summary.to_json())
            run.folder.write_manifest(manifest.ended(status, progress.note))
            writer = run.writer or DatasetWriter(run.folder.path, Columns.of(manifest))
            writer.finish()
            progress.note = progress.note or _absent_columns(recorded, manifest.state_columns)
    finally:
        run.lock.release()
        if run.scratch is not None:
            run.scratch.cleanup()


def _absent_columns(recorded: Recorded, names: Sequence[str]) -> str:
    """Says which state columns hold nothing; "" if all hold something. Looks at a few rollouts only."""
    looked_at = range(min(len(recorded), COLUMN_SAMPLE)) if names else range(0)
    held: set[str] = set()
    with JournalReader(recorded.path) as reader:
        for lines in map(recorded.lines, looked_at):
            base = reader.record(lines.base)
            held.update(base.state if isinstance(base, Generated) else ())
            if lines.score != NOWHERE:
                held.update(cast(Scored, reader.record(lines.score)).extra)
    absent = [name for name in names if name not in held]
    if not absent or not looked_at:
        return ""
    known = f"they hold {', '.join(sorted(held))}" if held else "they hold nothing else"
    return (
        f"state column{'s' if len(absent) > 1 else ''} {', '.join(absent)}: empty, since the states of the first "
        f"{len(looked_at)} rollouts have no JSON value of that name ({known})"
    )
