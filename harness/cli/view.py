"""Results of an evaluation on the screen: the base class of the commands' views, which is the view of `bench run`, and
the parts that several views share: notes, run folders, next steps."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.cli.options import RunOptions
from harness.core.records import Failed, Generated, Scored
from harness.core.redact import REDACTED, redactor
from harness.core.types import JsonDict
from harness.engine.budget import Budget
from harness.engine.prepare import FailedRun, LiveRun
from harness.report.final_table import RunReport, final_table, result_json, unfinished_words
from harness.report.live import Display
from harness.report.runs import GO_ON, PUBLISH, Step, next_steps
from harness.report.text import PlainConsole, clean, make_console
from harness.settings.wording import MASK
from harness.store.journal_index import Recorded

if TYPE_CHECKING:
    from harness.cli.gate_verdict import GateVerdict

_RESUME_OPTIONS = ("--resume", "--retry-failed", "--fresh")


class View:
    """Printer of a command's evaluation. This base class is for `bench run`; other commands have subclasses."""

    needs_all_runs: bool = False
    """Whether the evaluation fails if one of its runs cannot be loaded."""
    plain_lines: bool = True
    """Whether the display prints progress lines if it has no live table."""
    display: Display
    """The live display, set before anything is loaded."""
    budget: Budget
    """The budget of the evaluation, set together with `display`."""
    min_coverage: float | None = None
    """Minimum share of rollouts with a score in a sequential gate; None for the default."""
    verdicts: Sequence[GateVerdict] = ()
    """Verdicts of the runs with a sequential gate, once all of these are done."""

    def admit(self, runs: Sequence[LiveRun | FailedRun]) -> None:
        """Check the runs before any request is sent or folder is created; raise an error to reject them."""

    def begin(self, runs: Sequence[LiveRun]) -> None:
        """Print the start of the runs."""

    def finished(self, run: LiveRun, record: Generated | Failed, scored: Scored | None) -> None:
        """Process a finished rollout, once its line is on disk. Must not raise."""

    def recorded(self, run: LiveRun, journal: Recorded) -> None:
        """Process the complete journal of an ended run. Called in a thread, before the journal of an unsaved run is
        deleted."""

    def show(self, runs: Sequence[LiveRun | FailedRun], reports: Sequence[RunReport], options: RunOptions) -> bool:
        """Print the results; return whether all runs succeeded."""
        ready = [run for run in runs if isinstance(run, LiveRun)]
        self._decide(ready)
        if options.json:
            document = result_json(reports, self.budget_json(), **self.json_fields(ready))
            sys.stdout.buffer.write(document)
            sys.stdout.flush()
        console = make_console(stderr=options.json)
        final_table(self.with_steps(reports, options.command), console)
        self.show_more(ready, console)
        if self.verdicts:
            from harness.cli.gate_verdict import print_verdicts

            print_verdicts(self.verdicts, console)
        return all(each.state == "done" and each.summary and each.summary.scored for each in reports)

    def json_fields(self, runs: Sequence[LiveRun]) -> JsonDict:
        """Return further fields for the result as JSON."""
        suite = next((run.manifest.suite for run in runs if run.is_saved), None)
        fields: JsonDict = {} if suite is None else {"suite": suite}
        if self.verdicts:
            from harness.cli.gate_verdict import json_of

            fields["gate"] = json_of(self.verdicts)
        return fields

    def _decide(self, runs: Sequence[LiveRun]) -> None:
        """Apply the gate to the runs that have one, if all of these are done."""
        gated = [run for run in runs if run.manifest.gate and not run.manifest.derived]
        if gated and all(run.progress.state == "done" for run in gated):
            from harness.cli.gate_verdict import COVERAGE, verdicts_of

            least = COVERAGE if self.min_coverage is None else self.min_coverage
            self.verdicts = verdicts_of([(run.folder, run.manifest) for run in gated], least)

    @property
    def gate_code(self) -> int:
        """Exit code of the verdicts; 0 without any."""
        if not self.verdicts:
            return 0
        from harness.cli.gate_verdict import exit_code_of

        return exit_code_of(self.verdicts)

    def with_steps(self, reports: Sequence[RunReport], command: str) -> Sequence[RunReport]:
        """Change the suggested next steps: if several runs were interrupted, one command resumes them all, unless a
        part of that command is masked."""
        cut_off = [
            each for each in reports if each.state != "done" and any(step.purpose == GO_ON for step in each.next_steps)
        ]
        if len(cut_off) < 2 or not command or MASK in command or REDACTED in command:
            return reports
        words = [word for word in shlex.split(command)[1:] if word != "--resume"]
        again = Step(GO_ON, shlex.join(["bench", *self.budget.enlarged(words), "--resume"]))
        return [
            replace(each, next_steps=(again, *(step for step in each.next_steps if step.purpose != GO_ON)))
            if each in cut_off
            else each
            for each in reports
        ]

    def show_more(self, runs: Sequence[LiveRun], console: PlainConsole) -> None:
        """Print further lines below the table: a suite's id, and the commands that compare or gate it."""
        from harness.report.compare.pairing import earlier_suite

        saved = [run for run in runs if run.is_saved]
        if len(saved) < 2:
            return
        output_dir, suite = saved[0].plan.resolved.settings.save.output_dir, str(saved[0].manifest.suite)
        where = [] if output_dir == "outputs" else ["-o", str(output_dir)]
        other = earlier_suite(output_dir, suite)
        baseline, candidate = (suite, "latest") if other is None else (other, suite)
        later = " (after another run of it)" if other is None else ""
        compare = shlex.join(["bench", "compare", baseline, candidate, *where])
        gate = shlex.join(["bench", "gate", candidate, "--baseline", baseline, "--margin", "0.05", *where])
        lines = [f"suite {suite}: {len(saved)} runs", f"  compare suites: {compare}{later}"]
        if not any(run.manifest.gate for run in saved):  # runs that may have ended early are no baseline
            lines.append(f"  gate: {gate}{later}")
        for line in lines:
            console.print(line, soft_wrap=True, markup=False)

    def budget_json(self) -> JsonDict | None:
        """Return the limits and the amounts spent, as JSON; None if no limit is set."""
        return self.budget.to_json() if self.budget.limits else None

    def resume_steps(self, runs: Sequence[LiveRun], command: str) -> list[Step]:
        """Suggest commands that resume an incomplete evaluation and that retry failures, with a larger limit where one
        was reached."""
        words = ["bench", *self.budget.enlarged(typed_arguments(command))]
        is_cut = any(run.progress.state != "done" for run in runs)
        steps = [Step(GO_ON, shlex.join([*words, "--resume"]))] if is_cut else []
        if any(run.progress.unscored for run in runs):
            purpose = f"{'resume, and ' if is_cut else ''}retry failed rollouts"
            steps.append(Step(purpose, shlex.join([*words, "--retry-failed"])))
        return steps


