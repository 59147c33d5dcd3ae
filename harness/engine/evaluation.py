"""One evaluation: runs, environments, clients, keys, budget and listener in; ended runs out. Every command and every
Python entry point makes one.

A command prepares in the main thread, where constructors of environments may install signal handlers, and has its own
event loop: `prepare`, then `play`. A Python entry point is inside its caller's loop: `run` does both."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from harness.core.errors import StoreError
from harness.engine.budget import Asking, Budget
from harness.engine.loading import Loader
from harness.engine.prepare import FailedRun, Located, Prepared, StartOptions, prepare, progress_of
from harness.engine.progress import RunProgress
from harness.engine.suite import Suite
from harness.models.pool import Clients
from harness.settings.resolver import ResolvedRun


def _nothing(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class EvaluationListener:
    """Callbacks of an evaluation, in the order in which they are called."""

    admit: Callable[[Sequence[Located | FailedRun], Sequence[Asking]], None] = _nothing
    """Called before the first request and before any folder is made, with every run and with what each loaded run may
    ask for. Raises an error to refuse them."""
    begin: Callable[[Sequence[Prepared]], None] = _nothing
    """Called with the runs that are about to start, to attach callbacks to each (`on_recorded`,
    `progress.listener`)."""


@dataclass(slots=True)
class Evaluation:
    """Runs that are made together."""

    runs: Sequence[ResolvedRun]
    """Their settings."""
    environments: Loader = field(default_factory=Loader)
    """Loads the environments; `Loader.give` hands it one that exists already."""
    clients: Clients | None = None
    """Source of the runs' clients, closed at the end; by default a pool of the evaluation's own."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """API keys by the name of their variable, over those of the process's environment. Never recorded."""
    budget: Budget = field(default_factory=Budget)
    """What the runs spend, and the limits on that."""
    listener: EvaluationListener = field(default_factory=EvaluationListener)
    start: StartOptions = field(default_factory=StartOptions)
    """New, resumed or derived runs."""
    in_flight: int | None = None
    """Rollouts that may generate at once in all runs together; None leaves each run its own limit alone."""
    at_once: int | None = None
    """Runs that may be under way at once, in their order; None is all of them."""
    progress: list[RunProgress] = field(init=False)
    """Live counters of the runs, in the same order."""
    _suite: Suite | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.progress = [progress_of(run) for run in self.runs]

    @property
    def asks_model(self) -> bool:
        """Whether a model plays the runs, and not a recording."""
        return self.start.derive is None or self.start.derive.asks_model

    def prepare(self) -> list[Prepared | FailedRun]:
        """Load, plan and open every run. Blocking; sends nothing.

        Raises:
            UsageError: the request itself is wrong.
            StoreError: a run folder cannot be made.
        """
        budget = self.budget.to_json() if self.budget.limits else {}
        return prepare(self.runs, self.progress, replace(self.start, budget=budget), self.environments, self._admit)

    async def play(self, runs: Sequence[Prepared]) -> None:
        """Make every rollout of the prepared runs; each ends with summary, dataset and manifest on disk."""
        self._suite = Suite(
            runs,
            in_flight=self.in_flight,
            at_once=self.at_once,
            pool=self.clients,
            keys=self.keys,
            budget=self.budget,
        )
        await self._suite.run()

    def interrupt(self) -> None:
        """Start nothing new, and give rollouts in flight some seconds to finish. For a signal handler."""
        if self._suite is not None:
            self._suite.interrupt()

    async def run(self) -> list[Prepared]:
        """Prepare and play inside the caller's event loop.

        Returns:
            The runs, ended: `progress` says how, `summary` has the numbers. No lock and no scratch folder is left, also
            if this was cancelled.

        Raises:
            HarnessError: one of the runs cannot begin, so none does.
        """
        async with self.hosted() as runs:
            await asyncio.to_thread(self.listener.begin, runs)
            await self.play(runs)
        return runs

    @asynccontextmanager
    async def hosted(self) -> AsyncGenerator[list[Prepared]]:
        """The prepared runs, for `play`; released in the end.

        Raises:
            HarnessError: one of the runs cannot begin, so none does.
        """
        made: list[Prepared | FailedRun] = []
        given_up = threading.Event()

        def make() -> None:
            made.extend(self.prepare())
            if given_up.is_set():  # cancelled meanwhile, which a thread cannot be
                _release(made)

        try:
            await asyncio.to_thread(make)
            for run in made:
                if isinstance(run, FailedRun):
                    raise run.error
            yield [run for run in made if isinstance(run, Prepared)]
        finally:
            given_up.set()
            _release(made)

    def _admit(self, runs: Sequence[Located | FailedRun]) -> None:
        asking = [self._asking(run) for run in runs if isinstance(run, Located)]
        self.budget.begin(asking)
        self.listener.admit(runs, asking)

    def _asking(self, run: Located) -> Asking:
        loaded, derivation = run.loaded, self.start.derive
        in_flight = loaded.resolved.settings.model.max_concurrent_generation
        if self.in_flight is not None and not 0 <= in_flight < self.in_flight:
            in_flight = self.in_flight
        return Asking(
            loaded.progress.name,
            loaded.resolved.endpoints if self.asks_model else None,
            [seat.endpoints for seat in loaded.judges],
            None if run.recorded is None else run.recorded.path,
            {} if run.folder is None else run.folder.read_manifest().given_up,
            derivation,
            loaded.plan.total,
            in_flight,
        )


def end_interrupted(run: Prepared) -> None:
    """Mark a run that was cut off as interrupted, and release its lock; idempotent. Its journal stays readable."""
    if run.progress.finished is not None:
        return
    run.progress.state = "interrupted"
    if run.is_saved:
        with contextlib.suppress(StoreError):  # the journal has everything; this only says how it ended
            run.folder.write_manifest(run.manifest.ended("interrupted"))
    run.lock.release()


def _release(runs: Sequence[Prepared | FailedRun]) -> None:
    for run in runs:
        if isinstance(run, FailedRun) or run.progress.finished is not None:
            continue
        end_interrupted(run)
        if run.scratch is not None:
            run.scratch.cleanup()
