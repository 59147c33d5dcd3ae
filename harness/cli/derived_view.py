"""Output of replay and rescore: checks before the evaluation, and the comparison with the parent run after it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.cli.derived_settings import placed
from harness.cli.execute import View, execute
from harness.cli.options import RunOptions
from harness.core.types import JsonDict
from harness.engine.derived import Derivation
from harness.engine.evaluation import Evaluation
from harness.engine.prepare import FailedRun, LiveRun, StartOptions
from harness.report import numerals
from harness.report.changes import Marks, compare, marks_of, show_changes
from harness.report.runs import GO_ON, Step
from harness.report.table import RunReport, final_table, result_json
from harness.report.text import clean, make_console
from harness.rubrics.single_function import require_recorded
from harness.settings.resolver import Resolution
from harness.store.journal_index import Recorded


def execute_derived(resolution: Resolution, options: RunOptions, derivation: Derivation) -> int:
    """Execute and print a run derived from another one. Arguments and exit code as of `execute`."""
    evaluation = Evaluation(resolution.runs, start=StartOptions(derive=derivation))
    return execute(resolution, options, DerivedView(derivation), evaluation)


class DerivedView(View):
    """Printer of one derived run.

    Args:
        derivation: Parent run and kind of derivation.
    """

    def __init__(self, derivation: Derivation) -> None:
        self._from = derivation
        self._after: Marks | None = None

    def admit(self, runs: Sequence[LiveRun | FailedRun]) -> None:
        """Reject an impossible derivation before anything is written."""
        for run in runs:
            if isinstance(run, FailedRun):  # a single run: the table of failed runs would be empty
                run.error.args = (placed(str(run.error)), *run.error.args[1:])
                raise run.error
            name = self._from.function
            if name is not None:
                rubric = run.plan.environment.rubric
                require_recorded(rubric, name, self._from.parent.read_manifest().metric_names)

    def begin(self, runs: Sequence[LiveRun]) -> None:
        """Print notices about missing recordings."""
        for run in runs:
            made, planned = self._coverage()
            if made < planned:
                self.display.say(
                    f"note: {clean(self._from.parent.id)} has {numerals.count(made)} of its {numerals.count(planned)} "
                    f"rollouts; this run is made of those, and of their {run.plan.rollouts.num_examples:,} examples"
                )

    def _coverage(self) -> tuple[int, int]:
        """Rollouts that the parent has, and rollouts that were planned for it."""
        parent, recorded = self._from.parent, len(self._from.recorded)
        manifest = parent.read_manifest()
        if manifest.derived:  # an example may have had fewer replies than planned
            return recorded, int((parent.read_summary() or {}).get("planned") or recorded)
        return recorded, manifest.planned.get("num_examples", 0) * manifest.planned.get("rollouts_per_example", 1)

    def recorded(self, run: LiveRun, journal: Recorded) -> None:
        """Keep the scores for the comparison."""
        self._after = marks_of(journal)

    def show(self, runs: Sequence[LiveRun | FailedRun], reports: Sequence[RunReport], options: RunOptions) -> bool:
        """Print the usual table, then the comparison."""
        reports = [replace(report, next_steps=tuple(self._steps(report))) for report in reports]
        changes = None
        if self._after is not None:
            manifests = self._from.parent.read_manifest(), *(run.manifest for run in runs if isinstance(run, LiveRun))
            before, after = (manifest.reward_range for manifest in manifests)
            changes = compare(
                marks_of(self._from.recorded), self._after, paired=self._from.asks_model, ranges=(before, after)
            )
        if options.json:
            whole: JsonDict = json.loads(result_json(reports, self.budget_json()))
            whole["parent"] = self._parent_json()
            whole["changes"] = None if changes is None else changes.to_json()
            sys.stdout.write(json.dumps(whole, indent=2) + "\n")
            sys.stdout.flush()
        console = make_console(stderr=options.json)
        final_table(reports, console)
        if changes is not None:
            console.print()
            show_changes(self._from.parent.id, changes, console)
        return all(report.state == "done" and report.summary and report.summary.scored for report in reports)

    def _steps(self, report: RunReport) -> Iterator[Step]:
        """Suggest next steps, without a retry: recorded replies would fail again."""
        tries = report.state != "done" or self._from.how == "rescore" or self._from.asks_model
        yield from (step for step in report.next_steps if tries or step.purpose != GO_ON)

    def _parent_json(self) -> JsonDict:
        manifest = self._from.parent.read_manifest()
        made, planned = self._coverage()
        return {
            "id": manifest.id,
            "path": str(self._from.parent.path),
            "env_id": clean(manifest.env_id),
            "model": clean(manifest.model),
            "how": self._from.how,
            "only": self._from.only,
            "rollouts": made,
            "planned": planned,
        }
