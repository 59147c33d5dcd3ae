"""The result of a multi-model evaluation, as typed dicts with the documented keys. `collect`, `summary`, `document` and
`persist` compute the values. The documented keys come first and keep their meaning. Additional keys follow: `usage`,
`cost`, `notRun`, `stopReason` and `meta`."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from harness.core.types import JsonDict


class TaskUsage(TypedDict):
    """Usage that the endpoint reported for one task, or for all tasks of a model. Unknown numbers are None, never 0."""

    inputTokens: int | None
    outputTokens: int | None
    reasoningTokens: int | None
    cachedTokens: int | None
    requests: int
    unreported: int
    """Number of replies without usage."""


class TaskResult(TypedDict):
    """The result of one task by one model."""

    taskId: str
    modelId: str
    output: str
    """The model's reply without its thinking, trimmed; "" if the task failed."""
    score: float
    """The score; 0 if the task failed."""
    valid: bool
    errors: list[Any]
    """Strings, or `{"expertId", "errors"}` for a failed schema check."""
    durationMs: int
    """Duration of the reply in ms, without waiting for a slot or a client-side rate limit."""
    tokens: int
    """Estimate from the number of words of `output`; `usage` has the endpoint's numbers."""
    error: NotRequired[str]
    """The reason for the failure; only present if the task failed."""
    timeout: NotRequired[bool]
    """Whether the failure was a timeout; only present if the task failed."""
    usage: TaskUsage
    cost: float | None
    """US dollars; None if unknown."""
    cluster: NotRequired[str]
    """Label of the task's cluster; only present if the run declares clusters."""


class ModelSummary(TypedDict):
    """Statistics of one model over the tasks that it ran. A failed task counts as 0.0, and its latency is included."""

    modelId: str
    total: int
    """Number of tasks with an outcome."""
    successRate: float
    avgScore: float
    avgLatencyMs: float
    avgTokens: float
    errorCount: int
    aborted: bool
    """Whether the model stopped before its last task."""
    notRun: int
    """Number of tasks without an outcome."""
    stopReason: str | None
    """The reason why the model stopped before its last task; None if it did not."""
    usage: TaskUsage
    cost: float | None
    """US dollars for all replies whose cost is known."""
    meta: NotRequired[JsonDict]
    """Interval of the score, coverage, latency percentiles, schema compliance, and the run folder."""


class ModelResult(TypedDict):
    """The results of one model's tasks, and their summary."""

    modelId: str
    results: list[TaskResult]
    """The results, in the order of the tasks."""
    summary: ModelSummary


class Totals(TypedDict):
    """Numbers of requested tasks, models and runs of an evaluation."""

    tasks: int
    models: int
    totalRuns: int


class PersistStatus(TypedDict):
    """Whether and where the record was stored. Has only `enabled` if no record was requested."""

    enabled: bool
    stored: NotRequired[bool]
    path: NotRequired[str | None]
    reason: NotRequired[str | None]
    """`Failed to prepare run directory` or `Persist failed`; None if it was stored."""
    detail: NotRequired[str]
    """The system's error message; only if the record was not stored."""


class _EvaluationKeys(TypedDict):
    """Keys that a result and its record share."""

    runId: str
    startedAt: int
    """Milliseconds since 1970, like `finishedAt`."""
    finishedAt: int
    durationMs: int
    totals: Totals
    summary: list[ModelSummary]
    models: list[ModelResult]
    """The results of each model, in the order in which the models were given."""


class EvaluationResult(_EvaluationKeys):
    """The result of a multi-model evaluation, as `evaluate` returns it and `bench multi --json` prints it."""

    persist: PersistStatus
    meta: JsonDict
    """Versions, request settings of each model, and pairwise comparisons of the models."""


class RunRecord(_EvaluationKeys):
    """A stored evaluation. Parts that were excluded on request are empty."""

    tasks: list[JsonDict]
    modelConfigs: list[JsonDict]
    options: JsonDict
    persistedAt: str
    meta: NotRequired[JsonDict]


class RunEntry(TypedDict):
    """One line of the index of stored evaluations."""

    runId: str
    createdAt: str
    """Same as `persistedAt` of the record."""
    path: str
    totals: Totals
    summary: list[ModelSummary]
    """The summary of each model, without `meta`."""
