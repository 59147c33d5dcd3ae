"""The results file: the documents' own examples as its schema, what is added, and what must not be in it."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from eval_samples import EXACT, PARTIAL, blocks, evaluation, failed, rows, run
from tables import for_each_row

from harness.agents.result_document import (
    check_output,
    document_meta,
    eval_document,
    without_credentials,
    write_document,
)
from harness.agents.results import EvalResult, ModelOutcomes
from harness.agents.summaries import build_result
from harness.core.errors import StoreError, UsageError
from harness.core.redact import redactor

ADDED = {
    "": {"meta"},
    "summary": {
        "stopped_early", "stop_reason", "interrupted", "resumed_runs", "failed_runs", "failures", "score_errors",
        "unreported_replies", "paired", "methods",
    },
    "summary.eval_fns.*": {"scored", "score_errors", "failed_runs"},
    "rows.runs": {"error", "reason", "finish_reason", "score_errors", "unreported_replies"},
    "model_summaries": {"wall_ms", "failed_runs", "failures", "score_errors", "unreported_replies"},
    "model_summaries.eval_fns.*": {"pass_at_1", "pass_at_3", "pass_at_5", "scored", "score_errors", "failed_runs"},
}  # fmt: skip
"""Every key that the documents' examples have not, by where it stands."""


SCORES = "rows.runs.scores"
"""May lack a function: one that gave no score is in `score_errors` instead."""


def examples(page: str) -> dict[str, Any]:
    [block] = blocks(page, "json")
    return json.loads(block)


def differences(documented: Any, ours: Any, at: str = "") -> Iterator[str]:
    """Where `ours` lacks a documented key, has another type or order, or a key that is neither documented nor added."""
    if at == SCORES:
        documented = {name: score for name, score in documented.items() if name in ours}
    if type(documented) is not type(ours):
        yield f"{at}: {type(ours).__name__}, documented as {type(documented).__name__}"
    elif isinstance(documented, dict):
        table, mine = cast("dict[str, Any]", documented), cast("dict[str, Any]", ours)
        if missing := table.keys() - mine.keys():
            yield f"{at}: lacks {sorted(missing)}"
        if surplus := mine.keys() - table.keys() - ADDED.get(at, set()):
            yield f"{at}: has {sorted(surplus)}"
        if (order := [key for key in mine if key in table]) != list(table):
            yield f"{at}: in the order {order}"
        for key in table.keys() & mine.keys():
            name = "*" if at.endswith("eval_fns") else key
            yield from differences(table[key], mine[key], f"{at}.{name}".lstrip("."))
    elif isinstance(documented, list):
        shape = cast("list[Any]", documented)
        for item in cast("list[Any]", ours):
            yield from differences(shape[0], item, at)


def of_one(*runs: Any, **changes: Any) -> EvalResult:
    model = ModelOutcomes("my-model", None, rows(*runs))
    return build_result([model], [EXACT], **{"n_runs": 1, "pass_threshold": 1.0, "wall_ms": 10.0, **changes})


def read_back(result: EvalResult, tmp_path: Path, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    path = tmp_path / "deep" / "er" / "results.json"
    write_document(path, eval_document(result, meta))
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("fail", "err"), [(0.0, 0.0), (0.2, 0.2)])
@pytest.mark.parametrize(("page", "baseline"), [("eval-mode.md", True), ("bench-mode.md", False)])
def test_the_documents_example_is_the_schema(
    page: str, baseline: bool, fail: float, err: float, tmp_path: Path
) -> None:
    documented = examples(page)
    ours = read_back(evaluation(20, 5, baseline=baseline, fail=fail, err=err), tmp_path, document_meta({}, []))
    assert list(differences(documented, ours)) == []
    for each in (each for row in ours["rows"] for each in row["runs"]):
        named = [*each["scores"], *each.get("score_errors", {})]
        assert named == ([EXACT, PARTIAL] if each["success"] else [])


def test_without_a_baseline_there_is_no_tag_and_no_model_summary(tmp_path: Path) -> None:
    text = json.dumps(read_back(evaluation(baseline=False), tmp_path))
    for key in ("model_tag", "model_summaries", "baseline_model", "paired"):
        assert f'"{key}"' not in text


