"""Evaluate one or more runs together, from their settings to their results. All commands and Python entry points use
this module. A command calls `prepare` in the main thread, where constructors of environments may install signal
handlers, and then `play` in its own event loop. A Python entry point, inside its caller's loop, calls `run` instead."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import ChainMap
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from harness.core.errors import StoreError
from harness.engine.budget import Budget, BudgetedRun
from harness.engine.execution import RunExecution, plays_embedded
from harness.engine.listeners import EvaluationListener, with_plugins
from harness.engine.live_status import StatusThread
from harness.engine.load_environments import Loader
from harness.engine.prepare import FailedRun, LiveRun, StartOptions, prepare, progress_of
from harness.engine.progress import RunProgress
from harness.engine.scheduler import Schedule
from harness.engine.watchdog import Watchdog
from harness.models.pool import ClientPool
from harness.reference.server import ReferenceServer
from harness.settings.resolver import ResolvedRun

DRAIN_SECONDS = 10.0
"""Seconds that rollouts in flight have to finish after the first interrupt. Their model calls are paid for, but the
user is waiting."""


@dataclass(slots=True)
class Evaluation:
    """A set of runs that are executed together, with a shared budget and shared model clients."""

    runs: Sequence[ResolvedRun]
    """Resolved settings of each run."""
    environments: Loader = field(default_factory=Loader)
    """Loader of the environments; pass it an existing environment object with `Loader.give`."""
    clients: ClientPool | None = None
    """Pool of model clients for all runs, closed at the end; None creates a new pool."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """API keys by name of their environment variable. They override the process's variables; never recorded."""
    budget: Budget = field(default_factory=Budget)
    """Budget shared by all runs."""
    listener: EvaluationListener = field(default_factory=EvaluationListener)
    """Callbacks of the evaluation; `prepare` adds those of installed plugins."""
    start: StartOptions = field(default_factory=StartOptions)
    """Whether the runs are new, resumed or derived."""
    in_flight: int | None = None
    """Maximum number of rollouts that all runs together generate at a time; None applies only each run's own limit."""
    at_once: int | None = None
    """Maximum number of runs that execute at the same time; None executes all at once."""
    needs_all: bool = True
    """Whether `run` starts no run if one of them cannot begin; else it starts the others."""
    drain: float = DRAIN_SECONDS
    """Seconds that rollouts in flight have to finish after `interrupt` is called."""
    progress: list[RunProgress] = field(init=False)
    """Live counters of the runs, in the order of `runs`."""
    joint: AbstractAsyncContextManager[object] = field(init=False)
    """Semaphore for `in_flight`, held by each generating rollout."""
    turns: AbstractAsyncContextManager[object] = field(init=False)
    """Semaphore for `at_once`, held by each executing run."""
    schedules: list[Schedule] = field(init=False, default_factory=list[Schedule])
    """Schedulers of the runs so far; an interrupt stops them."""
    is_interrupted: bool = field(init=False, default=False)
    """Whether `interrupt` was called."""
    _names: Iterator[int] = field(init=False, default_factory=count)

    def __post_init__(self) -> None:
        self.progress = [progress_of(run) for run in self.runs]
        self.joint = nullcontext() if self.in_flight is None else asyncio.Semaphore(self.in_flight)
        self.turns = nullcontext() if self.at_once is None else asyncio.Semaphore(self.at_once)

    def prepare(self) -> list[LiveRun | FailedRun]:
        """Load the environment of every run, plan its rollouts and open its folder. Blocking; sends no requests.

        Raises:
            UsageError: the request is invalid.
            StoreError: a run folder cannot be created.
        """
        self.listener = with_plugins(self.listener)
        budget = self.budget.to_json() if self.budget.limits else {}
        return prepare(self.runs, self.progress, replace(self.start, budget=budget), self.environments, self._admit)

    async def play(self, runs: Sequence[LiveRun]) -> None:
        """Execute every rollout of the prepared runs, and write the summary, dataset and manifest of each run. If a run
        fails, its counters say so (`state`, `note`), and the other runs continue."""
        sharing = min(self.at_once or 1, len(runs))
        pool = self.clients or ClientPool(environ=ChainMap(dict(self.keys), os.environ), sharing=sharing)
        server = ReferenceServer() if any(plays_embedded(run.plan) for run in runs) else None
        timers = self._until_time_is_up()
        try:
            if server is not None:
                await server.start()
            with Watchdog(_sources(runs)), StatusThread(runs):
                async with asyncio.TaskGroup() as tasks:
                    for run in runs:
                        name = f"{next(self._names)}:{run.progress.name}"
                        tasks.create_task(RunExecution(self, run, name, pool, server).run())
        finally:
            for timer in timers:
                timer.cancel()
            await pool.close()
            if server is not None:
                await server.stop()
            for environment in {id(run.plan.environment): run.plan.environment for run in runs}.values():
                await environment.teardown()

    def interrupt(self) -> None:
        """Start no new rollouts, and give those in flight `drain` seconds to finish. For use in a signal handler."""
        if self.is_interrupted:
            return
        self.is_interrupted = True
        for schedule in self.schedules:
            schedule.stop()
        asyncio.get_running_loop().call_later(self.drain, self._give_up)

    def _until_time_is_up(self) -> list[asyncio.TimerHandle]:
        """Schedule timers for the budget's time limit. When it is reached, no new work begins; after the same delay as
        on an interrupt, work in flight is cancelled."""
        left = self.budget.seconds_left
        if left is None:
            return []
        loop = asyncio.get_running_loop()
        return [loop.call_later(left, self.budget.expire), loop.call_later(left + self.drain, self._give_up)]

    def _give_up(self) -> None:
        for schedule in self.schedules:
            schedule.cancel()

    async def run(self) -> list[LiveRun]:
        """Prepare and execute the runs inside the caller's event loop.

        Returns:
            The runs that began, ended, each with its status in `progress` and its results in `summary`. Locks are
            released and temporary folders deleted, even on cancellation.

        Raises:
            HarnessError: no run can begin, or, with `needs_all`, one of them cannot.
        """
        async with self.hosted() as runs:
            await asyncio.to_thread(self.listener.begin, runs)
            await self.play(runs)
        return runs

    @asynccontextmanager
    async def hosted(self) -> AsyncGenerator[list[LiveRun]]:
        """Context manager that prepares the runs for `play` and releases them at the end.

        Raises:
            HarnessError: no run can begin, or, with `needs_all`, one of them cannot.
        """
        made: list[LiveRun | FailedRun] = []
        given_up = threading.Event()

        def make() -> None:
            made.extend(self.prepare())
            if given_up.is_set():  # cancelled meanwhile; the thread itself cannot be cancelled
                _release(made)

        try:
            await asyncio.to_thread(make)
            errors = [run.error for run in made if isinstance(run, FailedRun)]
            if errors and (self.needs_all or len(errors) == len(made)):
                raise errors[0]
            yield [run for run in made if isinstance(run, LiveRun)]
        finally:
            given_up.set()
            _release(made)

    def _admit(self, runs: Sequence[LiveRun | FailedRun]) -> None:
        asking = [self._budgeted(run) for run in runs if isinstance(run, LiveRun)]
        self.budget.begin(asking)
        self.listener.admit(runs, asking)

    def _budgeted(self, run: LiveRun) -> BudgetedRun:
        plan = run.plan
        in_flight = plan.resolved.settings.model.max_concurrent_generation
        if self.in_flight is not None and not 0 <= in_flight < self.in_flight:
            in_flight = self.in_flight
        return BudgetedRun(
            run.progress.name,
            plan.resolved.endpoints if plan.asks_model else None,
            [judge.endpoints for judge in plan.judges],
            None if run.recorded is None else run.recorded.path,
            {} if plan.resumes is None else plan.resumes.read_manifest().given_up,
            plan.start.derive,
            plan.rollouts.total,
            in_flight,
            plan.resolved,
        )


def end_interrupted(run: LiveRun) -> None:
    """Mark an aborted run as interrupted and release its folder's lock; idempotent. The journal stays readable."""
    if run.progress.finished is not None:
        return
    run.progress.state = "interrupted"
    if run.is_saved:
        with suppress(StoreError):  # the journal is complete; the manifest only records the status
            run.folder.write_manifest(run.manifest.ended("interrupted"))
    run.release()


def _release(runs: Sequence[LiveRun | FailedRun]) -> None:
    for run in runs:
        if isinstance(run, FailedRun) or run.progress.finished is not None:
            continue
        end_interrupted(run)
        if run.scratch is not None:
            run.scratch.cleanup()


def _sources(runs: Sequence[LiveRun]) -> dict[Path, str]:
    """Source files of the runs' environments, each with the name of a run that uses the file."""
    names: dict[Path, str] = {}
    for run in runs:
        found, environment = run.plan.resolved.found, run.plan.environment
        files = environment.source_files if found is None else (*found.source_files, *environment.source_files)
        names.update(dict.fromkeys(files, run.progress.name))
    return names
