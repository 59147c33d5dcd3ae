"""From records to documented results and their statistics: what a failed task counts, what is missing, what is ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

from harness.core.records import Example, Failed, Generated, Record, Scored, Timing
from harness.core.redact import redactor
from harness.core.types import Usage
from harness.multi.collect import collect, to_result
from harness.multi.document import Started, new_run_id, result_document, without_credentials
from harness.multi.results import ModelResult, TaskResult, TaskUsage
from harness.multi.summary import RunOutcome, compare, summarize_model
from harness.stats.summary import summarize
from harness.store.codec import encode
from harness.store.journal_index import Recorded
from harness.store.score_table import tally

USAGE = Usage(10, 5, requests=1, cost=0.5)
TIMING = Timing(0.0, generation=1.5, model=1.0, waiting=0.25)


def generated(number: int = 0, text: str = "hello", **fields: Any) -> Generated:
    said = [{"role": "assistant", "content": text}]
    return Generated(f"k{number}", f"e{number}", 0, said, "stop", usage=USAGE, timing=TIMING, **fields)


def scored(number: int = 0, reward: float | None = 0.7, valid: float = 1.0, **extra: Any) -> Scored:
    reasons = {} if reward is not None else {"score_output": "ValueError: no"}
    outcome = "scored" if reward is not None else "unscored"
    return Scored(f"k{number}", outcome, reward, {"valid": valid, "tokens_estimate": 2.0}, reasons, extra=extra)


def failed(number: int = 0, reason: str = "connection", error: str = "connection refused") -> Failed:
    return Failed(f"k{number}", f"e{number}", 0, "generation", reason, error, True, usage=USAGE, timing=TIMING)


USED = TaskUsage(inputTokens=10, outputTokens=5, reasoningTokens=0, cachedTokens=0, requests=1, unreported=0)


def test_a_scored_reply() -> None:
    errors = ["Expected output mismatch", {"expertId": "m", "errors": ["Output is not valid JSON"]}]
    result = to_result("t", "m", generated(text="<think>hm</think> hello  there "), scored(valid=0.0, errors=errors))
    assert list(result.items()) == [
        ("taskId", "t"), ("modelId", "m"), ("output", "hello  there"), ("score", 0.7), ("valid", False),
        ("errors", errors), ("durationMs", 1250), ("tokens", 3), ("usage", USED), ("cost", 0.5),
    ]  # fmt: skip


def test_a_failed_request() -> None:
    result = to_result("t", "m", failed(), None)
    assert list(result.items()) == [
        ("taskId", "t"), ("modelId", "m"), ("output", ""), ("score", 0.0), ("valid", False),
        ("errors", ["connection refused"]), ("durationMs", 1250), ("tokens", 0), ("error", "connection refused"),
        ("timeout", False), ("usage", USED), ("cost", 0.5),
    ]  # fmt: skip


@for_each_row(
    ("reason", "error", "is_timeout"),
    [
        ("timeout", "MultiModelEvaluator timeout after 5ms", True),
        ("timeout", "the rollout took longer than 5 s", True),
        ("server_error", "HTTP 504: Gateway Timeout", True),
        ("server_error", "HTTP 500: time is out", False),
    ],
)
def test_what_is_a_timeout(reason: str, error: str, is_timeout: bool) -> None:
    result = to_result("t", "m", replace(failed(reason=reason, error=error), usage=Usage()), None)
    assert (result.get("timeout"), result.get("error")) == (is_timeout, error)
    assert (result["usage"]["inputTokens"] is None) == is_timeout, "what a request without a reply used is unknown"


def test_a_hook_that_raised_is_an_error_with_its_words() -> None:
    result = to_result("t", "m", generated(), scored(reward=None))
    assert (result["score"], result["output"], result["tokens"]) == (0.0, "", 0)
    assert (result["errors"], result.get("error"), result.get("timeout")) == (
        ["ValueError: no"],
        "ValueError: no",
        False,
    )


def test_errors_hold_no_secret() -> None:
    redactor.add("tk-collect-secret")
    result = to_result("t", "m", failed(error="sent tk-collect-secret"), None)
    assert (result.get("error"), result["errors"]) == ("sent [redacted]", ["sent [redacted]"])


def test_what_no_endpoint_reported_is_unknown_and_not_0() -> None:
    silent = Generated("k", "e", 0, [], usage=Usage(requests=1, unreported=1))
    result = to_result("t", "m", silent, scored())
    assert (result["usage"]["inputTokens"], result["usage"]["outputTokens"], result["cost"]) == (None, None, None)


def recorded_of(folder: Path, *lines: Record) -> Recorded:
    path = folder / "journal.jsonl"
    path.write_bytes(b"".join(map(encode, lines)))
    return Recorded.load(path)


def example(number: int, index: int | None = None) -> Example:
    prompt = [{"role": "user", "content": f"{number}?"}]
    return Example(f"e{number}", f"task-{number}", prompt, index=number if index is None else index)


def journal(folder: Path) -> Recorded:
    """Out of order: one scored, one failed, one that is not scored yet, one that was made twice."""
    return recorded_of(
        folder,
        example(2), example(0), generated(2, "two"), generated(0, "zero"), scored(2, 0.9), example(1), failed(1),
        scored(0, 0.5, valid=0.0), example(3), generated(3), example(4), failed(4, "timeout", "timeout!"),
        generated(4, "at last"), scored(4, 0.6),
    )  # fmt: skip


def test_a_journal_in_the_order_of_the_tasks_the_newest_lines_deciding(workplace: Path) -> None:
    results = collect(journal(workplace), "m")
    assert [(each["taskId"], each["output"], each["score"], each.get("error")) for each in results] == [
        ("task-0", "zero", 0.5, None), ("task-1", "", 0.0, "connection refused"), ("task-2", "two", 0.9, None),
        ("task-4", "at last", 0.6, None),
    ]  # fmt: skip


def test_the_documented_statistics_count_failures_and_ours_leave_them_out(workplace: Path) -> None:
    recorded = journal(workplace)
    results = collect(recorded, "m")
    whole = summarize(
        tally(recorded), pass_threshold=1.0, rollouts_per_example=1, planned=6, reward_range=(0.0, 1.0), wall_s=1.0
    )
    summary = summarize_model("m", results, RunOutcome(6, whole, "interrupted", "stopped by hand", "outputs/x"))
    assert {name: summary[name] for name in list(summary)[:10]} == {
        "modelId": "m", "total": 4, "successRate": 0.5, "avgScore": pytest.approx((0.5 + 0.0 + 0.9 + 0.6) / 4),
        "avgLatencyMs": 1250.0, "avgTokens": pytest.approx((2 + 0 + 2 + 3) / 4), "errorCount": 1, "aborted": True,
        "notRun": 2, "stopReason": "stopped by hand",
    }  # fmt: skip
    meta = summary.get("meta") or {}
    assert meta["score"]["mean"] == pytest.approx((0.5 + 0.9 + 0.6) / 3)
    assert len(meta["score"]["ci95"]) == 2
    assert (meta["scored"], meta["coverage"], meta["failures"]) == (3, 0.5, {"connection": 1, "not scored": 1})
    assert meta["latencyMs"] == {"mean": 1250.0, "p50": 1250, "p95": 1250, "max": 1250}
    assert (meta["state"], meta["run"], meta["schemaCompliance"], meta["timeouts"]) == (
        "interrupted", "outputs/x", None, 0,
    )  # fmt: skip
    assert summary["cost"] == 2.5
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_model_that_ran_nothing_has_zeros() -> None:
    summary = summarize_model("m", [], RunOutcome(3, None, "stopped", "HTTP 401"))
    assert {name: summary[name] for name in list(summary)[:10]} == {
        "modelId": "m", "total": 0, "successRate": 0.0, "avgScore": 0.0, "avgLatencyMs": 0.0, "avgTokens": 0.0,
        "errorCount": 0, "aborted": True, "notRun": 3, "stopReason": "HTTP 401",
    }  # fmt: skip
    meta = summary.get("meta") or {}
    assert (meta["score"], meta["coverage"], meta["latencyMs"]) == (None, None, None)


def result_of(task: str, score: float, milliseconds: int = 0, error: str | None = None) -> TaskResult:
    result = TaskResult(taskId=task, modelId="m", output="", score=score, valid=error is None, errors=[],
                        durationMs=milliseconds, tokens=0, usage=USED, cost=None)  # fmt: skip
    if error is not None:
        result["error"] = error
    return result


def test_latency_percentiles_are_times_that_a_task_took() -> None:
    results = [result_of(f"t{n}", 1.0, n * 10) for n in range(20, 0, -1)]
    latency = (summarize_model("m", results, RunOutcome(20)).get("meta") or {})["latencyMs"]
    assert latency == {"mean": 105.0, "p50": 100, "p95": 190, "max": 200}


def model_of(name: str, *results: TaskResult) -> ModelResult:
    return ModelResult(modelId=name, results=list(results), summary=summarize_model(name, results, RunOutcome(3)))


def test_pairs_are_tasks_that_both_have() -> None:
    first = model_of("a", result_of("x", 0.5), result_of("y", 0.5), result_of("z", 0.0, error="broken"))
    second = model_of("b", result_of("x", 0.75), result_of("z", 1.0), result_of("w", 1.0))
    [pair] = compare([first, second])
    assert (pair["modelId"], pair["baseline"], pair["model"]) == ("b", "a", 1)
    counted, alone = pair["counted"], pair["scored"]
    assert (counted["pairs"], counted["difference"], counted["only_first"], counted["only_second"]) == (2, 0.625, 1, 1)
    assert (alone["pairs"], alone["difference"]) == (1, 0.25)
    assert compare([first]) == []


def test_ids_and_times_of_a_result() -> None:
    ids = {new_run_id() for _ in range(50)}
    assert len(ids) == 50
    started = Started("mine", 2, 3, at=1000)
    result = result_document(started, [], {}, finished_at=1500)
    assert (result["startedAt"], result["finishedAt"], result["durationMs"]) == (1000, 1500, 500)
    assert result["totals"] == {"tasks": 2, "models": 3, "totalRuns": 6}
    assert without_credentials("http://u:p@h:1/v1?key=k#x") == "http://h:1/v1"
