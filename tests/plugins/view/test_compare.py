"""The answers of `bench view` that compare runs agree with `bench compare`, and name the examples that differ most."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from bench_command import Bench, bench, here
from compared_runs import Scores, scored_run
from run_samples import finished
from store_samples import example, generated, scored, write
from view_server import Client, until, viewing

from harness.store.outcomes import read_journal
from harness.store.rundir import RunDir
from harness.store.score_table import summary_of

__all__ = ["bench", "here"]

OUT = Path("outputs")


def noisy(seed: int, examples: int = 30, level: float = 0.5) -> Scores:
    """Rewards of two rollouts each; some are missing."""
    source = random.Random(seed)
    return {
        number: [None if source.random() < 0.1 else float(source.random() < level) for _ in range(2)]
        for number in range(examples)
    }


def compared(client: Client, *runs: RunDir, **query: object) -> Any:
    return client.get("/api/compare", runs=",".join(run.id for run in runs), **query)


def shared(document: Any, names: Any) -> Any:
    return {name: document[name] for name in names if name not in ("flips",)}


def test_verdicts_intervals_and_p_values_are_those_of_the_command(bench: Bench) -> None:
    runs = [scored_run(OUT, noisy(seed, level=0.2 + seed / 4), minute=seed, model=f"lab/m-{seed}") for seed in range(3)]
    for chosen in (runs[:2], runs):
        told = json.loads(bench("compare", "--json", *(run.id for run in chosen)).out)
        with viewing(OUT) as client:
            page = compared(client, *chosen)
        assert len(page["comparisons"]) == len(told["comparisons"]) == len(chosen) - 1
        for ours, theirs in zip(page["comparisons"], told["comparisons"], strict=True):
            assert shared(ours, theirs) == shared(theirs, theirs)
        if len(chosen) == 2:
            flips = [(row["example"], row["difference"]) for row in page["rows"] if row["difference"]]
            assert flips == [(each["example_id"], each["difference"]) for each in told["comparisons"][0]["flips"]]
            assert page["flips"] == told["comparisons"][0]["flipped"] == page["better"] + page["worse"]


def test_a_metric_is_compared_as_by_the_command(bench: Bench) -> None:
    runs = [scored_run(OUT, noisy(seed), minute=seed, model=f"lab/m-{seed}") for seed in range(2)]
    told = json.loads(bench("compare", "--json", "--metric", "correct", *(run.id for run in runs)).out)
    with viewing(OUT) as client:
        page = compared(client, *runs, measure="correct")
        assert page["measures"] == ["reward", "correct"]
        assert shared(page["comparisons"][0], told["comparisons"][0]) == shared(
            told["comparisons"][0], told["comparisons"][0]
        )
        [problem] = compared(client, *runs, measure="other")["comparisons"]
        assert problem["problem"] == f"{runs[1].id} has no metric other."


def test_functions_of_an_agent_evaluation_are_compared_one_by_one(bench: Bench) -> None:
    changes: Any = {"metric_names": ("correct", "other"), "kind": "eval"}
    runs = [scored_run(OUT, noisy(seed), minute=seed, model=f"lab/m-{seed}", **changes) for seed in range(3)]
    told = json.loads(bench("compare", "--json", *(run.id for run in runs)).out)
    with viewing(OUT) as client:
        page = compared(client, *runs)
    assert [each["measure"] for each in page["comparisons"]] == ["correct", "other"] * 2
    for ours, theirs in zip(page["comparisons"], told["comparisons"], strict=True):
        assert shared(ours, theirs) == shared(theirs, theirs)
    assert page["measure"] == "correct"


def test_a_run_that_ended_early_has_its_own_interval_and_says_so(bench: Bench) -> None:
    planned_examples = {"num_examples": 300, "rollouts_per_example": 2}
    early = scored_run(OUT, noisy(0, 60), settings={"env.until_ci": 0.4}, planned=planned_examples)
    planned = scored_run(OUT, noisy(1), minute=1)
    early.write_summary(summary_of(early.read_manifest(), read_journal(early)).to_json())
    told = json.loads(bench("compare", "--json", early.id, planned.id).out)
    with viewing(OUT) as client:
        page = compared(client, early, planned)
    score, ours = told["runs"][0]["score"], page["runs"][0]
    assert [ours["mean"], [ours["low"], ours["high"]]] == [score["mean"], score["ci95"]]
    assert "ended early (--until-ci)" in " ".join(page["notes"])


@pytest.fixture
def two(tmp_path: Path) -> Any:
    """A baseline and a candidate with four examples in common; the differences are 0.5, 0, -1 and unknown."""
    first = scored_run(tmp_path, {0: [0, 0], 1: [1, 1], 2: [1, 1], 3: [None, None], 4: [1, 1]}, letters="aaaa")
    second = scored_run(tmp_path, {0: [1, 0], 1: [1, 1], 2: [0, 0], 3: [1, 1], 5: [1, 1]}, minute=1, letters="bbbb")
    with viewing(tmp_path) as client:
        yield client, first, second


def test_examples_that_differ_most_are_first(two: Any) -> None:
    client, first, second = two

    def order(**query: object) -> list[int]:
        return [row["index"] for row in compared(client, first, second, **query)["rows"]]

    page = compared(client, first, second)
    assert [(row["index"], row["difference"]) for row in page["rows"]] == [(2, -1.0), (0, 0.5), (1, 0.0), (3, None)]
    assert (page["total"], page["of"], page["flips"], page["better"], page["worse"]) == (4, 4, 2, 1, 1)
    assert "Not paired: 1 of" in page["comparisons"][0]["sentences"][-1]
    row = page["rows"][1]
    assert (row["example"], row["prompt"], row["answer"], row["widest"]) == (0, "What is 0 + 1?", "1", 1)
    assert [each["mean"] for each in row["runs"]] == [0.0, 0.5]
    assert [[r["reward"] for r in each["rollouts"]] for each in row["runs"]] == [[0.0, 0.0], [1.0, 0.0]]
    assert order(sort="difference") == [2, 1, 0, 3]
    assert order(sort="difference", desc=1) == [0, 1, 2, 3]
    assert order(sort="example", desc=1) == [3, 2, 1, 0]
    assert order(sort="mean") == [0, 1, 2, 3]
    assert order(show="better") == [0]
    assert order(show="worse") == [2]
    assert order(offset=1, limit=2) == [0, 1]


def test_a_query_applies_to_all_runs_and_run_names_one(two: Any) -> None:
    client, first, second = two

    def order(query: str) -> list[int]:
        return [row["index"] for row in compared(client, first, second, q=query)["rows"]]

    assert order("reward=0") == [2, 0]
    assert order(f"reward=0 run:{first.id}") == [0]
    assert order("reason:timeout") == [3]
    assert order('prompt:"What is 2"') == [2]
    status, words = client.error("/api/compare", runs=f"{first.id},{second.id}", q="rewart=1")
    assert (status, "did you mean" in words) == (400, True)


def test_steps_follow_the_order_of_the_page(two: Any) -> None:
    client, first, second = two

    def step(index: int, **query: object) -> Any:
        runs = f"{first.id},{second.id}"
        return client.get("/api/compare/step", runs=runs, index=index, **query)["index"]

    assert [step(2), step(0), step(1), step(3)] == [0, 1, 3, None]
    assert [step(0, dir=-1), step(2, dir=-1)] == [2, None]
    assert [step(2, by="flip"), step(0, by="flip"), step(3, by="flip", dir=-1)] == [0, None, 0]
    assert step(0, sort="example") == 1
    assert step(0, sort="example", q="reward=0") == 2


def test_one_example_of_a_comparison(two: Any) -> None:
    client, first, second = two
    found = client.get("/api/compare/2", runs=f"{first.id},{second.id}")
    assert [run["id"] for run in found["runs"]] == [first.id, second.id]
    assert (found["row"]["difference"], [each["index"] for each in found["row"]["runs"]]) == (-1.0, [2, 2])
    status, words = client.error("/api/compare/4", runs=f"{first.id},{second.id}")
    assert (status, words) == (404, f"The runs do not share the example at position 4 of {first.id}.")


def test_runs_that_do_not_match_get_a_sentence(tmp_path: Path) -> None:
    first = scored_run(tmp_path, {0: [1.0], 1: [0.0]}, letters="aaaa")
    other = scored_run(tmp_path, {7: [1.0], 8: [0.0]}, minute=1, letters="bbbb", env_id="words")
    apart = scored_run(tmp_path, {7: [1.0], 8: [0.0]}, minute=2, letters="cccc")
    with viewing(tmp_path) as client:
        page = compared(client, first, other, apart)
        words = {each["candidate"]: each["problem"] for each in page["comparisons"]}
        assert words[other.id] == (
            "The runs have no example in common, and are of different environments (words, sums)."
        )
        assert words[apart.id] == ""
        assert "two independent samples (Welch)" in " ".join(page["comparisons"][0]["sentences"])
        assert (page["rows"], page["total"]) == ([], 0)
        assert client.error("/api/compare", runs=first.id)[0] == 400
        assert client.error("/api/compare", runs=f"{first.id},{first.id}")[0] == 400
        assert client.error("/api/compare", runs=f"{first.id},nothing") == (404, "There is no run nothing.")
        assert client.error("/api/compare", runs=f"{first.id},{apart.id}", sort="x")[0] == 400


def test_a_run_in_progress_is_compared_anew(tmp_path: Path) -> None:
    first = scored_run(tmp_path, {number: [1.0] for number in range(8)}, letters="aaaa")
    planned = {"num_examples": 8, "rollouts_per_example": 1}
    lines = [example(0), generated(0), scored(0, 0, 0.0)]
    second = finished(tmp_path, lines, minute=1, letters="bbbb", status="running", planned=planned)
    with viewing(tmp_path) as client:
        page = compared(client, first, second)
        assert [row["index"] for row in page["rows"]] == [0]
        assert "7 of 8 rollouts not run" in " ".join(page["notes"])
        write(second.journal_path, [example(3), generated(3), scored(3, 0, 0.0)])
        until(lambda: [row["index"] for row in compared(client, first, second)["rows"]] == [0, 3])