def test_the_whole_of_a_small_file() -> None:
    document = eval_document(of_one([1.0], ["failed"], [None]))
    methods = document["summary"].pop("methods")
    assert set(methods) == {"mean", "std", "pass_at_k", "scored", "t", "wilson", "adjusted_t"}
    assert document == {
        "config": {"model": "my-model", "n_runs": 1, "pass_threshold": 1.0, "eval_fns": [EXACT]},
        "summary": {
            "total_rows": 3,
            "total_runs": 3,
            "eval_fns": {
                EXACT: {
                    "mean": 1 / 3,
                    "std": pytest.approx(math.sqrt(2) / 3),
                    "min": 0.0,
                    "max": 1.0,
                    "scored": {
                        "mean": 1.0, "stderr": None, "ci95": None, "std": None, "min": 1.0, "max": 1.0,
                        "count": 1, "examples": 1, "method": None,
                    },
                    "score_errors": 1,
                    "failed_runs": 1,
                }
            },
            "total_tokens": 75,
            "total_duration_ms": 10,
            "stopped_early": False,
            "stop_reason": None,
            "interrupted": False,
            "resumed_runs": 0,
            "failed_runs": 1,
            "failures": {"agent_error": 1},
            "score_errors": {EXACT: 1},
            "unreported_replies": 0,
        },
        "rows": [
            {"row_index": 0, "runs": [
                {"run_index": 0, "success": True, "scores": {EXACT: 1.0}, "duration_ms": 100, "tokens": 30,
                 "finish_reason": "stop"},
            ]},
            {"row_index": 1, "runs": [
                {"run_index": 0, "success": False, "scores": {}, "duration_ms": 50, "tokens": 15,
                 "error": "the agent gave up", "reason": "agent_error"},
            ]},
            {"row_index": 2, "runs": [
                {"run_index": 0, "success": True, "scores": {}, "duration_ms": 100, "tokens": 30,
                 "finish_reason": "stop", "score_errors": {EXACT: "KeyError: 'x'"}},
            ]},
        ],
    }  # fmt: skip


def test_what_two_models_add() -> None:
    document = eval_document(evaluation(10, 5))
    summary = document["summary"]
    assert list(summary["paired"]) == [EXACT, PARTIAL]
    pair = summary["paired"][EXACT]
    assert set(pair) == {"counted", "scored", "zeros"}
    assert pair["counted"]["pairs"] == 10
    assert pair["counted"]["difference"] == pytest.approx(
        document["model_summaries"][0]["eval_fns"][EXACT]["mean"]
        - document["model_summaries"][1]["eval_fns"][EXACT]["mean"]
    )
    assert summary["methods"]["paired"]["sides"] == "primary minus baseline"
    scored = summary["eval_fns"][EXACT]["scored"]
    assert list(scored["pass_at_k"]) == list(scored["pass_excluded"]) == ["1", "3", "5"]
    assert summary["failed_runs"] == sum(model["failed_runs"] for model in document["model_summaries"])
    assert summary["failures"] == {
        reason: sum(model["failures"].get(reason, 0) for model in document["model_summaries"])
        for reason in ("agent_error", "timeout")
    }


def test_how_it_ended_is_in_the_file() -> None:
    summary = eval_document(of_one([1.0], stop_reason="no such model"))["summary"]
    assert (summary["stopped_early"], summary["stop_reason"]) == (True, "no such model")
    assert eval_document(of_one([1.0], interrupted=True))["summary"]["interrupted"] is True


def test_an_evaluation_without_runs_can_be_written(tmp_path: Path) -> None:
    summary = read_back(of_one(), tmp_path)["summary"]
    assert (summary["total_rows"], summary["eval_fns"][EXACT]["mean"]) == (0, None)
    assert summary["eval_fns"][EXACT]["scored"]["mean"] is None


