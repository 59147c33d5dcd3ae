"""Output of `bench eval`: notes on earlier runs, the connection check, a line for each run, the report and the results
file. `harness.agents` formats the report."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

from harness.agents.collect import collect, to_run
from harness.agents.result_document import check_output, document_meta, eval_document, write_document
from harness.agents.results import EvalModelSummary, EvalResult, EvalRunResult, ModelOutcomes
from harness.agents.screen import run_line, show
from harness.agents.summaries import build_result
from harness.cli.agent import AgentFlags, EvalOptions
from harness.cli.agent_runs import AgentInvocation
from harness.cli.execute import execute
from harness.cli.options import RunOptions
from harness.cli.progress import Progress, check_connections, header
from harness.cli.stdout import kept_stdout
from harness.cli.view import View, any_private, show_folders, show_notes, show_steps
from harness.core.errors import RunLocked, StoreError, UsageError
from harness.core.records import Failed as FailedRecord
from harness.core.records import Generated, Scored
from harness.core.types import JsonDict
from harness.engine.evaluation import Evaluation
from harness.engine.prepare import FailedRun, LiveRun
from harness.report.final_table import RunReport
from harness.report.live import wants_live
from harness.report.runs import GO_ON
from harness.report.text import PlainConsole, clean, make_console
from harness.store.atomic import make_folder
from harness.store.journal_index import Recorded
from harness.store.resume import find_resumable
from harness.store.rundir import RunDir, folder_name

STDOUT = "-"
"""Name of the results file that means stdout."""


class EvalView(View):
    """View that prints one invocation of `bench eval`.

    Args:
        options: Validated options as typed.
        job: Models, environments and settings of the invocation.
        progress: Printer of progress lines.
    """

    needs_all_runs = True
    plain_lines = False

    def __init__(self, options: EvalOptions, job: AgentInvocation, progress: Progress) -> None:
        self._options = options
        self._job = job
        self._progress = progress
        self._console = progress.console
        self._found: dict[int, list[tuple[int, EvalRunResult]]] = {}
        """Results of each model by index, set when its run has ended."""
        self._runs: list[LiveRun] = []

    # Before

    def admit(self, runs: Sequence[LiveRun | FailedRun]) -> None:
        """Check the results file, print notes on earlier runs, and check the connections to the models."""
        located = [run for run in runs if isinstance(run, LiveRun)]
        self._progress.begin()
        if not self._options.fresh:
            for run in located:
                if note := self._of_earlier(run):
                    self.display.say(f"note: {note}")
        pairs = zip(located, self._job.sides, strict=True)
        wanted = [(run.plan.resolved, side.is_baseline) for run, side in pairs if self._has_work(run)]
        check_connections(wanted, self._job.keys, lambda words: self._progress.say(words, self.display))

    def _of_earlier(self, run: LiveRun) -> str | None:
        """Return a note about an earlier run of the same evaluation; None if no note is needed."""
        if not run.plan.resolved.settings.save.save_results:
            return None
        name = run.progress.name
        if self._options.is_resuming:
            is_new = run.plan.resumes is None
            return f"{name}: no earlier run with these settings, so a new run is started" if is_new else None
        earlier = _unfinished(run)
        if earlier is None:
            return None
        path, done = earlier
        return (
            f"{path} is an unfinished run of the same evaluation, with {done} of {run.plan.rollouts.total} runs; "
            "use --resume to resume it, or --fresh to start a new run without this note"
        )

    def _has_work(self, run: LiveRun) -> bool:
        """Return whether any model will be called; a complete run is only reported again."""
        if not self.budget.may_start():
            return False
        return run.recorded is None or self._options.retry_failed or len(run.recorded) < run.plan.rollouts.total

    def begin(self, runs: Sequence[LiveRun]) -> None:
        """Print the start of the evaluation."""
        self._runs = list(runs)
        for run in runs:
            if run.recorded is not None:
                done = f"{len(run.recorded)} of {run.plan.rollouts.total} runs"
                self._progress.say(f"Resuming {clean(run.folder.path, 2000)}: {done} are done", self.display)
        if not self._options.retry_failed and all(
            run.recorded is not None and len(run.recorded) >= run.plan.rollouts.total for run in runs
        ):
            self._progress.say("All runs are done.", self.display)
            return
        plan = runs[0].plan.rollouts
        models = f" x{len(runs)} models" if len(runs) > 1 else ""
        each = f" x{plan.rollouts_per_example} runs" if plan.rollouts_per_example > 1 else ""
        rows = f"{plan.num_examples} row{'s' if plan.num_examples != 1 else ''}"
        size = self._options.batch_size
        self._progress.say(f"Running evaluation ({rows}{each}{models}, batch_size={size})...", self.display)

    # Meanwhile

    def finished(self, run: LiveRun, record: Generated | FailedRecord, scored: Scored | None) -> None:
        """Print a line about a finished rollout."""
        if self._progress.has_lines:
            tag = self._job.sides[self._runs.index(run)].tag
            current = sum(each.progress.done for each in self._runs)
            total = sum(each.plan.rollouts.total for each in self._runs)
            self._progress.line(run_line(current, total, to_run(record, scored, self._options.eval_fn, tag)))

    def recorded(self, run: LiveRun, journal: Recorded) -> None:
        """Store the results of an ended run, for the report."""
        index = self._runs.index(run)
        self._found[index] = collect(journal, self._options.eval_fn, self._job.sides[index].tag)

    # After

    def show(self, runs: Sequence[LiveRun | FailedRun], reports: Sequence[RunReport], options: RunOptions) -> bool:
        """Print the report, write the results file, and print the paths."""
        ready = cast("Sequence[LiveRun]", runs)  # `admit` has let no other type pass
        result = self._result(ready)
        document = None if self._options.output is None else eval_document(result, self._meta(ready, options))
        lost = save_results(self._options.output, document, private=any_private(ready))
        if not self._options.quiet:
            self._console.print()
        show(result, self._console)
        self._console.print()
        if lost is None:
            whole = not (result.stopped_early or result.interrupted)
            tell_results(self._options.output, document, self._console, whole=whole)
        show_notes(reports, self._console)
        show_folders(ready, self._console, named=sum(run.is_saved for run in ready) > 1)
        steps = self.resume_steps(ready, options.command) if any(run.is_saved for run in ready) else []
        steps += [step for report in reports for step in report.next_steps if step.purpose != GO_ON]
        show_steps(steps, self._console)
        if lost is not None:
            raise lost
        return not any(is_empty(model) for model in result.models) and all(
            run.progress.state == "done" for run in ready
        )

    def _runs_of(self, index: int, run: LiveRun) -> list[tuple[int, EvalRunResult]]:
        """Return the results of one model; after an early cancellation, those in its journal."""
        if index not in self._found:
            journal = run.folder.journal_path
            self._found[index] = []
            if journal.exists():
                self.recorded(run, Recorded.load(journal))
        return self._found[index]

    def _result(self, runs: Sequence[LiveRun]) -> EvalResult:
        models = [
            ModelOutcomes(
                side.model,
                side.tag,
                self._runs_of(index, run),
                _wall_ms(run),
                run.progress.resumed if run.summary is None else run.summary.resumed,
            )
            for index, (side, run) in enumerate(zip(self._job.sides, runs, strict=True))
        ]
        ended = [run.progress for run in runs if run.progress.state in ("stopped", "failed")]
        reasons = [f"[{each.name}] {each.note}" if len(runs) > 1 else each.note for each in ended]
        return build_result(
            models,
            self._options.eval_fn,
            n_runs=runs[0].plan.rollouts.rollouts_per_example,
            pass_threshold=runs[0].plan.resolved.settings.env.pass_threshold,
            wall_ms=max(model.wall_ms for model in models),
            stop_reason="; ".join(dict.fromkeys(reasons)) or None,
            interrupted=any(run.progress.state == "interrupted" for run in runs),
        )

    def _meta(self, runs: Sequence[LiveRun], options: RunOptions) -> JsonDict:
        asked, sha256 = self._options, self._job.environments[0].fingerprint["dataset_content"]
        dataset = {"path": asked.dataset, "sha256": sha256, "offset": asked.offset, "limit": asked.limit}
        values = {
            "versions": runs[0].manifest.versions,
            "command": options.command,
            "agent": asked.module,
            "mcp": asked.mcp,
            "dataset": {name: value for name, value in dataset.items() if value is not None},
            "max_turns": asked.max_turns,
            "batch_size": asked.batch_size,
            "budget": self.budget_json(),
        }
        models: list[JsonDict] = [
            {
                "model": side.model,
                "model_tag": side.tag,
                "base_url": run.plan.resolved.settings.model.api_base_url or None,
                "sampling_args": dict(run.plan.resolved.settings.model.sampling_args),
                "run": str(run.folder.path) if run.is_saved else None,
                "unfinished": run.manifest.given_up or None,
            }
            for side, run in zip(self._job.sides, runs, strict=True)
        ]
        return document_meta(values, models)


def execute_agents(
    options: AgentFlags,
    job: AgentInvocation,
    view_of: Callable[[Progress], View],
    in_flight: int = 1,
) -> int:
    """Execute the runs of an agent, print them, and return the exit code.

    Args:
        options: Validated options as typed.
        job: Models, environments and settings of the invocation.
        view_of: Makes the view from the printer of progress lines.
        in_flight: Maximum number of concurrent rollouts of all models together.
    """
    is_live = wants_live(os.environ, quiet=options.quiet)
    with kept_stdout() as stdout:
        console = make_console(stderr=True) if options.output == STDOUT else make_console(file=stdout)
        first = () if options.quiet else tuple(header(options, job))
        view = view_of(Progress(console, first, is_live=is_live, quiet=options.quiet))
        evaluation = Evaluation(job.resolution.runs, job.loader, keys=job.keys, in_flight=in_flight)
        return execute(job.resolution, options, view, evaluation)


def is_empty(model: EvalModelSummary) -> bool:
    """Return whether a model has no usable result: no run completed, or an eval function gave no score at all."""
    return model.failed_runs == model.total_runs or bool(model.without_scores)


def check_target(path: str | None, inputs: Iterable[Path], *, make_folders: bool = True, private: bool = False) -> None:
    """Check before the first request that the results file can be written.

    Args:
        path: Path of the results file; `-` for stdout, None for no file.
        inputs: Files that must not be replaced.
        make_folders: Create the parent folders, and test that they are writable.
        private: Restrict the created folders to their owner.

    Raises:
        UsageError: the results file cannot be written.
    """
    if path is None or path == STDOUT:
        return
    file = Path(path)
    check_output(file)
    if any(file.exists() and each.exists() and file.samefile(each) for each in inputs):
        raise UsageError(f"--output {path} is read by this evaluation and would be overwritten; give another file")
    if not make_folders or (file.exists() and not file.is_file()):
        return  # a device or a pipe
    try:
        make_folder(file.parent.absolute(), private=private)
        with tempfile.TemporaryFile(dir=file.parent):
            pass  # the folder must be writable, since the file is replaced atomically
    except OSError as error:
        raise UsageError(f"--output {path} cannot be written: {error.strerror}; choose another path") from error


def save_results(output: str | None, document: JsonDict | None, *, private: bool = False) -> StoreError | None:
    """Write the results file, unless it is stdout. Called before anything is printed, since printing may fail too.

    Args:
        output: Path of the results file; `-` for stdout, None for no file.
        document: Content of the file.
        private: Restrict the file to its owner.

    Returns:
        The write error, for the caller to raise after all other output; None on success.
    """
    if output is None or output == STDOUT or document is None:
        return None
    try:
        write_document(Path(output), document, private=private)
    except StoreError as error:
        return error
    return None


def tell_results(output: str | None, document: JsonDict | None, console: PlainConsole, *, whole: bool) -> None:
    """Report that the results file was written; if it is stdout, print the results.

    Args:
        output: Path of the results file; `-` for stdout, None for no file.
        document: Content of the file.
        console: Console for the message.
        whole: Whether all planned runs were executed.
    """
    if output == STDOUT:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        sys.stdout.flush()
    elif output is not None:
        console.print(f"Results written to: {clean(output, 2000)}{'' if whole else ' (incomplete)'}", soft_wrap=True)


def _unfinished(run: LiveRun) -> tuple[Path, int] | None:
    """Return the newest unfinished run of the same evaluation, and its number of recorded runs. None if no such run
    exists or a process is writing it."""
    manifest, save = run.manifest, run.plan.resolved.settings.save
    path = find_resumable(Path(save.output_dir) / "evals" / folder_name(manifest.env_id, manifest.model), manifest)
    if path is None:
        return None
    folder = RunDir(path)
    try:
        if folder.read_manifest().status == "done" or not folder.journal_path.exists():
            return None
        folder.lock().release()
        return path, len(Recorded.load(folder.journal_path))
    except (RunLocked, StoreError):
        return None  # --resume could not resume it either


def _wall_ms(run: LiveRun) -> float:
    if run.summary is not None and run.summary.wall_s is not None:
        return run.summary.wall_s * 1000
    progress = run.progress  # cancelled: no summary exists
    return (time.monotonic() - progress.started) * 1000 if progress.started else 0.0
