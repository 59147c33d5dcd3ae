"""Execute one prepared run: connect its model and judges, generate and score its rollouts, and finalize it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from harness.core.errors import HarnessError, StoreError
from harness.core.records import BUDGET_SPENT, Failed, Generated, Scored
from harness.core.redact import redactor
from harness.engine.executors import Execution, Executor, executor_entry
from harness.engine.executors.isolated import IsolatedExecutor
from harness.engine.executors.local import LocalExecutor
from harness.engine.finalize import checkpoints, finalize
from harness.engine.isolation.proxy import IsolatedEnvironment
from harness.engine.isolation.wire import IsolatedJudge, IsolatedRunConfig
from harness.engine.judges import RunPanel
from harness.engine.model_source import RunClient
from harness.engine.prepare import LiveRun, RunPlan
from harness.engine.prices import pricing_of
from harness.engine.progress import RunProgress, RunState
from harness.engine.remaining_work import Stage, Worklist, outcomes
from harness.engine.replay import Replaying, ReplaySource
from harness.engine.rollout_limits import RolloutLimits
from harness.engine.scheduler import Bounds, Schedule
from harness.engine.spending import SpendTracker, given_up, spent_in
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

if TYPE_CHECKING:
    from harness.engine.evaluation import Evaluation

logger = logging.getLogger(__name__)

_LOST = (
    "{missing} rollouts ended without a result, because the environment's code cancelled the task that runs it; "
    "change the code to cancel only tasks that it has started. Resuming the run repeats these rollouts"
)


class RunExecution:
    """Executes one run of an evaluation.

    Args:
        evaluation: The evaluation, which has the budget and the listener.
        run: The prepared run.
        name: A name that is unique among the runs of the process.
        pool: Source of clients.
        server: The embedded reference server; None if no run needs it.
    """

    def __init__(
        self, evaluation: Evaluation, run: LiveRun, name: str, pool: ClientPool, server: ReferenceServer | None
    ) -> None:
        self._evaluation = evaluation
        self._budget = budget = evaluation.budget
        self._run = run
        self._name = name
        self._pool = pool
        self._server = server
        self._tracker = SpendTracker(budget.charge, budget.check if budget.limits.may_refuse else None)

    async def run(self) -> None:
        """Execute and finalize the run. Errors are recorded in the run's counters and do not affect other runs."""
        run, progress = self._run, self._run.progress
        state: RunState
        enter_run(run.folder.id)
        progress.state = "waiting"
        try:
            async with self._evaluation.turns:
                reason = await self._drive()
        except Exception as error:  # the boundary between runs: the others continue
            state = _note_failure(progress, error)
        else:
            _end_early(progress)
            missing = progress.total - progress.done
            if reason is not None:
                state, progress.note = "stopped", reason
            elif self._evaluation.is_interrupted and missing > 0:
                state = "interrupted"
            elif missing + progress.unscored[BUDGET_SPENT] > 0 and self._budget.reached is not None:
                state, progress.note = "stopped", self._budget.note()
            elif missing > 0:
                state, progress.note = "failed", _LOST.format(missing=missing)
            else:
                state = "done"
        if isinstance(run.plan.environment, IsolatedEnvironment):
            progress.note = "; ".join(filter(None, (progress.note, run.plan.environment.pool.note())))
        progress.finished = time.monotonic()
        progress.started = progress.started or progress.finished  # a run that failed before its first rollout
        recorded = partial(self._evaluation.listener.recorded, run)
        try:
            # Complete also if the user quits meanwhile: the status on disk must be the run's actual status.
            await _to_its_end(partial(finalize, run, "stopped" if state == "failed" else state, recorded))
        except Exception as error:  # as above
            state = _note_failure(progress, error)
        finally:
            progress.state = state

    async def _drive(self) -> str | None:
        """Execute the run's rollouts. Returns the reason if the run stopped early, otherwise None."""
        run, plan, tracker = self._run, self._run.plan, self._tracker
        execution = self._execution()
        panel = RunPanel(self._name, plan, self._pool, self._server, tracker)
        run.progress.delays = lambda: [*execution.model.delays(), *panel.delays()]
        begin = run.recorded.end if run.recorded else 0
        journal = Journal.open(run.folder.journal_path, verified=begin)
        try:
            if run.is_saved:
                run.writer = await asyncio.to_thread(DatasetWriter, run.folder.path, RowShape.of(run.manifest))
            self._pool.open()
            run.progress.held = outcomes(run.recorded, retry_failed=plan.start.retry_failed)
            run.progress.started = time.monotonic()
            async with checkpoints(run.writer, plan.resolved.settings.save.save_every) as count_for_checkpoint:

                def finished(record: Generated | Failed, scored: Scored | None) -> None:
                    self._evaluation.listener.finished(run, record, scored)
                    count_for_checkpoint()

                with judged_by(panel):
                    async with _executing(execution) as executor:
                        reason = await self._passes(partial(self._pass, executor, journal, finished), journal)
            await journal.flush()
            return reason
        finally:  # also if the user quits now
            await asyncio.to_thread(self._settle, journal, begin)

    def _settle(self, journal: Journal, begin: int) -> None:
        """Close the journal, and record in the manifest the run's spending, including on abandoned rollouts, so that a
        resumed run can count it."""
        run, plan = self._run, self._run.plan
        try:
            journal.close()
        finally:
            spent = self._budget.to_json() if self._budget.limits else {}
            run.manifest = replace(run.manifest, budget=spent)
            if run.progress.done < run.progress.total:
                model = pricing_of(plan.resolved.endpoints) if plan.asks_model else None
                judge = pricing_of(plan.judges[0].endpoints) if len(plan.judges) == 1 else None
                recorded = spent_in(journal.path, model, judge, derivation=plan.start.derive, start=begin)
                with suppress(StoreError):  # the error that ended the run matters more
                    gone = given_up(self._tracker.usage, recorded, run.manifest.given_up)
                    run.manifest = replace(run.manifest, given_up=gone)

    async def _passes(self, play: Callable[[Stage], Awaitable[str | None]], journal: Journal) -> str | None:
        """Generate and score the rollouts in one pass, or generate them in one pass and score them in a second."""
        run = self._run
        run.progress.state = "running"
        if run.plan.resolved.settings.env.interleave_scoring or run.plan.environment.rubric.needs_live_state:
            return await play("both")
        reason = await play("generate")
        await journal.flush()
        run.progress.state = "scoring"
        run.recorded = await asyncio.to_thread(Recorded.load, run.folder.journal_path)
        scoring = await play("score")
        return reason or scoring

    async def _pass(
        self,
        executor: Executor,
        journal: Journal,
        finished: Callable[[Generated | Failed, Scored | None], None],
        stage: Stage,
    ) -> str | None:
        """Run one pass over the rollouts. Returns the reason if it stopped early (an unusable endpoint, or more errors
        than allowed), otherwise None."""
        run, plan, settings = self._run, self._run.plan, self._run.plan.resolved.settings
        rollouts, evaluation = plan.rollouts, self._evaluation
        work = Worklist(
            rollouts,
            run.recorded,
            retry_failed=plan.start.retry_failed,
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
                evaluation.joint,
                plan.start.fail_fast,
                # Recorded failures are not new ones: a replay includes them.
                settings.env.max_failures if plan.asks_model else None,
                # Generated rollouts are paid for: scoring without judges is free, so it continues.
                self._budget.may_score if stage == "score" and not plan.judges else self._budget.may_start,
            ),
            on_outcome=finished,
            score=stage != "generate",
        )
        evaluation.schedules.append(schedule)
        if evaluation.is_interrupted:
            schedule.stop()
        with closing(todos):
            systemic = await schedule.run()
            if stage != "score" and run.recorded is not None and self._budget.reached is not None:
                deque(todos, maxlen=0)  # counts skipped rollouts: a complete run is done, even if the budget is spent
        if systemic is not None:
            return str(systemic)
        error = schedule.last_error
        return _failure_note(run, error) if error is not None and run.progress.done < run.progress.total else None

    def _execution(self) -> Execution:
        """Return the executor's input, with a model or with the recording that a derived run replays."""
        plan = self._run.plan
        if plan.start.derive is not None and not plan.asks_model:
            recording = ReplaySource(plan.start.derive.recorded, plan.resolved, plan.environment)
            # The recording determines where a limit ended a rollout, not today's token counts.
            return Execution(plan, recording, RolloutLimits(is_refusable=True), max_retries=0)
        server = self._server if plan.resolved.is_reference else None
        client = RunClient(self._name, plan.resolved, plan.environment, self._pool, server, self._tracker)
        limits = RolloutLimits.of(plan.resolved, is_refusable=self._tracker.check is not None)
        return Execution(plan, client, limits, plan.resolved.settings.env.max_retries)


