"""The statistics of an evaluation: the documented ones of each model, in which a failed task counts 0.0, and ours
beside them, in which it is missing. Owns the difference between the two, and which models are compared with which;
estimators are those of `stats`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.multi.collect import to_usage
from harness.multi.results import ModelResult, ModelSummary, TaskResult
from harness.stats import paired
from harness.stats.summary import METHODS, Summary, number
from harness.types import JsonDict, Usage

SCHEMA_VALID, MATCHED = "schema_valid", "matched"
"""Metrics of a task with a schema, and of one with an expected text."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How the run of one model ended."""

    planned: int
    """Tasks."""
    summary: Summary | None = None
    """The engine's own numbers; None if it came to none."""
    state: str = "done"
    stop_reason: str | None = None
    """Why it ended before its last task; None if it did not."""
    folder: str | None = None
    """The run folder; None if nothing was kept."""


def summarize_model(model_id: str, results: Sequence[TaskResult], outcome: RunOutcome) -> ModelSummary:
    """The summary of one model.

    Args:
        model_id: What results call it.
        results: Of the tasks that it ran.
        outcome: How its run ended.
    """
    total = len(results)
    not_run = max(0, outcome.planned - total)
    usage = Usage() if outcome.summary is None else outcome.summary.usage
    return ModelSummary(
        modelId=model_id,
        total=total,
        successRate=_mean([float(_is_success(each)) for each in results]),
        avgScore=_mean([each["score"] for each in results]),
        avgLatencyMs=_mean([each["durationMs"] for each in results]),
        avgTokens=_mean([each["tokens"] for each in results]),
        errorCount=sum("error" in each for each in results),
        aborted=not_run > 0,
        notRun=not_run,
        stopReason=outcome.stop_reason if not_run else None,
        usage=to_usage(usage),
        cost=number(usage.cost),
        meta=_meta(results, outcome),
    )


def compare(models: Sequence[ModelResult]) -> list[JsonDict]:
    """The score of every model less that of the first, over the tasks that both have an outcome for: `counted`, where a
    failed task counts 0.0, and `scored`, where it is left out.

    Args:
        models: In the order in which they were given.
    """
    if len(models) < 2:
        return []
    first = models[0]
    return [
        {
            "modelId": other["modelId"],
            "model": index,
            "baseline": first["modelId"],
            "counted": paired.paired_by_key(_scores(other), _scores(first)).to_json(),
            "scored": paired.paired_by_key(_scores(other, scored=True), _scores(first, scored=True)).to_json(),
        }
        for index, other in enumerate(models[1:], 1)
    ]


def methods(*, has_pairs: bool) -> JsonDict:
    """How the numbers are made, in words that travel with them."""
    words: JsonDict = {
        "avgScore": "mean over the tasks that came to an outcome; a failed task counts 0.0",
        "successRate": "tasks that are valid and did not fail, of those that came to an outcome",
        "avgLatencyMs": "mean time to the reply, failed tasks included; waits for a slot of ours are not in it",
        "score": "scored tasks alone: mean, sample standard deviation (ddof 1), 95 % interval",
        "t": METHODS["t"],
        "wilson": METHODS["wilson"],
        "bounds": METHODS["bounds"],
    }
    if has_pairs:
        words["paired"] = {
            "sides": "each model minus the first, task by task",
            "counted": "a failed task counts 0.0; tasks that both have run",
            "scored": "tasks that both have a score for",
            **paired.METHODS,
        }
    return words


def _is_success(result: TaskResult) -> bool:
    return result["valid"] and "error" not in result


def _mean(values: Sequence[float]) -> float:
    """0 of nothing, as the documents have it."""
    return math.fsum(values) / len(values) if values else 0.0


def _scores(model: ModelResult, *, scored: bool = False) -> Mapping[str, float]:
    return {
        each["taskId"]: each["score"]
        for each in model["results"]
        if math.isfinite(each["score"]) and not (scored and "error" in each)
    }


def _meta(results: Sequence[TaskResult], outcome: RunOutcome) -> JsonDict:
    summary = outcome.summary
    metrics = {} if summary is None else {name: each.to_json() for name, each in summary.metrics.items()}
    return {
        "score": None if summary is None else summary.reward.to_json(),
        "scored": 0 if summary is None else summary.scored,
        "coverage": None if summary is None else number(summary.coverage),
        "bounds": None if summary is None or summary.bounds is None else [number(each) for each in summary.bounds],
        "schemaCompliance": metrics.get(SCHEMA_VALID),
        "matched": metrics.get(MATCHED),
        "latencyMs": _latency([each["durationMs"] for each in results]),
        "failures": {} if summary is None else dict(summary.unscored),
        "timeouts": Counter(bool(each.get("timeout")) for each in results)[True],
        "state": outcome.state,
        "run": outcome.folder,
    }


def _latency(values: Sequence[int]) -> JsonDict | None:
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> int:
        return ordered[math.ceil(share * len(ordered)) - 1]  # nearest rank: a time that some task really took

    return {"mean": _mean(ordered), "p50": at(0.5), "p95": at(0.95), "max": ordered[-1]}
