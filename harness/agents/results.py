"""What an agent evaluation came to: one run, one row, the statistics of an eval function, of a model, of the whole.
Owns the documented types, their fields and their order; computes nothing (`summaries`) and writes nothing (`document`).

The documented fields come first, under the documented names and in the documented order; what is added stands behind
them and has a default, so that code written against the documents constructs and reads these types unchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from harness.stats.intervals import Estimate
from harness.stats.paired import Paired
from harness.stats.passk import PassRate
from harness.stats.summary import Spread

PRIMARY = "primary"
BASELINE = "baseline"


def _nothing_scored() -> Spread:
    return Spread(Estimate())


@dataclass(slots=True)
class EvalRunResult:
    """One run of the agent on one row, with its scores."""

    run_index: int
    """Which run of its row, 0-based."""
    success: bool
    """Whether the agent completed. It says nothing about the scores."""
    scores: dict[str, float] = field(default_factory=dict[str, float])
    """Eval function → score; a function that gave none is missing here and named in `score_errors`."""
    duration_ms: float = 0.0
    """Wall time of the agent's run without scoring and without waiting for a slot, a retry or a rate limit."""
    tokens: int = 0
    """Prompt and response tokens of all its calls; of a failed run too."""
    error: str | None = None
    """Why the run failed; None if it did not."""
    model_tag: str | None = None
    """`primary` or `baseline`; None where there is one model."""
    score_errors: dict[str, str] = field(default_factory=dict[str, str])
    """Eval function → why it gave no score for a run that completed."""
    finish_reason: str | None = None
    """The agent's own word for how it ended (`stop`, `max_turns`, …); None for a failed run."""
    reason: str | None = None
    """Short stable word for why the run failed (`agent_error`, `timeout`, `rate_limit`, …); None if it did not."""
    unreported: int = 0
    """Replies whose tokens the endpoint did not report: they are not in `tokens`."""
    row_index: int | None = None
    """As of its row; set by the runners of the Python API, whose `on_progress` gets runs without their rows."""


@dataclass(slots=True)
class EvalRowResult:
    """All runs of one dataset row."""

    row_index: int
    """The row's index in the dataset file, rows skipped by an offset counted."""
    runs: list[EvalRunResult]
    """In the order of `run_index`; with a baseline each index first primary, then baseline."""


@dataclass(slots=True)
class EvalEvalSummary:
    """Statistics of one eval function. The documented ones count a failed run and a missing score as 0.0; `scored` and
    `scored_pass_at_k` leave both out."""

    mean: float = math.nan
    """Over all runs of all rows; like the others NaN where no run has a score, since nothing was measured."""
    std: float = math.nan
    """Population standard deviation over the same runs."""
    min: float = math.nan
    max: float = math.nan
    pass_at_k: dict[int, float] = field(default_factory=dict[int, float])
    """k → mean over rows; empty with one run a row."""
    scored: Spread = field(default_factory=_nothing_scored)
    """Over the runs that have a score: the mean of the row means with a 95 % interval by rows."""
    scored_pass_at_k: dict[int, PassRate] = field(default_factory=dict[int, PassRate])
    """As `pass_at_k`, of scored runs; rows with fewer than k of them are left out and counted."""
    score_errors: int = 0
    """Runs that completed and that this function gave no score for: counted 0.0 in the documented statistics."""
    failed_runs: int = 0
    """Runs that failed: counted 0.0, too."""


@dataclass(slots=True)
class EvalModelSummary:
    """Statistics of one model."""

    model: str
    model_tag: str
    """`primary` or `baseline`."""
    eval_summaries: dict[str, EvalEvalSummary]
    total_runs: int
    """Runs of this model that were made."""
    total_tokens: int
    total_duration_ms: float
    """Sum of the run durations: with several in flight, more than the time that passed (`wall_ms`)."""
    wall_ms: float = 0.0
    """From the first run's start to the last one's end; of a resumed evaluation, in its newest attempt."""
    failed_runs: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Reason → failed runs, the commonest first."""
    score_errors: dict[str, int] = field(default_factory=dict[str, int])
    """Eval function → completed runs that it gave no score for; only functions that have any."""
    unreported: int = 0
    """Replies whose tokens are unknown."""

    @property
    def without_scores(self) -> list[str]:
        """Eval functions that gave no score to any run, though some completed."""
        completed = self.total_runs - self.failed_runs
        return [name for name, count in self.score_errors.items() if 0 < completed == count]

    @property
    def mean_duration_ms(self) -> float:
        """Of a run; 0 without any."""
        return self.total_duration_ms / self.total_runs if self.total_runs else 0.0

    @property
    def mean_tokens(self) -> float:
        """Of a run; 0 without any."""
        return self.total_tokens / self.total_runs if self.total_runs else 0.0


@dataclass(frozen=True, slots=True)
class EvalPaired:
    """One eval function: primary minus baseline, row by row."""

    counted: Paired
    """As the documented statistics count: a failed run and a missing score are 0.0. Rows that both models have run."""
    scored: Paired
    """Scored runs alone. Rows that both models have a score for."""
    zeros: int = 0
    """Runs, of both models, that `counted` takes as 0.0 for want of a score. Without any, both comparisons are one."""


@dataclass(slots=True)
class EvalResult:
    """A whole evaluation."""

    rows: list[EvalRowResult]
    eval_summaries: dict[str, EvalEvalSummary]
    """Per eval function; with a baseline, of the primary model."""
    total_rows: int
    """Rows that have a run."""
    total_runs: int
    """Runs made, of each model: rows × n_runs where nothing is missing."""
    total_tokens: int
    """Of both models."""
    total_duration_ms: float
    """Wall time of the whole evaluation; of a resumed one, of its newest attempt."""
    n_runs: int
    """Runs asked for, a row and model."""
    pass_threshold: float
    model_summaries: list[EvalModelSummary] | None = None
    """Primary and baseline; None without a baseline."""
    stopped_early: bool = False
    """Whether an unusable endpoint ended the evaluation before its last run."""
    stop_reason: str | None = None
    interrupted: bool = False
    """Whether the user ended it."""
    models: list[EvalModelSummary] = field(default_factory=list[EvalModelSummary])
    """As `model_summaries`, but there for a single model, too."""
    paired: dict[str, EvalPaired] = field(default_factory=dict[str, EvalPaired])
    """Per eval function; empty without a baseline."""
    score_errors: dict[str, int] = field(default_factory=dict[str, int])
    """Eval function → completed runs of any model without a score from it; only functions that have any."""
    failed_runs: int = 0
    """Of any model."""
    resumed_runs: int = 0
    """Of any model: runs that were there before `total_duration_ms` began, because the evaluation was gone on with."""


@dataclass(frozen=True, slots=True)
class ModelOutcomes:
    """What one model did: the input of `summaries.build_result`."""

    model: str
    model_tag: str | None
    """`primary`, `baseline`, or None for the only one."""
    runs: Sequence[tuple[int, EvalRunResult]]
    """(row index, run), as `collect.collect` gives them."""
    wall_ms: float = 0.0
    """From the first run's start to the last one's end, in the newest attempt at it."""
    resumed: int = 0
    """Runs that were there before."""


BenchRunResult: TypeAlias = EvalRunResult
BenchRowResult: TypeAlias = EvalRowResult
BenchEvalSummary: TypeAlias = EvalEvalSummary
BenchResult: TypeAlias = EvalResult
"""The older names of the same results; what they have not (`model_tag`, `model_summaries`) is None there."""
