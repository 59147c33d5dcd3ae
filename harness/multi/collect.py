"""Conversion of a run's records to the documented results of a model: outputs, scores, errors and times. Computes no
statistics. A failed task, or one whose scoring hook raised, has the documented score 0.0 and an `error` here; the run's
journal stores it without a score."""

from __future__ import annotations

from typing import cast

from harness.core.records import Failed, Generated, Scored
from harness.core.redact import redactor
from harness.core.types import JsonDict, Usage
from harness.multi.results import TaskResult, TaskUsage
from harness.multi.rubric import ERRORS, VALID
from harness.multi.text import estimated_tokens, output_of
from harness.stats.summary import number, usage_json
from harness.store.clusters import ClusterLabels
from harness.store.journal_index import Recorded
from harness.store.outcome_kinds import missing_reason
from harness.store.outcomes import outcomes

UNKNOWN_USAGE = TaskUsage(
    inputTokens=None, outputTokens=None, reasoningTokens=None, cachedTokens=None, requests=0, unreported=0
)
"""Token usage of a task without a reply, of a run of such tasks, and of a run whose journal cannot be summed."""

TIMEOUT = "timeout"
"""Reason of a task that timed out, and the word by which the documented format recognizes timeout errors."""


def collect(recorded: Recorded, model_id: str, cluster_key: str = "") -> list[TaskResult]:
    """Read the results of a model's tasks from its run's journal, in the order of the tasks. If a task has several
    lines, the newest one counts.

    A task whose reply has not been scored, because the run was interrupted, has no result.

    Args:
        recorded: The journal's content, read to its end.
        model_id: The model's name in the results.
        cluster_key: Key of the tasks' clusters; "" if tasks are independent.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    found: list[TaskResult] = []
    for outcome in outcomes(recorded):
        if isinstance(outcome.base, Failed) or outcome.score is not None:
            example = outcome.example
            result = to_result(str(example.example_id), model_id, outcome.base, outcome.score)
            if cluster_key:
                result["cluster"] = ClusterLabels(cluster_key).add(example, example.key)
            found.append(result)
    return found


def to_result(task_id: str, model_id: str, base: Generated | Failed, score: Scored | None) -> TaskResult:
    """Convert one recorded outcome to a task's result.

    Args:
        task_id: The task's id.
        model_id: The model's name in the results.
        base: The outcome of the request.
        score: The score of a reply.
    """
    failed = _failed(base, score)
    output = output_of(base.completion) if failed is None else ""
    values: JsonDict = {
        "taskId": task_id,
        "modelId": model_id,
        "output": output,
        "score": 0.0,
        "valid": False,
        "errors": [],
        "durationMs": round(max(0.0, base.timing.generation - base.timing.waiting) * 1000),
        "tokens": estimated_tokens(output),
    }
    usage = to_usage(base.usage)
    if failed is not None:
        words, is_timeout = failed
        values |= {"errors": [words], "error": words, "timeout": is_timeout}
        if is_timeout and not base.usage.requests:  # it may have used tokens that no reply reported
            usage = UNKNOWN_USAGE
    else:
        scored = cast(Scored, score)
        errors: object = scored.extra.get(ERRORS)
        values |= {"score": scored.reward, "valid": bool(scored.metrics.get(VALID))}
        values["errors"] = cast("list[object]", errors) if isinstance(errors, list) else []
    return cast(TaskResult, {**values, "usage": usage, "cost": number(base.usage.cost)})


def to_usage(usage: Usage) -> TaskUsage:
    """Convert token usage to the documented form; numbers that no endpoint reported are None."""
    known = usage_json(usage)
    return TaskUsage(
        inputTokens=known["input_tokens"],
        outputTokens=known["output_tokens"],
        reasoningTokens=known["reasoning_tokens"],
        cachedTokens=known["cached_tokens"],
        requests=usage.requests,
        unreported=usage.unreported,
    )


def _failed(base: Generated | Failed, score: Scored | None) -> tuple[str, bool] | None:
    """Return the reason why a task has no score, and whether that is a timeout; None if it has a score."""
    if isinstance(base, Failed):
        words = redactor.text(base.error or base.reason)
        return words, base.reason == TIMEOUT or TIMEOUT in words.lower()
    if score is not None and score.reward is not None:
        return None
    words = missing_reason(base, score) if score is None else next(iter(score.reasons.values()), score.reason)
    return redactor.text(words), TIMEOUT in words.lower()
