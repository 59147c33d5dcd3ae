"""Results of an agent evaluation: types for a run, a row, the statistics of an eval function and of a model, and the
whole. `summaries` computes them, `result_document` writes them. The documented fields come first, with the documented
names and order; additional fields follow and have defaults, so that code written for the documentation constructs and
reads these types unchanged."""

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
    """Index of the run within its row, from 0."""
    success: bool
    """Whether the agent completed the run, regardless of the scores."""
    scores: dict[str, float] = field(default_factory=dict[str, float])
    """Eval function → score; a function without a score is missing here and named in `score_errors`."""
    duration_ms: float = 0.0
    """Wall time of the agent's run in ms, without scoring and without waiting for a slot, a retry or a rate limit."""
    tokens: int = 0
    """Prompt and response tokens of all its calls, also of a failed run."""
    error: str | None = None
    """The error of a failed run; None if it succeeded."""
    model_tag: str | None = None
    """`primary` or `baseline`; None if there is one model."""
    score_errors: dict[str, str] = field(default_factory=dict[str, str])
    """Eval function → the reason why it gave no score for a completed run."""
    finish_reason: str | None = None
    """The agent's own reason for ending (`stop`, `max_turns`, …); None for a failed run."""
    reason: str | None = None
    """Short stable reason of a failure (`agent_error`, `timeout`, `rate_limit`, …); None if the run succeeded."""
    unreported: int = 0
    """Number of replies whose tokens the endpoint did not report; `tokens` does not include them."""
    row_index: int | None = None
    """The row's index; set by the runners of the Python API, whose `on_progress` gets runs without their rows."""


@dataclass(slots=True)
class EvalRowResult:
    """All runs of one dataset row."""

    row_index: int
    """The row's index in the dataset file, counting rows skipped by an offset."""
    runs: list[EvalRunResult]
    """Sorted by `run_index`; with a baseline, primary before baseline for each index."""


@dataclass(slots=True)
class EvalEvalSummary:
    """Statistics of one eval function. The documented ones count a failed run and a missing score as 0.0; `scored` and
    `scored_pass_at_k` exclude both."""

    mean: float = math.nan
    """Mean over all runs of all rows; this and the other statistics are NaN if no run has a score."""
    std: float = math.nan
    """Population standard deviation over the same runs."""
    min: float = math.nan
    max: float = math.nan
    pass_at_k: dict[int, float] = field(default_factory=dict[int, float])
    """k → mean over rows; empty if there is one run per row."""
    scored: Spread = field(default_factory=_nothing_scored)
    """Statistics of the runs with a score: the mean of the row means with a 95 % interval by rows."""
    scored_pass_at_k: dict[int, PassRate] = field(default_factory=dict[int, PassRate])
    """pass@k over scored runs; rows with fewer than k of them are excluded and counted."""
    score_errors: int = 0
    """Completed runs without a score from this function; they count 0.0 in the documented statistics."""
    failed_runs: int = 0
    """Failed runs; they count 0.0 as well."""


@dataclass(slots=True)
class EvalModelSummary:
    """Statistics of one model."""

    model: str
    model_tag: str
    """`primary` or `baseline`."""
    eval_summaries: dict[str, EvalEvalSummary]
    total_runs: int
    """Number of runs that this model has made."""
    total_tokens: int
    total_duration_ms: float
    """Sum of the run durations; exceeds the elapsed time (`wall_ms`) if runs are concurrent."""
    wall_ms: float = 0.0
    """Elapsed time from the start of the first run to the end of the last; of a resumed evaluation, in its latest
    attempt."""
    failed_runs: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Reason → number of failed runs, the most frequent first."""
    score_errors: dict[str, int] = field(default_factory=dict[str, int])
    """Eval function → completed runs without a score from it; only functions with such runs."""
    unreported: int = 0
    """Replies whose tokens the endpoint did not report."""

    @property
    def without_scores(self) -> list[str]:
        """Eval functions that gave no run a score, although some completed."""
        completed = self.total_runs - self.failed_runs
        return [name for name, count in self.score_errors.items() if 0 < completed == count]

    @property
    def mean_duration_ms(self) -> float:
        """Mean duration of a run; 0 without runs."""
        return self.total_duration_ms / self.total_runs if self.total_runs else 0.0

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a run; 0 without runs."""
        return self.total_tokens / self.total_runs if self.total_runs else 0.0


@dataclass(frozen=True, slots=True)
class EvalPaired:
    """The comparison by one eval function: primary minus baseline, row by row."""

    counted: Paired
    """Over rows that both models have run; a failed run and a missing score count 0.0, as in the documented
    statistics."""
    scored: Paired
    """Over rows for which both models have a score, with scored runs alone."""
    zeros: int = 0
    """Runs of both models without a score, which `counted` takes as 0.0. If it is 0, both comparisons are equal."""


@dataclass(slots=True)
class EvalResult:
    """The result of a whole evaluation."""

    rows: list[EvalRowResult]
    eval_summaries: dict[str, EvalEvalSummary]
    """Per eval function; with a baseline, of the primary model."""
    total_rows: int
    """Number of rows with at least one run."""
    total_runs: int
    """Runs made by each model: rows × n_runs if none is missing."""
    total_tokens: int
    """Tokens of both models."""
    total_duration_ms: float
    """Wall time of the whole evaluation; of a resumed one, that of its latest attempt."""
    n_runs: int
    """Requested runs per row and model."""
    pass_threshold: float
    model_summaries: list[EvalModelSummary] | None = None
    """Primary and baseline; None without a baseline."""
    stopped_early: bool = False
    """Whether an unusable endpoint ended the evaluation before its last run."""
    stop_reason: str | None = None
    interrupted: bool = False
    """Whether the user interrupted the evaluation."""
    models: list[EvalModelSummary] = field(default_factory=list[EvalModelSummary])
    """Like `model_summaries`, but also present for a single model."""
    paired: dict[str, EvalPaired] = field(default_factory=dict[str, EvalPaired])
    """Per eval function; empty without a baseline."""
    score_errors: dict[str, int] = field(default_factory=dict[str, int])
    """Eval function → completed runs of any model without a score from it; only functions that have any."""
    failed_runs: int = 0
    """Failed runs of all models."""
    resumed_runs: int = 0
    """Runs of all models from earlier attempts; `total_duration_ms` does not include their time."""


@dataclass(frozen=True, slots=True)
class ModelOutcomes:
    """The runs of one model: the input of `summaries.build_result`."""

    model: str
    model_tag: str | None
    """`primary`, `baseline`, or None for the only one."""
    runs: Sequence[tuple[int, EvalRunResult]]
    """(row index, run), as `collect.collect` returns them."""
    wall_ms: float = 0.0
    """Elapsed time from the start of the first run to the end of the last, in the latest attempt."""
    resumed: int = 0
    """Runs from earlier attempts."""


BenchRunResult: TypeAlias = EvalRunResult
BenchRowResult: TypeAlias = EvalRowResult
BenchEvalSummary: TypeAlias = EvalEvalSummary
BenchResult: TypeAlias = EvalResult
"""The older names of the same results; fields that they lack (`model_tag`, `model_summaries`) are None."""
