"""Journals with absurd indices of examples and rollouts: they take no more memory than others, and have one meaning."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from store_samples import example, generated, key, scored, write
from tables import for_each_row

from harness.core.errors import StoreError
from harness.core.records import Record
from harness.store.dataset import DatasetWriter
from harness.store.journal_index import LARGEST_INDEX, LARGEST_ROLLOUT, Recorded
from harness.store.rows import RowShape
from harness.store.score_table import tally


def at(number: int, index: int) -> Record:
    """An example whose position in tables is not its number."""
    return replace(example(number), index=index)


def indices(path: Path, count: int) -> list[int | None]:
    recorded = Recorded.load(path)
    return [recorded.example_index(key("example", n)) for n in range(count)]


@pytest.mark.parametrize("huge", [2**31, LARGEST_INDEX - 1])
def test_a_huge_index_takes_no_memory(tmp_path: Path, huge: int) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, [at(0, huge), generated(0), at(1, 1), at(2, huge), generated(2)])
    tracemalloc.start()
    try:
        found = indices(path, 3)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert found == [huge, 1, huge + 1], "an index that is in use is replaced by the next one above all"


def test_many_scattered_indices_take_memory_in_proportion_to_their_number(tmp_path: Path) -> None:
    path, wanted = tmp_path / "journal.jsonl", [n * 10_000 for n in range(3_000)]
    write(path, [at(n, index) for n, index in enumerate(wanted)])
    tracemalloc.start()
    try:
        assert indices(path, len(wanted)) == wanted
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_what_is_near_and_what_was_far_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    far = 5_000
    # It is far when it is added, and near when many others have followed.
    wanted = [far, *range(100), 4_999, far, -1]
    write(path, [at(n, index) for n, index in enumerate(wanted)])
    assert indices(path, len(wanted)) == [far, *range(100), 4_999, far + 1, far + 2]


@for_each_row("index", [LARGEST_INDEX + 1, 2**63, 10**30])
def test_an_index_beyond_all_datasets_is_a_damaged_line(tmp_path: Path, index: int) -> None:
    path = tmp_path / f"{index}.jsonl"
    write(path, [example(0), generated(0)])
    line = path.read_bytes().splitlines()[0].replace(key("example", 0).encode(), key("other").encode())
    with path.open("ab") as file:
        file.write(line.replace(b'"index":0', b'"index":%d' % index) + b"\n" + path.read_bytes())
    with pytest.raises(StoreError, match=r"the line cannot be read"):
        Recorded.load(path)


@for_each_row("index", [-1, LARGEST_ROLLOUT + 1, 2**40])
def test_an_impossible_index_of_a_rollout_is_a_damaged_line(tmp_path: Path, index: int) -> None:
    path = tmp_path / f"{index}.jsonl"
    write(path, [example(0), generated(0, 0, rollout_index=index), generated(0, 1)])
    with pytest.raises(StoreError, match=f"the index {index} of a rollout is out of range"):
        Recorded.load(path)


def test_statistics_and_the_dataset_are_made_of_huge_indices(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write(run / "journal.jsonl", [
        at(0, LARGEST_INDEX), generated(0, 0, rollout_index=LARGEST_ROLLOUT), example(1), generated(1, 0), scored(1, 0),
    ])  # fmt: skip
    recorded = Recorded.load(run / "journal.jsonl")
    table = tally(recorded)
    assert (list(table.examples()), list(table.outcomes())) == ([1, LARGEST_INDEX], [1, 1])
    assert list(table.rewards()) == [[1.0], []]
    DatasetWriter(run, RowShape("sums", "m", metric_names=("correct",))).complete()
    assert len(list((run / "data").iterdir())) == 1
