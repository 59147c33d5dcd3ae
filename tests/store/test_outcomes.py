"""Reading rollouts back: each once, in the order of every table, with its newest lines; and what the dataset, the
statistics and a reader of outcomes say of a journal is the same."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import example, failed, generated, make_run, rollouts, scored, write

from harness.core.errors import JournalDamaged, StoreError
from harness.core.records import Example, Failed, Generated, Record
from harness.core.types import Messages
from harness.stats.scores import NO_REASON, UNUSABLE
from harness.store.dataset import DatasetWriter
from harness.store.outcomes import Outcome, in_order, outcomes, read_journal
from harness.store.rows import BATCH_ROWS, RowFile, RowShape, arrow_schema, as_messages, completion_messages, plain_row
from harness.store.rundir import RunDir
from harness.store.score_table import tally

COLUMNS = RowShape("sums", "lab/m-1", ("correct",), ("turn",))


def journal(tmp_path: Path, records: list[Record]) -> RunDir:
    run = make_run(tmp_path / "out")
    write(run.journal_path, records)
    return run


def places(found: list[Outcome]) -> list[tuple[int | str, int]]:
    return [(each.example.example_id, each.base.rollout_index) for each in found]


def test_what_is_said_of_each_kind_of_outcome(tmp_path: Path) -> None:
    lines: list[Record] = [
        example(0),
        generated(0, 0), scored(0, 0, 0.0),
        generated(0, 1), scored(0, 1, 0.5, reasons={"style": "timeout: 3 s"}),
        generated(0, 2), scored(0, 2, None, reasons={"judge": "no verdict: hm", "style": "raised ValueError: x"}),
        generated(0, 3), scored(0, 3, None, reasons={"*": "group incomplete"}),
        generated(0, 4),
        failed(0, 5),
        failed(0, 6, reason="rate_limit", error=""),
    ]  # fmt: skip
    found = list(outcomes(read_journal(journal(tmp_path, lines))))
    assert [(each.reward, each.is_scored, each.reason, each.error) for each in found] == [
        (0.0, True, "", None),
        (0.5, True, "", "style: timeout: 3 s"),
        (None, False, "judge no verdict", "judge: no verdict: hm; style: raised ValueError: x"),
        (None, False, "group incomplete", "group incomplete"),
        (None, False, "not scored", "not scored"),
        (None, False, "timeout", "timeout: no reply in 600 s"),
        (None, False, "rate_limit", "rate_limit"),
    ]
    assert [type(each.base) for each in found] == [Generated] * 5 + [Failed] * 2
    assert [each.score is None for each in found] == [False] * 4 + [True] * 3
    assert found[0] == Outcome(example(0), generated(0, 0), scored(0, 0, 0.0))


def test_a_reward_that_no_statistic_can_use_is_said(tmp_path: Path) -> None:
    lines: list[Record] = [
        example(0),
        generated(0, 0), scored(0, 0, 1e300),
        generated(0, 1), scored(0, 1, -1e101, reasons={"style": "timeout: 3 s"}),
        generated(0, 2), scored(0, 2, math.nan),
    ]  # fmt: skip
    found = list(outcomes(read_journal(journal(tmp_path, lines))))
    assert [(each.reward, each.reason, each.error) for each in found] == [
        (None, UNUSABLE, "the reward is 1e+300"),
        (None, UNUSABLE, "the reward is -1e+101; style: timeout: 3 s"),
        (None, NO_REASON, NO_REASON),  # null in the file
    ]


def test_the_order_is_that_of_tables_whatever_that_of_the_lines(tmp_path: Path) -> None:
    lines: list[Record] = [example(n) for n in (2, 0, 1)]
    for index, rollout in [(2, 1), (0, 0), (1, 1), (2, 0), (0, 1), (1, 0)]:
        lines.append(generated(index, rollout))
    recorded = read_journal(journal(tmp_path, lines))
    assert places(list(outcomes(recorded))) == [(n, r) for n in range(3) for r in range(2)]
    assert [recorded.place(number) for number in in_order(recorded)] == [(n, r) for n in range(3) for r in range(2)]


def test_the_newest_lines_win(tmp_path: Path) -> None:
    lines: list[Record] = [
        example(0),
        generated(0, 0), scored(0, 0, 0.0), scored(0, 0, 0.25),
        failed(0, 1), generated(0, 1, completion="second try"), scored(0, 1, 1.0),
        generated(0, 2), scored(0, 2, 1.0), failed(0, 2),
        generated(0, 3), scored(0, 3, 1.0), generated(0, 3, completion="asked again"),
        generated(0, 4), scored(0, 4, 1.0), scored(0, 4, None, reasons={"judge": "no verdict"}),
    ]  # fmt: skip
    found = list(outcomes(read_journal(journal(tmp_path, lines))))
    assert [(each.reward, each.reason) for each in found] == [
        (0.25, ""), (1.0, ""), (None, "timeout"), (None, "not scored"), (None, "judge no verdict"),
    ]  # fmt: skip
    assert [each.base.completion for each in (found[1], found[3])] == ["second try", "asked again"]


def test_some_rollouts_in_an_order_of_ones_own(tmp_path: Path) -> None:
    recorded = read_journal(journal(tmp_path, list(rollouts(3, 2))))
    numbers = in_order(recorded)
    assert places(list(outcomes(recorded, [numbers[4], numbers[0], numbers[4]]))) == [(2, 0), (0, 0), (2, 0)]
    assert list(outcomes(recorded, [])) == []


def test_the_rollouts_of_an_example_share_it(tmp_path: Path) -> None:
    found = list(outcomes(read_journal(journal(tmp_path, list(rollouts(2, 3))))))
    assert [each.example is found[0].example for each in found] == [True] * 3 + [False] * 3
    assert [each.example for each in found] == [example(0)] * 3 + [example(1)] * 3


def test_a_run_without_a_journal_has_no_rollouts(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    recorded = read_journal(run)
    assert (len(recorded), recorded.example_count, list(outcomes(recorded))) == (0, 0, [])
    run.journal_path.write_bytes(b"")
    assert list(outcomes(read_journal(run))) == []


def test_a_torn_last_line_counts_for_nothing_and_damage_before_is_said(tmp_path: Path) -> None:
    run = journal(tmp_path, list(rollouts(2)))
    whole = run.journal_path.read_bytes()
    run.journal_path.write_bytes(whole[:-10])
    assert [each.reason for each in outcomes(read_journal(run))] == ["", "not scored"]
    lines = whole.split(b"\n")
    run.journal_path.write_bytes(b"\n".join([*lines[:3], b"{", *lines[3:]]))
    with pytest.raises(JournalDamaged, match=r"journal\.jsonl:4 "):
        read_journal(run)
    run.journal_path.unlink()
    run.journal_path.mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*journal\.jsonl"):
        read_journal(run)


def test_what_is_written_while_it_is_read_waits_for_the_next_reading(tmp_path: Path) -> None:
    run = journal(tmp_path, list(rollouts(3)))
    reading = outcomes(read_journal(run))
    first = next(reading)
    write(run.journal_path, [scored(1, 0, 0.5), example(3), generated(3)])
    assert [each.reward for each in (first, *reading)] == [0.0, 1.0, 0.0]
    assert [each.reward for each in outcomes(read_journal(run))] == [0.0, 0.5, 0.0, None]


def test_a_journal_that_is_gone_is_said_when_it_is_read(tmp_path: Path) -> None:
    run = journal(tmp_path, list(rollouts(1)))
    recorded = read_journal(run)
    run.journal_path.unlink()
    with pytest.raises(StoreError, match=r"cannot read .*journal\.jsonl"):
        next(outcomes(recorded))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(["generated", "failed", "right", "wrong", "half", "no verdict", "odd metric"]),
    ),
    max_size=25,
)


def lines_of(steps: list[tuple[int, int, str]]) -> list[Record]:
    """A journal in which rollouts are made, scored, lost and made again in any order."""
    lines: list[Record] = []
    examples: set[int] = set()
    alive: set[tuple[int, int]] = set()
    for index, rollout, what in steps:
        if index not in examples:
            examples.add(index)
            lines.append(example(index))
        place = (index, rollout)
        if what == "failed":
            lines.append(failed(index, rollout))
            alive.discard(place)
        elif what == "generated" or place not in alive:
            lines.append(generated(index, rollout))
            alive.add(place)
        elif what == "no verdict":
            lines.append(scored(index, rollout, None, reasons={"judge": "no verdict: hm"}))
        elif what == "odd metric":
            lines.append(scored(index, rollout, 1.0, metrics={"correct": None}, reasons={"correct": "timeout: 3 s"}))
        else:
            lines.append(scored(index, rollout, {"right": 1.0, "wrong": 0.0, "half": 0.5}[what]))
    return lines


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_outcomes_statistics_and_dataset_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, str]]
) -> None:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    run = journal(tmp_path_factory.mktemp("out"), lines_of(steps))
    recorded = read_journal(run)
    found = list(outcomes(recorded))
    table = tally(recorded)
    assert len(found) == len(table) == len(recorded)
    assert Counter(each.reason for each in found if not each.is_scored) == table.unscored()
    rewards = [reward for group in table.rewards() for reward in group]
    assert [each.reward for each in found if each.is_scored] == rewards
    assert [recorded.is_scored(number) for number in in_order(recorded)] == [each.is_scored for each in found]
    assert DatasetWriter(run.path, COLUMNS).finish() == len(found)
    files = list(run.data_path.glob("*.parquet"))
    dataset: list[dict[str, Any]] = pq.read_table(files[0]).to_pylist() if files else []
    assert [(row["reward"], row["error"]) for row in dataset] == [(each.reward, each.error) for each in found]


def test_a_plain_row_is_the_row_of_the_dataset_without_its_messages(tmp_path: Path) -> None:
    columns = RowShape("sums", "lab/m-1", ("correct", "style"), ("turn", "verdict", "absent"))
    asked: Example = example(3, answer=[1, None], info={"n": {"deep": 2**70}})
    made = generated(3, 1, state={"turn": 2, "verdict": "of the rollout"}, is_truncated=True)
    judged = scored(3, 1, 0.5, metrics={"correct": 1}, reasons={"style": "timeout: 3 s"}, extra={"verdict": ["good"]})
    row = plain_row(columns, Outcome(asked, made, judged))
    assert row == {
        "example_id": "3", "rollout_index": 1, "answer": "[1,null]", "task": "sums",
        "info": '{"n": {"deep": 1180591620717411303424}}', "reward": 0.5, "outcome": "scored",
        "error": "style: timeout: 3 s", "stop_condition": "stop", "is_truncated": True, "usage": row["usage"],
        "timing": row["timing"], "model": "lab/m-1", "env_id": "sums", "correct": 1.0, "style": None,
        "turn": "2", "verdict": '["good"]', "absent": None,
    }  # fmt: skip
    assert {*row, "prompt", "completion"} == {*columns.names}
    [whole] = written(tmp_path / "one.parquet", columns, [Outcome(asked, made, judged)]).read().to_pylist()
    assert {name: whole[name] for name in row} == row


def written(path: Path, columns: RowShape, rows: Iterable[Outcome]) -> Any:
    """A parquet file with these rollouts, open for reading."""
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    with RowFile(path, columns, {}) as file:
        for row in rows:
            file.add(row)
    return pq.ParquetFile(path)


def test_a_file_has_the_schema_of_the_dataset_however_many_rows_it_has(tmp_path: Path) -> None:
    for count in (0, 1, BATCH_ROWS, BATCH_ROWS + 1):
        rows = (Outcome(example(n), generated(n), scored(n, 0, float(n))) for n in range(count))
        table = written(tmp_path / f"{count}.parquet", COLUMNS, rows).read()
        assert table.schema.equals(arrow_schema(COLUMNS))
        assert table.column_names == list(COLUMNS.names)
        assert table["reward"].to_pylist() == [float(n) for n in range(count)]


def test_long_rows_do_not_wait_for_a_full_batch(tmp_path: Path) -> None:
    text = "x" * 9_000_000
    rows = (Outcome(example(n), generated(n, completion=text), None) for n in range(5))
    file = written(tmp_path / "long.parquet", COLUMNS, rows)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [2, 2, 1]
    assert [row[0]["content"] for row in file.read()["completion"].to_pylist()] == [text] * 5


def test_texts_as_messages() -> None:
    talk: Messages = [{"role": "assistant", "content": "hi"}]
    assert as_messages("Once", "user") == [{"role": "user", "content": "Once"}]
    assert as_messages("", "user") == [{"role": "user", "content": ""}]
    assert as_messages(talk, "user") is talk
    assert as_messages(5, "user") == [{"content": 5}]
    assert completion_messages(generated(0, completion="")) == [{"role": "assistant", "content": ""}]
    assert completion_messages(failed(0)) == [] and completion_messages(failed(0, completion=talk)) is talk
    assert completion_messages(failed(0, completion="half")) == [{"role": "assistant", "content": "half"}]
