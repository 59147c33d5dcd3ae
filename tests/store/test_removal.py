"""Removing run folders: all or none, crash-safe, and a card that says what is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_samples import finished, run_at
from store_samples import python

from harness.core.errors import RunLocked, StoreError, UsageError
from harness.store.card import rebuild_card
from harness.store.dataset import DatasetWriter
from harness.store.find_runs import all_runs
from harness.store.removal import remove_runs
from harness.store.rows import RowShape
from harness.store.rundir import RunDir


def with_rows(tmp_path: Path, letters: str) -> RunDir:
    """A run as the engine leaves it: with a dataset and in the card."""
    run = finished(tmp_path, letters=letters)
    DatasetWriter(run.path, RowShape.of(run.read_manifest())).finish()
    return run


def card(run: RunDir) -> str:
    return (run.parent / "README.md").read_text()


def test_the_card_says_what_is_left(tmp_path: Path) -> None:
    going, staying = with_rows(tmp_path, "aaaa"), with_rows(tmp_path, "bbbb")
    assert going.id in card(staying) and staying.id in card(staying)
    remove_runs([going])
    assert all_runs(tmp_path) == [staying.path]
    assert going.id not in card(staying) and f"config_name: {staying.id}" in card(staying)
    assert sorted(path.name for path in staying.parent.iterdir()) == [".card.lock", staying.id, "README.md"]


def test_the_last_run_takes_its_folder_along(tmp_path: Path) -> None:
    runs = [with_rows(tmp_path, "aaaa"), with_rows(tmp_path, "bbbb")]
    remove_runs(runs)
    assert [path.name for path in tmp_path.iterdir()] == ["evals"]
    assert list((tmp_path / "evals").iterdir()) == []


def test_a_run_that_came_to_nothing_takes_its_folder_along_too(tmp_path: Path) -> None:
    run = run_at(tmp_path, status="running")
    assert [path.name for path in run.parent.iterdir()] == [run.id]  # it had no rows yet, hence no card
    remove_runs([run])
    assert list((tmp_path / "evals").iterdir()) == []


def test_what_is_not_ours_keeps_the_folder_with_a_card_that_names_no_run(tmp_path: Path) -> None:
    run = with_rows(tmp_path, "aaaa")
    (run.parent / "notes.txt").write_text("mine")
    remove_runs([run])
    assert run.id not in card(run)
    assert (run.parent / "notes.txt").read_text() == "mine"


def test_a_folder_that_a_run_was_copied_to_keeps_its_readme(tmp_path: Path) -> None:
    run = finished(tmp_path)
    desk = tmp_path / "desk"
    desk.mkdir()
    (desk / "README.md").write_text("mine")
    remove_runs([RunDir(run.path.rename(desk / "my-run"))])
    assert {path.name: path.read_text() for path in desk.iterdir()} == {"README.md": "mine"}


def test_none_goes_if_one_is_in_use(tmp_path: Path) -> None:
    idle, busy = with_rows(tmp_path, "aaaa"), with_rows(tmp_path, "bbbb")
    before = card(idle)
    with busy.lock(), pytest.raises(RunLocked, match=f"run .*{busy.id} is being written"):
        remove_runs([idle, busy])
    assert all_runs(tmp_path) == [idle.path, busy.path]
    assert card(idle) == before
    idle.lock().release()  # nothing holds it any more


def test_a_link_is_left_to_whoever_made_it(tmp_path: Path) -> None:
    run = finished(tmp_path)
    far = run.path.rename(tmp_path / "far")
    run.path.symlink_to(far)
    with pytest.raises(UsageError, match=f"{run.path} is a symbolic link"):
        remove_runs([run])
    assert (far / "journal.jsonl").is_file() and run.path.is_symlink()


def test_what_was_pointed_to_from_inside_stays(tmp_path: Path) -> None:
    run = finished(tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("kept")
    (run.path / "link").symlink_to(tmp_path / "shared")
    remove_runs([run])
    assert (tmp_path / "shared" / "file").read_text() == "kept"


CRASH = """
import os, sys
from pathlib import Path
from harness.store.removal import remove_runs
from harness.store.rundir import RunDir
at, *paths = sys.argv[1:]

