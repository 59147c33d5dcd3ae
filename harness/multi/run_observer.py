"""Observer of a multi-model evaluation's runs: passes on every outcome, reads every finished journal, and builds the
results of the models, for both the Python API and the command."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from harness.core.errors import StoreError
from harness.core.records import Failed, Generated, Scored
from harness.engine.prepare import LiveRun
from harness.multi.collect import collect
from harness.multi.events import Events
from harness.multi.models import Model
from harness.multi.results import ModelResult, TaskResult
from harness.multi.summary import RunOutcome, summarize_model
from harness.store.journal_index import Recorded
from harness.store.outcomes import read_journal


class EvaluationWatch:
    """Observer of one evaluation's runs: sends progress events and collects the results.

    Args:
        models: In the order of their runs.
        events: Receives the progress of the tasks.
    """

    def __init__(self, models: Sequence[Model], events: Events) -> None:
        self._models = tuple(models)
        self._events = events
        self._found: dict[int, list[TaskResult]] = {}

    def attach(self, runs: Sequence[LiveRun]) -> None:
        """Set the runs, one per model, that are about to start. Iterates over all tasks once."""
        self._runs = runs
        self._tasks = [
            {example.key: str(example.example_id) for example in run.plan.rollouts.examples()} for run in runs
        ]

    def results(self, runs: Sequence[LiveRun]) -> list[ModelResult]:
        """Return the results of every model, in the order of the models; of an interrupted run, those in its journal.
        If a journal cannot be read, only that model's results are missing, and its stop reason has the error."""
        return [self._result(index, run) for index, run in enumerate(runs)]

    def finished(self, run: LiveRun, record: Generated | Failed, _: Scored | None) -> None:
        """Send an event about a finished task."""
        index, completed = self._runs.index(run), sum(each.progress.done for each in self._runs)
        self._events.progress(self._models[index].label, self._tasks[index][record.example_key], completed)

    def recorded(self, run: LiveRun, journal: Recorded) -> int:
        """Read the results of an ended run from its journal, and return the index of the run."""
        index = self._runs.index(run)
        self._found[index] = collect(journal, self._models[index].label, run.manifest.cluster_key)
        return index

    def _result(self, index: int, run: LiveRun) -> ModelResult:
        label, progress = self._models[index].label, run.progress
        if index not in self._found:
            with suppress(StoreError):
                self._found[index] = collect(read_journal(run.folder), label, run.manifest.cluster_key)
        outcome = RunOutcome(
            planned=run.plan.rollouts.total,
            summary=run.summary,
            state=progress.state,
            fail_fast=run.plan.start.fail_fast,
            score_range=run.manifest.reward_range,
            stop_reason=(progress.note or progress.state) if progress.state != "done" else None,
            folder=str(run.folder.path) if run.is_saved else None,
        )
        results = self._found.get(index, [])
        return ModelResult(modelId=label, results=results, summary=summarize_model(label, results, outcome))
