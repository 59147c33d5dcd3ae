"""Output of `bench replay` and `bench rescore`: checks before the evaluation, and a comparison after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harness.cli.derived import placed
from harness.cli.execute import execute
from harness.cli.options import RunOptions
from harness.cli.view import View
from harness.core.types import JsonDict
from harness.engine.derived import Derivation
from harness.engine.evaluation import Evaluation
from harness.engine.prepare import FailedRun, LiveRun, StartOptions
from harness.report import numerals
from harness.report.changes import Changes, Marks, change_lines, compare, marks_of
from harness.report.final_table import RunReport
from harness.report.layout import print_lines
from harness.report.runs import GO_ON
from harness.report.text import PlainConsole, clean
from harness.rubrics.single_function import require_recorded
from harness.settings.resolver import Resolution
from harness.store.journal_index import Recorded


def execute_derived(resolution: Resolution, options: RunOptions, derivation: Derivation) -> int:
    """Execute a run derived from another run, and print it. Arguments and exit code are those of `execute`."""
    evaluation = Evaluation(resolution.runs, start=StartOptions(derive=derivation))
    return execute(resolution, options, DerivedView(derivation), evaluation)


class DerivedView(View):
    """View that prints one derived run.

    Args:
        derivation: Parent run and kind of derivation.
    """

    def __init__(self, derivation: Derivation) -> None:
        self._from = derivation
        self._after: Marks | None = None

    def admit(self, runs: Sequence[LiveRun | FailedRun]) -> None:
        """Check that the run can be replayed or rescored, before anything is written."""
        for run in runs:
            if isinstance(run, FailedRun):  # a single run: the table of failed runs would be empty
                run.error.args = (placed(str(run.error)), *run.error.args[1:])
                raise run.error
            name = self._from.function
            if name is not None:
                rubric = run.plan.environment.rubric
                require_recorded(rubric, name, self._from.parent.read_manifest().metric_names)

    def begin(self, runs: Sequence[LiveRun]) -> None:
        """Print a notice if the parent run is incomplete, so that its recorded rollouts are only a part of those
        planned."""
        for run in runs:
            made, planned = self._coverage()
            if made < planned:
                self.display.say(
                    f"note: {clean(self._from.parent.id)} has {numerals.count(made)} of its {numerals.count(planned)} "
                    f"rollouts; this run uses only these, and their {run.plan.rollouts.num_examples:,} examples"
                )

    def _coverage(self) -> tuple[int, int]:
        """Return the numbers of recorded and of planned rollouts of the parent run."""
        parent, recorded = self._from.parent, len(self._from.recorded)
        manifest = parent.read_manifest()
        if manifest.derived:  # an example may have had fewer replies than planned
            return recorded, int((parent.read_summary() or {}).get("planned") or recorded)
        return recorded, manifest.planned.get("num_examples", 0) * manifest.planned.get("rollouts_per_example", 1)

    def recorded(self, run: LiveRun, journal: Recorded) -> None:
        """Store the scores of the ended run, for the comparison with its parent."""
        self._after = marks_of(journal)

    def json_fields(self, runs: Sequence[LiveRun]) -> JsonDict:
        """Return the JSON fields about the parent run and the comparison with it."""
        changes = self._changes(runs)
        return {"parent": self._parent_json(), "changes": None if changes is None else changes.to_json()}

    def with_steps(self, reports: Sequence[RunReport], command: str) -> Sequence[RunReport]:
        """Remove the suggestion to retry failed rollouts of a replay, since the recorded replies would fail again."""
        retries = self._from.how == "rescore" or self._from.asks_model
        return [
            each
            if retries or each.state != "done"
            else replace(each, next_steps=tuple(step for step in each.next_steps if step.purpose != GO_ON))
            for each in reports
        ]

    def show_more(self, runs: Sequence[LiveRun], console: PlainConsole) -> None:
        """Print the comparison."""
        if (changes := self._changes(runs)) is not None:
            console.print()
            print_lines(change_lines(self._from.parent.id, changes, console.width), console)

    def _changes(self, runs: Sequence[LiveRun]) -> Changes | None:
        """Return the comparison with the parent run; None if the run has not ended."""
        if self._after is None:
            return None
        manifests = self._from.parent.read_manifest(), *(run.manifest for run in runs)
        before, after = (manifest.reward_range for manifest in manifests)
        known = marks_of(self._from.recorded)
        return compare(known, self._after, paired=self._from.asks_model, ranges=(before, after))

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
