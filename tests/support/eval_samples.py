"""Runs of an agent evaluation without an agent, for tests of its numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.agents.results import BASELINE, PRIMARY, EvalResult, EvalRunResult, ModelOutcomes
from harness.agents.summaries import build_result
from harness.core.types import JsonDict

EXACT, PARTIAL = "rewards:exact_match", "rewards:partial_match"

SPEC = Path(__file__).resolve().parents[3] / "shared" / "spec"
"""The documents that the evaluation follows; they are not part of the repository."""


def document(name: str) -> str:
    """One of them; skips the test where they are not at hand."""
    path = SPEC / name
    if not path.is_file():
        pytest.skip(f"{name} is not beside the checkout")
    return path.read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    """Its fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document(name), re.MULTILINE | re.DOTALL)


def run(index: int = 0, score: float | None = 1.0, **changes: Any) -> EvalRunResult:
    """A completed run that `EXACT` gave `score`; None: it failed to."""
    values: JsonDict = {
        "scores": {} if score is None else {EXACT: score},
        "score_errors": {EXACT: "KeyError: 'x'"} if score is None else {},
        "duration_ms": 100.0,
        "tokens": 30,
        "finish_reason": "stop",
    }
    return EvalRunResult(index, True, **{**values, **changes})


def failed(index: int = 0, **changes: Any) -> EvalRunResult:
    """A run that failed."""
    values: JsonDict = {"duration_ms": 50.0, "tokens": 15, "error": "the agent gave up", "reason": "agent_error"}
    return EvalRunResult(index, False, **{**values, **changes})


def rows(*scores: Sequence[float | str | None]) -> list[tuple[int, EvalRunResult]]:
    """One row an argument, one run an entry: a score, None for a scorer that raised, "failed" for a failed run."""
    return [
        (row, failed(index) if isinstance(score, str) else run(index, score))
        for row, runs in enumerate(scores)
        for index, score in enumerate(runs)
    ]


def many(
    tag: str | None, n_rows: int, n_runs: int, *, right: float, seed: int, fail: float = 0.0, err: float = 0.0
) -> list[tuple[int, EvalRunResult]]:
    """Random runs with both eval functions; parts of them fail, or are not scored by `PARTIAL`."""
    generator, runs = random.Random(seed), list[tuple[int, EvalRunResult]]()
    for place in range(n_rows * n_runs):
        row, index = divmod(place, n_runs)
        if generator.random() < fail:
            error, reason = generator.choice([("gave up \x1b[2J on it", "agent_error"), ("no reply", "timeout")])
            runs.append((row, failed(index, error=error, reason=reason, model_tag=tag)))
            continue
        scores, errors = {EXACT: float(generator.random() < right)}, dict[str, str]()
        if generator.random() < err:
            errors[PARTIAL] = "ZeroDivisionError: division by zero\x07 (in partial_match, rewards.py:12)"
        else:
            scores[PARTIAL] = round(right * generator.random(), 2)
        runs.append((row, run(index, scores=scores, score_errors=errors, model_tag=tag)))
    return runs


def evaluation(
    n_rows: int = 12, n_runs: int = 3, *, baseline: bool = True, fail: float = 0.1, err: float = 0.1, **ending: Any
) -> EvalResult:
    """An evaluation of one model, or of two."""
    tags = (PRIMARY, BASELINE) if baseline else (None,)
    models = [
        ModelOutcomes(
            ("my-finetuned-model", "openai/gpt-5-mini")[seed], tag,
            many(tag, n_rows, n_runs, right=0.7 - 0.2 * seed, seed=seed, fail=fail, err=err), 1000.0,
        )
        for seed, tag in enumerate(tags)
    ]  # fmt: skip
    return build_result(models, [EXACT, PARTIAL], n_runs=n_runs, pass_threshold=1.0, wall_ms=192_400.0, **ending)
