"""Leaderboard of an environment: figures of each run, for HTML and Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from harness.report import numerals
from harness.report.page.gather import EnvPart, RunPart


@dataclass(frozen=True, slots=True)
class Line:
    """One run of a leaderboard."""

    run: RunPart
    mean: str
    interval: str
    scored: str
    rates: list[str]
    """Pass rates, as many as the board has columns for."""
    cost: list[str]
    """One cell; empty if no run of the board has a cost."""
    time: str

    @property
    def is_whole(self) -> bool:
        """Whether every rollout has a score."""
        summary = self.run.summary
        return summary.scored >= max(summary.planned, summary.num_rollouts)


@dataclass(frozen=True, slots=True)
class Board:
    """Leaderboard of one environment."""

    rates: list[str]
    """Headers of the pass rates, for the largest k."""
    cost: list[str]
    """Header of the cost column; empty without one."""
    lines: list[Line]
    """Rows of the leaderboard, best first."""


def board_of(environment: EnvPart) -> Board:
    """Build the leaderboard of an environment."""
    k = max((k for run in environment.runs for k in run.summary.pass_at_k), default=1)
    is_priced = any(run.summary.usage.cost is not None for run in environment.runs)
    lines = [_line(run, k, is_priced=is_priced) for run in environment.runs]
    return Board([f"pass@{k}", f"pass^{k}"] if k > 1 else ["pass@1"], ["cost"] if is_priced else [], lines)


def _line(run: RunPart, k: int, *, is_priced: bool) -> Line:
    summary = run.summary
    rates = [summary.pass_at_k.get(k), *([summary.pass_hat_k.get(k)] if k > 1 else [])]
    return Line(
        run=run,
        mean=numerals.score(run.estimate.mean),
        interval=numerals.interval(run.estimate),
        scored=numerals.coverage(summary),
        rates=[numerals.pass_rate(rate) for rate in rates],
        cost=[numerals.dollars(summary.usage.cost)] if is_priced else [],
        time=numerals.duration(summary.wall_s),
    )
