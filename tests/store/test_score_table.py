"""From journal lines to the table of scores."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from store_samples import example, failed, generated, rollouts, scored, write

from harness.core.records import Example, Record
from harness.core.types import Usage
from harness.stats.paired_target import PairedAim
from harness.stats.scores import EMPTY, REFUSED, TRUNCATED, ScoreTable
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.score_table import aim_of, tally


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


def reply(*usage: int, cost: float | None = None) -> dict[str, object]:
    return {"model": "judge", "text": "CORRECT", "usage": asdict(Usage(*usage, requests=1, cost=cost))}


def test_what_judges_used_is_summed_apart_from_the_models_own(tmp_path: Path) -> None:
    table = tallied(
        tmp_path / "journal.jsonl",
        [
            example(0), generated(0, 0), scored(0, 0, extra={"judgements": [reply(7, 1, cost=0.5), reply(5, 1)]}),
            # asked again: the newest line counts
            generated(0, 1), scored(0, 1, None, extra={"judgements": [reply(100, 100)]}),
            scored(0, 1, extra={"judgements": [reply(3, 1, cost=0.25)]}),
            # asked while it was made; scoring goes on with the same list, or adds nothing to it
            example(1), generated(1, 0, state={"judgements": [reply(20, 2)]}),
            scored(1, 0, extra={"judgements": [reply(20, 2), reply(30, 3)]}),
            generated(1, 1, state={"judgements": [reply(40, 4)]}), scored(1, 1),
            example(2), generated(2, 0, state={"judgements": [reply(50, 5)]}),
        ],
    )  # fmt: skip
    assert table.judged() == Usage(7 + 5 + 3 + 20 + 30 + 40 + 50, 1 + 1 + 1 + 2 + 3 + 4 + 5, requests=7, cost=0.75)
    assert table.judged_unpriced() == 5  # the 0.75 is what two of the seven cost
    assert table.usage() == Usage(50, 25, requests=5)


def test_a_value_of_that_name_that_is_no_account_counts_for_nothing(tmp_path: Path) -> None:
    lines: list[Record] = [example(0)]
    for number, value in enumerate(("text", [], [1, {"usage": 3}, {"usage": {"tokens": 1}}, {}], {"usage": {}}, None)):
        lines += [generated(0, number), scored(0, number, extra={"judgements": value})]
    assert tallied(tmp_path / "journal.jsonl", lines).judged() is None


@pytest.mark.parametrize(
    "change",
    [
        {"margin": None}, {"margin": -0.1}, {"margin": "much"}, {"margin": 1e400}, {"scores": None}, {"scores": [1, 0]},
        {"scores": [1, 0, "x"]}, {"scores": [1, 0, [1]]}, {"scores": [1, 0, [1, 0]]}, {"scores": [1, 0, 1e300]},
        {"scores": [1, 0, True]},
    ],
)  # fmt: skip
def test_an_edited_manifest_has_no_gate(change: dict[str, object]) -> None:
    gate = {"baseline": "b\x1b[31m", "margin": 0.1, "scores": [1, 0, [0.0, 1.0]]}
    manifest = Manifest("a", "e", "m", planned={"num_examples": 3, "rollouts_per_example": 1}, gate=gate)
    aim = aim_of(manifest)
    assert isinstance(aim, PairedAim) and aim.scores == ((1.0, 1.0), (0.0, 0.0), (0.0, 1.0))
    assert aim.baseline.isprintable()
    assert aim_of(replace(manifest, gate={**gate, **change})) is None
    assert aim_of(replace(manifest, reward_range=(-1e308, 1e308))) is None
    assert aim_of(replace(manifest, reward_range=(0.0, math.inf))) is None
