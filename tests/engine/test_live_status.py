"""`status.json` of a run in progress: its content, when it is written, and that nothing depends on it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from harness.engine.live_status import LiveStatus
from harness.engine.progress import RunProgress
from harness.models.delays import Delay

WALL = 1_790_000_000.0


def running(folder: Path) -> tuple[LiveStatus, RunProgress]:
    progress = RunProgress(
        "run", "env", "model", total=40, scored=8, generating=4, backlog=1, scoring=2, state="running"
    )
    progress.started = 100.0
    return LiveStatus(folder, progress), progress


def test_it_says_what_is_in_flight_how_long_it_takes_and_what_delays_it(tmp_path: Path) -> None:
    status, progress = running(tmp_path)
    progress.unscored["timeout"] = 2
    progress.delays = lambda: [Delay("3 backing off (rate_limit), the next", 12.4), Delay("x" * 10_000)]
    status.write(105.0, WALL)
    assert json.loads(status.path.read_bytes()) == {
        "state": "running", "planned": 40, "done": 10, "scored": 8, "generating": 4, "scoring": 3, "per_minute": 120.0,
        "left": 15, "time": WALL, "delays": [
            {"reason": "3 backing off (rate_limit), the next", "until": 1_790_000_012},
            {"reason": "x" * 500, "until": None},
        ],
    }  # fmt: skip
    assert os.listdir(tmp_path) == ["status.json"]
    status.close()
    status.close()
    assert os.listdir(tmp_path) == []
    status.write(106.0, WALL + 1)
    assert os.listdir(tmp_path) == [], "it stays removed"


def test_it_is_written_only_if_it_has_changed(tmp_path: Path) -> None:
    status, progress = running(tmp_path)
    progress.started = 0.0
    status.write(105.0, WALL)
    first = status.path.stat()
    status.write(106.0, WALL + 1)
    assert status.path.stat() == first
    progress.generating += 1
    status.write(107.0, WALL + 2)
    assert json.loads(status.path.read_bytes())["time"] == WALL + 2


def test_a_file_that_cannot_be_written_harms_nothing_and_is_tried_again(tmp_path: Path) -> None:
    status, _ = running(tmp_path)
    status.path.mkdir()
    status.write(105.0, WALL)
    assert os.listdir(tmp_path) == ["status.json"], "nothing is left behind"
    status.path.rmdir()
    status.write(105.0, WALL)
    assert json.loads(status.path.read_bytes())["done"] == 8
    (tmp_path / ".status.json.tmp").mkdir()
    status.write(106.0, WALL)
    status.close()
    running(tmp_path / "removed")[0].write(105.0, WALL)


def test_no_other_file_is_changed_through_links(tmp_path: Path) -> None:
    folder, other = tmp_path / "run", tmp_path / "other"
    folder.mkdir()
    other.write_text("mine")
    status, progress = running(folder)
    status.path.symlink_to(other)
    (folder / ".status.json.tmp").hardlink_to(other)
    status.write(105.0, WALL)
    assert (other.read_text(), status.path.is_symlink()) == ("mine", False)
    (folder / ".status.json.tmp").symlink_to(other)
    progress.scored += 1
    status.write(105.0, WALL)
    assert (other.read_text(), json.loads(status.path.read_bytes())["done"]) == ("mine", 9)


def test_readers_never_see_half_of_it(tmp_path: Path) -> None:
    status, progress = running(tmp_path)
    progress.scored = 0
    status.write(105.0, WALL)
    ended = threading.Event()

    def write() -> None:
        for number in range(500):
            progress.scored = number
            progress.delays = lambda size=number: [Delay("x" * size)]
            status.write(105.0 + number, WALL)
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[int] = []
    while not ended.is_set():
        found = json.loads(status.path.read_bytes())
        assert sum(len(each["reason"]) for each in found["delays"]) == found["scored"]
        seen.append(found["scored"])
    writer.join()
    assert seen == sorted(seen)
