"""Run folders: names, ids, locks, manifests, and finding a run again."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import make_run, python
from tables import for_each_row

from harness.core.errors import RunLocked, StoreError, UsageError
from harness.store.atomic import atomic_write, store_error
from harness.store.find_runs import all_runs, find_run, runs_in
from harness.store.manifest import Manifest
from harness.store.rundir import (
    NAME_LIMIT,
    RunDir,
    RunLock,
    folder_name,
    new_run_id,
    safe_name,
    timestamp,
    write_suite,
)


@given(st.text(max_size=300))
def test_a_name_is_always_one_safe_part_of_a_path(text: str) -> None:
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", name)
    assert not name.startswith(".") and name not in {"", ".", ".."}
    assert len(name) <= NAME_LIMIT
    assert safe_name(text) == name
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", text):
        assert name == text


@for_each_row(
    ("text", "name"),
    [
        ("gpt-4.1-mini", "gpt-4.1-mini"),
        ("openai/gpt-4.1-mini", "openai--gpt-4.1-mini"),
        ("reference/noisy?accuracy=0.7&seed=1", "reference--noisy-accuracy-0.7-seed-1"),
        ("../../etc/passwd", "-.--..--etc--passwd"),
        ("..", "-."),
        ("", "-"),
        ("modèle\n", "mod-le-"),
        ("\ud800", "-"),
    ],
)
def test_names_of_models(text: str, name: str) -> None:
    assert safe_name(text) == name


def test_long_names_are_cut_and_stay_apart() -> None:
    names = {folder_name("env" * 60, "m" * 300 + str(n)) for n in range(20)}
    assert len(names) == 20
    assert all(len(name) <= 2 * NAME_LIMIT + 2 for name in names)


def test_run_ids_sort_by_time() -> None:
    early, late = (new_run_id(datetime(2026, 11, 21, 9, 15, second, tzinfo=UTC)) for second in (3, 4))
    assert re.fullmatch(r"20261121T091503Z-[a-z0-9]{4}", early)
    assert early < late
    assert timestamp(datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)) == "2026-01-02T03:04:05.000006Z"


def test_runs_of_the_same_second_never_share_a_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: RunDir.create(tmp_path, "sums", "lab/m").path, range(200)))
    assert len(set(made)) == 200
    assert {path.parent for path in made} == {tmp_path / "evals" / "sums--lab--m"}


BEREAVED = """
import os, sys
from harness.store.rundir import RunDir
output, times = sys.argv[1], int(sys.argv[2])

def remove(event, arguments):
    # As `bench runs rm` does with the last run of a folder, in the moment before the new run begins there.
    global times
    if event == "os.mkdir" and "Z-" in str(arguments[0]) and times:
        times -= 1
        os.rmdir(os.path.dirname(arguments[0]))

sys.addaudithook(remove)
print(RunDir.create(output, "sums", "m").path)
"""


def test_a_run_begins_in_a_folder_that_is_removed_at_that_moment(tmp_path: Path) -> None:
    done = python(BEREAVED, tmp_path, 3)
    assert done.returncode == 0, done.stderr
    assert [str(path) for path in (tmp_path / "evals").glob("*/*")] == [done.stdout.strip()]


def test_a_folder_that_is_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals" / "sums--m").symlink_to(tmp_path / "gone")
    with pytest.raises(StoreError, match=r"cannot create .*sums--m.*symbolic link"):
        RunDir.create(tmp_path, "sums", "m")


def test_an_output_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(StoreError, match=r"cannot create .*outputs"):
        RunDir.create(tmp_path / "outputs", "sums", "m")


HOLD = """
import sys
from pathlib import Path
from harness.store.rundir import RunDir
lock = RunDir(Path(sys.argv[1])).lock()
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(RunLocked, match=rf"{run.id} is being written by another process \(pid {child.pid}\)"):
            run.lock()
        child.kill()
        child.wait()
    with run.lock():  # released by the kernel: no stale lock to remove by hand
        refused = python(HOLD, run.path)
        assert refused.returncode == 1 and f"(pid {os.getpid()})" in refused.stderr
    run.lock().release()


