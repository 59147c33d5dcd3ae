"""Run all runs of one invocation concurrently on one event loop. Manages the shared clients, embedded server and
interruption, and finalizes each run. Prints nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import ChainMap, deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, cast

from harness.core.errors import HarnessError, StoreError
from harness.core.records import BUDGET_SPENT, Failed, Generated, Scored
from harness.core.redact import redactor
from harness.engine.budget import Budget
from harness.engine.dataset_checkpoints import Checkpoints
from harness.engine.executors import Execution, Executor, executor_entry
from harness.engine.executors.isolated import IsolatedExecutor, IsolatedRunConfig
from harness.engine.executors.local import LocalExecutor
from harness.engine.finalize import finalize
from harness.engine.isolation.asking import SeatedJudge
from harness.engine.isolation.proxy import IsolatedEnvironment
from harness.engine.judges import RunPanel
from harness.engine.listeners import EvaluationListener
from harness.engine.model_source import RunClient
from harness.engine.prepare import LiveRun, RunPlan
from harness.engine.prices import pricing_of
from harness.engine.progress import RunProgress, RunState
from harness.engine.remaining_work import Stage, Worklist, outcomes
from harness.engine.replay import Replaying, ReplayLane
from harness.engine.rollout_limits import RolloutLimits
from harness.engine.scheduler import Bounds, Schedule
from harness.engine.spending import SpendTracker, given_up, spent_in
from harness.engine.watchdog import Watchdog
from harness.models.pool import ClientPool
from harness.reference.policies import parse_model
from harness.reference.server import ReferenceServer
from harness.rubrics.judge_port import judged_by
from harness.rubrics.single_function import OneFunction
from harness.store.dataset import DatasetWriter
from harness.store.journal import Journal
from harness.store.journal_index import Recorded
from harness.store.rows import RowShape
from harness.usercode.scope import enter_run

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 10.0
"""Seconds that rollouts in flight get to finish after the first interrupt. They are paid for, but the user is
waiting."""

_LOST = (
    "{missing} rollouts ended without an outcome: code of the environment cancels the task that runs it; give it a "
    "task or a timeout of its own. A resume makes them again"
)


@dataclass(slots=True)
class Suite:
    """Runs that were prepared together."""

    runs: Sequence[LiveRun]
    """Prepared runs, each with its own folder and lock."""
    pool: ClientPool | None = None
    """Source of the runs' clients, closed at the end; by default a new pool."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """API keys by the name of their variable; they override the process's environment variables."""
    budget: Budget = field(default_factory=Budget)
    """Budget shared by all runs; by default without bounds."""
    listener: EvaluationListener = field(default_factory=EvaluationListener)
    in_flight: int | None = None
    """Maximum number of generating rollouts of all runs together; None applies only each run's own limit."""
    at_once: int | None = None
    """Maximum number of concurrent runs, started in order; None starts all."""
    drain: float = DRAIN_SECONDS
    """Seconds that rollouts in flight get after `interrupt`."""
    _schedules: list[Schedule] = field(init=False, default_factory=list[Schedule])
    _interrupted: bool = field(init=False, default=False)
    _lanes: Iterator[int] = field(init=False, default_factory=count)
    _joint: AbstractAsyncContextManager[object] = field(init=False)
    _turns: AbstractAsyncContextManager[object] = field(init=False)

    def __post_init__(self) -> None:
        self._joint = nullcontext() if self.in_flight is None else asyncio.Semaphore(self.in_flight)
        self._turns = nullcontext() if self.at_once is None else asyncio.Semaphore(self.at_once)

    async def run(self) -> None:
        """Execute every rollout; each run ends with summary, dataset and manifest on disk. A run that fails is marked
        in its counters (`state`, `note`); the others continue."""
        judges = [judge for run in self.runs for judge in run.plan.judges]
        sharing = min(self.at_once or 1, len(self.runs))
        pool = self.pool or ClientPool(environ=ChainMap(dict(self.keys), os.environ), sharing=sharing)
        embedded = any(_plays_embedded(run.plan) for run in self.runs) or any(judge.is_embedded for judge in judges)
        server = ReferenceServer() if embedded else None
        timer = self._until_time_is_up()
        try:
            if server is not None:
                await server.start()
            with Watchdog(_sources(self.runs)):
                async with asyncio.TaskGroup() as tasks:
                    for run in self.runs:
                        tasks.create_task(self._contain(run, pool, server))
        finally:
            for handle in timer:
                handle.cancel()
            await pool.close()
            if server is not None:
                await server.stop()
            for environment in {id(run.plan.environment): run.plan.environment for run in self.runs}.values():
                await environment.teardown()

    def interrupt(self) -> None:
        """Start nothing new, and give work in flight `drain` seconds to finish. For a signal handler."""
        if self._interrupted:
            return
        self._interrupted = True
        for schedule in self._schedules:
            schedule.stop()
        asyncio.get_running_loop().call_later(self.drain, self._give_up)

    def _until_time_is_up(self) -> list[asyncio.TimerHandle]:
        """Schedule timers for the budget's time bound: first nothing new begins, then work in flight is cancelled after
        the same delay as at an interrupt."""
        left = self.budget.seconds_left
        if left is None:
            return []
        loop = asyncio.get_running_loop()
        return [loop.call_later(left, self.budget.expire), loop.call_later(left + self.drain, self._give_up)]

    def _give_up(self) -> None:
        for schedule in self._schedules:
            schedule.cancel()

    async def _contain(self, run: LiveRun, pool: ClientPool, server: ReferenceServer | None) -> None:
        """Execute and finalize one run; its errors are recorded in its counters and do not affect other runs."""
        progress = run.progress
        state: RunState
        enter_run(run.folder.id)
        progress.state = "waiting"
        try:
            async with self._turns:
                reason = await self._drive(run, pool, server)
        except Exception as error:  # the boundary between runs: the others continue
            state = _note_failure(progress, error)
        else:
            _end_early(progress)
            missing = progress.total - progress.done
            if reason is not None:
                state, progress.note = "stopped", reason
            elif self._interrupted and missing > 0:
                state = "interrupted"
            elif missing + progress.unscored[BUDGET_SPENT] > 0 and self.budget.reached is not None:
                state, progress.note = "stopped", self.budget.note()
            elif missing > 0:
                state, progress.note = "failed", _LOST.format(missing=missing)
            else:
                state = "done"
        if isinstance(run.plan.environment, IsolatedEnvironment):
            progress.note = "; ".join(filter(None, (progress.note, run.plan.environment.pool.note())))
        progress.finished = time.monotonic()
        progress.started = progress.started or progress.finished  # a run that failed before its first rollout
        try:
            # Complete also if the user quits meanwhile: the status on disk must be the run's actual status.
            await _to_its_end(
                partial(finalize, run, "stopped" if state == "failed" else state, partial(self.listener.recorded, run))
            )
        except Exception as error:  # as above
            state = _note_failure(progress, error)
        finally:
            progress.state = state

    async def _drive(self, run: LiveRun, pool: ClientPool, server: ReferenceServer | None) -> str | None:
        """Execute the run's rollouts; returns the reason for an early stop, or None."""
        name = f"{next(self._lanes)}:{run.progress.name}"
        till = SpendTracker(self.budget.charge, self.budget.check, self.budget.limits.may_refuse)
        execution = _execution(name, run.plan, pool, server, till)
        panel = RunPanel(name, run.plan, pool, server, till) if run.plan.judges else None
        waiting = [each.waiting_note for each in (execution.model, panel) if each is not None]
        run.progress.backing_off = lambda: ", ".join(filter(None, (note() for note in waiting)))
        begin = run.recorded.end if run.recorded else 0
        journal = Journal.open(run.folder.journal_path, verified=begin)
        try:
            if run.is_saved:
                run.writer = await asyncio.to_thread(DatasetWriter, run.folder.path, RowShape.of(run.manifest))
            pool.open()
            run.progress.held = outcomes(run.recorded, retry_failed=run.plan.start.retry_failed)
            run.progress.started = time.monotonic()
            async with Checkpoints(run.writer, run.plan.resolved.settings.save.save_every) as checkpoints:
                with judged_by(panel):
                    async with _executing(execution) as executor:
                        reason = await self._passes(run, executor, journal, checkpoints)
            await journal.flush()
            return reason
        finally:  # also if the user quits now
            await asyncio.to_thread(self._settle, run, journal, till, begin)

    def _count(self, run: LiveRun, checkpoints: Checkpoints, record: Generated | Failed, scored: Scored | None) -> None:
        self.listener.finished(run, record, scored)
        checkpoints.outcome()

    def _settle(self, run: LiveRun, journal: Journal, till: SpendTracker, begin: int) -> None:
        """Close the journal, and record the spending in the manifest: a resume counts it, including that of abandoned
        rollouts."""
        try:
            journal.close()
        finally:
            spent = self.budget.to_json() if self.budget.limits else {}
            run.manifest = replace(run.manifest, budget=spent)
            if run.progress.done < run.progress.total:
                model = None if not run.plan.asks_model else pricing_of(run.plan.resolved.endpoints)
                judge = pricing_of(judges[0].endpoints) if len(judges := run.plan.judges) == 1 else None
                recorded = spent_in(journal.path, model, judge, derivation=run.plan.start.derive, start=begin)
                with suppress(StoreError):  # the error that ended the run matters more
                    gone = given_up(till.usage, recorded, run.manifest.given_up)
                    run.manifest = replace(run.manifest, given_up=gone)

    async def _passes(self, run: LiveRun, executor: Executor, journal: Journal, checkpoints: Checkpoints) -> str | None:
        """Generate and score together, or in two passes: then the second pass reads the journal back."""
        settings = run.plan.resolved.settings.env
        run.progress.state = "running"
        if settings.interleave_scoring or run.plan.environment.rubric.needs_live_state:
            return await self._pass("both", run, executor, journal, checkpoints)
        reason = await self._pass("generate", run, executor, journal, checkpoints)
        await journal.flush()
        run.progress.state = "scoring"
        run.recorded = await asyncio.to_thread(Recorded.load, run.folder.journal_path)
        scoring = await self._pass("score", run, executor, journal, checkpoints)
        return reason or scoring

    async def _pass(
        self, stage: Stage, run: LiveRun, executor: Executor, journal: Journal, checkpoints: Checkpoints
    ) -> str | None:
        """Run one pass; returns the reason for an early stop: an unusable endpoint, or an error that exceeds the
        limit."""
        plan, settings = run.plan, run.plan.resolved.settings
        rollouts = plan.rollouts
        work = Worklist(
            rollouts,
            run.recorded,
            retry_failed=run.plan.start.retry_failed,
            progress=None if stage == "score" else run.progress,
        )
        todos = work.todos(stage)
        schedule = Schedule(
            todos,
            executor,
            journal,
            run.progress,
            Bounds(
                settings.model.max_concurrent_generation,
                settings.model.max_concurrent_scoring,
                rollouts.total,
                rollouts.rollouts_per_example if rollouts.is_group else 1,
                self._joint,
                plan.start.fail_fast,
                # Recorded failures are not new ones: a replay includes them.
                settings.env.max_failures if plan.asks_model else None,
                # Generated rollouts are paid for: scoring without judges is free, so it continues.
                self.budget.may_score if stage == "score" and not plan.judges else self.budget.may_start,
            ),
            on_outcome=partial(self._count, run, checkpoints),
            score=stage != "generate",
        )
        self._schedules.append(schedule)
        if self._interrupted:
            schedule.stop()
        systemic = await schedule.run()
        if stage != "score" and run.recorded is not None and self.budget.reached is not None:
            deque(todos, maxlen=0)  # counts skipped rollouts: a complete run is done, even if the budget is spent
        if systemic is not None:
            return str(systemic)
        error = schedule.last_error
        return _failure_note(run, error) if error is not None and run.progress.done < run.progress.total else None


