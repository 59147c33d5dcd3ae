"""Output of `bench eval` and `bench test` before the first run: progress lines, a header that describes the evaluation,
and the connection check, whose requests `models.preflight` sends."""

from __future__ import annotations

import asyncio
import os
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.agents.result_document import without_credentials
from harness.agents.schemas import RolloutRequest
from harness.agents.validation import validate_tools
from harness.cli import labels
from harness.cli.agent import AgentFlags, EvalOptions
from harness.cli.agent_runs import AgentInvocation, RequestedModel
from harness.core.errors import SystemicError
from harness.engine.provenance import bench_version
from harness.models.pool import CallSettings, ClientPool
from harness.models.preflight import preflight_all
from harness.report.live import Display
from harness.report.text import PlainConsole, clean
from harness.settings.resolved_run import ResolvedRun


class Progress:
    """Printer of one command's progress lines.

    Args:
        console: Console for the lines and the final report.
        first: Header lines.
        is_live: Whether the display has a live table.
        quiet: Print only the report.
    """

    def __init__(self, console: PlainConsole, first: Sequence[str], *, is_live: bool, quiet: bool) -> None:
        self.console = console
        self.has_lines = not (is_live or quiet)
        """Whether to print a line for each run that ends."""
        self._quiet = quiet
        self._first = first
        if is_live:  # before the live table starts; without one, only when runs will be made
            self.begin()

    def begin(self) -> None:
        """Print the header lines once."""
        first, self._first = self._first, ()
        for line in first:
            self._print(line)

    def say(self, words: str, display: Display) -> None:
        """Print a line about the current step."""
        if self.has_lines:
            self._print(words)
        elif not self._quiet:
            display.say(words)

    def line(self, words: str) -> None:
        """Print a line about a finished run."""
        if self.has_lines:
            self._print(words)

    def _print(self, line: str) -> None:
        """Print a line and ignore write errors, since the runs matter more; printing the report will raise them."""
        try:
            self.console.print(line, soft_wrap=True)
        except OSError:  # such as a full disk behind stdout
            self.has_lines = False


_DISCOVERY = RolloutRequest(rollout_id="discovery", server_url="http://localhost", messages=[], completion_params={})
"""Placeholder request, to list an agent's tools without running it."""


def header(options: AgentFlags, job: AgentInvocation) -> Iterator[str]:
    """Generate the header: version, models, agent or MCP tools, dataset, eval functions, folder of debug traces."""
    command = "eval" if isinstance(options, EvalOptions) else "test"
    yield f"bench {command} {bench_version()}"
    for side, run in zip(job.sides, job.resolution.runs, strict=True):
        what = "Baseline " if side.is_baseline else ""
        yield f"{what}Endpoint: {_endpoint(run)}".replace("Baseline E", "Baseline e")
        yield f"{what}Model: {_model(side, run)}".replace("Baseline M", "Baseline m")
    environment = job.environments[0]
    yield ""
    if options.mcp is not None:
        tools = [tool["function"]["name"] for tool in validate_tools(environment.agent.get_tools(_DISCOVERY))]
        yield f"Loading MCP tools: {clean(options.mcp, 2000)}"
        yield f"  Discovered {len(tools)} tool(s): {clean(', '.join(tools), 2000)}"
    else:
        yield f"Loading agent: {clean(options.module, 2000)}"
        yield f"  Agent name: {clean(environment.agent.name, 200)}"
    yield f"Loading dataset: {clean(options.dataset, 2000)}"
    # The number of rows in the file, and of rows to evaluate if fewer.
    left = job.environments[0].row_count
    total, wanted = options.offset + left, job.resolution.runs[0].settings.env.num_examples
    chosen = left if wanted == -1 else min(wanted, left)
    yield f"  Total rows: {total if chosen == total else f'{total} (evaluating {chosen})'}"
    if isinstance(options, EvalOptions):
        yield f"Loading eval functions: {clean(', '.join(options.eval_fn), 2000)}"
        for function in environment.eval_fns:
            yield f"  {clean(function.name, 200)} ({function.mode} mode)"
    if options.traces is not None:
        yield f"Debug traces: {clean(options.traces, 2000)}"
    yield ""


def _endpoint(run: ResolvedRun) -> str:
    if run.is_reference:
        return "the embedded reference server"
    urls = list(dict.fromkeys(without_credentials(endpoint.url) for endpoint in run.endpoints))
    return clean(", ".join(urls), 2000)


def _model(side: RequestedModel, run: ResolvedRun) -> str:
    sent = run.settings.model.model
    return clean(side.model, 200) if sent == side.model else f"{clean(side.model, 200)} (sent as {clean(sent, 200)})"


def check_connections(
    runs: Sequence[tuple[ResolvedRun, bool]], keys: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Send one short request to every model of these runs, except to the embedded server.

    Args:
        runs: Pairs of a run, whose model is checked, and whether that model is the baseline.
        keys: Literal API keys by variable name.
        say: Called with a progress line at the start.

    Raises:
        SystemicError: an endpoint is unusable; no rollout was started.
    """
    wanted: list[tuple[ResolvedRun, bool]] = []
    for run, is_baseline in runs:
        if not run.is_reference and not any(run.endpoints == other.endpoints for other, _ in wanted):
            wanted.append((run, is_baseline))
    if wanted:
        say("Verifying provider connectivity...")
        asyncio.run(_ask(wanted, keys))


async def _ask(runs: Sequence[tuple[ResolvedRun, bool]], keys: Mapping[str, str]) -> None:
    pool = ClientPool(environ=ChainMap(dict(keys), os.environ))
    try:
        asked = [
            (
                pool.get(run.endpoints, CallSettings(request_timeout=own.request_timeout, headers=own.extra_headers)),
                own.model,
            )
            for run, _ in runs
            for own in [run.settings.model]
        ]
        faults: list[SystemicError] = []
        for fault, (_, is_baseline) in zip(await preflight_all(asked), runs, strict=True):
            if fault is not None:
                fault.labels = labels.BASELINE if is_baseline else labels.EVAL
                faults.append(fault)
    finally:
        await pool.close()
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise SystemicError("\n".join(map(str, faults)))
