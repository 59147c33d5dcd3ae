"""The list of runs, read from manifests and summaries: states, damage, order, filters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from run_samples import finished, run_at
from tables import for_each_row

from harness.core.errors import ConfigError, StoreError, UsageError
from harness.store.catalogue import Catalogue, Filter, ListedRun, moment, read_entry
from harness.store.find_runs import all_runs, find_run, find_runs, runs_in
from harness.store.outcomes import read_journal
from harness.store.rundir import RunDir, RunLock

OPENED: list[str] = []
"""Files that were opened, or folders that were read; filled by an audit hook, which no test can take away again."""
_watching = ""
"""The event that is noted now, if any is."""


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event == _watching:
        OPENED.append(str(arguments[0]))


sys.addaudithook(_note)


@contextmanager
def watching(event: str = "open") -> Iterator[list[str]]:
    """The manifests that are opened meanwhile, or the folders that are read."""
    global _watching
    OPENED.clear()
    found: list[str] = []
    _watching = event
    try:
        yield found
    finally:
        _watching = ""
        found += [path for path in OPENED if path.endswith("run.json") or event != "open"]


def states(output_dir: Path) -> dict[str, str]:
    return {entry.id[-4:]: entry.state for entry in Catalogue(output_dir)}


def test_an_entry_says_what_manifest_and_summary_say(tmp_path: Path) -> None:
    run = finished(tmp_path, name="sums-hot", parent="20260101T000000Z-pppp", derived={"how": "rescore"}, suite="S1")
    entry = read_entry(run.path)
    assert (entry.id, entry.name, entry.env_id, entry.model) == ("20261121T091503Z-aaaa", "sums-hot", "sums", "lab/m-1")
    assert entry.title == "sums · sums-hot" and read_entry(run_at(tmp_path, minute=1).path).title == "sums"
    assert (entry.kind, entry.state, entry.planned, entry.problems) == ("run", "done", 4, ())
    assert entry.created == datetime(2026, 11, 21, 9, 15, 3, 250_000, UTC)
    written = entry.to_json()
    assert json.loads(json.dumps(written)) == written
    assert {name: value for name, value in written.items() if name != "summary"} == {
        "id": run.id, "path": str(run.path), "state": "done", "note": None, "kind": "run", "env_id": "sums",
        "name": "sums-hot", "model": "lab/m-1", "created": "2026-11-21T09:15:03.250000Z",
        "command": "bench run sums -n 4", "suite": "S1",
        "parent": "20260101T000000Z-pppp", "derived": {"how": "rescore"}, "planned": 4, "problems": [],
    }  # fmt: skip
    assert written["summary"] == run.read_summary()
    assert entry.final == entry.summary


def test_a_run_that_nobody_writes_any_more_has_died(tmp_path: Path) -> None:
    going, gone, never = (finished(tmp_path, letters=name, status="running") for name in ("aaaa", "bbbb", "cccc"))
    gone.lock().release()
    with going.lock():
        assert states(tmp_path) == {"aaaa": "running", "bbbb": "died", "cccc": "died"}
        assert states(tmp_path) == {"aaaa": "running", "bbbb": "died", "cccc": "died"}  # looking takes no lock
        entry = read_entry(going.path)
        assert entry.summary is not None and entry.final is None  # it is of an earlier attempt
    assert states(tmp_path)["aaaa"] == "died"
    assert not (never.path / ".lock").exists()


def test_looking_at_a_lock_takes_nothing(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not RunLock.is_held(path) and not path.exists()
    with RunLock.take(path, "it"):
        assert RunLock.is_held(path) and RunLock.is_held(path)
    assert not RunLock.is_held(path)
    RunLock.take(path, "it").release()


@pytest.mark.parametrize(
    ("state", "note"), [("done", ""), ("stopped", "why"), ("interrupted", "why"), ("failed", "why")]
)
def test_other_states_are_those_of_the_manifest(tmp_path: Path, state: str, note: str) -> None:
    run_at(tmp_path, status=state, note="why")
    [entry] = Catalogue(tmp_path)
    assert (entry.state, entry.note) == (state, note)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b'{"schema_version": 1, "id": "x"', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"schema_version": 2}', "update bench"),
        (b'{"schema_version": 1, "id": "x", "env_id": "e"}', "fields missing or not strings: model"),
        (b'{"schema_version": 1, "id": "x", "env_id": "e", "model": "m", "status": "asleep"}', "status 'asleep'"),
        (
            b'{"schema_version": 1, "id": "x", "env_id": "e", "model": "m", "planned": 3}',
            "planned must be a JSON object",
        ),
        (b'{"schema_version": 1, "id": "x", "env_id": "e", "model": "m", "name": null}', "name must be text"),
        (
            b'{"schema_version": 1, "id": "x", "env_id": "e", "model": "m", "planned": {"num_examples": 1e308}}',
            "planned: these values must be numbers, 0 or more: num_examples",
        ),
        (
            b'{"schema_version": 1, "id": "x", "env_id": "e", "model": "m", "given_up": {"requests": "x"}}',
            "given_up: these values must be numbers, 0 or more: requests",
        ),
        (
            b'{"schema_version": 1, "id": "x", "env_id": "e", "model": "m", "metric_names": 3}',
            "metric_names must be a list",
        ),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_manifest_is_an_entry_that_says_so(tmp_path: Path, content: bytes, said: str) -> None:
    broken, sound = finished(tmp_path, letters="aaaa"), finished(tmp_path, minute=1, letters="bbbb")
    broken.manifest_path.write_bytes(content)
    assert states(tmp_path) == {"bbbb": "done", "aaaa": "damaged"}
    entry = read_entry(broken.path)
    [problem] = entry.problems
    assert str(broken.manifest_path) in problem and said in problem
    assert (entry.manifest, entry.model, entry.kind, entry.env_id) == (None, "", "", "sums--lab--m-1")
    assert entry.created == datetime(2026, 11, 21, 9, 15, 3, tzinfo=UTC)  # its id still tells
    assert entry.summary is not None
    assert json.dumps(entry.to_json())
    assert find_run(tmp_path, "latest") == sound.path and find_run(tmp_path, broken.id) == broken.path


@pytest.mark.parametrize("content", [b"{", b"[]", b"3", b"\x00" * 20])
def test_a_broken_summary_is_said_and_hides_nothing_else(tmp_path: Path, content: bytes) -> None:
    run = finished(tmp_path)
    run.summary_path.write_bytes(content)
    entry = read_entry(run.path)
    assert (entry.state, entry.summary, entry.name) == ("done", None, "sums")
    assert [str(run.summary_path) in problem for problem in entry.problems] == [True]


def test_a_manifest_that_is_a_folder_is_no_run_and_one_that_is_a_link_cannot_be_read(tmp_path: Path) -> None:
    for letters in ("aaaa", "bbbb"):
        run_at(tmp_path, letters=letters).manifest_path.unlink()
    folder, link = (next(tmp_path.glob(f"evals/*/*{letters}")) / "run.json" for letters in ("aaaa", "bbbb"))
    folder.mkdir()
    link.symlink_to(tmp_path / "nowhere")
    [entry] = Catalogue(tmp_path)
    assert entry.state == "damaged" and "symbolic link" in entry.problems[0]


def test_the_newest_comes_first_and_runs_of_one_second_in_the_order_of_their_manifests(tmp_path: Path) -> None:
    for letters, micro in (("zzzz", 1), ("aaaa", 2), ("mmmm", 3)):
        run_at(tmp_path, letters=letters, created=f"2026-11-21T09:15:03.00000{micro}Z", env_id=f"e-{letters}")
    run_at(tmp_path, minute=5, letters="late")
    run_at(tmp_path, minute=-5, letters="soon")
    assert [entry.id[-4:] for entry in Catalogue(tmp_path)] == ["late", "mmmm", "aaaa", "zzzz", "soon"]
    assert [entry.id[-4:] for entry in Catalogue(tmp_path).newest(2)] == ["late", "mmmm"]
    assert [path.name[-4:] for path in all_runs(tmp_path)] == ["soon", "zzzz", "aaaa", "mmmm", "late"]


def test_names_alone_tell_which_run_is_meant(tmp_path: Path) -> None:
    for minute in range(30):
        run_at(tmp_path, minute=minute)
    with watching() as read:
        assert find_run(tmp_path, "latest").name == "20261121T094403Z-aaaa"
        assert find_run(tmp_path, "20261121T0920").name == "20261121T092003Z-aaaa"
        assert len(all_runs(tmp_path)) == 30
        with pytest.raises(UsageError, match=r"no run 'nope'.*the newest are 20261121T094403Z-aaaa"):
            find_run(tmp_path, "nope")
    assert len(read) == 1 and "T0944" in read[0], "only the newest says whether it belongs to a suite"
    run_at(tmp_path, minute=29, letters="bbbb", created="2026-11-21T09:44:03.000001Z")
    with watching() as read:
        assert find_run(tmp_path, "latest").name == "20261121T094403Z-aaaa"  # of that second the later one
    assert len([path for path in read if "T0944" in path]) == len(read) == 3
    with watching() as read:
        assert [entry.id[:16] for entry in Catalogue(tmp_path).newest(3)][2] == "20261121T094303Z"
    assert len([path for path in read if "T0943" in path]) == 1 and not [path for path in read if "T0942" in path]


def test_many_names_are_looked_up_in_one_reading(tmp_path: Path) -> None:
    runs = [run_at(tmp_path, minute=minute).path for minute in range(3)]
    names = [runs[2].name, str(runs[0]), "latest", runs[1].name[:13], runs[1].name]
    with watching("os.listdir") as read:
        assert find_runs(tmp_path, names) == [runs[2], runs[0], runs[2], runs[1], runs[1]]
    assert read == [str(tmp_path / "evals"), str(runs[0].parent)]


def test_the_folder_of_several_runs_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run_at(tmp_path, minute=minute) for minute in range(7)]
    with pytest.raises(UsageError) as refused:
        find_run(tmp_path, str(runs[0].parent))
    newest = ", ".join(f"{run.id} (sums--lab--m-1)" for run in runs[:1:-1])
    assert str(refused.value) == f"{runs[0].parent} is the folder of 7 runs; name one of them: {newest}, and 2 older"
    monkeypatch.chdir(runs[0].parent)
    with pytest.raises(UsageError, match=rf"^\. is the folder of 7 runs; .*{runs[6].id} \(sums--lab--m-1\)"):
        find_run(tmp_path, ".")


def test_two_runs_of_one_id_are_told_apart_by_path(tmp_path: Path) -> None:
    one, two = (run_at(tmp_path, env_id=name) for name in ("one", "two"))
    with pytest.raises(UsageError, match=f"'{one.id}' matches 2 runs; name one by its path: "):
        find_run(tmp_path, one.id)
    assert find_run(tmp_path, str(two.path)) == two.path


def test_a_run_is_found_from_inside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(tmp_path)
    monkeypatch.chdir(run.path)
    assert find_run("elsewhere", ".") == run.path
    assert find_run("elsewhere", "journal.jsonl") == run.path
    with pytest.raises(UsageError, match="no runs under elsewhere/evals"):
        find_run("elsewhere", "latest")


def test_what_is_about_to_go_is_no_run(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.path.rename(run.parent / f".{run.id}.0123abcd.removed")
    assert runs_in(run.parent) == [] == all_runs(tmp_path)


def test_an_output_folder_that_is_none_has_no_runs(tmp_path: Path) -> None:
    assert len(Catalogue(tmp_path / "nowhere")) == 0
    (tmp_path / "evals").write_text("a file")
    assert list(Catalogue(tmp_path)) == []


def entry_of(tmp_path: Path, **changes: Any) -> ListedRun:
    return read_entry(run_at(tmp_path, **changes).path)


@pytest.mark.parametrize(
    ("wanted", "keeps"),
    [
        (Filter(), True),
        (Filter(envs=["math"]), True),
        (Filter(envs=["MATH"]), True),
        (Filter(envs=["hot"]), True),  # its name
        (Filter(envs=["wordle", "python"]), True),
        (Filter(envs=["wordle"]), False),
        (Filter(envs=["math-py*"]), True),
        (Filter(envs=["math*"], models=["*mini"]), True),
        (Filter(envs=["ath*"]), False),
        (Filter(models=["gpt-4.1"]), True),
        (Filter(models=["gpt?4"]), False),  # no wildcard but the star
        (Filter(models=["claude"]), False),
        (Filter(states=["done", "died"]), True),
        (Filter(states=["died"]), False),
        (Filter(kinds=["eval"]), True),
        (Filter(kinds=["run", "multi"]), False),
        (Filter(envs=["math"], states=["died"]), False),
        (Filter(since=datetime(2026, 11, 21, 9, 15, 3, 250_000, UTC)), True),
        (Filter(since=datetime(2026, 11, 21, 9, 15, 4, tzinfo=UTC)), False),
        (Filter(until=datetime(2026, 11, 21, 9, 15, 3, 250_000, UTC)), False),
        (Filter(until=datetime(2026, 11, 22, tzinfo=UTC)), True),
    ],
)
def test_filters(tmp_path: Path, wanted: Filter, keeps: bool) -> None:
    entry = entry_of(tmp_path, env_id="math-python", name="hot", model="openai/gpt-4.1-mini", kind="eval")
    assert wanted.keeps(entry) is keeps


def test_a_damaged_run_is_not_hidden_by_what_is_unknown_of_it(tmp_path: Path) -> None:
    run = run_at(tmp_path)
    run.manifest_path.write_text("{")
    entry = read_entry(run.path)
    assert Filter(envs=["sums"], models=["gpt"], kinds=["eval"]).keeps(entry)
    assert Filter(states=["damaged"]).keeps(entry)
    assert not Filter(states=["done"]).keeps(entry)
    assert not Filter(envs=["wordle"]).keeps(entry)
    assert not Filter(since=datetime(2027, 1, 1, tzinfo=UTC)).keeps(entry)


@for_each_row(
    ("wanted", "message"),
    [({"states": ["dide"]}, 'state dide: did you mean "died"'), ({"kinds": ["x"]}, "kind x: ")],
)
def test_a_state_or_kind_that_is_none_is_refused(wanted: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Filter(**wanted)  # type: ignore[arg-type] lists of names either way


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@for_each_row(
    ("text", "begin", "end"),
    [
        ("2026-11-20", "2026-11-20T00:00:00+00:00", "2026-11-21T00:00:00+00:00"),
        ("2026-11-20T09:15", "2026-11-20T09:15:00+00:00", "2026-11-20T09:15:00+00:00"),
        ("2026-11-20 09:15:30", "2026-11-20T09:15:30+00:00", "2026-11-20T09:15:30+00:00"),
        ("2026-11-20T09:15+02:00", "2026-11-20T09:15:00+02:00", "2026-11-20T09:15:00+02:00"),
        ("7d", "2026-11-14T12:00:00+00:00", "2026-11-14T12:00:00+00:00"),
        ("2w", "2026-11-07T12:00:00+00:00", "2026-11-07T12:00:00+00:00"),
        ("90m", "2026-11-21T10:30:00+00:00", "2026-11-21T10:30:00+00:00"),
        (" 12h ", "2026-11-21T00:00:00+00:00", "2026-11-21T00:00:00+00:00"),
    ],
)
def test_times(text: str, begin: str, end: str) -> None:
    assert moment(text, "--since", now=NOW).isoformat() == begin
    assert moment(text, "--until", now=NOW, end=True).isoformat() == end


@for_each_row("text", ["", "yesterday", "2026-13-01", "7 d", "-7d", "999999w", "9999-12-31"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--until .*: give a date or time in UTC"):
        moment(text, "--until", now=NOW, end=True)


def test_children_name_their_parent(tmp_path: Path) -> None:
    parent = run_at(tmp_path)
    child = run_at(tmp_path, minute=1, parent=parent.id)
    run_at(tmp_path, minute=2, parent="another")
    catalogue = Catalogue(tmp_path)
    assert [entry.id for entry in catalogue.children(parent.id)] == [child.id]
    assert catalogue.children(child.id) == []


def test_a_catalogue_reads_each_manifest_once(tmp_path: Path) -> None:
    for minute in range(5):
        run_at(tmp_path, minute=minute)
    catalogue = Catalogue(tmp_path)
    with watching() as read:
        assert list(catalogue) == list(catalogue)
        assert catalogue.children("nobody") == []
    assert len(read) == 5


def test_an_evals_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    loop = tmp_path / "evals"
    loop.symlink_to(loop)
    with pytest.raises(StoreError, match=f"cannot read {loop}"):
        Catalogue(tmp_path)


def test_files_that_cannot_be_reached_are_said_and_hide_no_other_run(tmp_path: Path) -> None:
    run, other = finished(tmp_path), finished(tmp_path, minute=1)
    for path in (run.summary_path, run.journal_path):
        path.unlink()
        path.symlink_to(path)
    newer, entry = Catalogue(tmp_path)
    assert newer.run == other and newer.problems == ()
    assert entry.summary is None and entry.problems[0].startswith(f"cannot read {run.summary_path}: ")
    with pytest.raises(StoreError, match=r"cannot read .*journal\.jsonl"):
        read_journal(run)


def test_a_run_folder_that_cannot_be_looked_at_is_still_shown(tmp_path: Path) -> None:
    run = run_at(tmp_path)
    run.manifest_path.unlink()
    run.manifest_path.symlink_to(run.manifest_path)
    [entry] = Catalogue(tmp_path)
    assert entry.state == "damaged" and "run.json" in entry.problems[0]
    assert RunDir(entry.run.path) == entry.run