def plays_embedded(plan: RunPlan) -> bool:
    """Return whether the embedded reference server answers as the run's model or as one of its judges."""
    return _plays_model(plan) or any(judge.is_embedded for judge in plan.judges)


def _plays_model(plan: RunPlan) -> bool:
    return plan.resolved.is_reference and plan.asks_model


@asynccontextmanager
async def _executing(execution: Execution) -> AsyncGenerator[Executor]:
    """Context manager that starts the executor of a run and releases it at the end."""
    env = execution.plan.resolved.settings.env
    create = None if env.executor is None else executor_entry(env.executor, "env.executor").create
    if create is None:
        started: AbstractAsyncContextManager[Executor] = nullcontext(_own_executor(execution))
    else:
        started = create(execution)
    async with started as executor:
        yield Replaying(executor, execution.model) if isinstance(execution.model, ReplaySource) else executor


def _own_executor(execution: Execution) -> Executor:
    """Return the executor for an environment in this process, or the one for an environment in isolated processes."""
    plan, limits = execution.plan, execution.limits
    settings, environment = plan.resolved.settings.env, plan.environment
    if not isinstance(environment, IsolatedEnvironment):
        return LocalExecutor(
            environment, execution.model, timeout=settings.timeout, max_retries=execution.max_retries,
            scoring_timeout=settings.scoring_timeout, limits=limits,
        )  # fmt: skip
    rubric = environment.rubric
    is_part = isinstance(rubric, OneFunction)
    plays = parse_model(execution.model.model).plays if _plays_model(plan) else ()
    called = {
        id(judge.spec): IsolatedJudge(judge.model, parse_model(judge.model).plays if judge.is_embedded else ())
        for judge in plan.judges
    }
    terms = IsolatedRunConfig(
        settings.timeout, execution.max_retries, settings.scoring_timeout, limits,
        rubric.name if is_part else None, plays, [called.get(id(spec)) for spec in environment.judges],
    )  # fmt: skip
    return IsolatedExecutor(environment, execution.model, terms, rubric.recorded if is_part else None)