def typed_arguments(command: str) -> list[str]:
    """Return the words of the typed command line after `bench`, without the options for resuming."""
    return [word for word in shlex.split(command)[1:] if word not in _RESUME_OPTIONS]


def say(console: PlainConsole, words: str, style: str | None = None) -> None:
    """Print a line that the terminal wraps."""
    console.print(words, style=style, soft_wrap=True)


def show_notes(reports: Sequence[RunReport], console: PlainConsole) -> None:
    """Print the notes of completed runs, and the usage of cancelled rollouts; the error of a stopped run is shown
    elsewhere."""
    for report in reports:
        notes = [report.note] if report.state == "done" and report.note else []
        for note in [*notes, *unfinished_words(report.unfinished)]:
            say(console, f"note: {clean(report.name, 200)}: {clean(note, 2000)}")


def show_folders(runs: Sequence[LiveRun], console: PlainConsole, *, named: bool) -> None:
    """Print the folders of saved runs, after each run's name if `named`."""
    kept = [run for run in runs if run.is_saved]
    if kept:
        say(console, "Run folders" if len(kept) > 1 else "Run folder", "bold")
    for run in kept:
        say(console, f"  {f'{clean(run.progress.name, 200)}: ' if named else ''}{clean(run.folder.path, 2000)}")


