"""Output of `bench test`: a line for each row, the totals and the results file. No run folder is saved."""

from __future__ import annotations

from collections.abc import Sequence

from harness.agents.local_test_runner import LocalTestRunResult, to_test
from harness.agents.screen import format_duration
from harness.cli.agent import AgentTestOptions
from harness.cli.agent_runs import AgentInvocation
from harness.cli.eval_view import save_results, tell_results
from harness.cli.options import RunOptions
from harness.cli.progress import Progress, check_connections
from harness.cli.view import View, any_private
from harness.core.records import Example, Generated, Scored
from harness.core.records import Failed as FailedRecord
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.prepare import FailedRun, LiveRun
from harness.report.final_table import RunReport, unfinished_words
from harness.report.text import clean

LONGEST_ERROR = 160
"""Maximum characters of an error in a line; the results file has the whole error."""


class AgentTestView(View):
    """View that prints one invocation of `bench test` without -i.

    Args:
        options: Validated options as typed.
        job: Model, agent and rows of the invocation.
        progress: Printer of progress lines.
    """

    needs_all_runs = True
    plain_lines = False

    def __init__(self, options: AgentTestOptions, job: AgentInvocation, progress: Progress) -> None:
        self._keys = job.keys
        self._options = options
        self._progress = progress
        self._examples: dict[str, Example] = {}
        self._results: dict[int, LocalTestRunResult] = {}
        """Results by position in the plan."""
        self._printed = 0

    def admit(self, runs: Sequence[LiveRun | FailedRun]) -> None:
        """Check that the model is reachable."""
        wanted = [(run.plan.resolved, False) for run in runs if isinstance(run, LiveRun)]
        self._progress.begin()
        check_connections(wanted, self._keys, lambda words: self._progress.say(words, self.display))

    def begin(self, runs: Sequence[LiveRun]) -> None:
        """Print the start of the test."""
        [run] = runs
        self._examples = {example.key: example for example in run.plan.rollouts.examples()}
        self._progress.say(
            f"Running tests ({run.plan.rollouts.total} row{'s' if run.plan.rollouts.total != 1 else ''})...",
            self.display,
        )

    def finished(self, run: LiveRun, record: Generated | FailedRecord, scored: Scored | None) -> None:
        """Print a line about each finished row, in the order of the rows."""
        example = self._examples[record.example_key]
        self._results[example.index] = to_test(example, record)
        # A failed row may be reported slightly before the end of the previous one, since it is not scored.
        while (result := self._results.get(self._printed)) is not None:
            self._printed += 1
            self._progress.line(f"[{self._printed}/{len(self._examples)}] {result_line(result)}")

    def show(self, runs: Sequence[LiveRun | FailedRun], reports: Sequence[RunReport], options: RunOptions) -> bool:
        """Print the totals, and write the results file."""
        [progress], console = [run.progress for run in runs], self._progress.console
        reason = progress.note if progress.state in ("stopped", "failed") else None
        results = [self._results[place] for place in sorted(self._results)]
        document = agent_test_document(results, reason, interrupted=progress.state == "interrupted")
        ready = [run for run in runs if isinstance(run, LiveRun)]
        lost = save_results(self._options.output, document, private=any_private(ready))
        for line in self._totals(document["summary"], results):
            console.print(line, soft_wrap=True)
        for words in unfinished_words(reports[0].unfinished):
            console.print(f"  {words[0].upper()}{words[1:]}", soft_wrap=True)
        if lost is not None:
            raise lost
        tell_results(self._options.output, document, console, whole=progress.state == "done")
        return progress.state == "done" and all(result.success for result in results)

    def _totals(self, summary: JsonDict, results: Sequence[LocalTestRunResult]) -> list[str]:
        lines = [] if self._options.quiet else [""]
        lines += [
            "Test Results:",
            f"  Rows: {summary['total']}",
            f"  Passed: {summary['passed']}",
            f"  Failed: {summary['failed']}",
            f"  Duration: {format_duration(summary['total_duration_ms'])}",
            f"  Total tokens: {summary['total_tokens']:,}",
        ]
        if summary["stopped_early"]:
            lines.append(f"  Stopped early. Reason: {clean(summary['stop_reason'], 2000)}")
        if summary["interrupted"]:
            lines.append("  Interrupted: the numbers include only the rows run so far")
        failed = [result for result in results if not result.success]
        if failed:
            lines += ["", "Failed rows:"]
            lines += [f"  Row {result.row_index}: {clean(result.error, 2000)}" for result in failed]
        return lines


def result_line(result: LocalTestRunResult) -> str:
    """Format a result as documented: `Row 0: OK (115ms, 30 tokens)`."""
    head = f"Row {result.row_index}: {'OK' if result.success else 'FAILED'}"
    head += f" ({format_duration(result.duration_ms)}, {result.token_usage['total_tokens']:,} tokens)"
    if not result.success:
        return f"{head} - {clean(result.error, LONGEST_ERROR)}"
    return head if result.finish_reason in (None, "stop") else f"{head} [{clean(result.finish_reason, 60)}]"


def agent_test_document(
    results: Sequence[LocalTestRunResult], stop_reason: str | None, *, interrupted: bool
) -> JsonDict:
    """Build the JSON document that `-o` writes: the documented keys, and how the test ended.

    Args:
        results: Results in the order of the rows.
        stop_reason: Error of the unusable endpoint that stopped the test early; None otherwise.
        interrupted: Whether the user interrupted the test.
    """
    passed = sum(result.success for result in results)
    return {
        "summary": {
            "total": len(results),
            "passed": passed,
            "failed": len(results) - passed,
            "total_duration_ms": round(sum(result.duration_ms for result in results)),
            "total_tokens": sum(result.token_usage["total_tokens"] for result in results),
            "stopped_early": stop_reason is not None,
            "stop_reason": None if stop_reason is None else redactor.text(stop_reason),
            "interrupted": interrupted,
        },
        "results": [_result(result) for result in results],
    }


def _result(result: LocalTestRunResult) -> JsonDict:
    return {
        "row_index": result.row_index,
        "success": result.success,
        "error": None if result.error is None else redactor.text(result.error),
        "duration_ms": round(result.duration_ms),
        "token_usage": dict(result.token_usage),
        "reward": result.reward,
        "finish_reason": result.finish_reason,
    }
