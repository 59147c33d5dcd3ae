"""A run's journal read for somebody who looks back: figures, failures by reason, worst and best examples."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from run_samples import finished, paid
from store_samples import example, failed, generated, rollouts, scored

from harness.core.errors import JournalDamaged, UsageError
from harness.core.records import Record
from harness.report.run_digest import MOST, Digest, digest, example_outcomes
from harness.store.rundir import RunDir


def read(tmp_path: Path, records: Sequence[Record], **changes: Any) -> Digest:
    run = finished(tmp_path, records, **changes)
    return digest(run, run.read_manifest(), run.read_summary())


def ranking(found: Digest) -> tuple[list[object], list[object]]:
    return [each.shown.example.example_id for each in found.worst], [
        each.shown.example.example_id for each in found.best
    ]


def single(rewards: list[float]) -> list[Record]:
    records: list[Record] = []
    for index, reward in enumerate(rewards):
        records += [example(index), *paid(index, reward)]
    return records


def test_the_figures_are_those_of_the_summary(tmp_path: Path) -> None:
    records = [*rollouts(6, 2), example(6), failed(6)]
    planned = {"num_examples": 7, "rollouts_per_example": 2}
    run = finished(tmp_path, records, planned=planned)
    found = digest(run, run.read_manifest(), run.read_summary())
    assert found.summary is not None
    assert found.summary.to_json() == run.read_summary()


def test_a_rubric_without_bounds_has_none_in_the_file_either(tmp_path: Path) -> None:
    run = finished(tmp_path, [*single([0.0, 1.0]), example(2), failed(2)], reward_range=(-math.inf, math.inf))
    assert json.loads(run.manifest_path.read_text())["reward_range"] == [None, None]
    found = digest(run, run.read_manifest(), None)
    assert found.summary is not None and found.summary.bounds is None and found.summary.wall_s is None


def test_a_run_without_a_journal_or_a_rollout_is_empty(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.journal_path.unlink()
    assert digest(run, run.read_manifest(), None) == Digest(None)
    assert read(tmp_path, [example(0)], minute=1) == Digest(None)


def test_a_damaged_journal_is_said(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.journal_path.write_bytes(b"{\n" + run.journal_path.read_bytes())
    with pytest.raises(JournalDamaged, match=r"journal.jsonl:1"):
        digest(run, run.read_manifest(), None)


def test_failures_stand_together_by_reason_the_commonest_first(tmp_path: Path) -> None:
    no_digits = {"correct": "ValueError: no digits in 'a'"}
    records = [example(index) for index in range(6)]
    records += [
        failed(0, reason="timeout", error="no reply in 600 s"),
        generated(1), scored(1, reward=None, reasons=no_digits),
        generated(2), scored(2, reward=None, reasons={"correct": "ValueError: no digits in 'b'"}),
        failed(3, reason="timeout", error="no reply in 601 s", retryable=False),
        generated(3, 1), scored(3, 1, reward=None, reasons=no_digits),
        generated(4), scored(4, 0, 1.0, metrics={"correct": 1.0, "said": None}, reasons={"said": "TypeError: boo"}),
        generated(5),
    ]  # fmt: skip
    found = read(tmp_path, records)
    assert [(t.reason, t.count, t.retryable, t.is_scored, t.message) for t in found.troubles] == [
        ("correct ValueError", 3, 0, False, "correct: ValueError: no digits in 'a'"),
        ("timeout", 2, 1, False, "no reply in 600 s"),
        ("no value for said", 1, 0, True, "TypeError: boo"),
    ]
    assert found.troubles[0].places == [(1, 0), (2, 0), (3, 1)]
    assert found.troubles[1].places == [(0, 0), (3, 0)]
    assert found.waiting == 1  # example 5 waits for its score, which is no failure
    assert found.troubles[1].to_json() == {
        "reason": "timeout", "count": 2, "scored": False, "retryable": 1, "message": "no reply in 600 s",
        "rollouts": [{"example_id": 0, "rollout_index": 0}, {"example_id": 3, "rollout_index": 0}],
    }  # fmt: skip


def test_only_the_newest_line_of_a_rollout_counts(tmp_path: Path) -> None:
    records = [
        example(0),
        failed(0),
        generated(0),
        scored(0, reward=None, reasons={"*": "late"}),
        scored(0, reward=0.5),
    ]
    found = read(tmp_path, records)
    assert found.troubles == [] and [each.mean for each in found.worst] == [0.5]


def test_a_reward_that_statistics_leave_out_is_a_failure_here_too(tmp_path: Path) -> None:
    found = read(tmp_path, [*single([1.0]), example(1), generated(1), scored(1, reward=1e300)])
    [trouble] = found.troubles
    assert (trouble.reason, trouble.message) == ("reward is not a usable number", "the reward is 1e+300")
    assert found.summary is not None and found.summary.unscored == {trouble.reason: 1}
    assert ranking(found) == ([0], [])


def test_worst_and_best_do_not_overlap(tmp_path: Path) -> None:
    rewards = [0.5, 0.0, 1.0, 0.25, 0.75, 0.1, 0.9, 0.6]
    assert ranking(read(tmp_path, single(rewards))) == ([1, 5, 3], [2, 6, 4])


@pytest.mark.parametrize(
    ("rewards", "worst", "best"),
    [
        ([1.0], [0], []),
        ([1.0, 0.0], [1], [0]),
        ([0.0, 0.5, 1.0], [0, 1], [2]),
        ([1.0, 1.0, 0.0, 1.0], [2], [0, 1, 3]),  # what is perfect is not among the worst
        ([0.0, 0.0, 0.0, 0.0, 1.0], [0, 1, 2], [4]),  # and what is worst not among the best
        ([0.5, 0.5, 0.5, 0.5], [0, 1, 2], []),
    ],
)
def test_ties_are_in_the_order_of_the_table(
    tmp_path: Path, rewards: list[float], worst: list[int], best: list[int]
) -> None:
    found = read(tmp_path, single(rewards))
    assert ranking(found) == (worst, best)
    assert found.is_level == (len(set(rewards)) == 1)
    assert len(worst) <= MOST and len(best) <= MOST


def test_an_example_ranks_by_the_mean_of_its_scored_rollouts(tmp_path: Path) -> None:
    records: list[Record] = [example(0), *paid(0, 0.0), *paid(0, 1.0, rollout=1), failed(0, 2)]
    records += [example(1), *paid(1, 0.4), *paid(1, 0.4, rollout=1)]
    found = read(tmp_path, records, planned={"num_examples": 2, "rollouts_per_example": 3})
    [worst], [best] = found.worst, found.best
    assert (worst.shown.example.example_id, worst.mean, worst.scored, worst.made) == (1, 0.4, 2, 2)
    assert (best.shown.example.example_id, best.mean, best.scored, best.made) == (0, 0.5, 2, 3)
    assert best.shown.base.rollout_index == 1 and best.shown.reward == 1.0  # its best rollout
    assert best.to_json() == {
        "example_id": 0, "mean": 0.5, "scored": 2, "rollouts": 3, "rollout_index": 1, "reward": 1.0,
    }  # fmt: skip


def test_an_example_is_found_by_its_id_with_all_rollouts_in_order(tmp_path: Path) -> None:
    records = [example(0), example(1, example_id="q/17"), *paid(1, 1.0, rollout=1), *paid(0, 1.0), *paid(1, 0.0)]
    run = finished(tmp_path, records)
    [(found, outcomes)] = example_outcomes(run, "q/17")
    assert found.example_id == "q/17" and [each.base.rollout_index for each in outcomes] == [0, 1]
    [(_, outcomes)] = example_outcomes(run, "q/17", 1)
    assert [each.reward for each in outcomes] == [1.0]
    [(found, _)] = example_outcomes(run, "0")
    assert found.example_id == 0


def test_examples_that_share_an_id_are_all_found(tmp_path: Path) -> None:
    records: list[Record] = [example(0, example_id="a"), example(1, example_id="a"), *paid(0, 1.0), *paid(1, 0.0)]
    found = example_outcomes(finished(tmp_path, records), "a")
    assert [each.index for each, _ in found] == [0, 1]
    assert [outcome.reward for _, outcomes in found for outcome in outcomes] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "rollout", "message"),
    [
        ("task-4", None, r"""no example 'task-4' in the journal of 20261121T091503Z-aaaa: did you mean "task-2"\?$"""),
        ("zzz", None, "its examples are called task-0, task-1, task-2"),
        ("", None, "its examples are called"),
        ("task-1", 3, "example task-1 of 20261121T091503Z-aaaa has no rollout 3: it has 0, 1"),
        ("task-2", None, "example task-2 of 20261121T091503Z-aaaa has no rollout yet"),
    ],
)
def test_an_example_that_is_not_there(tmp_path: Path, name: str, rollout: int | None, message: str) -> None:
    records: list[Record] = [example(index, example_id=f"task-{index}") for index in range(3)]
    records += [*paid(0, 1.0), *paid(1, 1.0), *paid(1, 1.0, rollout=1)]
    with pytest.raises(UsageError, match=message):
        example_outcomes(finished(tmp_path, records), name, rollout)


def test_a_run_without_rollouts_has_no_example(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.journal_path.unlink()
    with pytest.raises(UsageError, match=r"no example '0' .*: it has no rollouts yet"):
        example_outcomes(RunDir(run.path), "0")