def show_steps(steps: Sequence[Step], console: PlainConsole) -> None:
    """Print suggested next steps, without duplicates."""
    if steps:
        console.print()
        say(console, "Next", "bold")
    for step in dict.fromkeys(steps):
        say(console, f"  {clean(redactor.text(str(step)), 5000)}")  # a typed header may contain a key


def any_private(runs: Sequence[LiveRun]) -> bool:
    """Return whether any of these runs is private, so that files written for them together must be private too."""
    return any(run.plan.resolved.settings.save.private for run in runs)


def run_report(
    run: LiveRun | FailedRun,
    push_error: str,
    budget: Budget,
    *,
    is_example: bool,
    compare: str | None,
    browse: str | None = None,
) -> RunReport:
    """Summarize a run for the final table.

    Args:
        run: The ended run.
        push_error: Why the run could not be published; "" otherwise.
        budget: The budget of the evaluation.
        is_example: Whether to suggest how to load and publish results: for one run of a suite, since the others differ
            only in the folder.
        compare: The command that compares it with a similar run; None if there is no such run.
        browse: The command that shows the runs in a browser, suggested with `is_example`; None suggests none.
    """
    progress = run.progress
    if isinstance(run, FailedRun):
        return RunReport(progress.name, progress.env_id, progress.model, state="failed", note=progress.note)
    path = str(run.folder.path) if run.is_saved else None
    steps: tuple[Step, ...] = ()
    if path is not None:
        save, is_done = run.plan.resolved.settings.save, progress.state == "done"
        repo = ["--repo", save.hf_hub_dataset_name] if save.hf_hub_dataset_name else []
        push = shlex.join(["bench", "push", path, *repo, *(["--public"] if save.hf_public else [])])
        resume = shlex.join(["bench", "resume", path, *(["--retry-failed"] if is_done else []), *budget.flags()])
        steps = next_steps(
            path,
            has_data=is_example,
            # Otherwise the run is already pushed, listed below, or pushed on resume.
            to_publish=not save.save_to_hf_hub and not save.private,
            resume=None if is_done and not progress.unscored else resume,
            compare=compare,
            push=push,
        )
        reads = [Step("read", f"bench runs show {shlex.quote(path)}")]
        reads += [] if browse is None else [Step("read in a browser", browse)]
        steps = (*(reads if is_example else []), *steps)
        steps += (Step(PUBLISH, push),) if push_error else ()
    return RunReport(
        progress.name, progress.env_id, progress.model, path, run.summary, progress.state,
        "; ".join(filter(None, (progress.note, push_error))), steps, progress.first_error, run.manifest.given_up,
    )  # fmt: skip


def browse_suggestion(runs: Sequence[LiveRun]) -> str | None:
    """Suggest `bench view` for the only run of this invocation, or for all of them; None if none was saved.

    Args:
        runs: Finished runs of the invocation.
    """
    saved = [run for run in runs if run.is_saved]
    if len(saved) < 2:
        return shlex.join(["bench", "view", str(saved[0].folder.path)]) if saved else None
    output_dir = saved[0].plan.resolved.settings.save.output_dir
    where = [] if output_dir == "outputs" else ["-o", str(output_dir)]
    return shlex.join(["bench", "view", str(saved[0].manifest.suite), *where])


def compare_suggestion(runs: Sequence[LiveRun]) -> str | None:
    """Suggest `bench compare` for the models of this invocation, or for its only run and an earlier one by another
    model; None if no comparison is possible.

    Args:
        runs: Finished runs of the invocation.
    """
    from harness.report.compare.pairing import has_several_models, previous_run

    scored = [run for run in runs if run.is_saved and run.summary is not None and run.summary.scored]
    ended = [run for run in scored if run.manifest.kind == "run"]  # other commands print comparisons of their own
    if has_several_models([run.manifest for run in ended]):
        output_dir = ended[0].plan.resolved.settings.save.output_dir
        return shlex.join(["bench", "compare", *([] if output_dir == "outputs" else ["-o", str(output_dir)])])
    if len(ended) != 1 or len(runs) != 1 or ended[0].progress.state != "done":
        return None
    [run] = ended
    other = previous_run(run.folder, run.manifest)
    return None if other is None else shlex.join(["bench", "compare", str(other.path), str(run.folder.path)])
