"""Statistics of an evaluation: the documented ones of each model, where a failed task counts as 0.0, additional ones
without failed tasks, and comparisons of the models. The estimators are those of `stats`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.types import JsonDict
from harness.multi.collect import UNKNOWN_USAGE, to_usage
from harness.multi.results import ModelResult, ModelSummary, TaskResult
from harness.multi.rubric import MATCHED, SCHEMA_VALID
from harness.multi.to_standings import standings_of
from harness.stats import paired
from harness.stats.difference import UNKNOWN, Range
from harness.stats.distributions import nearest_rank
from harness.stats.summary import METHODS, Summary, number


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How one model's run ended, with the engine's statistics."""

    planned: int
    """Number of planned tasks."""
    summary: Summary | None = None
    """The engine's own statistics; None if it has none."""
    state: str = "done"
    stop_reason: str | None = None
    """The reason why the run did not finish normally; None if it did."""
    folder: str | None = None
    """The run folder; None if nothing was stored."""
    fail_fast: bool = False
    """Whether the model stops at its first failed task."""
    score_range: Range = UNKNOWN
    """The range of possible scores; infinite if unknown."""


def summarize_model(model_id: str, results: Sequence[TaskResult], outcome: RunOutcome) -> ModelSummary:
    """Compute the statistics of one model of a multi-model evaluation.

    Args:
        model_id: The model's name in the results.
        results: Results of the tasks that it ran.
        outcome: The outcome of its run.
    """
    total = len(results)
    not_run = max(0, outcome.planned - total)
    errors = sum("error" in each for each in results)
    is_unknown = outcome.summary is None or all(each["usage"] == UNKNOWN_USAGE for each in results)
    return ModelSummary(
        modelId=model_id,
        total=total,
        successRate=_mean([float(_is_success(each)) for each in results]),
        avgScore=_mean([each["score"] for each in results]),
        avgLatencyMs=_mean([each["durationMs"] for each in results]),
        avgTokens=_mean([each["tokens"] for each in results]),
        errorCount=errors,
        aborted=not_run > 0 or (outcome.fail_fast and errors > 0),
        notRun=not_run,
        stopReason=outcome.stop_reason,
        usage=UNKNOWN_USAGE if is_unknown or outcome.summary is None else to_usage(outcome.summary.usage),
        cost=None if outcome.summary is None else number(outcome.summary.usage.cost),
        meta=_meta(results, outcome),
    )


def compare(models: Sequence[ModelResult]) -> list[JsonDict]:
    """Compare every model with the first one by the difference of their scores over the tasks that both have run:
    `counted` includes failed tasks as 0.0, and `scored` excludes them.

    Args:
        models: The models, in the order in which the caller gave them.
    """
    found = standings_of(models)
    pairs = [(index, found.difference(index, 0)) for index in range(1, len(models))]
    return [
        {
            "modelId": models[index]["modelId"],
            "model": index,
            "baseline": models[0]["modelId"],
            "counted": pair.counted.to_json(),
            "scored": pair.scored.to_json(),
        }
        for index, pair in pairs
    ]


def methods(*, has_pairs: bool) -> JsonDict:
    """Return the descriptions of the statistical methods, which are stored with the numbers."""
    words: JsonDict = {
        "avgScore": "mean over the tasks with an outcome; a failed task counts 0.0",
        "successRate": "share of valid tasks that did not fail, among the tasks with an outcome",
        "avgLatencyMs": "mean time to the reply, failed tasks included; waiting for a free slot not included",
        "score": "scored tasks alone: mean, sample standard deviation (ddof 1), 95 % interval",
        "t": METHODS["t"],
        "wilson": METHODS["wilson"],
        "adjusted_t": METHODS["adjusted_t"],
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
    """Return the mean of values; 0 if there are no values, as documented."""
    return math.fsum(values) / len(values) if values else 0.0


def _meta(results: Sequence[TaskResult], outcome: RunOutcome) -> JsonDict:
    summary = outcome.summary
    metrics = {} if summary is None else {name: each.to_json() for name, each in summary.metrics.items()}
    return {
        "score": None if summary is None else summary.reward.to_json(),
        "scoreRange": [number(end) for end in outcome.score_range],
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
    return {
        "mean": _mean(ordered),
        "p50": nearest_rank(ordered, 0.5),
        "p95": nearest_rank(ordered, 0.95),
        "max": ordered[-1],
    }