def _plays_embedded(plan: RunPlan) -> bool:
    """Whether the embedded server plays the run's model."""
    return plan.resolved.is_reference and plan.asks_model


def _execution(
    name: str, plan: RunPlan, pool: ClientPool, server: ReferenceServer | None, till: SpendTracker
) -> Execution:
    """Make the input of a run's executor: a model, or the recording that a derived run replays."""
    if plan.start.derive is not None and not plan.asks_model:
        recording = ReplayLane(plan.start.derive.recorded, plan.resolved, plan.environment)
        # The recording determines where a limit ended a rollout, not today's token counts.
        return Execution(plan, recording, RolloutLimits(is_refusable=True), max_retries=0)
    client = RunClient(
        name, plan.resolved, plan.environment, pool, server if plan.resolved.is_reference else None, till
    )
    env = plan.resolved.settings.env
    limits = RolloutLimits(env.message_limit, env.token_limit, is_refusable=till.is_limited)
    return Execution(plan, client, limits, env.max_retries)


@asynccontextmanager
async def _executing(execution: Execution) -> AsyncGenerator[Executor]:
    """Start and release the executor of a run."""
    env = execution.plan.resolved.settings.env
    if env.executor is None:
        started: AbstractAsyncContextManager[Executor] = nullcontext(_own_executor(execution))
    else:
        started = executor_entry(env.executor, "env.executor").create(execution)
    async with started as executor:
        yield Replaying(executor, execution.model) if isinstance(execution.model, ReplayLane) else executor


