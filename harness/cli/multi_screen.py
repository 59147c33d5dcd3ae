"""From the results of an evaluation to what its screen shows: the models side by side, of a run that has just ended and
of a record alike. Owns which of the documented results has no score; numbers and layout are made below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from harness.multi.results import ModelResult, TaskResult
from harness.report import numerals
from harness.report.side_by_side import Ending, side_by_side
from harness.report.text import PlainConsole
from harness.stats.standings import Attempt, Standing, Standings, standings
from harness.types import Usage

TIMEOUT, FAILED = "timeout", "failed"
"""Reasons of tasks of a record, which keeps only the words of an error."""


def show_models(
    models: Sequence[ModelResult], console: PlainConsole, reasons: Sequence[Mapping[str, str]] = ()
) -> None:
    """Print the models side by side.

    Args:
        models: What each came to.
        console: Where.
        reasons: Of each model, why tasks have no score, by task; of a record nothing is known but the words.
    """
    found = standings_of(models, reasons)
    ends = [ending_of(model) for model in models]
    lines = side_by_side(found, console.width, endings=ends, ascii_only=console.options.ascii_only)
    for line in lines:
        console.print(line, soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """`1 model`, `2 models`."""
    return f"{numerals.count(number)} {noun}{'' if number == 1 else 's'}"


def standings_of(models: Sequence[ModelResult], reasons: Sequence[Mapping[str, str]] = ()) -> Standings:
    """The numbers of the models, tasks without a score told apart.

    Args:
        models: What each came to.
        reasons: As above.
    """
    known = list(reasons) or [dict[str, str]()] * len(models)
    rows = [
        (model["modelId"], [_attempt(each, why) for each in model["results"]], _planned(model))
        for model, why in zip(models, known, strict=True)
    ]
    found = standings(rows)
    return replace(found, models=tuple(map(_with_schema, found.models, models)))


def ending_of(model: ModelResult) -> Ending:
    """How the run of a model ended."""
    summary = model["summary"]
    state = str(summary["meta"].get("state") or "done") if "meta" in summary else "done"
    return Ending(state, summary.get("stopReason") or "")


def _planned(model: ModelResult) -> int:
    summary = model["summary"]
    return summary["total"] + summary.get("notRun", 0)


def _attempt(result: TaskResult, reasons: Mapping[str, str]) -> Attempt:
    has_failed = "error" in result or not math.isfinite(result["score"])
    why = reasons.get(result["taskId"]) or (TIMEOUT if result.get("timeout") else FAILED)
    return Attempt(
        result["taskId"],
        None if has_failed else result["score"],
        result["valid"] and not has_failed,
        seconds=result["durationMs"] / 1000,
        usage=_usage(result),
        reason=why if has_failed else "",
        error=result.get("error", "") if has_failed else "",
    )


def _usage(result: TaskResult) -> Usage:
    """Tokens of a task; a record of another program has none."""
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
    """Schema compliance, which results have no key of their own for."""
    meta = result["summary"].get("meta") or {}
    spread = cast("Mapping[str, float] | None", meta.get("schemaCompliance"))
    if not spread or not spread.get("count"):
        return model
    answers = int(spread["count"])
    return replace(model, schema_answers=answers, schema_valid=round(spread["mean"] * answers))
