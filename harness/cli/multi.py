"""Implement `bench multi`: run several models on one list of tasks and compare them. One dataclass for each sub-command
declares its options; `cli.multi_records` implements the others. The steps are in `cli.multi_job`, `cli.multi_view` and
`cli.execute`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from harness.cli.examples import epilog
from harness.cli.grouped import argument, at_least, command_of, finite, not_empty, option, switch
from harness.cli.lazy_commands import lazy_group, new_app, own_command
from harness.cli.options import SAVING, SHARED, TRUST_HELP, RunOptions
from harness.cli.stdout import print_notices
from harness.core.errors import HarnessError, StoreError, UsageError
from harness.core.messages import Labels
from harness.multi.options import RECORDS

if TYPE_CHECKING:
    from harness.cli.multi_job import MultiJob
    from harness.multi.events import EventFile

MODELS = "Models"
SCORING = "Scoring"
EXECUTION = "Execution"
OUTPUT = "Output"
RECORD = "Record, in the documented form"
RESULTS = "Run folders and resuming"
GROUPS = (MODELS, SCORING, EXECUTION, OUTPUT, RECORD, RESULTS)

SETTINGS = {EXECUTION: ("sampling_args", "cluster_key", *SHARED), RESULTS: SAVING}
"""Keys of the settings that are options of an evaluation, by help group."""

LIMIT = 25
"""Default number of listed records."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(RunOptions):
    """Options of `bench multi` and its replays, except tasks and models; None selects the default or recorded value."""

    settings: Mapping[str, object]
    """Values of the given options that are settings, by setting key."""
    model: list[str] | None = option(
        MODELS, "-m --model MODEL", "PROVIDER/NAME, an alias, or reference/…; repeatable.", test=not_empty
    )
    api_base_url: list[str] | None = option(
        MODELS,
        "-b --api-base-url URL",
        "Endpoint of every -m, or of each in turn if repeated; receives the name unchanged.",
        test=not_empty,
    )
    api_key_var: list[str] | None = option(
        MODELS,
        "-k --api-key-var NAME",
        "Variable that holds the key of every -m, or of each in turn if repeated.",
        test=not_empty,
    )
    endpoints_path: str | None = option(
        MODELS, "-e --endpoints-path FILE", "Registry of aliases. [configs/endpoints.toml]"
    )
    match_mode: str | None = option(
        SCORING,
        "--match-mode MODE",
        "Comparison with `expected`: contains or exact. [contains]",
        choices=("contains", "exact"),
    )
    length_target: float | None = option(
        SCORING, "--length-target N", "Characters for the full length bonus. [400]", test=finite
    )
    score_output: str | None = option(
        SCORING, "--score-output MODULE:FN", "Your scoring function, instead of the formula.", test=not_empty
    )
    schema_mode: str | None = option(
        SCORING,
        "--schema-mode MODE",
        "Schema check: subset (as documented) or jsonschema (full). [subset]",
        choices=("subset", "jsonschema"),
    )
    model_concurrency: int | None = option(
        EXECUTION, "--model-concurrency N", "Models evaluated concurrently. [2]", test=at_least(1)
    )
    task_concurrency: int | None = option(
        EXECUTION, "--task-concurrency N", "Concurrent tasks per model; 1 runs them in order. [1]", test=at_least(1)
    )
    timeout_ms: float | None = option(
        EXECUTION, "--timeout-ms MS", "Timeout of a task; 0 is no limit. [0]", test=finite
    )
    abort_on_error: bool = switch(
        EXECUTION, "--abort-on-error", "Stop a model at its first failed task; others continue."
    )
    temperature: float | None = option(EXECUTION, "-T --temperature T", "Sampling temperature.", test=finite)
    max_tokens: int | None = option(EXECUTION, "-t --max-tokens N", "Maximum tokens per answer.", test=at_least(1))
    set: list[str] | None = option(
        EXECUTION,
        "--set PATH=VALUE",
        "Any other setting, such as model.rpm=60; MODEL:PATH=VALUE for one model; repeatable.",
    )
    json: bool = switch(OUTPUT, "--json", "Print the documented result as JSON on stdout.")
    events: str | None = option(
        OUTPUT, "--events FILE", "Write start, progress and complete as JSON Lines.", test=not_empty
    )
    dry_run: bool = switch(OUTPUT, "--dry-run", "Check everything and show it; call no model.")
    quiet: bool = switch(OUTPUT, "-q --quiet", "No progress: only the result.")
    verbose: bool = switch(OUTPUT, "-v --verbose", "Log in detail, and show tracebacks.")
    persist: bool = switch(RECORD, "--persist", "Store a record for `bench multi runs`, `show` and `replay`.")
    persist_dir: str | None = option(
        RECORD, "--persist-dir DIR", f"Folder of the records; implies --persist. [{RECORDS}]", test=not_empty
    )
    no_include_inputs: bool = switch(
        RECORD, "--no-include-inputs", "Leave out tasks and models; then it cannot be replayed."
    )
    no_include_outputs: bool = switch(RECORD, "--no-include-outputs", "Leave out the answers and their scores.")
    no_include_options: bool = switch(RECORD, "--no-include-options", "Leave out the options.")
    resume: bool = switch(RESULTS, "--resume", "Resume the newest runs of the same tasks, models and settings.")
    retry_failed: bool = switch(RESULTS, "--retry-failed", "Resume, and retry failed tasks.")

    @property
    def is_persisting(self) -> bool:
        """Whether to store a record."""
        return self.persist or self.persist_dir is not None

    def check(self) -> None:
        """Validate options as far as possible without files or endpoints.

        Raises:
            UsageError: an option is out of range, or conflicts with another.
        """
        if not self.is_persisting:
            for part in ("inputs", "outputs", "options"):
                if getattr(self, f"no_include_{part}"):
                    raise UsageError(
                        f"--no-include-{part} only affects the record that --persist stores: add --persist, "
                        "or remove the option"
                    )
        named = len(self.model or ())
        for name, given in (("--api-base-url", self.api_base_url), ("--api-key-var", self.api_key_var)):
            if given and not named:
                raise UsageError(f"{name} applies only to models given with -m: add -m, or set it in the models file")
            if given and len(given) not in (1, named):
                raise UsageError(
                    f"{len(given)} values of {name} do not match the number of -m options ({named}): give it once for "
                    "all models, or once for each, in the same order; to set it for only some, use a models file"
                )
        if self.is_resuming and self.settings.get("save_results") is False:
            raise UsageError(
                "--no-save and --resume are mutually exclusive: without saved results, a run cannot be resumed"
            )
        if self.dry_run and self.is_resuming:
            raise UsageError("--dry-run does not read recorded runs: remove --resume and --retry-failed")


