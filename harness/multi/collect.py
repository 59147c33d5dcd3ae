"""From the records of a run to the documented results of a model. Owns what of a record is an output, a score, an error
and a time; knows no statistics.

A task that failed, and one whose hook raised, has the score 0.0 here, because the documents count it so, and always an
`error` beside it; the run's journal keeps it without a score."""

from __future__ import annotations

from typing import cast

from harness.core.records import Failed, Generated, Scored
from harness.core.redact import redactor
from harness.core.types import Usage
from harness.multi.results import TaskResult, TaskUsage
from harness.multi.text import estimated_tokens, output_of
from harness.stats.summary import number, usage_json
from harness.store.outcomes import outcomes
from harness.store.recorded import Recorded
from harness.store.tally import NOT_SCORED

UNKNOWN_USAGE = TaskUsage(
    inputTokens=None, outputTokens=None, reasoningTokens=None, cachedTokens=None, requests=0, unreported=0
)
"""Of a task without a reply, and of a run whose journal cannot be added up."""

TIMEOUT = "timeout"
"""Reason of a task that took too long, and the word by which the documents know an error as one of time."""

VALID, ERRORS = "valid", "errors"
"""What scoring says of a task: a metric, and a list in its state."""


def collect(recorded: Recorded, model_id: str) -> list[TaskResult]:
    """The results that a run's journal holds, in the order of its tasks; the newest lines decide.

    A task whose reply has not been scored yet, because the run was cut off, has none.

    Args:
        recorded: The journal's content, read to its end.
        model_id: What the results call the model.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    return [
        to_result(str(outcome.example.example_id), model_id, outcome.base, outcome.score)
        for outcome in outcomes(recorded)
        if isinstance(outcome.base, Failed) or outcome.score is not None
    ]


def to_result(task_id: str, model_id: str, base: Generated | Failed, score: Scored | None) -> TaskResult:
    """One task by one model.

    Args:
        task_id: The task.
        model_id: What results call the model.
        base: How the request ended.
        score: The score of a reply.
    """
    failed = _failed(base, score)
    output = output_of(base.completion) if failed is None else ""
    result = TaskResult(
        taskId=task_id,
        modelId=model_id,
        output=output,
        score=0.0,
        valid=False,
        errors=[],
        durationMs=round(max(0.0, base.timing.generation - base.timing.waiting) * 1000),
        tokens=estimated_tokens(output),
        usage=to_usage(base.usage),
        cost=number(base.usage.cost),
    )
    if failed is not None:
        words, is_timeout = failed
        result["errors"] = [words]
        result["error"] = words
        result["timeout"] = is_timeout
        if is_timeout and not base.usage.requests:  # the endpoint may have used tokens, which no reply told
            result["usage"] = UNKNOWN_USAGE
        return _in_documented_order(result)
    scored = cast(Scored, score)
    errors: object = scored.extra.get(ERRORS)
    result["score"] = cast(float, scored.reward)
    result["valid"] = bool(scored.metrics.get(VALID))
    result["errors"] = cast("list[object]", errors) if isinstance(errors, list) else []
    return result


def to_usage(usage: Usage) -> TaskUsage:
    """Tokens as results show them; what no endpoint reported is None."""
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
    """Why there is no score, and whether for want of time; None if there is one."""
    if isinstance(base, Failed):
        words = redactor.text(base.error or base.reason)
        return words, base.reason == TIMEOUT or TIMEOUT in words.lower()
    if score is not None and score.reward is not None:
        return None
    words = NOT_SCORED if score is None else next(iter(score.reasons.values()), score.reason or NOT_SCORED)
    return redactor.text(words), TIMEOUT in words.lower()


def _in_documented_order(result: TaskResult) -> TaskResult:
    """`error` and `timeout` before what is ours."""
    ours = ("usage", "cost")
    ordered = {name: value for name, value in result.items() if name not in ours}
    return cast(TaskResult, {**ordered, "usage": result["usage"], "cost": result["cost"]})
