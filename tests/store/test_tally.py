"""From journal lines to the table of scores."""

from __future__ import annotations

from pathlib import Path

from store_samples import example, failed, generated, rollouts, scored, write

from harness.records import Example, Record
from harness.stats.scores import EMPTY, REFUSED, TRUNCATED, ScoreTable
from harness.store.recorded import Recorded
from harness.store.tally import tally
from harness.types import Usage


def rewards(table: ScoreTable) -> list[list[float]]:
    return list(table.rewards())


def tallied(path: Path, lines: list[Record]) -> ScoreTable:
    write(path, lines)
    return tally(Recorded.load(path))


def test_every_outcome_is_counted_once(tmp_path: Path) -> None:
    table = tallied(
        tmp_path / "journal.jsonl",
        [
            example(0), generated(0, 0), scored(0, 0, 0.0),
            generated(0, 1), scored(0, 1, reward=None, reasons={"judge": "timeout: 30 s"}),
            failed(0, 2, reason="rate_limit", usage=Usage(7)),
            example(1), generated(1, 0),
            generated(1, 1), scored(1, 1, 0.25), scored(0, 0, 1.0),
        ],
    )  # fmt: skip
    assert len(table) == 5
    assert rewards(table) == [[1.0], [0.25]]
    assert table.unscored() == {"judge timeout": 1, "rate_limit": 1, "not scored": 1}
    assert table.usage() == Usage(47, 20, requests=4)
    assert sorted(table.seconds()) == [0.5] * 4
    assert list(table.metric("correct")) == [[1.0], [0.25]]


def test_a_retry_replaces_what_it_retries(tmp_path: Path) -> None:
    table = tallied(
        tmp_path / "journal.jsonl",
        [example(0), failed(0, 0), generated(0, 0), failed(0, 1), failed(0, 1, reason="gone"), scored(0, 0)],
    )
    assert rewards(table) == [[1.0]] and table.unscored() == {"gone": 1}


def test_a_score_long_after_its_rollout_is_joined(tmp_path: Path) -> None:
    """Scoring after all generation."""
    count = 500
    lines = sorted(rollouts(count), key=lambda record: record.kind == "scored")
    lines[-1] = scored(count - 1, reward=None, reasons={"*": "group incomplete"})
    table = tallied(tmp_path / "journal.jsonl", lines[:-2] + lines[-1:])
    assert len(table) == count
    assert table.unscored() == {"not scored": 1, "group incomplete": 1}
    assert table.usage() == Usage(10 * count, 5 * count, requests=count)


def test_the_share_of_empty_truncated_and_refused_answers(tmp_path: Path) -> None:
    said = [
        {"completion": [{"role": "assistant", "content": ""}]},
        {"completion": [{"role": "assistant", "content": "No.", "refusal": "No."}]},
        {"is_truncated": True},
        {"completion": "  "},
        {"completion": [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}]},
    ]
    lines: list[Record] = [example(0)]
    for rollout, changes in enumerate(said):
        lines += [generated(0, rollout, **changes), scored(0, rollout)]
    table = tallied(tmp_path / "journal.jsonl", lines)
    assert [table.marked(flag) for flag in (EMPTY, REFUSED, TRUNCATED)] == [2, 1, 1]


def test_examples_with_one_index_are_not_averaged_as_one(tmp_path: Path) -> None:
    other = Example("other", 5, "a", index=0)
    table = tallied(
        tmp_path / "journal.jsonl",
        [example(0), generated(0), scored(0, 0, 1.0), other, generated(1, example_key="other"), scored(1, 0, 0.0)],
    )
    assert rewards(table) == [[1.0], [0.0]]


def test_an_empty_journal_has_no_outcomes(tmp_path: Path) -> None:
    assert len(tallied(tmp_path / "journal.jsonl", [])) == 0
