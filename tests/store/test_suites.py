"""Which runs a name means that may stand for one run or for all runs of an invocation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from run_samples import finished

from harness.errors import StoreError, UsageError
from harness.store.rundir import RunDir, write_suite
from harness.store.suites import choose

SUITE = "20261121T100000Z-suit"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    """Two runs of one suite, and an older one of none."""
    monkeypatch.chdir(tmp_path)
    alone = finished(Path("outputs"), letters="aaaa")
    together = [
        finished(Path("outputs"), minute=minute, letters=letters, suite=SUITE)
        for minute, letters in ((7, "bbbb"), (8, "cccc"))
    ]
    write_suite("outputs", SUITE, file=None, command="", runs=[(run, run.read_manifest()) for run in together])
    return [alone, *together]


def chosen(*names: str) -> list[str]:
    return [path.name for path in choose(Path("outputs"), names).paths]


def test_a_suite_is_named_by_its_id_its_beginning_or_its_file(runs: list[RunDir]) -> None:
    both = [run.id for run in runs[1:]]

    assert chosen(SUITE) == both
    assert chosen("20261121T1000") == both
    assert chosen(f"outputs/suites/{SUITE}.json") == both


def test_runs_keep_the_order_of_the_names_and_come_once(runs: list[RunDir]) -> None:
    ids = [run.id for run in runs]

    assert chosen(ids[2], "latest", ids[0], SUITE, str(runs[0].path)) == [ids[2], ids[0], ids[1]]


def test_no_name_is_the_newest_invocation(runs: list[RunDir]) -> None:
    assert chosen() == [run.id for run in runs[1:]]


def test_no_name_is_one_run_where_the_newest_belongs_to_no_suite(runs: list[RunDir]) -> None:
    newest = finished(Path("outputs"), minute=30, letters="dddd")

    assert chosen() == [newest.id]


def test_the_beginning_of_a_run_goes_before_that_of_a_suite(runs: list[RunDir]) -> None:
    finished(Path("outputs"), minute=45, letters="eeee")  # begins at 10:00, as the suite does

    assert chosen("20261121T1000") == ["20261121T100003Z-eeee"]


def test_runs_that_are_gone_are_told(runs: list[RunDir]) -> None:
    shutil.rmtree(runs[1].path)

    found = choose(Path("outputs"), [SUITE])

    assert [path.name for path in found.paths] == [runs[2].id]
    assert found.gone == [f"evals/sums--lab--m-1/{runs[1].id}"]


def test_a_suite_without_any_run_left_is_refused(runs: list[RunDir]) -> None:
    for run in runs[1:]:
        shutil.rmtree(run.path)

    with pytest.raises(UsageError, match=f"outputs/suites/{SUITE}.json: none of its 2 runs is there any more"):
        choose(Path("outputs"), [SUITE])


def test_a_name_that_means_two_suites_is_refused(runs: list[RunDir]) -> None:
    shutil.copy(f"outputs/suites/{SUITE}.json", "outputs/suites/20261121T100000Z-twin.json")

    with pytest.raises(UsageError, match="'20261121T1000' means 2 suites; write more of the id"):
        choose(Path("outputs"), ["20261121T1000"])


def test_a_name_that_means_nothing_is_said_as_of_runs(runs: list[RunDir]) -> None:
    with pytest.raises(UsageError, match="no run 'nothing' under outputs/evals"):
        choose(Path("outputs"), ["nothing"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not the file of a suite"),
        (json.dumps({"runs": [{"env_id": "sums"}]}), "a run in it has no path"),
    ],
)
def test_a_damaged_file_is_named(runs: list[RunDir], content: str, said: str) -> None:
    file = Path(f"outputs/suites/{SUITE}.json")
    file.write_text(content)

    with pytest.raises(StoreError, match=f"cannot read {file}: .*{said}"):
        choose(Path("outputs"), [SUITE])
