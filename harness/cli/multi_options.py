"""Options of `bench multi` and its sub-commands, one dataclass per command: names, help, defaults and validation.
Imports no engine, and sends nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.cli.grouped import argument, at_least, finite, not_empty, one_of, option, switch
from harness.cli.options import SAVING, SHARED, TRUST_HELP, RunOptions
from harness.core.errors import UsageError
from harness.multi.options import RECORDS

MODELS = "Models"
SCORING = "Scoring"
EXECUTION = "Execution"
OUTPUT = "Output"
RECORD = "Record, in the documented form"
RESULTS = "Run folders and resuming"
GROUPS = (MODELS, SCORING, EXECUTION, OUTPUT, RECORD, RESULTS)

SETTINGS = {EXECUTION: ("sampling_args", *SHARED), RESULTS: SAVING}
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
        test=one_of("contains", "exact"),
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
        test=one_of("subset", "jsonschema"),
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
                raise UsageError(
                    f"{name} applies only to models given with -m: add -m, or set it in the file of models"
                )
            if given and len(given) not in (1, named):
                raise UsageError(
                    f"{len(given)} values of {name} do not match the number of -m options ({named}): give it once for "
                    "all models, or once for each, in the same order; to set it for only some, use a file of models"
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
            raise UsageError("Model configs required: give a file of models after the tasks, or models with -m")


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