def crash(event, arguments):
    if event == at:
        os._exit(9)

sys.addaudithook(crash)
remove_runs([RunDir(Path(path)) for path in paths])
"""


def test_a_crash_before_anything_has_happened_leaves_the_run_whole(tmp_path: Path) -> None:
    run = with_rows(tmp_path, "aaaa")
    assert python(CRASH, "os.rename", run.path).returncode == 9
    assert all_runs(tmp_path) == [run.path]
    assert run.read_manifest().id == run.id and run.has_data() and run.id in card(run)


def test_a_crash_before_the_deletion_leaves_nothing_that_anybody_sees(tmp_path: Path) -> None:
    run, other = with_rows(tmp_path, "aaaa"), with_rows(tmp_path, "bbbb")
    assert python(CRASH, "shutil.rmtree", run.path).returncode == 9
    assert all_runs(tmp_path) == [other.path]
    assert run.id not in card(other) and other.id in card(other)
    [left] = other.parent.glob(".*.removed")
    assert (left / "run.json").is_file() and left.name.startswith(f".{run.id}.")
    rebuild_card(other.parent)  # by the next run, which sees it no more
    assert run.id not in card(other)
    remove_runs([with_rows(tmp_path, "cccc")])  # and the next removal sweeps it away
    assert not left.exists() and all_runs(tmp_path) == [other.path]


BESIDE = """
import os, shutil, sys
from pathlib import Path
from harness.store.removal import remove_runs
from harness.store.rundir import RunDir
at, name, drops, path = sys.argv[1], sys.argv[2], sys.argv[3] == "True", Path(sys.argv[4])
going = path.parent

def remove(event, arguments):
    global at
    if event == at and str(arguments[0]).endswith(name):
        at = None
        for gone in going.glob(".*.removed"):
            shutil.rmtree(gone)
        if drops:
            shutil.rmtree(going)

sys.addaudithook(remove)
remove_runs([RunDir(path)])
"""
"""A removal, in the midst of which another one sweeps the same folder."""


@pytest.mark.parametrize(
    ("at", "name", "drops"),
    [("open", ".card.lock", True), ("shutil.rmtree", ".removed", True), ("shutil.rmtree", ".removed", False)],
)
def test_two_removals_in_one_folder_do_not_hinder_one_another(tmp_path: Path, at: str, name: str, drops: bool) -> None:
    run = with_rows(tmp_path, "aaaa")
    done = python(BESIDE, at, name, drops, run.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert list((tmp_path / "evals").iterdir()) == []


def test_a_card_that_cannot_be_written_does_not_keep_the_files(tmp_path: Path) -> None:
    run, other = with_rows(tmp_path, "aaaa"), with_rows(tmp_path, "bbbb")
    lock = run.parent / ".card.lock"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StoreError, match=r"cannot open .*card.lock"):
        remove_runs([run])
    assert all_runs(tmp_path) == [other.path]
    assert list(run.parent.glob(".*.removed")) == []


def test_more_runs_than_a_process_may_open_files(tmp_path: Path) -> None:
    runs = [run_at(tmp_path, minute) for minute in range(40)]
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
    remove = (
        "import sys; from harness.store.removal import *; remove_runs([RunDir(Path(path)) for path in sys.argv[1:]])"
    )
    done = python(few + remove, *(run.path for run in runs))
    assert (done.returncode, done.stderr) == (0, "")
    assert all_runs(tmp_path) == []


def test_suites_keep_their_record(tmp_path: Path) -> None:
    run = finished(tmp_path, suite="S1")
    suite = tmp_path / "suites" / "S1.json"
    suite.parent.mkdir()
    suite.write_text(json.dumps({"id": "S1", "runs": [{"path": f"evals/sums--lab--m-1/{run.id}"}]}))
    before = suite.read_bytes()
    remove_runs([run])
    assert suite.read_bytes() == before


def test_a_folder_that_cannot_be_locked_is_not_removed(tmp_path: Path) -> None:
    run = finished(tmp_path)
    (run.path / ".lock").mkdir()
    with pytest.raises(StoreError, match=r"cannot open .*lock"):
        remove_runs([run])
    assert all_runs(tmp_path) == [run.path]
