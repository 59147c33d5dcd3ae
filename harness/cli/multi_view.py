"""Output of `bench multi`: events, the comparison of the models, record and result file. `harness.multi` and `report`
format the text."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import cast

from harness.cli.multi import EvaluationOptions
from harness.cli.multi_job import MultiJob
from harness.cli.options import RunOptions
from harness.cli.view import View, any_private, say, show_folders, show_notes, show_steps, typed_arguments
from harness.core.records import Failed, Generated, Scored
from harness.core.types import JsonDict
from harness.engine.prepare import FailedRun, LiveRun
from harness.multi.document import Started, meta_of, new_run_id, result_document
from harness.multi.environment import TaskEnv
from harness.multi.events import Events, Sink
from harness.multi.options import Persist
from harness.multi.persist import make_record, save_record
from harness.multi.results import EvaluationResult, ModelResult, PersistStatus
from harness.multi.run_observer import EvaluationWatch
from harness.multi.to_standings import standings_of
from harness.report import numerals
from harness.report.final_table import RunReport
from harness.report.layout import print_lines
from harness.report.runs import PUBLISH, Step
from harness.report.side_by_side import Ending, side_by_side
from harness.report.text import PlainConsole, clean
from harness.stats.standings import Standings
from harness.store.journal_index import Recorded
from harness.store.outcomes import outcomes


class MultiView(View):
    """View that prints one invocation of `bench multi`.

    Args:
        job: Models, tasks and settings of the invocation.
        options: Options as typed.
        console: Console for the report.
        sinks: Receivers of events.
        replayed: Name of the record that is replayed, if any.
    """

    needs_all_runs = True

    def __init__(
        self,
        job: MultiJob,
        options: EvaluationOptions,
        console: PlainConsole,
        sinks: Sequence[Sink],
        replayed: str | None,
    ) -> None:
        self._job = job
        self._options = options
        self._console = console
        self._sinks = sinks
        self._replayed = replayed
        self._started = Started(job.options.run_id or new_run_id(), 0, len(job.models))
        self._events = Events(self._started)
        self._watch = EvaluationWatch(job.models, self._events)
        self._reasons = [dict[str, str]() for _ in job.models]
        """For each model, the reasons why tasks have no score, by task."""

    # Before

    def begin(self, runs: Sequence[LiveRun]) -> None:
        """Print the start of the evaluation."""
        self._started = Started(self._started.run_id, runs[0].plan.rollouts.total, len(runs))
        self._events = Events(self._started, self._sinks)
        self._watch = EvaluationWatch(self._job.models, self._events)
        self._watch.attach(runs)
        for run in runs:
            if run.recorded is not None:
                there = f"{len(run.recorded)} of {run.plan.rollouts.total} tasks are done"
                self.display.say(f"{run.progress.name}: resuming {run.folder.path}: {there}")
        self._events.start()

    def finished(self, run: LiveRun, record: Generated | Failed, scored: Scored | None) -> None:
        """Report the progress of the tasks as an event."""
        self._watch.finished(run, record, scored)

    def recorded(self, run: LiveRun, journal: Recorded) -> None:
        """Keep the results of an ended run, and the reasons why tasks have no score."""
        index = self._watch.recorded(run, journal)
        if run.progress.unscored.total():  # else a possibly long journal is read for nothing
            found = {str(each.example.example_id): each.reason for each in outcomes(journal) if not each.is_scored}
            self._reasons[index].update(found)

    # After

    def show(self, runs: Sequence[LiveRun | FailedRun], reports: Sequence[RunReport], options: RunOptions) -> bool:
        """Print the models side by side, write the record, and print the paths."""
        ready = cast("Sequence[LiveRun]", runs)  # `admit` has let no other type pass
        models = self._watch.results(ready)
        result = result_document(self._started, models, self._meta(ready, models, options))
        self._events.complete(result["durationMs"], result["summary"])
        result["persist"] = self._store(result, ready)
        if options.json:
            sys.stdout.write(json.dumps(result, indent=2) + "\n")
            sys.stdout.flush()
        self._report(result, ready, reports)
        is_kept = result["persist"].get("stored", True)
        return is_kept and all(run.progress.state == "done" and run.progress.scored for run in ready)

    def _meta(self, runs: Sequence[LiveRun], models: Sequence[ModelResult], options: RunOptions) -> JsonDict:
        extra: JsonDict = {
            "versions": runs[0].manifest.versions,
            "command": options.command,
            "tasks": self._job.tasks,
            "scoreOutput": self._job.options.score_output,
            "budget": self.budget_json(),
            **({} if self._replayed is None else {"replayOf": self._replayed}),
        }
        return meta_of(self._job.models, self._job.resolution.runs, models, extra)

    def _store(self, result: EvaluationResult, runs: Sequence[LiveRun]) -> PersistStatus:
        chosen = self._job.options
        if not chosen.persist:
            return result["persist"]
        persist = chosen.persist if isinstance(chosen.persist, Persist) else Persist()
        environment = runs[0].plan.environment
        assert isinstance(environment, TaskEnv), environment
        record = make_record(result, environment.tasks, self._job.models, chosen, persist)
        return save_record(record, persist, chosen.persist_dir, private=any_private(runs))

    def _report(self, result: EvaluationResult, runs: Sequence[LiveRun], reports: Sequence[RunReport]) -> None:
        console = self._console
        say(console, _headline(result, runs), "bold")
        console.print()
        found = standings_of(result["models"], self._reasons)
        show_models(result["models"], found, console)
        show_notes(reports, console)
        is_saved = any(run.is_saved for run in runs)
        if is_saved:
            console.print()
        show_folders(runs, console, named=True)
        self._record(result)
        steps = self.resume_steps(runs, self._options.command) if is_saved else []
        steps += [*_look_at(found, runs), *self._publish(runs, reports)]
        if result["persist"].get("stored"):
            options = self._job.options
            where = ["--persist-dir", options.persist_dir] if "persist_dir" in options.given else []
            steps.append(Step("again", shlex.join(["bench", "multi", "replay", result["runId"], *where])))
        show_steps(steps, console)

    def _record(self, result: EvaluationResult) -> None:
        status = result["persist"]
        if not status["enabled"]:
            return
        self._console.print()
        if status.get("stored"):
            say(self._console, "Record", "bold")
            say(self._console, f"  {clean(result['runId'])}: {clean(status.get('path'), 2000)}")
        else:
            say(self._console, f"No record: {clean(status.get('reason'))}: {clean(status.get('detail'), 2000)}", "red")

    def _publish(self, runs: Sequence[LiveRun], reports: Sequence[RunReport]) -> Iterator[Step]:
        """Suggest a command that pushes all runs; if a push was requested, one for each run whose push failed."""
        saves = [run.plan.resolved.settings.save for run in runs]
        if any(save.save_to_hf_hub for save in saves):
            yield from (step for report in reports for step in report.next_steps if step.purpose == PUBLISH)
        elif all(run.is_saved and run.progress.state == "done" for run in runs) and not any_private(runs):
            yield Step(PUBLISH, shlex.join(["bench", *typed_arguments(self._options.command), "--resume", "-H"]))


def _look_at(found: Standings, runs: Sequence[LiveRun]) -> Iterator[Step]:
    """Suggest how to read the most divergent answer, and how to load all answers in Python."""
    kept = {index: str(run.folder.path) for index, run in enumerate(runs) if run.is_saved and run.progress.done}
    if not kept:
        return
    task = next(iter(found.apart), None)
    scores = {index: found.models[index].scores for index in kept}
    if task is not None and (there := [index for index in kept if task in scores[index]]):
        worst = min(there, key=lambda index: scores[index][task])
        yield Step("read", shlex.join(["bench", "runs", "show", kept[worst], "--example", task]))
    else:
        yield Step("read", shlex.join(["bench", "runs", "show", next(iter(kept.values()))]))
    yield Step("load", f"harness.report.frames.rollouts_df({list(kept.values())!r})")


def _headline(result: EvaluationResult, runs: Sequence[LiveRun]) -> str:
    models, tasks = len(result["models"]), result["totals"]["tasks"]
    made = sum(summary["total"] for summary in result["summary"])
    of = "" if made == result["totals"]["totalRuns"] else f" of {numerals.count(result['totals']['totalRuns'])}"
    there = sum(run.progress.resumed for run in runs)
    since = f", {numerals.count(there)} of them earlier" if there else ""
    words = f"{numerals.counted(models, 'model')} on {numerals.counted(tasks, 'task')}"
    return f"{words}: {numerals.count(made)}{of} done{since}, in {numerals.duration(result['durationMs'] / 1000)}"


def show_models(models: Sequence[ModelResult], found: Standings, console: PlainConsole) -> None:
    """Print the models side by side.

    Args:
        models: Result of each model.
        found: Statistics of the models.
        console: Console to print on.
    """
    ends = [ending_of(model) for model in models]
    print_lines(side_by_side(found, console.width, endings=ends), console)


def ending_of(model: ModelResult) -> Ending:
    """Return the state in which a model's run ended, such as done or interrupted."""
    summary = model["summary"]
    state = str(summary["meta"].get("state") or "done") if "meta" in summary else "done"
    return Ending(state, summary.get("stopReason") or "")
