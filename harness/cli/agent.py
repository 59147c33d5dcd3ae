"""Implement `bench eval` and `bench test`: run an agent over the rows of a dataset, with or without scoring. A
dataclass per command declares its options; the steps are in `cli.agent_runs`, `cli.eval_view`, `cli.test_run`,
`cli.interactive` and `cli.execute`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from harness.cli.grouped import at_least, command_of, finite, not_empty, option, switch
from harness.cli.options import SAVING, SHARED, RunOptions
from harness.cli.stdout import own_stdout, print_notices
from harness.core.errors import UsageError

if TYPE_CHECKING:
    from harness.cli.agent_runs import AgentInvocation

REQUIRED = "Required"
AGENT = "Agent (one of them)"
MODEL = "Model"
BASELINE = "Baseline: a second model on the same rows"
EXECUTION = "Execution"
STEPPING = "Stepping"
OUTPUT = "Output"
RESULTS = "Run folder and resuming"
GROUPS = (REQUIRED, AGENT, MODEL, BASELINE, EXECUTION, STEPPING, OUTPUT, RESULTS)


@dataclass(frozen=True, kw_only=True)
class AgentFlags(RunOptions):
    """Options of both commands. A command declares `model` itself."""

    debug_folder: ClassVar[str] = ""
    """Default folder of debug traces."""
    setting_keys: ClassVar[Mapping[str, Sequence[str]]] = {EXECUTION: ("sampling_args", *SHARED)}
    """Keys of the settings that are options, by help group."""

    model: str
    settings: Mapping[str, object]
    """Values of the given options that are settings, by setting key."""
    dataset: str = option(REQUIRED, "-d --dataset FILE", "Rows: .json, .jsonl, .parquet or .csv.", MISSING)
    module: str | None = option(
        AGENT,
        "-m --module --agent MODULE:NAME",
        "A RolloutAgentLoop class or instance, or anything with name, get_tools and run.",
    )
    mcp: str | None = option(AGENT, "--mcp DIR", "Folder whose main.py has a FastMCP instance: its tools, our loop.")
    base_url: str | None = option(
        MODEL,
        "--base-url URL",
        "OpenAI-compatible endpoint, such as http://localhost:8000/v1; receives the model's name unchanged.",
    )
    api_key: str | None = option(
        MODEL,
        "--api-key KEY",
        "The key itself; never recorded. By default the provider's variable, with --base-url none.",
    )
    api_key_var: str | None = option(MODEL, "--api-key-var NAME", "Environment variable that holds the key.")
    max_turns: int = option(EXECUTION, "--max-turns N", "Maximum number of turns of the agent. [10]", 10, at_least(1))
    temperature: float | None = option(
        EXECUTION, "--temperature T", "Sampling temperature, unless the agent sets it.", test=finite
    )
    max_tokens: int | None = option(
        EXECUTION, "--max-tokens N", "Maximum tokens per completion, unless the agent sets it.", test=at_least(1)
    )
    limit: int | None = option(EXECUTION, "--limit N", "Maximum number of rows. [all]", test=at_least(1))
    offset: int = option(EXECUTION, "--offset N", "Rows to skip. [0]", 0, at_least(0))
    set: list[str] | None = option(
        EXECUTION, "--set PATH=VALUE", "Any other setting, such as model.rpm=60; repeatable."
    )
    output: str | None = option(OUTPUT, "-o --output FILE", "Write the results as JSON; - is stdout.", test=not_empty)
    quiet: bool = switch(OUTPUT, "-q --quiet", "No progress: only the report.")
    debug: bool = switch(OUTPUT, "--debug", "Log in detail, and write a trace of every run to --debug-dir.")
    debug_dir: str | None = option(OUTPUT, "--debug-dir DIR", "Folder of the traces; implies --debug.", test=not_empty)
    verbose: bool = switch(OUTPUT, "-v --verbose", "Log in detail, and show tracebacks.")

    @property
    def is_verbose(self) -> bool:
        """Whether to log in detail."""
        return self.verbose or self.debug or self.debug_dir is not None

    @property
    def traces(self) -> str | None:
        """Folder of debug traces; None if no traces are written."""
        return self.debug_dir or (self.debug_folder if self.debug else None)

    @property
    def literal_keys(self) -> dict[str, str]:
        """API keys typed on the command line, by the variable name generated for each."""
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
        if self.traces is not None and Path(self.traces).exists() and not Path(self.traces).is_dir():
            raise UsageError(f"--debug-dir {self.traces} is not a folder; give a folder for the traces")
        _check_keys("", self.api_key, self.api_key_var)


@dataclass(frozen=True, kw_only=True)
class EvalOptions(AgentFlags):
    """Options of `bench eval`."""

    debug_folder: ClassVar[str] = "local_debug"
    setting_keys: ClassVar[Mapping[str, Sequence[str]]] = {
        **AgentFlags.setting_keys,
        RESULTS: ("state_columns", *SAVING),
    }

    eval_fn: list[str] = option(REQUIRED, "--eval-fn MODULE:FN", "Function that scores a run; repeatable.", MISSING)
    model: str = option(
        REQUIRED, "--model MODEL", "Its name at --base-url, or PROVIDER/NAME such as openai/gpt-5-mini.", MISSING
    )
    baseline_model: str | None = option(BASELINE, "--baseline-model MODEL", "Second model, compared row by row.")
    baseline_base_url: str | None = option(BASELINE, "--baseline-base-url URL", "Its endpoint.")
    baseline_api_key: str | None = option(BASELINE, "--baseline-api-key KEY", "Its key; never recorded.")
    baseline_api_key_var: str | None = option(BASELINE, "--baseline-api-key-var NAME", "Variable that holds its key.")
    n: int = option(EXECUTION, "--n N", "Runs per row, for pass@k. [1]", 1, at_least(1))
    pass_threshold: float = option(EXECUTION, "--pass-threshold X", "Minimum score of a run that passes. [1.0]", 1.0)
    batch_size: int = option(
        EXECUTION, "--batch-size --batch_size N", "Concurrent runs of both models together. [1]", 1, at_least(1)
    )
    dry_run: bool = switch(OUTPUT, "--dry-run", "Check everything and show it; call no model.")
    resume: bool = switch(RESULTS, "--resume", "Resume the newest run of the same settings; --n, --limit may grow.")
    retry_failed: bool = switch(RESULTS, "--retry-failed", "Resume, and retry failed runs.")
    fresh: bool = switch(RESULTS, "--fresh", "Ignore earlier runs.")

    @property
    def literal_keys(self) -> dict[str, str]:
        """API keys typed on the command line, by the variable name generated for each."""
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
                    f"--{dash}-key-var: {variable} is already used for the other model's key; pass "
                    f"--{dash}-key, or use a variable of another name."
                )
        if self.fresh and self.is_resuming:
            other = "--retry-failed" if self.retry_failed else "--resume"
            raise UsageError(f"--fresh and {other} are mutually exclusive.")
        if self.dry_run and self.is_resuming:
            raise UsageError("--dry-run does not read recorded runs: remove --resume and --retry-failed")


@dataclass(frozen=True, kw_only=True)
class AgentTestOptions(AgentFlags):
    """Options of `bench test`."""

    debug_folder: ClassVar[str] = "test_debug"

    model: str = option(MODEL, "--model MODEL", "Its name at --base-url, or PROVIDER/NAME. [gpt-5-mini]", "gpt-5-mini")
    interactive: bool = switch(STEPPING, "-i --interactive", "Stop before every model call; ? lists the commands.")
    row: int | None = option(STEPPING, "--row N", "Start at this row; needs -i.", test=at_least(0))

    def check(self) -> None:
        """Validate the common options, then those of `bench test`."""
        super().check()
        if self.row is not None and not self.interactive:
            raise UsageError("--row requires --interactive (-i).")
        if self.interactive and self.output is not None:
            raise UsageError(
                "--output and --interactive are mutually exclusive: results are written only if all rows run"
            )


def _check_keys(prefix: str, key: str | None, variable: str | None) -> None:
    if key is not None:
        not_empty(f"--{prefix}api-key", key)
        if variable is not None:
            raise UsageError(
                f"--{prefix}api-key (the key itself) and --{prefix}api-key-var (its variable) are mutually exclusive"
            )


def evaluate(options: EvalOptions) -> int:
    """Evaluate an agent over the rows of a dataset, and score every run.

    The agent is your class or instance (-m), or the built-in loop with the tools of a folder (--mcp). Each run is saved
    when it ends: --resume continues an evaluation that was interrupted or killed. `bench run` evaluates environments
    (gsm8k, a suite).
    """
    from harness.cli.agent_runs import make_job
    from harness.cli.eval_view import EvalView, check_target, execute_agents

    own: dict[str, object] = {
        "rollouts_per_example": options.n,
        "pass_threshold": None if options.pass_threshold == 1.0 else options.pass_threshold,
        "max_concurrent": options.batch_size,
    }
    job = make_job(options, "eval", own)
    print_notices(job.resolution.notices)
    private = any(run.settings.save.private for run in job.resolution.runs)
    check_target(options.output, job.files, make_folders=not options.dry_run, private=private)
    if options.dry_run:
        from harness.cli.dry_run import show

        show(job.resolution, sys.stdout)
        return 0
    return execute_agents(options, job, lambda progress: EvalView(options, job, progress), options.batch_size)


_SETTINGS: dict[str, object] = {"rollouts_per_example": 1, "max_concurrent": 1, "save_results": False}


def run_test(options: AgentTestOptions) -> int:
    """Run an agent over rows without scoring it, to see whether it works and what it does.

    Rows run one after another; results are saved only with -o. With -i, stop before every model call.
    """
    from harness.cli.agent_runs import make_job

    job = make_job(options, "test", _SETTINGS)
    print_notices(job.resolution.notices)
    if options.interactive:
        return _step(options, job)
    from harness.cli.eval_view import check_target, execute_agents
    from harness.cli.test_run import AgentTestView

    private = any(run.settings.save.private for run in job.resolution.runs)
    check_target(options.output, job.files, private=private)
    return execute_agents(options, job, lambda progress: AgentTestView(options, job, progress))


def _step(options: AgentTestOptions, job: AgentInvocation) -> int:
    from harness.cli.interactive import TestSession
    from harness.cli.progress import check_connections, header
    from harness.report.text import make_console

    with own_stdout() as stdout:  # keep output of the agent off our stdout
        console = make_console(file=stdout)
        session = TestSession(job, console, options.row)
        for line in () if options.quiet else header(options, job):
            console.print(line, soft_wrap=True)
        runs = [(run, False) for run in job.resolution.runs]
        check_connections(runs, job.keys, lambda words: None if options.quiet else console.print(words, soft_wrap=True))
        return 0 if session.run() else 1


eval_app = command_of(EvalOptions, evaluate, GROUPS, settings=EvalOptions.setting_keys)
test_app = command_of(AgentTestOptions, run_test, GROUPS, settings=AgentTestOptions.setting_keys)