async def _to_its_end(call: Callable[[], None]) -> None:
    """Call a function in a thread, and wait until it has returned, even on cancellation."""
    ended = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        await asyncio.wait([ended])
        if (error := ended.exception()) is not None:
            raise error from None
        raise


def _end_early(progress: RunProgress) -> None:
    """If early stopping ended the run, lower its total to the rollouts that were needed, and say so in its note."""
    target = progress.target
    if target is None:
        return
    saved = progress.total - progress.done - target.lacking
    if target.ended_early and saved > 0:
        progress.total = progress.done + target.lacking
        progress.note = f"ended early: {target.words()}; {saved:,} rollouts saved"
    elif target.outside is not None:
        progress.note = (
            f"{target.name} had no effect: a reward of {target.outside:g} is outside the rubric's range, so no "
            "confidence interval could be computed"
        )


def _failure_note(run: LiveRun, record: Failed | Scored) -> str:
    error = record.error if isinstance(record, Failed) else record.words
    if run.plan.start.fail_fast:
        return f"stopped at its first error, as requested: {error}"
    limit = run.plan.resolved.settings.env.max_failures
    return f"more than {limit} rollouts have no score, the limit set by max_failures; the last error: {error}"


def _note_failure(progress: RunProgress, error: Exception) -> Literal["failed"]:
    """Record the error that ended a run in its counters. Only the first error counts, as it may have caused others."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    words = str(error)
    if not isinstance(error, HarnessError):
        logger.error("internal error in run %s", progress.name, exc_info=error)
        words = f"internal error: {type(error).__name__}: {error}"
    progress.note = progress.note or redactor.text(words)
    return "failed"
