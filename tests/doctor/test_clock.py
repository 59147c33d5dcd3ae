"""The clock against what others say the time is."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest
from tables import for_each_row

from harness.cli.doctor.clock import Told, check_clock, seconds_off

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC).timestamp()


def told(ahead: float, *, took: float = 0.2, who: str = "a") -> Told:
    """What somebody says whose clock is so far ahead of ours."""
    date = format_datetime(datetime.fromtimestamp(int(NOW + ahead), UTC), usegmt=True)
    return Told(who, date, NOW, NOW + took)


@pytest.mark.parametrize(("ahead", "off"), [(0, 0.0), (-0.9, 0.0), (-11, 10.0), (3601, -3600.8), (0.9, 0.0)], ids=str)
def test_how_far_the_clock_is_off_allows_for_whole_seconds_and_the_time_of_the_request(
    ahead: float, off: float
) -> None:
    assert seconds_off(told(ahead)) == pytest.approx(off, abs=1e-6)


def test_a_date_that_cannot_be_read_says_nothing() -> None:
    assert seconds_off(Told("a", "yesterday", NOW, NOW)) is None
    assert seconds_off(Told("a", f"Sat, 21 Nov 2026 12:00:00 +{'9' * 20}", NOW, NOW)) is None
    [found] = check_clock([Told("a", "yesterday", NOW, NOW)], now=NOW)
    assert (found.status, found.says) == (
        "ok", "2026-11-21 12:00:00 UTC; no reply said what time it is elsewhere"
    )  # fmt: skip


@for_each_row(
    ("ahead", "status", "words"),
    [
        (2, "ok", "agrees with a"),
        (-31, "note", "is 30 s ahead of the time of a"),
        (600, "problem", "is 10 min behind the time of a"),
        (-10801, "problem", "is 3 h ahead of the time of a"),
        (86400 * 400, "problem", "is 400 d behind the time of a"),
    ],
)
def test_a_clock_that_is_off_is_noted_or_a_problem(ahead: float, status: str, words: str) -> None:
    [found] = check_clock([told(ahead, took=0.0)], now=NOW)
    assert (found.status, words in found.says) == (status, True), found.says
    assert (found.fix != "") == (status != "ok")


def test_the_one_who_differs_most_is_named() -> None:
    [found] = check_clock([told(0, who="one"), told(300, who="two"), told(-20, who="three")], now=NOW)
    assert found.says.endswith("behind the time of two")


def test_a_run_from_the_future_shows_that_the_clock_went_back(tmp_path: Path) -> None:
    for run in ("20261121T115900Z-aaaa", "20261121T120005Z-bbbb", "20991121T120005Z-nothing"):
        (tmp_path / "evals/gsm8k--m" / run).mkdir(parents=True)
    assert [each.name for each in check_clock([], [tmp_path, tmp_path / "none"], NOW)] == ["time"]
    (tmp_path / "evals/gsm8k--m/20261121T130000Z-cccc").mkdir()
    found = check_clock([], [tmp_path], NOW)
    assert [(each.name, each.status) for each in found] == [("time", "ok"), ("runs", "note")]
    assert found[1].says.startswith("the run 20261121T130000Z-cccc was begun later than now")
