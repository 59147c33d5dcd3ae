"""From journals on disk to runs."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import store_samples as samples
from tables import for_each_row

from harness.agents.collect import collect, to_run
from harness.agents.results import EvalRunResult
from harness.core.records import Record, Timing
from harness.core.types import Usage
from harness.store.journal_index import Recorded

FN, OTHER = "rewards:correct", "rewards:other"


def collected(path: Path, fns: list[str], tag: str | None = None) -> list[tuple[int, EvalRunResult]]:
    return collect(Recorded.load(path), fns, tag)


def journal(tmp_path: Path, *records: Record) -> Path:
    path = tmp_path / "journal.jsonl"
    samples.write(path, records)
    return path


def test_a_scored_run(tmp_path: Path) -> None:
    path = journal(
        tmp_path,
        samples.example(0, example_id=50),
        samples.generated(0, 2, usage=Usage(20, 10, requests=2), timing=Timing(0.0, 0.5, 0.25, 0.125)),
        samples.scored(0, 2, 0.75, metrics={FN: 1.0, OTHER: 0.5}),
    )
    assert collected(path, [FN, OTHER], "primary") == [
        (50, EvalRunResult(2, True, {FN: 1.0, OTHER: 0.5}, 375.0, 30, None, "primary", {}, "stop"))
    ]


def test_a_failed_run_keeps_its_words_time_and_tokens(tmp_path: Path) -> None:
    path = journal(
        tmp_path,
        samples.example(0),
        samples.failed(
            0, 0, reason="agent_error", error="the tool is gone", usage=Usage(7, 8), timing=Timing(0.0, 2.0, 1.0, 0.5)
        ),
    )
    [(row, run)] = collected(path, [FN])
    assert row == 0
    assert run == EvalRunResult(0, False, {}, 1500.0, 15, "the tool is gone", None, {}, None, "agent_error")


def test_scorers_that_failed_are_named_and_the_others_keep_their_score(tmp_path: Path) -> None:
    path = journal(
        tmp_path,
        samples.example(0),
        samples.generated(),
        samples.scored(reward=None, metrics={FN: 0.5, OTHER: None}, reasons={OTHER: "KeyError: 'x' (in f, r.py:3)"}),
    )
    [(_, run)] = collected(path, [FN, OTHER])
    assert run.success
    assert run.scores == {FN: 0.5}
    assert run.score_errors == {OTHER: "KeyError: 'x' (in f, r.py:3)"}


def test_what_no_function_is_to_blame_for_stands_with_each(tmp_path: Path) -> None:
    path = journal(
        tmp_path,
        samples.example(0),
        samples.generated(),
        samples.scored(reward=None, metrics={}, reasons={"*": "state lost: mcp"}),
    )
    [(_, run)] = collected(path, [FN, OTHER])
    assert (run.scores, run.score_errors) == ({}, {FN: "state lost: mcp", OTHER: "state lost: mcp"})


def test_a_run_that_was_not_scored_says_so(tmp_path: Path) -> None:
    [(_, run)] = collected(journal(tmp_path, samples.example(0), samples.generated()), [FN])
    assert (run.success, run.scores, run.score_errors) == (True, {}, {FN: "not scored"})


def test_the_newest_line_wins(tmp_path: Path) -> None:
    path = journal(
        tmp_path,
        samples.example(0),
        samples.failed(0, 0),
        samples.generated(0, 1),
        samples.scored(0, 1, metrics={FN: 0.0}),
        samples.generated(0, 0, usage=Usage(1, 1)),  # --retry-failed
        samples.scored(0, 0, metrics={FN: 0.25}),
        samples.scored(0, 0, metrics={FN: 0.5}),  # rescored
        samples.failed(0, 1, reason="timeout", usage=Usage(2, 2)),
    )
    assert [(row, r.run_index, r.success, r.scores, r.tokens) for row, r in collected(path, [FN])] == [
        (0, 0, True, {FN: 0.5}, 2),
        (0, 1, False, {}, 4),
    ]


def test_rows_and_runs_are_in_order_however_they_ended(tmp_path: Path) -> None:
    places = [(2, 1), (0, 1), (1, 0), (2, 0), (0, 0), (1, 1)]
    lines = [samples.example(i, example_id=10 + i) for i in (2, 0, 1)] + [samples.generated(*place) for place in places]
    runs = collected(journal(tmp_path, *lines), [FN])
    assert [(row, run.run_index) for row, run in runs] == [(10, 0), (10, 1), (11, 0), (11, 1), (12, 0), (12, 1)]


def test_an_id_that_is_no_row_number_gives_way_to_the_place(tmp_path: Path) -> None:
    path = journal(tmp_path, samples.example(3, example_id="third"), samples.generated(3))
    assert [row for row, _ in collected(path, [FN])] == [3]


def test_a_journal_without_rollouts_has_no_runs(tmp_path: Path) -> None:
    assert collected(journal(tmp_path, samples.example(0)), [FN]) == []


@for_each_row(("value", "words"), [(math.nan, "returned nan"), (math.inf, "returned inf"), (1e300, "1e+300")])
def test_a_number_that_no_statistic_survives_is_no_score(value: float, words: str) -> None:
    run = to_run(samples.generated(), samples.scored(metrics={FN: value}), [FN], None)
    assert run.scores == {}
    assert words in run.score_errors[FN]


def test_true_is_a_score_of_one() -> None:
    run = to_run(samples.generated(), samples.scored(metrics={FN: True}), [FN], None)
    assert repr(run.scores) == repr({FN: 1.0})


def test_a_run_that_waited_longer_than_it_worked_took_no_time() -> None:
    assert to_run(samples.generated(timing=Timing(0.0, 1.0, 0.0, 1.5)), None, [], None).duration_ms == 0.0


def test_replies_without_usage_are_counted() -> None:
    assert to_run(samples.failed(usage=Usage(5, 5, requests=3, unreported=2)), None, [], "baseline").unreported == 2


def test_a_failure_without_words_is_told_by_its_reason() -> None:
    assert to_run(samples.failed(error="", reason="timeout"), None, [FN], None).error == "timeout"


def test_many_runs_take_moments(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    samples.write(path, samples.rollouts(2_000, 5))
    recorded = Recorded.load(path)
    runs = collect(recorded, ["correct"], "primary")
    assert len(runs) == 10_000
    assert sum(run.scores["correct"] for _, run in runs) == 5_000


def test_a_run_takes_few_bytes_however_much_was_said(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    said = [{"role": "assistant", "content": "x" * 100_000}]
    records: list[Record] = [samples.example(0)]
    for index in range(200):
        records += [samples.generated(0, index, completion=said), samples.scored(0, index)]
    samples.write(path, records)
    recorded = Recorded.load(path)
    tracemalloc.start()
    runs = collect(recorded, ["correct"], "primary")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(runs) == 200
    assert kept / len(runs) < 1500