@dataclass(frozen=True, kw_only=True)
class MultiOptions(EvaluationOptions):
    """Options of `bench multi`."""

    tasks: str = argument("TASKS", "File of tasks: .json, .jsonl or .toml.")
    models: str | None = argument(
        "MODELS", "File of models: .toml, .json or .jsonl, or an endpoint registry.", default=None
    )

    def check(self) -> None:
        """Validate the common options, then those of `bench multi`."""
        super().check()
        if self.models is None and not self.model:
            raise UsageError("Model configs required: give a models file after the tasks, or models with -m")


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(EvaluationOptions):
    """Options of `bench multi replay`."""

    run: str = argument("RUN", "Id of the record, the beginning of exactly one id, or `latest`.")
    trust: bool = switch(OUTPUT, "--trust", TRUST_HELP)


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Options of `bench multi show`."""

    run: str = argument("RUN", "Id of the record, the beginning of exactly one id, or `latest`.")
    as_json: bool = switch(OUTPUT, "--json", "Print the record as it is stored.")
    persist_dir: str = option(OUTPUT, "--persist-dir DIR", f"Folder of the records. [{RECORDS}]", RECORDS)


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Options of `bench multi runs`."""

    limit: int = option(OUTPUT, "-n --limit N", f"The newest N; 0 is all. [{LIMIT}]", LIMIT, at_least(0))
    as_json: bool = switch(OUTPUT, "--json", "Print them as JSON.")
    persist_dir: str = option(OUTPUT, "--persist-dir DIR", f"Folder of the records. [{RECORDS}]", RECORDS)


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