def _own_executor(execution: Execution) -> Executor:
    """The executor of this process, or of the environment's own processes."""
    plan, limits = execution.plan, execution.limits
    settings, environment = plan.resolved.settings.env, plan.environment
    if not isinstance(environment, IsolatedEnvironment):
        return LocalExecutor(
            environment, execution.model, timeout=settings.timeout, max_retries=execution.max_retries,
            scoring_timeout=settings.scoring_timeout, limits=limits,
        )  # fmt: skip
    rubric = environment.rubric
    is_part = isinstance(rubric, OneFunction)
    plays = parse_model(execution.model.model).plays if _plays_embedded(plan) else ()
    judges = {
        place: SeatedJudge(judge.model, parse_model(judge.model).plays if judge.is_embedded else ())
        for judge in plan.judges
        for place, spec in enumerate(environment.judges)
        if spec is judge.spec
    }
    terms = IsolatedRunConfig(
        settings.timeout, execution.max_retries, settings.scoring_timeout, limits.message_limit, limits.token_limit,
        limits.is_refusable, rubric.name if is_part else None, plays, judges,
    )  # fmt: skip
    return IsolatedExecutor(environment, execution.model, terms, rubric.recorded if is_part else None)


def _sources(runs: Sequence[LiveRun]) -> dict[Path, str]:
    """Source files of the environments, each with the name of a run that uses it."""
    names: dict[Path, str] = {}
    for run in runs:
        found, environment = run.plan.resolved.found, run.plan.environment
        files = environment.source_files if found is None else (*found.source_files, *environment.source_files)
        names.update(dict.fromkeys(files, run.progress.name))
    return names


