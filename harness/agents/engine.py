"""Evaluations of the Python API of agents: makes an `engine.evaluation.Evaluation`, reports each rollout to the
caller's listener, and returns what `read` makes of each journal."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar, cast

from harness.agents.clients import CallerClients
from harness.agents.settings import resolved_run
from harness.agents.wording import of_a_run
from harness.agents.work import EvaluatedModel, Work
from harness.core.errors import LocalExecutionError, UsageError
from harness.core.records import Example, Failed, Generated, Scored
from harness.engine.evaluation import Evaluation, EvaluationListener
from harness.engine.loading import Loader
from harness.engine.prepare import Prepared, StartOptions
from harness.engine.privacy import own_folder
from harness.store.recorded import Recorded

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """How the run of one side ended."""

    side: EvaluatedModel
    results: Sequence[T]
    """What `read` made of its journal."""
    wall_ms: float
    """Of a resumed run, of its newest attempt."""
    resumed: int
    """Results that were there before."""
    stop_reason: str | None
    """Why it stopped before its last rollout, if an unusable endpoint stopped it."""
    tokens: int
    """Of every reply that any side got this time, recorded or not."""


@dataclass(frozen=True, slots=True)
class FinishedRollout:
    """One rollout that has come to its end."""

    side: EvaluatedModel
    example: Example
    record: Generated | Failed
    scored: Scored | None
    done: int
    """Rollouts of all sides that have an outcome by now."""

    @property
    def row_index(self) -> int:
        """The row's number in the dataset."""
        return cast(int, self.example.example_id)


Listener = Callable[[FinishedRollout], None]
"""Told of each rollout, in the order in which they end."""


async def evaluate(
    work: Work,
    sides: Sequence[EvaluatedModel],
    read: Callable[[EvaluatedModel, Recorded], Sequence[T]],
    listener: Listener | None = None,
) -> list[Ended[T]]:
    """Make every rollout of every side, side by side, and hand back what `read` makes of each journal.

    Args:
        work: What is to be done. Without a row, nothing is.
        sides: One model, or primary and baseline.
        read: Reads a journal that has ended. Runs in a thread.
        listener: Told of each outcome as it comes. Must not raise.

    Raises:
        HarnessError: it cannot begin, or its journal cannot be kept.
    """
    work.check()
    if work.private and work.debug_dir is not None:
        await asyncio.to_thread(own_folder, Path(work.debug_dir), "debug_dir")
    if not work.rows:
        return [Ended(side, [], 0.0, 0, None, 0) for side in sides]
    desk = CallerClients(os.environ)
    found: dict[int, Sequence[T]] = {}

    def begin(runs: Sequence[Prepared]) -> None:
        for index, side in enumerate(sides):
            runs[index].on_recorded = partial(_keep, found, index, partial(read, side))
        if listener is not None:
            _listen(sides, runs, listener)

    try:
        loader = Loader()
        start = StartOptions(" ".join(sys.argv), resume=work.resume, retry_failed=work.retry_failed)
        resolved = [resolved_run(work, side, loader, desk) for side in sides]
        runs = await Evaluation(
            resolved, loader, desk, listener=EvaluationListener(begin=begin), start=start, in_flight=work.in_flight
        ).run()
    except UsageError as error:
        error.args = (of_a_run(str(error)),)
        raise
    finally:
        await desk.close()
    return [
        _ended(side, run, found.get(index), desk.tokens)
        for index, (side, run) in enumerate(zip(sides, runs, strict=True))
    ]


def _keep(
    found: dict[int, Sequence[T]], index: int, read: Callable[[Recorded], Sequence[T]], recorded: Recorded
) -> None:
    found[index] = read(recorded)


def _listen(sides: Sequence[EvaluatedModel], runs: Sequence[Prepared], listener: Listener) -> None:
    def listen(side: EvaluatedModel, run: Prepared) -> None:
        examples = {example.key: example for example in run.plan.examples()}

        def tell(record: Generated | Failed, scored: Scored | None) -> None:
            done = sum(each.progress.done for each in runs)
            listener(FinishedRollout(side, examples[record.example_key], record, scored, done))

        run.progress.listener = tell

    for side, run in zip(sides, runs, strict=True):
        listen(side, run)


def _ended(side: EvaluatedModel, run: Prepared, results: Sequence[T] | None, tokens: int) -> Ended[T]:
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
