"""What an evaluation looks at while the engine makes its runs: every outcome as it comes, every journal when it is
whole. Owns the way from the engine's runs to the results of the models, for the Python API and the command alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from harness.core.errors import StoreError
from harness.core.records import Failed, Generated, Scored
from harness.engine.prepare import Prepared
from harness.multi.collect import collect, to_result
from harness.multi.events import Events
from harness.multi.models import Model
from harness.multi.results import ModelResult, TaskResult
from harness.multi.summary import RunOutcome, summarize_model
from harness.store.outcomes import read_journal
from harness.store.recorded import Recorded

Heard: TypeAlias = Callable[[int, TaskResult, int], None]
"""Gets the number of the model, the task's result, and the tasks of all models that have an outcome by now."""


class EvaluationWatch:
    """Follows the runs of one evaluation.

    Args:
        models: In the order of their runs.
        events: Who is told.
    """

    def __init__(self, models: Sequence[Model], events: Events) -> None:
        self._models = tuple(models)
        self._events = events
        self._found: dict[int, list[TaskResult]] = {}

    def attach(self, runs: Sequence[Prepared], *, fail_fast: bool = False, heard: Heard | None = None) -> None:
        """Listen to runs that are about to start. Looks at every task once.

        Args:
            runs: One a model, in their order.
            fail_fast: Stop a model at its first task that comes to no score.
            heard: Told of every outcome, once its line is on disk. Must not raise.
        """
        for index, run in enumerate(runs):
            run.fail_fast = fail_fast
            run.on_recorded = partial(self._keep, index)
            tasks = {example.key: str(example.example_id) for example in run.plan.examples()}
            run.progress.listener = partial(self._tell, index, tasks, runs, heard)

    def results(self, runs: Sequence[Prepared]) -> list[ModelResult]:
        """What every model came to, in the order of the models; of one that was cut off, what its journal holds. One
        that cannot be read any more costs the other models nothing: what is wrong is the stop reason of its own."""
        return [self._result(index, run) for index, run in enumerate(runs)]

    def _tell(
        self,
        index: int,
        tasks: dict[str, str],
        runs: Sequence[Prepared],
        heard: Heard | None,
        record: Generated | Failed,
        scored: Scored | None,
    ) -> None:
        label, task = self._models[index].label, tasks[record.example_key]
        completed = sum(run.progress.done for run in runs)
        self._events.progress(label, task, completed)
        if heard is not None:
            heard(index, to_result(task, label, record, scored), completed)

    def _keep(self, index: int, recorded: Recorded) -> None:
        self._found[index] = collect(recorded, self._models[index].label)

    def _result(self, index: int, run: Prepared) -> ModelResult:
        label, progress = self._models[index].label, run.progress
        if index not in self._found:
            with suppress(StoreError):
                self._keep(index, read_journal(run.folder))
        outcome = RunOutcome(
            planned=run.plan.total,
            summary=run.summary,
            state=progress.state,
            fail_fast=run.fail_fast,
            score_range=run.manifest.reward_range,
            stop_reason=(progress.note or progress.state) if progress.state != "done" else None,
            folder=str(run.folder.path) if run.is_saved else None,
        )
        results = self._found.get(index, [])
        return ModelResult(modelId=label, results=results, summary=summarize_model(label, results, outcome))