def test_meta_says_where_the_numbers_come_from() -> None:
    values = {
        "versions": {"python": "3.11.7"}, "agent": "my_agent:MyAgentLoop", "mcp": None,
        "dataset": {"path": "data.jsonl", "sha256": "ab12", "offset": 0}, "max_turns": 10,
    }  # fmt: skip
    models: list[dict[str, Any]] = [
        {
            "model": "a", "model_tag": "primary", "base_url": "http://user:secret@host:8000/v1?key=x",
            "sampling_args": {"temperature": 0.7}, "run": "outputs/evals/r",
        },
        {"model": "b", "model_tag": "baseline", "base_url": None, "sampling_args": {}, "run": None},
    ]  # fmt: skip
    meta = document_meta(values, models)
    assert eval_document(of_one([1.0]), meta)["meta"] == {
        "document_version": 1,
        "created": meta["created"],
        "versions": {"python": "3.11.7"},
        "agent": "my_agent:MyAgentLoop",
        "dataset": {"path": "data.jsonl", "sha256": "ab12", "offset": 0},
        "max_turns": 10,
        "models": [
            {
                "model": "a",
                "model_tag": "primary",
                "base_url": "http://host:8000/v1",
                "sampling_args": {"temperature": 0.7},
                "run": "outputs/evals/r",
            },
            {"model": "b", "model_tag": "baseline", "sampling_args": {}},
        ],
    }


def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    secret = "tops3cretvalue-of-test-document"
    redactor.add(secret)
    said = f"refused: {secret}"
    runs = [(0, failed(error=said)), (1, run(0, None, score_errors={EXACT: said}))]
    result = build_result(
        [ModelOutcomes("m", None, runs)], [EXACT], n_runs=1, pass_threshold=1.0, wall_ms=0.0, stop_reason=said
    )
    sampling = {"extra_headers": {"Authorization": "Bearer abcdefgh12"}}
    model = {"model": "m", "base_url": f"http://h/{secret}", "sampling_args": sampling}
    meta = document_meta({"command": f"bench eval --api-key {secret}"}, [model])
    text = json.dumps(read_back(result, tmp_path, meta))
    assert secret not in text
    assert "abcdefgh12" not in text
    assert text.count("[redacted]") == 6


@for_each_row(
    ("url", "clean"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("https://me:pass@host/v1", "https://host/v1"),
        ("https://me:p@ss@host:1/v1?api-version=2&key=k#part", "https://host:1/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_addresses_lose_their_credentials(url: str, clean: str) -> None:
    assert without_credentials(url) == clean


def test_text_that_is_no_unicode_is_written_all_the_same(tmp_path: Path) -> None:
    model = ModelOutcomes("m", None, [(0, failed(error="half \ud83d", tokens=2**70))])
    document = read_back(build_result([model], [EXACT], n_runs=1, pass_threshold=1.0, wall_ms=0.0), tmp_path)
    assert document["rows"][0]["runs"][0]["error"] == "half \ud83d"
    assert document["summary"]["total_tokens"] == 2**70


def test_an_older_file_is_replaced_and_the_place_of_a_link_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    write_document(link, {"a": 1})
    assert link.is_symlink()
    assert target.read_text() == '{\n  "a": 1\n}\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_a_pipe_gets_the_document(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_document(pipe, {"a": 1})
    reader.join(60)
    assert read == ['{\n  "a": 1\n}\n']
    assert pipe.is_fifo()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"cannot write .*file/results\.json"):
        write_document(tmp_path / "file" / "results.json", {})


def test_a_place_that_no_file_can_be_in_is_refused_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=r"is a folder; give a file, such as .*results\.json"):
        check_output(tmp_path)
    with pytest.raises(UsageError, match=r"file is a file, not a folder"):
        check_output(tmp_path / "file" / "deep" / "results.json")
    check_output(tmp_path / "new" / "results.json")
    assert not (tmp_path / "new").exists()


def test_every_key_is_explained() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "agent-evals.md").read_text(encoding="utf-8")
    model = {"model": "m", "model_tag": "primary", "base_url": "http://h", "sampling_args": {}, "run": "run"}
    dataset = {"path": "c", "sha256": "d", "offset": 0, "limit": 1}
    names = ("versions", "command", "agent", "mcp", "max_turns", "batch_size", "budget")
    meta = document_meta({**dict.fromkeys(names, "x"), "dataset": dataset}, [model])
    pair = eval_document(evaluation(3, 3))["summary"]["paired"][EXACT]
    scored = eval_document(evaluation(3, 3))["summary"]["eval_fns"][EXACT]["scored"]
    keys = {
        *meta,
        *meta["dataset"],
        *meta["models"][0],
        *pair,
        *pair["counted"],
        *scored,
        *set().union(*ADDED.values()),
    }
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
