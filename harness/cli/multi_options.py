"""Options of `bench multi` and its sub-commands, one dataclass per command: names, help, defaults and validation.
Imports no engine, and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from harness.cli.grouped import argument, option
from harness.cli.options import TRUST_HELP
from harness.core.errors import UsageError
from harness.multi.options import RECORDS

MODELS = "Models"
SCORING = "Scoring"
EXECUTION = "Execution"
OUTPUT = "Output"
RECORD = "Record, in the documented form"
RESULTS = "Run folders and resuming"
GROUPS = (MODELS, SCORING, EXECUTION, OUTPUT, RECORD, RESULTS)

MATCH_MODES = ("contains", "exact")
SCHEMA_MODES = ("subset", "jsonschema")

LIMIT = 25
"""Default number of listed records."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Options of an evaluation except tasks and models; None selects the default or the record's value."""

    model: Annotated[
        list[str] | None,
        option(MODELS, "-m", "--model", metavar="MODEL", doc="PROVIDER/NAME, an alias, or reference/…; repeatable."),
    ] = None
    api_base_url: Annotated[
        list[str] | None,
        option(
            MODELS, "-b", "--api-base-url", metavar="URL",
            doc="Endpoint of every -m, or of each in turn if repeated; gets the name as it stands.",
        ),
    ] = None  # fmt: skip
    api_key_var: Annotated[
        list[str] | None,
        option(
            MODELS, "-k", "--api-key-var", metavar="NAME",
            doc="Variable that holds the key of every -m, or of each in turn if repeated.",
        ),
    ] = None  # fmt: skip
    endpoints_path: Annotated[
        str | None,
        option(
            MODELS, "-e", "--endpoints-path", metavar="FILE", doc="Registry of aliases. [configs/endpoints.toml]"
        ),
    ] = None  # fmt: skip
    match_mode: Annotated[
        str | None,
        option(SCORING, "--match-mode", metavar="MODE", doc="Of `expected`: contains, exact. [contains]"),
    ] = None
    length_target: Annotated[
        float | None,
        option(SCORING, "--length-target", metavar="N", doc="Characters that earn the full length bonus. [400]"),
    ] = None
    score_output: Annotated[
        str | None,
        option(SCORING, "--score-output", metavar="MODULE:FN", doc="Your function in place of the formula."),
    ] = None
    schema_mode: Annotated[
        str | None,
        option(
            SCORING, "--schema-mode", metavar="MODE", doc="subset (as documented), jsonschema (all of it). [subset]"
        ),
    ] = None
    model_concurrency: Annotated[
        int | None, option(EXECUTION, "--model-concurrency", metavar="N", doc="Models under way at once. [2]")
    ] = None
    task_concurrency: Annotated[
        int | None,
        option(EXECUTION, "--task-concurrency", metavar="N", doc="Tasks of a model at once; 1: in order. [1]"),
    ] = None
    timeout_ms: Annotated[
        float | None,
        option(EXECUTION, "--timeout-ms", metavar="MS", doc="For a task; 0 is no limit. [0]"),
    ] = None
    abort_on_error: Annotated[
        bool, option(EXECUTION, "--abort-on-error", doc="A model stops at its first failed task; others go on.")
    ] = False
    sampling_args: Annotated[
        list[str] | None,
        option(EXECUTION, "-S", "--sampling-args", metavar="JSON|KEY=VALUE", doc="Request fields; repeatable."),
    ] = None
    temperature: Annotated[
        float | None, option(EXECUTION, "-T", "--temperature", metavar="T", doc="Sampling temperature.")
    ] = None
    max_tokens: Annotated[int | None, option(EXECUTION, "-t", "--max-tokens", metavar="N", doc="Tokens an answer.")] = (
        None
    )
    message_limit: Annotated[
        str | None,
        option(EXECUTION, "--message-limit", metavar="N", doc="Model calls that a task may take. [no limit]"),
    ] = None
    token_limit: Annotated[
        str | None,
        option(EXECUTION, "--token-limit", metavar="N", doc="Tokens that a task may use, in and out. [no limit]"),
    ] = None
    max_cost: Annotated[
        str | None,
        option(EXECUTION, "--max-cost", metavar="USD", doc="Dollars to spend at most, judges included. [no bound]"),
    ] = None
    max_tokens_total: Annotated[
        str | None,
        option(EXECUTION, "--max-tokens-total", metavar="N", doc="Tokens to use at most, in and out. [no bound]"),
    ] = None
    max_time: Annotated[
        str | None,
        option(EXECUTION, "--max-time", metavar="DURATION", doc="Time to take, such as 90s or 1h30m. [no bound]"),
    ] = None
    set: Annotated[
        list[str] | None,
        option(
            EXECUTION, "--set", metavar="PATH=VALUE",
            doc="Any other setting, such as model.rpm=60; MODEL:PATH=VALUE for one model; repeatable.",
        ),
    ] = None  # fmt: skip
    as_json: Annotated[bool, option(OUTPUT, "--json", doc="Print the documented result as JSON on stdout.")] = False
    events: Annotated[
        str | None, option(OUTPUT, "--events", metavar="FILE", doc="Write start, progress and complete as JSON Lines.")
    ] = None
    dry_run: Annotated[bool, option(OUTPUT, "--dry-run", doc="Check everything and show it; call no model.")] = False
    quiet: Annotated[bool, option(OUTPUT, "-q", "--quiet", doc="No progress: only the result.")] = False
    verbose: Annotated[bool, option(OUTPUT, "-v", "--verbose", doc="Log in detail, and show tracebacks.")] = False
    persist: Annotated[
        bool, option(RECORD, "--persist", doc="Keep a record that `bench multi runs`, `show` and `replay` find.")
    ] = False
    persist_dir: Annotated[
        str | None, option(RECORD, "--persist-dir", metavar="DIR", doc=f"Where; implies --persist. [{RECORDS}]")
    ] = None
    no_include_inputs: Annotated[
        bool, option(RECORD, "--no-include-inputs", doc="Without tasks and models: it cannot be replayed.")
    ] = False
    no_include_outputs: Annotated[
        bool, option(RECORD, "--no-include-outputs", doc="Without the answers and their scores.")
    ] = False
    no_include_options: Annotated[bool, option(RECORD, "--no-include-options", doc="Without the options.")] = False
    resume: Annotated[
        bool, option(RESULTS, "--resume", doc="Go on with the newest runs of the same tasks, models and settings.")
    ] = False
    retry_failed: Annotated[
        bool, option(RESULTS, "--retry-failed", doc="--resume, and make failed tasks again.")
    ] = False  # fmt: skip
    save_results: Annotated[
        bool, option(RESULTS, "--save-results/--no-save", "-s", doc="Keep a run folder of each model. [on]")
    ] = True
    save_to_hf_hub: Annotated[bool, option(RESULTS, "-H", "--save-to-hf-hub", doc="Push them to the Hub.")] = False
    hf_hub_dataset_name: Annotated[
        str | None, option(RESULTS, "-D", "--hf-hub-dataset-name", metavar="NAME", doc="Repository to push to.")
    ] = None
    hf_public: Annotated[bool, option(RESULTS, "--hf-public", doc="Create the repository as a public one.")] = False
    output_dir: Annotated[
        str, option(RESULTS, "-o", "--output-dir", metavar="DIR", doc="Where run folders go. [outputs]")
    ] = "outputs"
    private: Annotated[
        bool, option(RESULTS, "--private", doc="Let nobody else here read what is written: folders 0700, files 0600.")
    ] = False

    @property
    def is_resuming(self) -> bool:
        """Whether to resume earlier runs."""
        return self.resume or self.retry_failed

    @property
    def is_persisting(self) -> bool:
        """Whether to store a record."""
        return self.persist or self.persist_dir is not None

    def check(self) -> None:
        """Validate options as far as possible without files or endpoints.

        Raises:
            UsageError: an option is out of range, or conflicts with another.
        """
        for name, number in self._counts():
            if number is not None and number < 1:
                raise UsageError(f"{name} must be >= 1.")
        for name, value in self._numbers():
            if value is not None and not math.isfinite(value):
                raise UsageError(f"{name} must be a number, not {value}.")
        for name, text in self._texts():
            if text is not None and not text.strip():
                raise UsageError(f"{name} is empty: is the variable set that it was to be taken from?")
        for name, word, known in self._words():
            if word is not None and word not in known:
                raise UsageError(f"{name} {word}: there are {' and '.join(known)}")
        self._check_pairs()

    def _check_pairs(self) -> None:
        """Reject options that require or exclude another one."""
        if not self.is_persisting and (idle := next((name for name, given in self._includes() if given), None)):
            raise UsageError(f"{idle} says what a record leaves out: add --persist, or leave it out")
        self._check_named()
        if self.is_resuming and not self.save_results:
            raise UsageError("--no-save keeps nothing that --resume could go on with: leave one of them out")
        if self.dry_run and self.is_resuming:
            raise UsageError("--dry-run looks at no recorded run: leave --resume and --retry-failed out")

    def _check_named(self) -> None:
        """Reject options for `-m` models if no `-m` is given."""
        named = len(self.model or ())
        for name, given in (("--api-base-url", self.api_base_url), ("--api-key-var", self.api_key_var)):
            if given and not named:
                raise UsageError(f"{name} is about models that -m names, and none is: add -m, or put it into the file")
            if given and len(given) not in (1, named):
                raise UsageError(
                    f"{name} is given {len(given)} times for {named} models of -m: give it once for all of them, or "
                    "once for each, in their order; a file of models can say it of some"
                )

    def _counts(self) -> Iterator[tuple[str, int | None]]:
        yield "--model-concurrency", self.model_concurrency
        yield "--task-concurrency", self.task_concurrency
        yield "--max-tokens", self.max_tokens

    def _words(self) -> Iterator[tuple[str, str | None, tuple[str, ...]]]:
        yield "--match-mode", self.match_mode, MATCH_MODES
        yield "--schema-mode", self.schema_mode, SCHEMA_MODES

    def _numbers(self) -> Iterator[tuple[str, float | None]]:
        yield "--temperature", self.temperature
        yield "--timeout-ms", self.timeout_ms
        yield "--length-target", self.length_target

    def _texts(self) -> Iterator[tuple[str, str | None]]:
        yield from (("--model", name) for name in self.model or ())
        yield from (("--api-base-url", url) for url in self.api_base_url or ())
        yield from (("--api-key-var", name) for name in self.api_key_var or ())
        yield "--score-output", self.score_output
        yield "--events", self.events
        yield "--persist-dir", self.persist_dir
        yield "--output-dir", self.output_dir

    def _includes(self) -> Iterator[tuple[str, bool]]:
        yield "--no-include-inputs", self.no_include_inputs
        yield "--no-include-outputs", self.no_include_outputs
        yield "--no-include-options", self.no_include_options


