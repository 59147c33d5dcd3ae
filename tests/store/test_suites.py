"""Which runs a name means that may stand for one run or for all runs of an invocation."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import finished

from harness.core.errors import StoreError, UsageError
from harness.store.find_runs import choose, find_run
from harness.store.rundir import RunDir, write_suite

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
    return [path.name for path in choose(Path("outputs"), names).runs]


def test_a_suite_is_named_by_its_id_its_beginning_or_its_file(runs: list[RunDir]) -> None:
    both = [run.id for run in runs[1:]]

    assert chosen(SUITE) == both
    assert chosen("20261121T1000") == both
    assert chosen(f"outputs/suites/{SUITE}.json") == both


def test_runs_keep_the_order_of_the_names_and_come_once(runs: list[RunDir]) -> None:
    ids = [run.id for run in runs]

    assert chosen(ids[2], "latest", ids[0], SUITE, str(runs[0].path)) == [ids[2], ids[1], ids[0]]


def test_no_name_is_the_newest_invocation(runs: list[RunDir]) -> None:
    assert chosen() == [run.id for run in runs[1:]]


def test_latest_and_an_output_folder_are_the_newest_invocation(runs: list[RunDir], tmp_path: Path) -> None:
    suite = [run.id for run in runs[1:]]
    assert chosen("latest") == chosen("outputs") == chosen(str(tmp_path / "outputs")) == suite
    with pytest.raises(
        UsageError,
        match=f"latest is a suite of 2 runs \\({SUITE}\\), but only one run is allowed here; name one of them:\n",
    ):
        find_run("outputs", "latest")

    resumed = "20261121T110000Z-more"  # `bench resume` of one run leaves the run in its suite
    write_suite("outputs", resumed, file=None, command="", runs=[(runs[2], runs[2].read_manifest())])
    assert chosen("latest") == suite

    again = "20261121T120000Z-late"  # `bench run --resume` makes it a run of the new invocation
    runs[0].write_manifest(replace(runs[0].read_manifest(), suite=again))
    write_suite("outputs", again, file=None, command="", runs=[(runs[0], runs[0].read_manifest())])
    assert chosen("latest") == [find_run("outputs", "latest").name] == [runs[0].id]


def test_latest_without_files_of_suites_is_told_by_the_runs(runs: list[RunDir]) -> None:
    shutil.rmtree("outputs/suites")

    assert chosen("latest") == [run.id for run in runs[1:]]


def test_latest_whose_environments_did_not_load_is_no_older_run(runs: list[RunDir]) -> None:
    write_suite("outputs", "20261121T110000Z-fail", file=None, command="", runs=[], failed=["sums"])

    for find in (choose, lambda out, names: find_run(out, names[0])):
        with pytest.raises(
            UsageError, match="latest is the invocation 20261121T110000Z-fail, which could not load sums"
        ):
            find(Path("outputs"), ["latest"])


@pytest.mark.parametrize("copied", [False, True])
def test_latest_of_two_invocations_of_one_second_is_the_later(runs: list[RunDir], copied: bool) -> None:
    first, later = (
        finished(Path("outputs"), minute=45, letters=letters, suite=f"20261121T100003Z-{suite}", created=created)
        for letters, suite, created in (
            ("ffff", "zzzz", "2026-11-21T10:00:03.100000Z"),
            ("eeee", "aaaa", "2026-11-21T10:00:03.200000Z"),
        )
    )
    for run, failed in ((first, []), (later, ["sums"])):
        manifest = run.read_manifest()
        write_suite("outputs", str(manifest.suite), file=None, command="", runs=[(run, manifest)], failed=failed)
    assert first.id[:16] == later.id[:16] == "20261121T100003Z"
    if copied:  # all files of one age
        for file in Path("outputs/suites").iterdir():
            os.utime(file, ns=(10**18, 10**18))

    found = choose(Path("outputs"), ["latest"])
    assert ([path.name for path in found.runs], found.failed) == ([later.id], ["sums"])


def test_no_name_is_one_run_where_the_newest_belongs_to_no_suite(runs: list[RunDir]) -> None:
    newest = finished(Path("outputs"), minute=50, letters="dddd")

    assert chosen() == chosen("latest") == [newest.id]


def test_the_beginning_of_a_run_goes_before_that_of_a_suite(runs: list[RunDir]) -> None:
    finished(Path("outputs"), minute=45, letters="eeee")  # begins at 10:00, as the suite does

    assert chosen("20261121T1000") == ["20261121T100003Z-eeee"]


def test_runs_that_are_gone_are_told(runs: list[RunDir]) -> None:
    shutil.rmtree(runs[1].path)

    found = choose(Path("outputs"), [SUITE])

    assert [path.name for path in found.runs] == [runs[2].id]
    assert found.gone == [f"evals/sums--lab--m-1/{runs[1].id}"]


def test_a_suite_without_any_run_left_is_refused(runs: list[RunDir]) -> None:
    for run in runs[1:]:
        shutil.rmtree(run.path)

    with pytest.raises(
        UsageError, match=f"outputs/suites/{SUITE}.json: none of the 2 runs of this suite exists any more"
    ):
        choose(Path("outputs"), [SUITE])


def test_a_name_that_means_two_suites_is_refused(runs: list[RunDir]) -> None:
    shutil.copy(f"outputs/suites/{SUITE}.json", "outputs/suites/20261121T100000Z-twin.json")

    with pytest.raises(UsageError, match="'20261121T1000' matches 2 suites; give more of the id"):
        choose(Path("outputs"), ["20261121T1000"])


def test_a_name_that_means_nothing_is_said_as_of_runs(runs: list[RunDir]) -> None:
    with pytest.raises(UsageError, match="no run 'nothing' under outputs/evals"):
        choose(Path("outputs"), ["nothing"])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a suite file"),
        (json.dumps({"runs": [{"env_id": "sums"}]}), "a run in it has no path"),
    ],
)
def test_a_damaged_file_is_named(runs: list[RunDir], content: str, said: str) -> None:
    file = Path(f"outputs/suites/{SUITE}.json")
    file.write_text(content)

    with pytest.raises(StoreError, match=f"cannot read {file}: .*{said}"):
        choose(Path("outputs"), [SUITE])
