"""Options of `bench eval` and `bench test`, one dataclass per command: names, help, defaults and validation. Imports no
engine, and sends nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from harness.cli import grouped
from harness.cli.grouped import option
from harness.core.errors import HarnessError, UsageError

REQUIRED = "Required"
AGENT = "Agent (one of them)"
MODEL = "Model"
BASELINE = "Baseline: a second model on the same rows"
EXECUTION = "Execution"
STEPPING = "Stepping"
OUTPUT = "Output"
RESULTS = "Run folder and resuming"
_ORDER = (REQUIRED, AGENT, MODEL, BASELINE, EXECUTION, STEPPING, OUTPUT, RESULTS)

MASK = "***"
_KEY_OPTIONS = ("--api-key", "--baseline-api-key")


@dataclass(frozen=True, kw_only=True)
class AgentFlags:
    """Options of both commands."""

    debug_folder: ClassVar[str] = ""
    """Default folder of debug traces."""

    dataset: Annotated[
        str, option(REQUIRED, "-d", "--dataset", metavar="FILE", doc="Rows: .json, .jsonl, .parquet or .csv.")
    ]
    module: Annotated[
        str | None,
        option(
            AGENT, "-m", "--module", "--agent", metavar="MODULE:NAME",
            doc="A RolloutAgentLoop class or instance, or anything with name, get_tools and run.",
        ),
    ] = None  # fmt: skip
    mcp: Annotated[
        str | None,
        option(AGENT, "--mcp", metavar="DIR", doc="Folder whose main.py has a FastMCP instance: its tools, our loop."),
    ] = None
    base_url: Annotated[
        str | None,
        option(
            MODEL, "--base-url", metavar="URL",
            doc="OpenAI-compatible endpoint, such as http://localhost:8000/v1; gets the model's name as it stands.",
        ),
    ] = None  # fmt: skip
    api_key: Annotated[
        str | None,
        option(
            MODEL, "--api-key", metavar="KEY",
            doc="The key itself; never recorded. By default the provider's variable, with --base-url none.",
        ),
    ] = None  # fmt: skip
    api_key_var: Annotated[
        str | None, option(MODEL, "--api-key-var", metavar="NAME", doc="Environment variable that holds the key.")
    ] = None
    max_turns: Annotated[
        int, option(EXECUTION, "--max-turns", metavar="N", doc="Turns that the agent may take. [10]")
    ] = 10
    temperature: Annotated[
        float | None,
        option(EXECUTION, "--temperature", metavar="T", doc="Sampling temperature where the agent passes none."),
    ] = None
    max_tokens: Annotated[
        int | None,
        option(EXECUTION, "--max-tokens", metavar="N", doc="Tokens a completion, where the agent passes none."),
    ] = None
    sampling_args: Annotated[
        list[str] | None,
        option(EXECUTION, "-S", "--sampling-args", metavar="JSON|KEY=VALUE", doc="Further request fields; repeatable."),
    ] = None
    message_limit: Annotated[
        str | None,
        option(EXECUTION, "--message-limit", metavar="N", doc="Model calls that a run may make. [no limit]"),
    ] = None
    token_limit: Annotated[
        str | None,
        option(EXECUTION, "--token-limit", metavar="N", doc="Tokens that a run may use, in and out. [no limit]"),
    ] = None
    limit: Annotated[int | None, option(EXECUTION, "--limit", metavar="N", doc="Rows at most. [all]")] = None
    offset: Annotated[int, option(EXECUTION, "--offset", metavar="N", doc="Rows to skip. [0]")] = 0
    set: Annotated[
        list[str] | None,
        option(EXECUTION, "--set", metavar="PATH=VALUE", doc="Any other setting, such as model.rpm=60; repeatable."),
    ] = None
    output: Annotated[
        str | None, option(OUTPUT, "-o", "--output", metavar="FILE", doc="Write the results as JSON; - is stdout.")
    ] = None
    quiet: Annotated[bool, option(OUTPUT, "-q", "--quiet", doc="No progress: only the report.")] = False
    debug: Annotated[
        bool, option(OUTPUT, "--debug", doc="Log in detail, and write a trace of every run to --debug-dir.")
    ] = False
    debug_dir: Annotated[
        str | None, option(OUTPUT, "--debug-dir", metavar="DIR", doc="Where traces go; implies --debug.")
    ] = None
    verbose: Annotated[bool, option(OUTPUT, "-v", "--verbose", doc="Log in detail, and show tracebacks.")] = False

    @property
    def is_verbose(self) -> bool:
        """Whether to log in detail."""
        return self.verbose or self.debug or self.debug_dir is not None

    @property
    def traces(self) -> str | None:
        """Folder of debug traces; None if none are written."""
        return self.debug_dir or (self.debug_folder if self.debug else None)

    @property
    def literal_keys(self) -> dict[str, str]:
        """Typed API keys, by the generated variable name of each."""
        from harness.settings.providers import LITERAL_KEY_VAR  # slow to import, and --help does not need it

        return {} if self.api_key is None else {LITERAL_KEY_VAR: self.api_key.strip()}

    def check(self) -> None:
        """Validate options as far as possible without files or endpoints.

        Raises:
            UsageError: an option is out of range, or conflicts with another.
        """
        if self.module is not None and self.mcp is not None:
            raise UsageError("--module and --mcp are mutually exclusive.")
        if not self.module and not self.mcp:
            raise UsageError("Either --module (-m) or --mcp is required.")
        if self.temperature is not None and not math.isfinite(self.temperature):
            raise UsageError(f"--temperature must be a number, not {self.temperature}.")
        for name, text in (("--output", self.output), ("--debug-dir", self.debug_dir)):
            if text == "":
                raise UsageError(f"{name} is empty: is the variable set that it was to be taken from?")
        if self.traces is not None and Path(self.traces).exists() and not Path(self.traces).is_dir():
            raise UsageError(f"--debug-dir {self.traces}: is no folder; name one for the traces")
        for name, value, least in self._bounds():
            if value is not None and value < least:
                raise UsageError(f"{name} must be >= {least}.")
        _check_keys("", self.api_key, self.api_key_var)

    def _bounds(self) -> Iterator[tuple[str, int | None, int]]:
        yield "--max-turns", self.max_turns, 1
        yield "--max-tokens", self.max_tokens, 1
        yield "--offset", self.offset, 0
        yield "--limit", self.limit, 1


@dataclass(frozen=True, kw_only=True)
class EvalOptions(AgentFlags):
    """Options of `bench eval`."""

    debug_folder: ClassVar[str] = "local_debug"

    eval_fn: Annotated[
        list[str], option(REQUIRED, "--eval-fn", metavar="MODULE:FN", doc="Function that scores a run; repeatable.")
    ]
    model: Annotated[
        str,
        option(
            REQUIRED, "--model", metavar="MODEL",
            doc="Its name at --base-url, or PROVIDER/NAME such as openai/gpt-5-mini.",
        ),
    ]  # fmt: skip
    baseline_model: Annotated[
        str | None, option(BASELINE, "--baseline-model", metavar="MODEL", doc="Compared with, row by row.")
    ] = None
    baseline_base_url: Annotated[
        str | None, option(BASELINE, "--baseline-base-url", metavar="URL", doc="Its endpoint.")
    ] = None
    baseline_api_key: Annotated[
        str | None, option(BASELINE, "--baseline-api-key", metavar="KEY", doc="Its key; never recorded.")
    ] = None
    baseline_api_key_var: Annotated[
        str | None, option(BASELINE, "--baseline-api-key-var", metavar="NAME", doc="Variable that holds its key.")
    ] = None
    n: Annotated[int, option(EXECUTION, "--n", metavar="N", doc="Runs a row, for pass@k. [1]")] = 1
    pass_threshold: Annotated[
        float, option(EXECUTION, "--pass-threshold", metavar="X", doc="Score from which a run passes. [1.0]")
    ] = 1.0
    batch_size: Annotated[
        int, option(EXECUTION, "--batch-size", "--batch_size", metavar="N", doc="Runs in flight, of both models. [1]")
    ] = 1
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
    dry_run: Annotated[bool, option(OUTPUT, "--dry-run", doc="Check everything and show it; call no model.")] = False
    resume: Annotated[
        bool, option(RESULTS, "--resume", doc="Go on with the newest run of the same settings; --n, --limit may grow.")
    ] = False
    retry_failed: Annotated[bool, option(RESULTS, "--retry-failed", doc="--resume, and make failed runs again.")] = (
        False
    )
    fresh: Annotated[bool, option(RESULTS, "--fresh", doc="Look at no earlier run.")] = False
    state_columns: Annotated[
        str | None,
        option(RESULTS, "-C", "--state-columns", metavar="NAME,NAME…", doc="State values to keep as columns."),
    ] = None
    save_results: Annotated[
        bool, option(RESULTS, "--save-results/--no-save", "-s", doc="Keep a run folder with its dataset. [on]")
    ] = True
    save_to_hf_hub: Annotated[bool, option(RESULTS, "-H", "--save-to-hf-hub", doc="Push it to the Hub.")] = False
    hf_hub_dataset_name: Annotated[
        str | None, option(RESULTS, "-D", "--hf-hub-dataset-name", metavar="NAME", doc="Repository to push to.")
    ] = None
    hf_public: Annotated[bool, option(RESULTS, "--hf-public", doc="Create the repository as a public one.")] = False
    output_dir: Annotated[
        str, option(RESULTS, "--output-dir", metavar="DIR", doc="Where run folders go. [outputs]")
    ] = "outputs"
    private: Annotated[
        bool, option(RESULTS, "--private", doc="Let nobody else here read what is written: folders 0700, files 0600.")
    ] = False

    @property
    def is_resuming(self) -> bool:
        """Whether to resume an earlier run."""
        return self.resume or self.retry_failed

    @property
    def literal_keys(self) -> dict[str, str]:
        """Typed API keys, by the generated variable name of each."""
        keys = super().literal_keys
        from harness.settings.providers import BASELINE_KEY_VAR  # slow to import, as above

        return keys if self.baseline_api_key is None else {**keys, BASELINE_KEY_VAR: self.baseline_api_key.strip()}

    def check(self) -> None:
        """Validate the common options, then those of `bench eval`."""
        super().check()
        if self.baseline_model is None:
            for name in ("base_url", "api_key", "api_key_var"):
                if getattr(self, f"baseline_{name}") is not None:
                    raise UsageError(f"--baseline-{name.replace('_', '-')} requires --baseline-model.")
        _check_keys("baseline-", self.baseline_api_key, self.baseline_api_key_var)
        for dash, variable in (("api", self.api_key_var), ("baseline-api", self.baseline_api_key_var)):
            if variable in self.literal_keys:  # the other model's key would be sent along
                raise UsageError(
                    f"--{dash}-key-var: {variable} stands for the key that the other model was given; pass "
                    f"--{dash}-key, or use a variable of another name."
                )
        if self.fresh and self.is_resuming:
            other = "--retry-failed" if self.retry_failed else "--resume"
            raise UsageError(f"--fresh and {other} are mutually exclusive.")
        if self.dry_run and self.is_resuming:
            raise UsageError("--dry-run looks at no recorded run: leave --resume and --retry-failed out")

    def _bounds(self) -> Iterator[tuple[str, int | None, int]]:
        yield "--n", self.n, 1
        yield "--batch-size", self.batch_size, 1
        yield from super()._bounds()


@dataclass(frozen=True, kw_only=True)
class RehearsalOptions(AgentFlags):
    """Options of `bench test`."""

    debug_folder: ClassVar[str] = "test_debug"

    model: Annotated[
        str,
        option(
            MODEL, "--model", metavar="MODEL",
            doc="Its name at --base-url, or PROVIDER/NAME. [gpt-5-mini]",
        ),
    ] = "gpt-5-mini"  # fmt: skip
    interactive: Annotated[
        bool, option(STEPPING, "-i", "--interactive", doc="Stop before every model call; ? lists what can be said.")
    ] = False
    row: Annotated[int | None, option(STEPPING, "--row", metavar="N", doc="Begin at this row; needs -i.")] = None

    def check(self) -> None:
        """Validate the common options, then those of `bench test`."""
        super().check()
        if self.row is not None and not self.interactive:
            raise UsageError("--row requires --interactive (-i).")
        if self.interactive and self.output is not None:
            raise UsageError("--output needs every row to be run: leave it, or --interactive, out")

    def _bounds(self) -> Iterator[tuple[str, int | None, int]]:
        yield "--row", self.row, 0
        yield from super()._bounds()


def _check_keys(prefix: str, key: str | None, variable: str | None) -> None:
    if key is not None and not key.strip():
        raise UsageError(f"--{prefix}api-key is empty: is the variable set that it was to be taken from?")
    if key is not None and variable is not None:
        raise UsageError(f"--{prefix}api-key is the key, --{prefix}api-key-var names it: give one of them")


def masked(argv: Sequence[str]) -> list[str]:
    """Mask API keys in a command line.

    Args:
        argv: Arguments after `bench`.
    """
    words: list[str] = []
    for index, word in enumerate(argv):
        name, equals, _ = word.partition("=")
        if index and argv[index - 1] in _KEY_OPTIONS:
            word = MASK
        elif equals and name in _KEY_OPTIONS:
            word = f"{name}={MASK}"
        words.append(word)
    return words


def command_of(options: type[AgentFlags], run: Callable[[Any, Any], int]) -> typer.Typer:
    """Build a command whose options are the fields of a dataclass.

    Args:
        options: The dataclass.
        run: Called with the context's object and the checked options; returns the exit code. Its docstring is the help.
    """

    def command(ctx: typer.Context, chosen: AgentFlags) -> int:
        state = ctx.find_root().obj
        state["verbose"] = chosen.verbose
        chosen.check()
        try:
            return run(state, chosen)
        except HarnessError as error:
            from harness.cli.eval_wording import in_own_words  # slow to import, and only errors need it

            error.args = (in_own_words(str(error)), *error.args[1:])
            raise

    command.__doc__ = run.__doc__
    common = frozenset(field.name for field in fields(AgentFlags))  # the command's own groups come first
    return grouped.command_of(options, command, _ORDER, last=common)