async def _to_its_end(call: Callable[[], None]) -> None:
    """Call a function in a thread, and wait for its end even on cancellation."""
    ended = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.wait([ended])
        if (error := ended.exception()) is not None:
            raise error from None
        raise


def _end_early(progress: RunProgress) -> None:
    """Apply early stopping: if the rule ended the run, lower its total to the rollouts needed, and set its note."""
    target = progress.target
    if target is None:
        return
    saved = progress.total - progress.done - target.lacking
    if target.ended_early and saved > 0:
        progress.total = progress.done + target.lacking
        progress.note = f"ended early, as asked, {target.words()}: {saved:,} rollouts saved"
    elif target.outside is not None:
        progress.note = (
            f"until_ci came to nothing: a reward of {target.outside:g} lies outside the rubric's range, "
            "so no interval could be kept"
        )


def _failure_note(run: LiveRun, record: Failed | Scored) -> str:
    error = record.error if isinstance(record, Failed) else record.words
    if run.plan.start.fail_fast:
        return f"as asked, at its first error: {error}"
    limit = run.plan.resolved.settings.env.max_failures
    return f"more than {limit} rollouts have no score, which is the limit of max_failures; the last: {error}"


def _note_failure(progress: RunProgress, error: Exception) -> Literal["failed"]:
    """Record the error that ended a run in its counters; the first of two errors counts, since it may be the cause."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    words = str(error)
    if not isinstance(error, HarnessError):
        logger.error("run %s", progress.name, exc_info=error)
        words = f"internal error: {type(error).__name__}: {error}"
    progress.note = progress.note or redactor.text(words)
    return "failed"
