"""Execution of agent evaluations started with the Python API: runs them, notifies the caller's listener of each
finished rollout, and returns the results from each model's journal."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar, cast

from harness.agents.call_arguments import EvaluatedModel, Work
from harness.agents.client import LABELS
from harness.agents.clients import InstancePool
from harness.agents.settings import resolved_run
from harness.core.errors import LocalExecutionError, UsageError
from harness.core.records import Example, Failed, Generated, Scored
from harness.engine.budget import Budget
from harness.engine.evaluation import Evaluation
from harness.engine.listeners import EvaluationListener
from harness.engine.load_environments import Loader
from harness.engine.prepare import LiveRun, StartOptions
from harness.engine.privacy import own_folder
from harness.models.pool import ClientPool
from harness.settings.budget import read_flags, settle
from harness.store.journal_index import Recorded

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """The results of one model's finished run."""

    side: EvaluatedModel
    results: Sequence[T]
    """The results of the run, as returned by the function `read` that was passed to `evaluate`."""
    wall_ms: float
    """Duration in ms; for a resumed run, the duration of the latest attempt."""
    resumed: int
    """Number of results from earlier attempts."""
    stop_reason: str | None
    """The reason why the endpoint was unusable and stopped the run early; None if the run was not stopped."""
    tokens: int
    """Tokens of all replies of all models in this attempt, including unrecorded replies."""


@dataclass(frozen=True, slots=True)
class FinishedRollout:
    """A finished rollout, as passed to the listener."""

    side: EvaluatedModel
    example: Example
    record: Generated | Failed
    scored: Scored | None
    done: int
    """Number of finished rollouts of all models so far."""

    @property
    def row_index(self) -> int:
        """Number of the rollout's row in the dataset."""
        return cast(int, self.example.example_id)


Listener = Callable[[FinishedRollout], None]
"""Callback that is called with each rollout when it finishes."""


async def evaluate(
    work: Work,
    sides: Sequence[EvaluatedModel],
    read: Callable[[EvaluatedModel, Recorded], Sequence[T]],
    listener: Listener | None = None,
) -> list[Ended[T]]:
    """Run all rollouts of an agent evaluation with all its models concurrently, and return the results of each model.

    Args:
        work: The rows, agent and settings. Without rows, nothing is run.
        sides: One model, or the primary model and the baseline.
        read: Function that collects the results from a finished journal. It is called in a thread.
        listener: Function that is called with each finished rollout. It must not raise.

    Raises:
        HarnessError: the evaluation cannot start, or its journal cannot be written.
    """
    work.check()
    if work.private and work.options.debug_dir is not None:
        await asyncio.to_thread(own_folder, Path(work.options.debug_dir), "debug_dir")
    if not work.rows:
        return [Ended(side, [], 0.0, 0, None, 0) for side in sides]
    clients, shared = ClientPool(), list[InstancePool]()
    found: dict[int, Sequence[T]] = {}
    running: list[LiveRun] = []
    examples: list[dict[str, Example]] = []

    def begin(runs: Sequence[LiveRun]) -> None:
        running.extend(runs)
        if listener is not None:
            examples.extend({example.key: example for example in run.plan.rollouts.examples()} for run in runs)

    def finished(run: LiveRun, record: Generated | Failed, scored: Scored | None) -> None:
        if listener is not None:
            done = sum(each.progress.done for each in running)
            index = running.index(run)
            listener(FinishedRollout(sides[index], examples[index][record.example_key], record, scored, done))

    def recorded(run: LiveRun, journal: Recorded) -> None:
        found[running.index(run)] = read(sides[running.index(run)], journal)

    try:
        loader = Loader()
        budget = Budget(settle(read_flags(work.settings), {}, [])[0])
        start = StartOptions(" ".join(sys.argv), resume=work.resume, retry_failed=work.retry_failed)
        resolved = [resolved_run(work, side, loader, shared) for side in sides]
        listening = EvaluationListener(begin=begin, finished=finished, recorded=recorded)
        runs = await Evaluation(
            resolved, loader, clients, budget=budget, listener=listening, start=start, in_flight=work.in_flight
        ).run()
    except UsageError as error:
        error.labels = LABELS
        raise
    finally:
        await clients.close()
    return [
        _ended(side, run, found.get(index), clients.tokens)
        for index, (side, run) in enumerate(zip(sides, runs, strict=True))
    ]


def _ended(side: EvaluatedModel, run: LiveRun, results: Sequence[T] | None, tokens: int) -> Ended[T]:
    progress = run.progress
    if results is None or progress.state == "failed":
        raise LocalExecutionError(progress.note or "the run ended without a result")
    summary = run.summary
    wall = summary.wall_s if summary is not None else None
    return Ended(
        side,
        results,
        (time.monotonic() - progress.started if wall is None else wall) * 1000,
        summary.resumed if summary is not None else progress.resumed,
        progress.note if progress.state == "stopped" else None,
        tokens,
    )
