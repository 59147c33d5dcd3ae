"""One rollout as the page gets it, and the list of runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from run_samples import finished, run_at, summarized
from store_samples import example, failed, generated, scored, write
from view_server import viewing

from harness.core.types import JsonDict
from harness.plugins.view import rollout_page
from harness.store.rundir import RunDir

OUT = "outputs"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / OUT


def only(run: RunDir, out: Path, index: int = 0, rollout: int = 0, **query: object) -> Any:
    with viewing(out) as client:
        return client.get(f"/api/runs/{run.id}/rollouts/{index}/{rollout}", **query)


def test_the_list_has_the_newest_run_first(out: Path) -> None:
    old, new = finished(out, minute=0, letters="aaaa"), finished(out, minute=5, letters="bbbb")
    with viewing(out) as client:
        found = client.get("/api/runs")
        assert found["root"] == str(out)
        assert [run["id"] for run in found["runs"]] == [new.id, old.id]
        run = found["runs"][0]
        assert (run["env"], run["model"], run["state"], run["kind"]) == ("sums", "lab/m-1", "done", "run")
        assert (run["mean"], run["scored"], run["planned"], run["failed"], run["tokens"]) == (0.5, 4, 4, 0, 60)
        assert run["low"] < 0.5 < run["high"]
        latest = finished(out, minute=9, letters="cccc")
        assert [run["id"] for run in client.get("/api/runs")["runs"]] == [latest.id, new.id, old.id]
        shutil.rmtree(new.path)
        assert [run["id"] for run in client.get("/api/runs")["runs"]] == [latest.id, old.id]
        assert client.error(f"/api/runs/{new.id}/rollouts/0/0") == (410, f"The run {new.id} was removed.")
        assert client.error("/api/runs/nothing/rollouts/0/0") == (404, "There is no run nothing.")


def test_only_the_given_runs_are_listed(out: Path) -> None:
    one, other = finished(out, minute=0, letters="aaaa"), finished(out, minute=5, letters="bbbb")
    with viewing(out, [one.path]) as client:
        assert [run["id"] for run in client.get("/api/runs")["runs"]] == [one.id]
        assert client.error(f"/api/runs/{other.id}/rollouts/0/0")[0] == 404


def test_a_damaged_manifest_is_a_run_with_a_problem(out: Path) -> None:
    run = run_at(out)
    run.manifest_path.write_text("{")
    with viewing(out) as client:
        found = client.get("/api/runs")["runs"][0]
        assert (found["state"], found["model"]) == ("damaged", "")
        assert "cannot read" in found["problems"][0]
        status, sentence = client.error(f"/api/runs/{run.id}/rollouts/0/0")
        assert status == 500
        assert "run.json" in sentence


def test_a_rollout_has_its_messages_scores_and_siblings(out: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    completion = [
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Let me add."},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "#### 2", "refusal": "no"},
    ]
    judged = {"judgements": [{"model": "lab/j", "text": "fine", "label": "yes", "prompt": "Is it?"}], "note": [1, 2]}
    lines = [
        example(), generated(0, 0, completion=completion), scored(0, 0, 1.0, extra=judged),
        generated(0, 1), scored(0, 1, None, reasons={"correct": "timeout: slow"}), failed(0, 2),
    ]  # fmt: skip
    found = only(finished(out, lines), out)
    assert found["example"] == {"id": 0, "index": 0, "task": "sums", "answer": "1", "info": {"n": 0}}
    assert [(m["role"], m["prompt"], m["turn"]) for m in found["messages"]] == [
        ("system", True, None), ("user", True, None), ("assistant", False, 1), ("tool", False, None),
        ("assistant", False, 2),
    ]  # fmt: skip
    first, result, last = found["messages"][2:]
    assert first["tool_calls"] == [{"id": "c1", "name": "add", "arguments": '{"a": 1}'}]
    assert (first["reasoning"], first["content"], result["tool_call_id"]) == ("Let me add.", "", "c1")
    assert last["other"] == {"refusal": "no"}
    assert (found["reward"], found["passed"], found["outcome"], found["stop"]) == (1.0, True, "scored", "stop")
    assert found["metrics"] == [{"name": "correct", "value": 1.0, "reason": "", "weight": None}]
    assert found["judgements"] == [{"title": "lab/j", "text": "fine", "label": "yes", "of": "Is it?"}]
    assert found["state"] == {"turn": 1, "note": [1, 2]}
    assert found["started"] == "2026-09-21T14:13:20.000+00:00"
    assert [(s["r"], s["reward"], s["passed"], s["outcome"]) for s in found["siblings"]] == [
        (0, 1.0, True, "scored"), (1, None, False, "unscored"), (2, None, False, "unscored"),
    ]  # fmt: skip


def test_a_failed_rollout_says_why(out: Path) -> None:
    found = only(finished(out, [example(), failed(0, 0, completion=[{"role": "assistant", "content": "I th"}])]), out)
    assert (found["outcome"], found["reason"], found["error"]) == ("unscored", "timeout", "no reply in 600 s")
    assert (found["reward"], found["stop"], found["metrics"]) == (None, None, [])
    assert found["messages"][-1]["content"] == "I th"


def test_unknown_rollouts_are_not_found(out: Path) -> None:
    run = finished(out)
    with viewing(out) as client:
        for place in ("9/0", "0/9", "x/0", "0/-1", "0/1e3", f"0/{'9' * 30}"):
            assert client.error(f"/api/runs/{run.id}/rollouts/{place}")[0] == 404


def test_odd_messages_are_shown_as_they_are(out: Path) -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    odd = ["text", {"content": {"a": 1}}, {"role": 5, "content": [{"type": "text", "text": "x"}], "tool_calls": "?"}]
    lines = [example(prompt="Say\ud800 it", info={"deep": deep, "big": 1 << 80}), generated(completion=odd), scored()]
    run = run_at(out)
    write(run.journal_path, lines)
    found = only(run, out)
    prompt, *said = found["messages"]
    assert (prompt["role"], prompt["content"]) == ("user", "Say\ud800 it")
    assert [m["content"] for m in said] == ["text", '{"a":1}', [{"type": "text", "text": "x"}]]
    assert [m["role"] for m in said] == ["assistant", "", "5"]
    assert said[2]["tool_calls"] == [{"id": None, "name": None, "arguments": '"?"'}]
    assert found["example"]["info"]["big"] == 1 << 80


def test_long_texts_are_cut_until_they_are_requested(out: Path) -> None:
    long = "x" * 300_000
    lines = [
        example(),
        generated(completion=[{"role": "assistant", "content": long}, {"role": "user", "content": "?"}]),
    ]
    run = finished(out, [*lines, scored()])
    found = only(run, out)
    assert [(len(m["content"]), m.get("cut", False)) for m in found["messages"][2:]] == [(200_000, True), (1, False)]
    assert found["cut"] is True
    whole = only(run, out, whole=1)
    assert whole["messages"][2]["content"] == long
    assert "cut" not in whole


@pytest.mark.slow
def test_an_answer_is_never_larger_than_the_limit(out: Path) -> None:
    many = [{"role": "assistant", "content": "x" * 3_000} for _ in range(30_000)]
    run = finished(out, [example(info={"x": ["y" * 150] * 200_000}), generated(completion=many), scored()])
    with viewing(out) as client:
        answer = client.send(f"/api/runs/{run.id}/rollouts/0/0?whole=1")
    assert len(answer.body) <= rollout_page.LARGEST_ANSWER
    assert answer.json["cut"] is True
    assert answer.json["omitted"] > 0


def test_of_a_damaged_journal_the_part_before_the_damage_is_shown(out: Path) -> None:
    run = finished(out)
    text = run.journal_path.read_bytes().split(b"\n")
    run.journal_path.write_bytes(b"\n".join([*text[:3], b"{broken", *text[3:]]))
    with viewing(out) as client:
        found = client.get(f"/api/runs/{run.id}/examples")
        assert found["total"] == 1
        assert "journal.jsonl:4" in found["index"]["error"]
        assert client.get(f"/api/runs/{run.id}/rollouts/0/0")["r"] == 0
        assert client.error(f"/api/runs/{run.id}/rollouts/1/0")[0] == 404


def test_a_field_of_the_wrong_type_is_named_and_the_other_rollouts_are_shown(out: Path) -> None:
    odd: JsonDict = {"metrics": "x"}
    records = [example(), generated(), scored(0, **odd), generated(0, 1), scored(0, 1, reward=cast(Any, [1.0]))]
    run = run_at(out)
    write(run.journal_path, [*records, generated(0, 2), scored(0, 2)])
    with viewing(out) as client:
        for number in (0, 1):
            status, problem = client.error(f"/api/runs/{run.id}/rollouts/0/{number}")
            assert status == 500
            assert f"the field {'reward' if number else 'metrics'} must not be a" in problem
        assert client.get(f"/api/runs/{run.id}/rollouts/0/2")["reward"] == 1.0


def test_a_run_without_a_journal_has_no_rollouts(out: Path) -> None:
    run = run_at(out)
    summarized(run)
    with viewing(out) as client:
        assert client.error(f"/api/runs/{run.id}/rollouts/0/0")[0] == 404
