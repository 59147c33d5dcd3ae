"""Observation of an evaluation's runs: passes on every outcome, reads every finished journal, and builds the results of
the models, for both the Python API and the command."""

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
"""Receives the number of the model, the task's result, and the number of finished tasks of all models."""


class EvaluationWatch:
    """The observer of one evaluation's runs.

    Args:
        models: In the order of their runs.
        events: Receives the progress of the tasks.
    """

    def __init__(self, models: Sequence[Model], events: Events) -> None:
        self._models = tuple(models)
        self._events = events
        self._found: dict[int, list[TaskResult]] = {}

    def attach(self, runs: Sequence[Prepared], *, fail_fast: bool = False, heard: Heard | None = None) -> None:
        """Listen to runs that are about to start. Iterates over all tasks once.

        Args:
            runs: One per model, in their order.
            fail_fast: Stop a model at its first task without a score.
            heard: Called with every outcome, once it is on disk. Must not raise.
        """
        for index, run in enumerate(runs):
            run.fail_fast = fail_fast
            run.on_recorded = partial(self._keep, index)
            tasks = {example.key: str(example.example_id) for example in run.plan.examples()}
            run.progress.listener = partial(self._tell, index, tasks, runs, heard)

    def results(self, runs: Sequence[Prepared]) -> list[ModelResult]:
        """The results of every model, in the order of the models; of an interrupted run, those in its journal. If a
        journal cannot be read, only that model's results are missing, and its stop reason has the error."""
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
