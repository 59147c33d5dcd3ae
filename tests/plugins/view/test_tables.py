"""Examples, rollouts, groups, steps and the figures of a run, from the index of its journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_samples import finished, run_at
from store_samples import example, failed, generated, scored, write
from view_server import Client, until, viewing

from harness.core.types import Usage


def lines() -> Iterator[Any]:
    """Six examples with three rollouts each: rewards 0, 1, 1, …; every fifth rollout failed."""
    for index in range(6):
        yield example(index, info={"level": index % 2, "name": f"n{index}"})
        for rollout in range(3):
            number = index * 3 + rollout
            if number % 5 == 4:
                yield failed(index, rollout, reason="timeout" if number == 4 else "rate_limit")
                continue
            stop = "length" if rollout == 2 else "stop"
            yield generated(index, rollout, usage=Usage(10 * index, rollout, requests=1, cost=0.5), stop_condition=stop)
            yield scored(index, rollout, float(number % 3 > 0), metrics={"correct": float(number % 3 > 0)})


class Page:
    """Requests about one run."""

    def __init__(self, client: Client, run_id: str) -> None:
        self.client, self.root = client, f"/api/runs/{run_id}"

    def __call__(self, path: str = "", **query: object) -> Any:
        return self.client.get(f"{self.root}{path}", **query)

    def examples(self, **query: object) -> list[int]:
        return [row["index"] for row in self("/examples", **query)["rows"]]

    def rollouts(self, **query: object) -> list[tuple[int, int]]:
        return [(row["index"], row["r"]) for row in self("/rollouts", **query)["rows"]]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    run = finished(tmp_path / "outputs", lines(), planned={"num_examples": 6, "rollouts_per_example": 3})
    with viewing(tmp_path / "outputs") as client:
        yield Page(client, run.id)


def test_the_examples_have_their_rollouts_as_a_strip(page: Page) -> None:
    found = page("/examples")
    assert found["index"] == {"rollouts": 18, "done": True, "error": ""}
    assert (found["total"], found["matched"], found["offset"], found["scan"]) == (6, 18, 0, None)
    second = found["rows"][1]
    assert {name: second[name] for name in ("example", "index", "mean", "prompt", "answer", "reply", "task")} == {
        "example": 1, "index": 1, "mean": 0.5, "prompt": "What is 1 + 1?", "answer": "2", "reply": "#### 2",
        "task": "sums",
    }  # fmt: skip
    assert second["rollouts"] == [
        {"r": 0, "reward": 0.0, "passed": False, "outcome": "scored", "reason": "", "match": True},
        {"r": 1, "reward": None, "passed": False, "outcome": "unscored", "reason": "timeout", "match": True},
        {"r": 2, "reward": 1.0, "passed": True, "outcome": "scored", "reason": "", "match": True},
    ]


def test_a_query_selects_and_marks_rollouts(page: Page) -> None:
    found = page("/examples", q="reward=0")
    assert (found["total"], found["matched"]) == (5, 5)
    assert [[r["match"] for r in row["rollouts"]] for row in found["rows"]] == [[True, False, False]] * 5
    assert page.examples(q="has:reward -is:passed tokens>=30") == [4, 5]
    assert page.examples(q="outcome:unscored") == [1, 3, 4]
    assert page.examples(q="reason:rate_limit") == [3, 4]
    assert page.examples(q="info.level:1") == [1, 3, 5]
    assert page.examples(q='text:"what is 3" or example:0') == [0, 3]
    assert page.rollouts(q="stop:length -cost:0.5") == []
    assert page.rollouts(q="env:sums model:lab run:nothing") == []
    assert page("/examples", q="model:lab", limit=2, offset=4)["total"] == 6
    assert page.examples(q="model:lab", limit=2, offset=4) == [4, 5]


def test_rows_are_sorted_by_any_column(page: Page) -> None:
    assert page.examples(desc=1) == [5, 4, 3, 2, 1, 0]
    assert page.examples(sort="reward") == [1, 4, 0, 2, 5, 3]
    assert page.examples(sort="reward", desc=1) == [3, 0, 2, 5, 1, 4]
    assert page.examples(sort="reward", q="reward>0") == [0, 1, 2, 3, 4, 5]
    assert page.examples(sort="tokens", desc=1, q="has:reward") == [5, 4, 3, 2, 1, 0]
    assert page.examples(sort="info.level") == [0, 2, 4, 1, 3, 5]
    assert page.examples(sort="info.name", desc=1) == [5, 4, 3, 2, 1, 0]
    assert page.examples(sort="reason", limit=3) == [3, 4, 1]
    assert page.examples(sort="prompt", desc=1, limit=2) == [5, 4]
    assert page.rollouts(sort="tokens", desc=1, limit=3) == [(5, 2), (5, 1), (5, 0)]
    assert page.rollouts(sort="reward", limit=2) == [(0, 0), (1, 0)]
    assert page.rollouts(sort="reward")[-3:] == [(1, 1), (3, 0), (4, 2)]
    assert page("/examples", sort="tokens", limit=1)["rows"][0]["value"] == 1.0
    assert page("/rollouts", sort="answer", limit=1)["rows"][0]["value"] == "1"


def test_groups_have_counts_means_and_conditions(page: Page) -> None:
    found = page("/groups", by="reason")
    assert [(g["value"], g["count"], g["scored"], g["query"]) for g in found["groups"]] == [
        (None, 15, 15, "-has:reason"), ("rate_limit", 2, 0, "reason=rate_limit"), ("timeout", 1, 0, "reason=timeout"),
    ]  # fmt: skip
    assert (found["total"], found["more"], found["groups"][1]["first"]) == (18, 0, {"index": 3, "r": 0})
    by_level = page("/groups", by="info.level", q="has:reward")["groups"]
    assert [(g["value"], g["count"], g["query"]) for g in by_level] == [
        ("0", 8, "info.level=0"), ("1", 7, "info.level=1"),
    ]  # fmt: skip
    assert by_level[0]["low"] < by_level[0]["mean"] < by_level[0]["high"]
    for by in ("stop", "tokens", "metrics", "tool", "outcome", "parsed", "example", "info.name", "reply", "model"):
        groups = page("/groups", by=by)["groups"]
        assert sum(group["count"] for group in groups) == 18
        for group in groups:
            if group["query"] is not None:
                assert page("/rollouts", q=group["query"], limit=0)["total"] == group["count"], (by, group)
    assert page("/groups", by="tokens", limit=2)["more"] > 0


def test_steps_follow_the_order_of_the_table(page: Page) -> None:
    def step(index: int, r: int, by: str, dir: int = 1, **query: object) -> tuple[Any, Any]:
        found = page("/step", index=index, r=r, by=by, dir=dir, **query)
        return found["index"], found.get("r")

    assert step(0, 0, "example") == (1, 0)
    assert step(0, 0, "example", -1) == (None, None)
    assert step(0, 2, "rollout") == (1, 0)
    assert step(1, 0, "rollout", -1) == (0, 2)
    assert step(0, 0, "failed") == (1, 0)
    assert step(1, 0, "failed") == (1, 1)
    assert step(1, 1, "failed") == (2, 0)
    assert step(5, 2, "rollout") == (None, None)
    assert step(3, 1, "example", sort="reward", desc=1) == (0, 0)
    assert step(0, 0, "example", -1, sort="reward", desc=1) == (3, 0)
    assert step(2, 0, "example", q="reason:*") == (None, None)
    assert step(1, 0, "example", q="outcome:unscored") == (3, 0)
    assert step(1, 0, "example", q="tool:nothing") == (None, None)
    assert page.client.error(f"{page.root}/step", by="x")[0] == 400


def test_the_run_has_its_figures(page: Page) -> None:
    found = page()
    assert (found["examples"], found["rollouts"], found["pass_threshold"], found["range"]) == (6, 18, 1.0, [0.0, 1.0])
    assert found["outcomes"] == [
        {"outcome": "scored", "reason": "", "count": 15}, {"outcome": "unscored", "reason": "rate_limit", "count": 2},
        {"outcome": "unscored", "reason": "timeout", "count": 1},
    ]  # fmt: skip
    bars = {"counts": [5, 10], "passed": [0, 10], "queries": ["reward=0", "reward=1"]}
    assert found["histogram"] == {"edges": [0.0, 1.0], "discrete": True, **bars}
    assert found["summary"]["scored"] == 15
    assert found["metrics"][0]["name"] == "correct"
    assert found["latency"] == {"p50": 0.5, "p95": 0.5}
    names = {column["name"]: column["indexed"] for column in found["columns"]}
    assert {"reward", "metric.correct", "state.turn", "info.level", "info.name", "is:failed"} <= names.keys()
    assert (names["reward"], names["info.level"], names["text"]) == (True, False, False)
    assert ["env.num_examples", "4", "built-in"] in found["settings"]
    assert found["command"] == "bench run sums -n 4"


def test_completion_gets_frequent_values(page: Page) -> None:
    root = page.root.replace("/api/runs", "/api/columns")
    values = page.client.get(f"{root}/values", name="stop", q="S")["values"]
    assert [each["value"] for each in values] == ["stop"]
    assert page.client.get(f"{root}/values", name="is", q="fa")["values"][0]["value"] == "failed"
    assert [each["value"] for each in page.client.get(f"{root}/values", name="info.level")["values"]] == ["0", "1"]


def test_a_wrong_query_is_an_error_with_its_place(page: Page) -> None:
    for path, query in (("/examples", "reward<1 rewrd>2"), ("/rollouts", "rewrd>2"), ("/groups", "(")):
        answer = page.client.send(f"{page.root}{path}?q={query.replace(' ', '+')}&by=reason")
        assert answer.status == 400
        assert answer.json["end"] >= answer.json["start"] >= 0
    assert page.client.send(f"{page.root}/examples?q=reward<1+rewrd>2").json == {
        "error": 'there is no column "rewrd"; did you mean "reward"?', "start": 9, "end": 14,
    }  # fmt: skip
    for path in ("/examples?sort=nothing", "/groups?by=nothing", "/groups", "/examples?limit=x", "/rollouts?offset=-1"):
        assert page.client.error(f"{page.root}{path}")[0] == 400


def test_a_growing_journal_is_followed(tmp_path: Path) -> None:
    run = run_at(tmp_path / "outputs", status="running")
    write(run.journal_path, [example(0), generated(0, 0)])
    with run.lock(), viewing(tmp_path / "outputs") as client:
        page = Page(client, run.id)
        assert page("/rollouts")["rows"][0]["outcome"] == "unscored"
        assert page.rollouts(q="is:waiting") == [(0, 0)]
        assert page.rollouts(q="reply:1") == [(0, 0)]
        write(run.journal_path, [scored(0, 0, 1.0), example(1), generated(1, 0), scored(1, 0, 0.0)])
        until(lambda: page()["rollouts"] == 2)
        assert page.rollouts(q="is:passed") == [(0, 0)]
        assert page.rollouts(q="reply:2") == [(1, 0)]
        assert page()["run"] | {"mean": 0.5, "scored": 2, "failed": 0} == page()["run"]
        again = [generated(1, 0, completion=[{"role": "assistant", "content": "#### 7"}]), scored(1, 0, 1.0)]
        write(run.journal_path, again)
        until(lambda: page.rollouts(q="is:passed") == [(0, 0), (1, 0)])
        assert page.rollouts(q="reply:7 parsed:7") == [(1, 0)]
        assert page.rollouts(q="reply:2") == []
