"""Implement `bench multi`: run several models on one list of tasks and compare them; also the table of sub-commands.
The steps are in `cli.multi_job`, `cli.multi_view` and `cli.execute`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from harness.cli.grouped import command_of
from harness.cli.lazy import CommandEntry, lazy_group
from harness.cli.multi_options import GROUPS, EvaluationOptions, MultiOptions
from harness.cli.stdout import print_notices
from harness.core.errors import HarnessError

if TYPE_CHECKING:
    from harness.cli.multi_job import MultiJob
    from harness.core.types import JsonDict
    from harness.multi.events import EventFile

COMMANDS = {
    "runs": CommandEntry("harness.cli.multi_records", "runs_app", "List the records that --persist has kept."),
    "show": CommandEntry("harness.cli.multi_records", "show_app", "Show a record as its evaluation ended."),
    "replay": CommandEntry("harness.cli.multi_records", "replay_app", "Evaluate a record's tasks and models again."),
}

_ARGUMENT = re.compile(r"env\.env_args\.(match_mode|length_target|score_output|schema_mode|timeout_ms)\b")
"""Names of the scoring options in messages of the engine."""

_MORE = re.compile(r"use -r \d+ for more rollouts")
_OF_NAMED = "name another variable with -k, ask another endpoint with -b"
"""Advice in two messages of the engine: on more answers per task (`_MORE`), and on a missing key or address."""

_EPILOG = (
    "`bench multi runs`, `bench multi show RUN` and `bench multi replay RUN` are about records. A file of tasks of "
    "such a name is reached as ./runs."
)


def evaluate(ctx: typer.Context, options: MultiOptions) -> int:
    """Evaluate several models on one list of tasks, and set them side by side.

    Every model is asked every task; what each scored, how sure that is, what it cost and how it differs from the first
    stands in one report. Answers are on disk as soon as they are scored: --resume goes on with what was interrupted.
    """
    from harness.cli.multi_job import make_job

    state = cast("dict[str, object]", ctx.find_root().obj)
    state["verbose"] = options.verbose
    options.check()
    return carry_out(make_job(options), options, state)


def carry_out(job: MultiJob, options: EvaluationOptions, state: dict[str, object], replayed: str | None = None) -> int:
    """Execute a job and print its results, or only print the settings of a dry run.

    Args:
        job: Models, tasks and settings of the invocation.
        options: Typed options.
        state: Object of the typer context.
        replayed: Name of the record that is replayed; None for a new job.

    Returns:
        The exit code.
    """
    from harness.cli.options import RunOptions
    from harness.cli.run import command_text

    resolution = job.runs.resolution
    print_notices((*job.notices, *resolution.notices))
    if options.dry_run:
        return _dry_run(job, options)
    argv = cast("list[str]", state["argv"])
    chosen = RunOptions(
        resume=options.is_resuming,
        retry_failed=options.retry_failed,
        json=options.as_json,
        quiet=options.quiet,
        verbose=options.verbose,
        command=command_text(argv),
    )
    try:
        return _execute(job, options, chosen, argv, replayed)
    except HarnessError as error:
        error.args = (_in_own_words(str(error), options), *error.args[1:])
        raise


def _in_own_words(words: str, options: EvaluationOptions) -> str:
    """Translate a message of the engine to the options of this command. Models from a file have no options."""
    words = _ARGUMENT.sub(lambda match: f"--{match[1].replace('_', '-')}", words)
    words = _MORE.sub("list the task again to ask more", words)
    return words if options.model else words.replace(_OF_NAMED, "give the model another variable or another address")


def _execute(job: MultiJob, options: EvaluationOptions, chosen: Any, argv: Sequence[str], replayed: str | None) -> int:
    from harness.cli.execute import execute
    from harness.cli.multi_view import MultiInvocation, MultiView
    from harness.cli.stdout import kept_stdout
    from harness.engine.evaluation import Evaluation
    from harness.multi.endpoints import SharedEndpoints
    from harness.report.text import make_console

    extra: JsonDict = {} if replayed is None else {"replayOf": replayed}
    asked = MultiInvocation(argv, extra)
    with ExitStack() as stack:
        stdout = stack.enter_context(kept_stdout())
        console = make_console(stderr=True) if options.as_json else make_console(file=stdout)
        sinks = [] if options.events is None else [stack.enter_context(_event_file(options.events, job)).write]
        at_once = job.options.model_concurrency
        evaluation = Evaluation(
            job.runs.runs,
            job.loader,
            SharedEndpoints.of(job.runs.runs, job.runs.keys, at_once),
            job.runs.keys,
            at_once=at_once,
        )
        return execute(job.runs.resolution, chosen, MultiView(job, asked, console, sinks), evaluation)


def _event_file(path: str, job: MultiJob) -> EventFile:
    """Open the file of events.

    Raises:
        UsageError: the file cannot be written, or is an input of the evaluation.
    """
    from harness.core.errors import StoreError, UsageError
    from harness.multi.events import EventFile

    file = Path(path)
    if any(file.exists() and each.exists() and file.samefile(each) for each in job.files):
        raise UsageError(f"--events {path}: is read by this evaluation; name another file")
    try:
        return EventFile(path, private=any(run.settings.save.private for run in job.runs.runs))
    except StoreError as error:
        raise UsageError(f"--events {path}: {error}") from error


def _dry_run(job: MultiJob, options: EvaluationOptions) -> int:
    from collections import ChainMap

    from harness.cli.dry_run import as_json, show
    from harness.core.errors import ConfigError
    from harness.settings.resolver import missing_keys

    try:
        missing_keys(job.runs.resolution, ChainMap(dict(job.runs.keys), dict(os.environ)))
    except ConfigError as error:
        typer.echo(f"note: a run would stop: {_in_own_words(str(error), options)}", err=True)
    if options.as_json:
        typer.echo(as_json(job.runs.resolution))
    else:
        show(job.runs.resolution, sys.stdout)
    return 0


_evaluate = command_of(MultiOptions, evaluate, GROUPS, epilog=_EPILOG)


class _Multi(lazy_group(COMMANDS)):
    """Group of the sub-commands, which without a sub-command runs the evaluation."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Build the context of the evaluation, unless the first word is a sub-command."""
        if args and args[0] in COMMANDS:
            return super().make_context(info_name, args, parent, **extra)
        return typer.main.get_command(_evaluate).make_context(info_name, args, parent, **extra)


app = typer.Typer(cls=_Multi, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def multi() -> None:
    """Evaluate several models on one list of tasks, and set them side by side."""
