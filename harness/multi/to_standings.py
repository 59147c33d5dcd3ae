"""Conversion of the documented results of models to standings, in which a missing score is not 0."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from harness.core.types import Usage
from harness.multi.models import numbered
from harness.multi.results import ModelResult, TaskResult
from harness.stats.difference import UNKNOWN, Range
from harness.stats.standings import Standing, Standings, TaskOutcome, standings

TIMEOUT, FAILED = "timeout", "failed"
"""Reasons for failed tasks whose results have only an error text."""


def standings_of(models: Sequence[ModelResult], reasons: Sequence[Mapping[str, str]] = ()) -> Standings:
    """Convert the results of models to standings, which rank the models; duplicate names get a number.

    Args:
        models: The result of each model.
        reasons: For each model: task → reason for its missing score, if known more precisely than from its error text.
    """
    known = list(reasons) or [dict[str, str]()] * len(models)
    names = numbered([model["modelId"] for model in models])
    found = standings(
        [
            (name, [_attempt(each, why) for each in model["results"]], _planned(model))
            for name, model, why in zip(names, models, known, strict=True)
        ],
        [_score_range(model) for model in models],
    )
    return replace(found, models=tuple(map(_with_schema, found.models, models)))


def _planned(model: ModelResult) -> int:
    summary = model["summary"]
    return summary["total"] + summary.get("notRun", 0)


def _score_range(model: ModelResult) -> Range:
    """Return the range of possible scores; infinite with a scoring hook, or in a record written by another program."""
    meta = model["summary"].get("meta") or {}
    match meta.get("scoreRange"):
        case [int() | float() as low, int() | float() as high] if low < high:
            return float(low), float(high)
        case _:
            return UNKNOWN


def _attempt(result: TaskResult, reasons: Mapping[str, str]) -> TaskOutcome:
    has_failed = "error" in result or not math.isfinite(result["score"])
    why = reasons.get(result["taskId"]) or (TIMEOUT if result.get("timeout") else FAILED)
    return TaskOutcome(
        result["taskId"],
        None if has_failed else result["score"],
        result["valid"] and not has_failed,
        seconds=result["durationMs"] / 1000,
        usage=_usage(result),
        reason=why if has_failed else "",
        error=result.get("error", "") if has_failed else "",
        cluster=result.get("cluster"),
    )


def _usage(result: TaskResult) -> Usage:
    """Return the token usage of a task; empty in a record written by another program."""
    if "usage" not in result:
        return Usage()
    usage = result["usage"]
    return Usage(
        input_tokens=usage["inputTokens"] or 0,
        output_tokens=usage["outputTokens"] or 0,
        reasoning_tokens=usage["reasoningTokens"] or 0,
        cached_tokens=usage["cachedTokens"] or 0,
        requests=usage["requests"],
        unreported=usage["unreported"],
        cost=result["cost"],
    )


def _with_schema(model: Standing, result: ModelResult) -> Standing:
    """Add the schema compliance, which is stored only in `meta`, to a model's standing."""
    meta = result["summary"].get("meta") or {}
    spread = cast("Mapping[str, float] | None", meta.get("schemaCompliance"))
    if not spread or not spread.get("count"):
        return model
    answers = int(spread["count"])
    return replace(model, schema_answers=answers, schema_valid=round(spread["mean"] * answers))
