"""Result types of an agent evaluation, for a run, a row, an eval function, a model and the whole evaluation. The module
`summaries` computes the results, and `result_document` writes them to a file. The documented fields come first, in
their documented order; the additional fields have defaults."""

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


@dataclass(slots=True)
class EvalRunResult:
    """One run of the agent on one row, with its scores."""

    run_index: int
    """Index of the run within its row, from 0."""
    success: bool
    """Whether the agent completed the run, regardless of the scores."""
    scores: dict[str, float] = field(default_factory=dict[str, float])
    """Scores by eval function. A function that gave no score is in `score_errors` instead."""
    duration_ms: float = 0.0
    """Duration of the agent's run in ms, without scoring and without time spent waiting for a slot, a retry or a rate
    limit."""
    tokens: int = 0
    """Prompt and response tokens of all model calls of the run."""
    error: str | None = None
    """The error of a failed run; None if it succeeded."""
    model_tag: str | None = None
    """`primary` or `baseline`; None if there is only one model."""
    score_errors: dict[str, str] = field(default_factory=dict[str, str])
    """The reasons why eval functions gave no score for a completed run, by function."""
    finish_reason: str | None = None
    """The finish reason that the agent reported (`stop`, `max_turns`, …); None for a failed run."""
    reason: str | None = None
    """Category of the failure (`agent_error`, `timeout`, `rate_limit`, …); None if the run succeeded."""
    unreported: int = 0
    """Number of replies whose tokens the endpoint did not report; `tokens` does not include them."""
    row_index: int | None = None
    """Index of the run's row, set by the runners of the Python API; else None."""


@dataclass(slots=True)
class EvalRowResult:
    """Results of all runs on one row of the dataset."""

    row_index: int
    """Index of the row in the dataset file, including rows that an offset skipped."""
    runs: list[EvalRunResult]
    """Sorted by `run_index`; with a baseline, primary before baseline for each index."""


@dataclass(slots=True)
class EvalEvalSummary:
    """Statistics of one eval function. The documented ones count a failed run and a missing score as 0.0; `scored` and
    `scored_pass_at_k` exclude both."""

    mean: float = math.nan
    """Mean over all runs. This and the other statistics are NaN if no run has a score."""
    std: float = math.nan
    """Population standard deviation over all runs."""
    min: float = math.nan
    max: float = math.nan
    pass_at_k: dict[int, float] = field(default_factory=dict[int, float])
    """pass@k for each k, as the mean over rows; empty with one run per row."""
    scored: Spread = field(default_factory=lambda: Spread(Estimate()))
    """Statistics of the scored runs alone: the mean of the row means, with a 95 % interval by rows."""
    scored_pass_at_k: dict[int, PassRate] = field(default_factory=dict[int, PassRate])
    """pass@k for each k, over scored runs. Rows with fewer than k scored runs are excluded and counted."""
    score_errors: int = 0
    """Number of completed runs without a score from this function; they count 0.0 in the documented statistics."""
    failed_runs: int = 0
    """Number of failed runs; they count 0.0 in the documented statistics."""


@dataclass(slots=True)
class EvalModelSummary:
    """Statistics of one model in an agent evaluation."""

    model: str
    model_tag: str
    """`primary` or `baseline`."""
    eval_summaries: dict[str, EvalEvalSummary]
    total_runs: int
    """Number of this model's runs."""
    total_tokens: int
    total_duration_ms: float
    """Sum of the durations of the model's runs in ms. With concurrent runs, it exceeds the elapsed time `wall_ms`."""
    wall_ms: float = 0.0
    """Time in ms from the start of the first run to the end of the last; for a resumed evaluation, in its latest
    attempt."""
    failed_runs: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Number of failed runs by category of failure, most frequent first."""
    score_errors: dict[str, int] = field(default_factory=dict[str, int])
    """Number of completed runs without a score, by eval function; functions without such runs are omitted."""
    unreported: int = 0
    """Number of replies whose tokens the endpoint did not report."""

    @property
    def without_scores(self) -> list[str]:
        """Names of the eval functions that gave no score to any of the completed runs."""
        completed = self.total_runs - self.failed_runs
        return [name for name, count in self.score_errors.items() if 0 < completed == count]

    @property
    def mean_duration_ms(self) -> float:
        """Mean duration of a run in ms; 0 if there are no runs."""
        return self.total_duration_ms / self.total_runs if self.total_runs else 0.0

    @property
    def mean_tokens(self) -> float:
        """Mean number of tokens of a run; 0 if there are no runs."""
        return self.total_tokens / self.total_runs if self.total_runs else 0.0


@dataclass(frozen=True, slots=True)
class EvalPaired:
    """Comparison of the models by one eval function: primary minus baseline, row by row."""

    counted: Paired
    """Comparison over rows with runs of both models. A failed run and a missing score count 0.0, as in the documented
    statistics."""
    scored: Paired
    """Comparison over rows with scores of both models, using scored runs alone."""
    zeros: int = 0
    """Number of runs of both models without a score, which count 0.0 in `counted`. If this number is 0, `counted` and
    `scored` are equal."""


@dataclass(slots=True)
class EvalResult:
    """Result of an agent evaluation."""

    rows: list[EvalRowResult]
    eval_summaries: dict[str, EvalEvalSummary]
    """Statistics of the only or primary model, by eval function."""
    total_rows: int
    """Number of rows with at least one run."""
    total_runs: int
    """Number of runs of each model: rows × `n_runs`, unless runs are missing."""
    total_tokens: int
    """Tokens of all runs of all models."""
    total_duration_ms: float
    """Elapsed time in ms; for a resumed evaluation, that of its latest attempt."""
    n_runs: int
    """Requested number of runs per row and model."""
    pass_threshold: float
    model_summaries: list[EvalModelSummary] | None = None
    """Statistics of the primary model and of the baseline; None without a baseline."""
    stopped_early: bool = False
    """Whether an unusable endpoint stopped the evaluation before its last run."""
    stop_reason: str | None = None
    interrupted: bool = False
    """Whether the user interrupted the evaluation."""
    models: list[EvalModelSummary] = field(default_factory=list[EvalModelSummary])
    """Statistics of each model, also for a single model."""
    paired: dict[str, EvalPaired] = field(default_factory=dict[str, EvalPaired])
    """Comparison of the models by eval function; empty without a baseline."""
    score_errors: dict[str, int] = field(default_factory=dict[str, int])
    """Number of completed runs of all models without a score, by eval function; functions without any are omitted."""
    failed_runs: int = 0
    """Number of failed runs of all models."""
    resumed_runs: int = 0
    """Number of runs of all models from earlier attempts. `total_duration_ms` does not include their time."""


@dataclass(frozen=True, slots=True)
class ModelOutcomes:
    """All runs of one model, from which `summaries.build_result` computes statistics."""

    model: str
    model_tag: str | None
    """`primary`, `baseline`, or None if there is only one model."""
    runs: Sequence[tuple[int, EvalRunResult]]
    """Pairs (row index, run), sorted, as returned by `collect.collect`."""
    wall_ms: float = 0.0
    """Time in ms from the start of the first run to the end of the last, in the latest attempt."""
    resumed: int = 0
    """Number of runs from earlier attempts."""


BenchRunResult: TypeAlias = EvalRunResult
BenchRowResult: TypeAlias = EvalRowResult
BenchEvalSummary: TypeAlias = EvalEvalSummary
BenchResult: TypeAlias = EvalResult
"""Older names of the same types. Fields that are missing in the older documentation (`model_tag`, `model_summaries`)
are None."""
