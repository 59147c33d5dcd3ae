"""Leaderboard of an environment as text, for HTML and Markdown."""

from __future__ import annotations

from harness.report import numerals
from harness.report.page.gather import EnvPart


def board_of(environment: EnvPart) -> dict[str, list[str]]:
    """Figures of an environment's runs: header of each column → a cell for each run, best run first. The pass rates are
    those of the largest k."""
    summaries = [run.summary for run in environment.runs]
    k = max((k for summary in summaries for k in summary.pass_at_k), default=1)
    board = {
        "mean": [numerals.score(run.estimate.mean) for run in environment.runs],
        "95 % interval": [numerals.interval(run.estimate) for run in environment.runs],
        "scored": [numerals.coverage(summary) for summary in summaries],
        f"pass@{k}": [numerals.pass_rate(summary.pass_at_k.get(k)) for summary in summaries],
    }
    if k > 1:
        board[f"pass^{k}"] = [numerals.pass_rate(summary.pass_hat_k.get(k)) for summary in summaries]
    board["tokens in"] = [numerals.tokens(summary.usage, summary.usage.input_tokens) for summary in summaries]
    board["tokens out"] = [numerals.tokens(summary.usage, summary.usage.output_tokens) for summary in summaries]
    if any(summary.usage.cost is not None for summary in summaries):
        board["cost"] = [numerals.dollars(summary.usage.cost) for summary in summaries]
    return board | {"time": [numerals.duration(summary.wall_s) for summary in summaries]}
