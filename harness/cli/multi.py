"""Implement `bench multi`: run several models on one list of tasks and compare them; also the table of sub-commands.
The steps are in `cli.multi_job`, `cli.multi_view` and `cli.execute`."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.examples import epilog
from harness.cli.grouped import command_of
from harness.cli.lazy_commands import lazy_group, new_app, own_command
from harness.cli.multi_options import GROUPS, SETTINGS, EvaluationOptions, MultiOptions
from harness.cli.stdout import print_notices
from harness.core.errors import HarnessError
from harness.core.messages import Labels

if TYPE_CHECKING:
    from harness.cli.multi_job import MultiJob
    from harness.multi.events import EventFile

COMMANDS = {
    "runs": own_command("multi_records:runs_app", "List the records that --persist has stored."),
    "show": own_command("multi_records:show_app", "Show the result in a record."),
    "replay": own_command("multi_records:replay_app", "Evaluate a record's tasks and models again."),
}

_EPILOG = (
    "`bench multi runs`, `bench multi show RUN` and `bench multi replay RUN` are about records. A file of tasks of "
    "such a name is reached as ./runs."
)


def evaluate(options: MultiOptions) -> int:
    """Evaluate several models on one list of tasks, and show them side by side.

    Every model gets every task. One report shows the score of each model with its interval, its cost and its difference
    from the first model. Answers are saved when they are scored: --resume continues an interrupted evaluation.
    """
    from harness.cli.multi_job import make_job

    return carry_out(make_job(options), options)


def carry_out(job: MultiJob, options: EvaluationOptions, replayed: str | None = None) -> int:
    """Execute a job and print its results, or only print the settings of a dry run.

    Args:
        job: Models, tasks and settings of the invocation.
        options: Typed options.
        replayed: Name of the record that is replayed; None for a new job.

    Returns:
        The exit code.
    """
    from harness.cli.dry_run import dry_run

    resolution = job.resolution
    print_notices((*job.notices, *resolution.notices))
    if options.dry_run:
        return dry_run(resolution, os.environ, as_json=options.json, labels=_labels(options))
    try:
        return _execute(job, options, replayed)
    except HarnessError as error:
        error.labels = _labels(options)
        raise


def _labels(options: EvaluationOptions) -> Labels:
    from harness.cli import labels  # slow to import, and only errors need it

    return labels.MULTI if options.model else labels.MULTI_FILE


def _execute(job: MultiJob, options: EvaluationOptions, replayed: str | None) -> int:
    from harness.cli.execute import execute
    from harness.cli.multi_view import MultiView
    from harness.cli.stdout import kept_stdout
    from harness.engine.evaluation import Evaluation
    from harness.engine.prepare import StartOptions
    from harness.report.text import make_console

    with ExitStack() as stack:
        stdout = stack.enter_context(kept_stdout())
        console = make_console(stderr=True) if options.json else make_console(file=stdout)
        sinks = [] if options.events is None else [stack.enter_context(closing(_event_file(options.events, job))).write]
        at_once = job.options.model_concurrency
        start = StartOptions(fail_fast=job.options.abort_on_error)
        evaluation = Evaluation(job.resolution.runs, job.loader, start=start, at_once=at_once)
        return execute(job.resolution, options, MultiView(job, options, console, sinks, replayed), evaluation)


def _event_file(path: str, job: MultiJob) -> EventFile:
    """Open the file of events.

    Raises:
        UsageError: the file cannot be written, or is an input of the evaluation.
    """
    from harness.core.errors import StoreError, UsageError
    from harness.multi.events import EventFile

    file = Path(path)
    if any(file.exists() and each.exists() and file.samefile(each) for each in job.files):
        raise UsageError(f"--events {path} is read by this evaluation; give another file")
    try:
        return EventFile(path, private=any(run.settings.save.private for run in job.resolution.runs))
    except StoreError as error:
        raise UsageError(f"--events {path}: {error}") from error


_evaluate = command_of(
    MultiOptions, evaluate, GROUPS, settings=SETTINGS, epilog=f"{_EPILOG}\n\n{epilog('bench multi')}"
)


class _Multi(lazy_group(COMMANDS)):
    """Command group that runs the evaluation if no sub-command is given."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Build the context of the evaluation, unless the first word is a sub-command."""
        if args and args[0] in COMMANDS:
            return super().make_context(info_name, args, parent, **extra)
        return typer.main.get_command(_evaluate).make_context(info_name, args, parent, **extra)


app = new_app(cls=_Multi)


@app.callback()
def multi() -> None:
    """Evaluate several models on one list of tasks, and show them side by side."""
