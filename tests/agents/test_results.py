"""The documented result types: their names, fields, order and meaning."""

from __future__ import annotations

import ast
import dataclasses
import pickle
from typing import Any

from eval_samples import blocks
from tables import for_each_row

from harness.agents import results
from harness.agents.results import EvalEvalSummary, EvalModelSummary, EvalResult, EvalRowResult, EvalRunResult


def documented_types(page: str) -> dict[str, list[str]]:
    """Class → its fields, as the document's code blocks define them."""
    found: dict[str, list[str]] = {}
    for block in blocks(page, "python"):
        if "@dataclass" not in block:
            continue
        for node in ast.parse(block).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = [
                    field.target.id
                    for field in node.body
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                ]
    return found


def fields_of(cls: Any) -> list[dataclasses.Field[Any]]:
    return list(dataclasses.fields(cls))


@for_each_row(("page", "number"), [("eval-mode.md", 5), ("bench-mode.md", 4)])
def test_documented_fields_come_first_and_in_order(page: str, number: int) -> None:
    types = documented_types(page)
    assert len(types) == number
    for name, expected in types.items():
        assert [field.name for field in fields_of(getattr(results, name))][: len(expected)] == expected, name


def test_what_is_added_has_a_default() -> None:
    for page in ("eval-mode.md", "bench-mode.md"):
        for name, documented in documented_types(page).items():
            for field in fields_of(getattr(results, name))[len(documented) :]:
                assert field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def test_the_documented_fields_are_enough() -> None:
    run = EvalRunResult(0, True, {"f": 1.0}, 120.0, 30, None, "primary")
    assert (run.score_errors, run.finish_reason, run.reason, run.unreported) == ({}, None, None, 0)
    summary = EvalEvalSummary(0.5, 0.5, 0.0, 1.0, {1: 0.5})
    row = EvalRowResult(3, [run])
    model = EvalModelSummary("m", "primary", {"f": summary}, 1, 30, 120.0)
    result = EvalResult([row], {"f": summary}, 1, 1, 30, 125.0, 1, 1.0, [model])
    assert (result.stopped_early, result.stop_reason, result.interrupted) == (False, None, False)
    assert dataclasses.asdict(result)["rows"][0]["runs"][0]["scores"] == {"f": 1.0}


def test_results_share_nothing() -> None:
    one, other = EvalRunResult(0, True), EvalRunResult(1, True)
    one.scores["f"] = 1.0
    assert other.scores == {}


def test_the_older_names_are_the_same_types() -> None:
    assert results.BenchRunResult is EvalRunResult
    assert results.BenchRowResult is EvalRowResult
    assert results.BenchEvalSummary is EvalEvalSummary
    assert results.BenchResult is EvalResult


def test_means_of_a_model_without_runs_are_zero() -> None:
    empty = EvalModelSummary("m", "primary", {}, 0, 0, 0.0)
    assert (empty.mean_duration_ms, empty.mean_tokens) == (0.0, 0.0)
    assert EvalModelSummary("m", "primary", {}, 4, 100, 1000.0).mean_duration_ms == 250.0


def test_a_result_survives_a_process_boundary() -> None:
    run = EvalRunResult(0, False, error="gone", reason="timeout")
    assert pickle.loads(pickle.dumps(run)) == run
