"""The result of a multi-model evaluation, as plain dicts with the documented keys. Owns their names and types; what
stands in them is made by `collect`, `summary`, `document` and `persist`.

The documented keys come first and keep their meaning. Whatever is added stands behind them under names of its own:
`usage`, `cost`, `notRun`, `stopReason` and `meta`."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from harness.core.types import JsonDict


class TaskUsage(TypedDict):
    """What the endpoint reported for one task, or for all of a model's. Unknown numbers are None, never 0."""

    inputTokens: int | None
    outputTokens: int | None
    reasoningTokens: int | None
    cachedTokens: int | None
    requests: int
    unreported: int
    """Replies without usage."""


class TaskResult(TypedDict):
    """One task by one model."""

    taskId: str
    modelId: str
    output: str
    """The reply without its thinking, trimmed; "" if the task failed."""
    score: float
    """0 if the task failed."""
    valid: bool
    errors: list[Any]
    """Texts, and `{"expertId", "errors"}` of a schema check."""
    durationMs: int
    """Of the reply, without waits for a slot or a rate limit of ours."""
    tokens: int
    """Estimated from the words of `output`; `usage` has what the endpoint counted."""
    error: NotRequired[str]
    """Only if the task failed: why."""
    timeout: NotRequired[bool]
    """Only if the task failed: whether for want of time."""
    usage: TaskUsage
    cost: float | None
    """US dollars; None if unknown."""


class ModelSummary(TypedDict):
    """One model over the tasks that it ran. A failed task counts 0.0, with its latency."""

    modelId: str
    total: int
    """Tasks that came to an outcome."""
    successRate: float
    avgScore: float
    avgLatencyMs: float
    avgTokens: float
    errorCount: int
    aborted: bool
    """Whether it stopped before its last task."""
    notRun: int
    """Tasks without an outcome."""
    stopReason: str | None
    """Why it stopped before its last task; None if it did not."""
    usage: TaskUsage
    cost: float | None
    """US dollars, of all replies whose cost is known."""
    meta: NotRequired[JsonDict]
    """Interval of the score, coverage, latency percentiles, schema compliance, and where the run is."""


class ModelResult(TypedDict):
    """One model."""

    modelId: str
    results: list[TaskResult]
    """In the order of the tasks."""
    summary: ModelSummary


class Totals(TypedDict):
    """How much was asked for."""

    tasks: int
    models: int
    totalRuns: int


class PersistStatus(TypedDict):
    """What became of the record. Only `enabled` if none was asked for."""

    enabled: bool
    stored: NotRequired[bool]
    path: NotRequired[str | None]
    reason: NotRequired[str | None]
    """`Failed to prepare run directory` or `Persist failed`; None if it was stored."""
    detail: NotRequired[str]
    """Only if it was not stored: what the system said."""


class EvaluationResult(TypedDict):
    """What `evaluate` returns and `bench multi --json` prints."""

    runId: str
    startedAt: int
    """Milliseconds since 1970, as `finishedAt`."""
    finishedAt: int
    durationMs: int
    totals: Totals
    summary: list[ModelSummary]
    models: list[ModelResult]
    """In the order in which they were given."""
    persist: PersistStatus
    meta: JsonDict
    """Versions, how each model was asked, and the models compared pair by pair."""


class RunRecord(TypedDict):
    """A stored evaluation. What was left out on request is empty."""

    runId: str
    startedAt: int
    finishedAt: int
    durationMs: int
    totals: Totals
    summary: list[ModelSummary]
    models: list[ModelResult]
    tasks: list[JsonDict]
    modelConfigs: list[JsonDict]
    options: JsonDict
    persistedAt: str
    meta: NotRequired[JsonDict]


class RunEntry(TypedDict):
    """One line of the index of stored evaluations."""

    runId: str
    createdAt: str
    """As `persistedAt` of its record."""
    path: str
    totals: Totals
    summary: list[ModelSummary]
    """Without `meta`."""