@dataclass(frozen=True, kw_only=True)
class MultiOptions(EvaluationOptions):
    """Options of `bench multi`."""

    tasks: Annotated[str, argument("TASKS", "File of tasks: .json, .jsonl or .toml.")]
    models: Annotated[
        str | None, argument("MODELS", "File of models: .toml, .json or .jsonl, or an endpoint registry.")
    ] = None

    def check(self) -> None:
        """Validate the common options, then those of `bench multi`."""
        super().check()
        if self.models is None and not self.model:
            raise UsageError("Model configs required: name a file of models behind the tasks, or models with -m")


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(EvaluationOptions):
    """Options of `bench multi replay`."""

    run: Annotated[str, argument("RUN", "Id of the record, the beginning of exactly one id, or `latest`.")]
    trust: Annotated[bool, option(OUTPUT, "--trust", doc=TRUST_HELP)] = False


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Options of `bench multi show`."""

    run: Annotated[str, argument("RUN", "Id of the record, the beginning of exactly one id, or `latest`.")]
    as_json: Annotated[bool, option(OUTPUT, "--json", doc="Print the record as it is stored.")] = False
    persist_dir: Annotated[
        str, option(OUTPUT, "--persist-dir", metavar="DIR", doc=f"Where records are. [{RECORDS}]")
    ] = RECORDS


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Options of `bench multi runs`."""

    limit: Annotated[
        int, option(OUTPUT, "-n", "--limit", metavar="N", doc=f"The newest N; 0 is all. [{LIMIT}]")
    ] = LIMIT  # fmt: skip
    as_json: Annotated[bool, option(OUTPUT, "--json", doc="Print them as JSON.")] = False
    persist_dir: Annotated[
        str, option(OUTPUT, "--persist-dir", metavar="DIR", doc=f"Where records are. [{RECORDS}]")
    ] = RECORDS

    def check(self) -> None:
        """Validate the number of records.

        Raises:
            UsageError: the number is negative.
        """
        if self.limit < 0:
            raise UsageError("--limit must be >= 0.")
