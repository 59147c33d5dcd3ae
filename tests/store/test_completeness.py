"""Whether a run that is done has all its rows, and what a process that was killed leaves beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_samples import make_run, rollouts, write

from harness.core.errors import RunLocked
from harness.store.completeness import final_name, is_complete, sweep, tidy
from harness.store.dataset import DatasetWriter
from harness.store.rows import RowShape
from harness.store.rundir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = make_run(tmp_path)
    write(run.journal_path, rollouts(3))
    run.write_summary({})
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    return run


def litter(run: RunDir) -> list[Path]:
    """What is left when a process is killed while it writes each of these."""
    folder = run.path / ".data.0123abcd"
    folder.mkdir()
    files = [
        folder / final_name(7),
        run.path / ".run.json.99-0123abcd.tmp",
        run.data_path / ".part-0-7.parquet.99-0123abcd.tmp",
    ]
    for path in files:
        path.write_bytes(b"PAR1")
    return [folder, *files]


def test_a_run_with_all_rows_is_complete_and_is_not_once_its_journal_goes_on(run: RunDir) -> None:
    assert is_complete(run)
    with run.journal_path.open("ab") as file:
        file.write(b"{")
    assert not is_complete(run)


def test_rows_of_checkpoints_are_not_all_rows(run: RunDir) -> None:
    final = run.data_path / final_name(run.journal_path.stat().st_size)
    (run.data_path / "part-000000000000000-000000000000009.parquet").write_bytes(final.read_bytes())
    assert not is_complete(run)
    final.unlink()
    assert not is_complete(run)


def test_without_a_journal_nothing_can_be_added(run: RunDir) -> None:
    run.journal_path.unlink()
    assert is_complete(run)


def test_what_was_to_take_a_place_is_removed_and_nothing_else(run: RunDir) -> None:
    before = sorted(run.path.rglob("*"))
    assert all(path.exists() for path in litter(run))
    sweep(run)
    assert sorted(run.path.rglob("*")) == before


def test_a_run_that_is_being_written_is_left_alone(run: RunDir) -> None:
    left = litter(run)
    with run.lock(), pytest.raises(RunLocked):
        tidy(run)
    assert all(path.exists() for path in left)


def test_tidying_makes_the_card_anew(run: RunDir) -> None:
    card, stale = run.parent / "README.md", run.parent / ".README.md.99-0123abcd.tmp"
    whole = card.read_text()
    card.write_text(whole.replace(" bytes, state ", " bytes, state 0"))
    stale.touch()
    tidy(run)
    assert (card.read_text(), stale.exists()) == (whole, False)


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_without_its_summary_a_run_is_not_complete(run: RunDir, damage: str) -> None:
    if damage == "gone":
        run.summary_path.unlink()
    else:
        run.summary_path.write_text('{"mean"')
    assert not is_complete(run)