def test_a_lock_that_nobody_refers_to_any_more_is_let_go(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    held = run.lock()
    with pytest.raises(RunLocked):
        run.lock()
    del held
    run.lock().release()


def test_a_lock_is_held_against_the_same_process_too(tmp_path: Path) -> None:
    with RunLock.take(tmp_path / "lock", "it"), pytest.raises(RunLocked):
        RunLock.take(tmp_path / "lock", "it")


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    manifest = Manifest(
        run.id, "sums", "lab/m", "sums-hot", "run", "done", timestamp(), "bench run sums",
        {"env.env_args": {"n": 2**70, "odd": "\ud800"}}, {"env.env_args": {"origin": "cli", "source": "-a"}},
        {"env": {"env_id": "sums"}}, {"python": "3.13"}, {"commit": "abc", "dirty": True}, 7, ("a", "b"), ("turn",),
        (-1.0, 2.0), {"num_examples": 5, "rollouts_per_example": 3}, "parent", {"how": "rescore"}, "suite",
    )  # fmt: skip
    run.write_manifest(manifest)
    assert run.read_manifest() == manifest
    assert run.read_manifest().ended("interrupted").status == "interrupted"


def test_a_manifest_holds_no_secret(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        settings={
            "model.api_base_url": "https://user:hunter2222@example.org/v1",
            "model.extra_headers": {"Authorization": "Bearer abcdefgh12345678", "X-Api-Key": "tiny", "X-Team": "blue"},
        },
        command="bench run sums --header 'X-Api-Key: tiny'",
    )
    text = run.manifest_path.read_text()
    assert "hunter2222" not in text and "abcdefgh" not in text and "tiny" not in text
    assert json.loads(text)["settings"]["model.extra_headers"]["X-Team"] == "blue"


def test_a_config_stays_toml_whatever_is_taken_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.write_config('[model.extra_headers]\nAuthorization = "Bearer abcdefgh12345678"\n')
    assert tomllib.loads(run.config_path.read_text()) == {"model": {"extra_headers": {"Authorization": "[redacted]"}}}
    run.write_config("[env.env_args]\napi_key = 5\n")
    assert tomllib.loads(run.config_path.read_text()) == {"env": {"env_args": {"api_key": 5}}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "schema_version is None"),
        (b'{"schema_version": 99}', "update bench"),
        (b'{"schema_version": 1, "id": "x"}', "fields missing or not strings: env_id, model"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    run = make_run(tmp_path)
    run.manifest_path.write_bytes(content)
    with pytest.raises(StoreError, match=f"run.json: .*{message}"):
        run.read_manifest()


def test_a_manifest_of_a_newer_minor_version_is_read(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    value = json.loads(run.manifest_path.read_text())
    run.manifest_path.write_text(json.dumps(value | {"colour": "green"}))
    assert run.read_manifest().env_id == "sums"


def test_an_atomic_write_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    atomic_write(path, "old")
    code = """
import os, resource, sys
from pathlib import Path
from harness.core.errors import StoreError
from harness.store.atomic import atomic_write
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    atomic_write(Path(sys.argv[1]), "new" * 1000)
except StoreError as error:
    print(error)
"""
    child = python(code, path)
    assert "EFBIG" in child.stdout, child.stderr
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]
    atomic_write(path, "new")
    assert path.read_text() == "new"


@for_each_row(
    ("action", "advice"),
    [
        ("write", "choose an output folder that you may write to"),
        ("read", "ask its owner for permission"),
        ("remove", "ask its owner for permission"),
    ],
)
def test_what_to_do_about_a_file_of_somebody_else(action: str, advice: str) -> None:
    error = store_error(action, Path("f"), PermissionError(errno.EACCES, "Permission denied"))
    assert str(error) == f"cannot {action} f: Permission denied (EACCES, errno 13); {advice}"


def test_find_run_by_id_prefix_path_and_latest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no runs under"):
        find_run(tmp_path, "latest")
    older = make_run(tmp_path, created=timestamp(datetime(2026, 1, 1, tzinfo=UTC)))
    newer = make_run(tmp_path, env_id="other", created=timestamp(datetime(2026, 1, 2, tzinfo=UTC)))
    renamed = older.path.rename(older.parent / "20250101T000000Z-aaaa")
    assert find_run(tmp_path, "latest") == newer.path
    assert find_run(tmp_path, "20250101T000000Z-aaaa") == renamed
    assert find_run(tmp_path, "2025") == renamed
    assert find_run("elsewhere", str(renamed)) == renamed
    assert find_run("elsewhere", str(renamed / "run.json")) == renamed
    with pytest.raises(UsageError, match=f"matches 2 runs.*{newer.id}"):
        find_run(tmp_path, "20")
    with pytest.raises(UsageError, match=f"no run 'nope'.*{newer.id}"):
        find_run(tmp_path, "nope")
    with pytest.raises(UsageError, match="no run ''"):
        find_run(tmp_path, "")


def test_runs_of_one_second_are_ordered_by_their_microseconds(tmp_path: Path) -> None:
    parent = tmp_path / "evals" / "sums--m"
    for letters, micro in (("zzzz", 1), ("aaaa", 2), ("mmmm", 3)):
        run = RunDir(parent / f"20260101T000000Z-{letters}")
        run.path.mkdir(parents=True)
        run.write_manifest(Manifest(run.id, "sums", "m", created=timestamp(datetime(2026, 1, 1, 0, 0, 0, micro, UTC))))
    (parent / "20270101T000000Z-half").mkdir()  # a process died between folder and manifest
    assert [path.name[-4:] for path in runs_in(parent)] == ["zzzz", "aaaa", "mmmm"]
    assert find_run(tmp_path, "latest").name.endswith("mmmm")
    assert all_runs(tmp_path) == runs_in(parent)


def test_a_suite_names_its_runs_relative_to_the_output_folder(tmp_path: Path) -> None:
    inside, outside = make_run(tmp_path / "outputs"), make_run(tmp_path / "apart")
    runs = [(run, run.read_manifest()) for run in (inside, outside)]
    path = write_suite(
        tmp_path / "outputs", "20260101T000000Z-abcd", file="suite.toml", command="bench run suite.toml", runs=runs
    )
    assert path == tmp_path / "outputs/suites/20260101T000000Z-abcd.json"
    suite = json.loads(path.read_text())
    assert suite["file"] == "suite.toml" and suite["command"] == "bench run suite.toml"
    assert suite["runs"][0] == {
        "path": f"evals/sums--lab--m-1/{inside.id}", "env_id": "sums", "name": "sums", "model": "lab/m-1",
    }  # fmt: skip
    assert suite["runs"][1]["path"] == str(outside.path)
