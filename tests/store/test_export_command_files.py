"""Where an export goes: whole or not at all, never over something by accident, and a run is only read."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest
from odd_runs import odd_lines, odd_run
from store_samples import PEAK, example, generated, make_run, python, rollouts

from harness.core.errors import JournalDamaged, StoreError, UsageError
from harness.core.records import Record
from harness.store.export_formats import Format, export_run, format_named, format_of, formats, stream_run
from harness.store.rundir import RunDir

OURS = ("csv", "jsonl", "parquet", "verifiers")


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder and what is in it."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return odd_run(tmp_path / "outputs")


def damaged(folder: Path) -> RunDir:
    """A run whose third rollout cannot be read, once its examples and first rollouts could."""
    run = odd_run(folder, list(rollouts(3)), planned={"num_examples": 3, "rollouts_per_example": 1})
    lines = run.journal_path.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b'"completion"', b'"completed"')
    run.journal_path.write_bytes(b"".join(lines))
    return run


@pytest.mark.plugins
def test_the_table_names_the_formats_of_the_issue() -> None:
    assert list(formats()) == [
        "csv",
        "jsonl",
        "parquet",
        "verifiers",
        "every-eval-ever",
        "inspect",
        "notes",
        "notes-csv",
    ]
    assert [name for name, row in formats().items() if row.stream] == ["csv", "jsonl", "notes", "notes-csv"]
    assert [name for name, row in formats().items() if not row.suffix] == ["verifiers", "every-eval-ever"]


@pytest.mark.parametrize("form", formats().values(), ids=str)
def test_every_format_has_its_functions(form: Format) -> None:
    import importlib

    module = importlib.import_module(form.module)
    assert form.write or form.stream
    assert all(callable(getattr(module, name)) for name in (form.write, form.stream) if name)


@pytest.mark.plugins
def test_a_name_that_is_none_is_met_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown export format 'verifier'; did you mean \"verifiers\"\?"):
        format_named("verifier")
    with pytest.raises(UsageError, match="valid here: csv, jsonl, parquet, verifiers, every-eval-ever, inspect"):
        format_named("xml")
    assert format_named("Every_Eval_Ever").name == "every-eval-ever"


@pytest.mark.plugins
def test_the_ending_of_a_name_says_the_format() -> None:
    assert [format_of(Path(f"a.b{end}")).name for end in (".csv", ".JSONL", ".parquet", ".eval")] == [
        "csv", "jsonl", "parquet", "inspect",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"add format csv\|jsonl"):
        format_of(Path("rows.json"))


@pytest.mark.plugins
@pytest.mark.parametrize("name", OURS)
def test_without_a_path_it_goes_to_the_working_directory(
    name: str, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = contents(run.path)
    done = export_run(run, formats()[name])
    expected = {
        "verifiers": [
            f"verifiers/evals/sums--lab--m-1/{run.id}/results.jsonl",
            f"verifiers/evals/sums--lab--m-1/{run.id}/metadata.json",
        ]
    }.get(name, [f"sums--lab--m-1--{run.id}.{name}"])
    assert [str(path) for path in done.paths] == expected
    assert sorted(contents(Path())) == sorted(expected)
    assert contents(run.path) == before
    assert done.rows == 6


def test_missing_folders_are_made_and_one_that_exists_takes_the_default_name(run: RunDir, tmp_path: Path) -> None:
    done = export_run(run, formats()["csv"], tmp_path / "new" / "er" / "rows.txt")
    assert done.paths == (tmp_path / "new" / "er" / "rows.txt",)
    done = export_run(run, formats()["csv"], tmp_path / "new")
    assert done.paths == (tmp_path / "new" / f"sums--lab--m-1--{run.id}.csv",)
    assert stat.S_IMODE(done.paths[0].stat().st_mode) & 0o600 == 0o600


@pytest.mark.parametrize("name", formats())
def test_no_name_in_a_manifest_leads_out_of_the_working_directory(name: str, tmp_path: Path) -> None:
    """A run folder may come from anybody."""
    run = odd_run(tmp_path / "outputs")
    names = {"id": "../../../../../up", "env_id": "../" * 80, "model": "漢字/" * 80}
    run.write_manifest(dataclasses.replace(run.read_manifest(), **names))
    place = tmp_path / "deep" / "down" / formats()[name].default_target(run.read_manifest())
    exported = export_run(run, formats()[name], place)
    assert exported.paths
    assert all(path.resolve().is_relative_to(tmp_path / "deep" / "down") for path in exported.paths)
    assert ".." not in place.parts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "outputs"]


@pytest.mark.plugins
@pytest.mark.parametrize("name", OURS)
def test_what_exists_is_replaced_by_force_alone(name: str, run: RunDir, tmp_path: Path) -> None:
    first = export_run(run, formats()[name], tmp_path / "out")
    for path in first.paths:
        path.write_text("mine")
    with pytest.raises(UsageError, match=r"out already exists.*force"):
        export_run(run, formats()[name], tmp_path / "out")
    assert {path.read_text() for path in first.paths} == {"mine"}
    again = export_run(run, formats()[name], tmp_path / "out", force=True)
    assert again.paths == first.paths
    assert "mine" not in [path.read_bytes() for path in again.paths]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "outputs"]


@pytest.mark.plugins
def test_a_folder_keeps_what_is_not_of_the_export(run: RunDir, tmp_path: Path) -> None:
    """As when the export goes into the run's own folder, where vf-tui looks as well."""
    before = contents(run.path)
    with pytest.raises(UsageError, match="already exists and is not empty"):
        export_run(run, formats()["verifiers"], run.path)
    export_run(run, formats()["verifiers"], run.path, force=True)
    after = contents(run.path)
    assert set(after) - set(before) == {"results.jsonl", "metadata.json"}
    assert {name: after[name] for name in before} == before


@pytest.mark.plugins
def test_an_empty_folder_is_free(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert export_run(run, formats()["verifiers"], tmp_path / "empty").paths[0].parent == tmp_path / "empty"


@pytest.mark.plugins
def test_a_file_is_no_folder_and_a_folder_no_file(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file, but the format verifiers needs a folder"):
        export_run(run, formats()["verifiers"], tmp_path / "file", force=True)
    taken = tmp_path / f"sums--lab--m-1--{run.id}.csv"
    taken.mkdir()
    with pytest.raises(UsageError, match="is a folder; name a file"):
        export_run(run, formats()["csv"], tmp_path, force=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_link_leads_to_the_file_that_is_written(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("real.csv")
    assert export_run(run, formats()["csv"], tmp_path / "link.csv").paths == (tmp_path / "real.csv",)
    assert (tmp_path / "link.csv").is_symlink()


def test_a_named_pipe_is_written_to_and_not_replaced(run: RunDir, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    done = export_run(run, formats()["jsonl"], tmp_path / "pipe", force=True)
    reader.join()
    assert (done.paths, done.rows, read[0].count(b"\n")) == ((), 6, 6)
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(UsageError, match="parquet cannot be written to a pipe"):
        export_run(run, formats()["parquet"], tmp_path / "pipe", force=True)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="Linux has a device that is always full")
def test_a_full_disk_is_named(run: RunDir) -> None:
    with pytest.raises(StoreError, match=r"cannot write /dev/full: No space left on device \(ENOSPC, errno 28\); free"):
        export_run(run, formats()["csv"], Path("/dev/full"))
    with (
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(StoreError, match="standard output: No space"),
    ):
        stream_run(run, formats()["jsonl"], full)


@pytest.mark.plugins
@pytest.mark.parametrize("name", OURS)
def test_a_failure_leaves_nothing_behind_and_what_was_there_alone(name: str, tmp_path: Path) -> None:
    run = damaged(tmp_path / "outputs")
    target = tmp_path / "there" / "out"
    with pytest.raises(JournalDamaged, match=r"journal\.jsonl:8"):
        export_run(run, formats()[name], target)
    assert list((tmp_path / "there").iterdir()) == []
    old = target if formats()[name].suffix else target / "results.jsonl"
    old.parent.mkdir(exist_ok=True)
    old.write_text("yesterday's")
    with pytest.raises(JournalDamaged):
        export_run(run, formats()[name], target, force=True)
    assert contents(tmp_path / "there") == {
        str(old.relative_to(tmp_path / "there")): hashlib.sha256(b"yesterday's").hexdigest()
    }


LIMITED = """
import resource, sys
from pathlib import Path
from harness.core.errors import StoreError
from harness.store.export_formats import formats, export_run
from harness.store.rundir import RunDir
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    export_run(RunDir(Path(sys.argv[1])), formats()[sys.argv[2]], Path(sys.argv[3]))
except StoreError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_a_file_that_cannot_grow_is_no_file(name: str, tmp_path: Path) -> None:
    run = odd_run(tmp_path / "outputs", list(rollouts(40)))
    done = python(LIMITED, run.path, name, tmp_path / "there" / "out")
    assert done.stderr == ""
    assert done.stdout.startswith(f"cannot write {tmp_path / 'there'}")
    assert "File too large (EFBIG, errno 27)" in done.stdout
    assert list((tmp_path / "there").iterdir()) == []


def test_a_run_that_goes_on_is_exported_as_far_as_it_is(tmp_path: Path) -> None:
    run = odd_run(tmp_path / "outputs", odd_lines()[:-2], status="running")
    torn = run.journal_path.read_bytes() + b'{"type":"generated","key'
    run.journal_path.write_bytes(torn)
    with run.lock():
        done = export_run(run, formats()["csv"], tmp_path / "a.csv")
    assert (done.rows, done.notes[0]) == (5, "the run is still running; 5 of 6 rollouts are in the export")
    assert run.journal_path.read_bytes() == torn
    done = export_run(run, formats()["csv"], tmp_path / "b.csv")
    assert done.notes[0] == "the run is not complete: its process died; 5 of 6 rollouts are in the export"


@pytest.mark.parametrize("status", ["stopped", "interrupted", "failed"])
def test_a_run_that_did_not_end_well_says_so(status: str, tmp_path: Path) -> None:
    run = odd_run(tmp_path / "outputs", status=status)
    done = export_run(run, formats()["jsonl"], tmp_path / "a.jsonl")
    assert done.notes == (f"the run is {status}; 6 of 6 rollouts are in the export",)


@pytest.mark.plugins
@pytest.mark.parametrize("name", OURS)
def test_a_run_without_rollouts_says_so(name: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "outputs", status="failed", planned={"num_examples": 2, "rollouts_per_example": 2})
    done = export_run(run, formats()[name], tmp_path / "out")
    assert (done.rows, done.notes) == (0, ("the run is failed; 0 of 4 rollouts are in the export",))
    assert all(path.exists() for path in done.paths)


@pytest.mark.parametrize("name", formats())
def test_a_manifest_that_somebody_edited_is_no_obstacle(name: str, tmp_path: Path) -> None:
    run = odd_run(tmp_path / "outputs", status="paused", planned={}, settings={"env.pass_threshold": "high"})
    run.summary_path.write_text("{")
    exported = export_run(run, formats()[name], tmp_path / "there")
    assert exported.rows == 6
    assert exported.notes[0] == "the run is damaged; 6 rollouts are in the export"


def test_a_line_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    run = odd_run(tmp_path / "outputs")
    with run.journal_path.open("ab") as journal:
        journal.write(b'{"type":"judged","key":"x"}\n')
    with pytest.raises(StoreError, match="update bench to read this run"):
        export_run(run, formats()["csv"], tmp_path / "a.csv")
    assert not (tmp_path / "a.csv").exists()


MEASURED = """
import sys
from pathlib import Path
from harness.store.export_formats import formats, export_run
from harness.store.rundir import RunDir
run, names = RunDir(Path(sys.argv[1])), sys.argv[3:]
for name in names:
    export_run(run, formats()[name], Path(sys.argv[2]) / f"{name}-out")
print(peak())
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs VmHWM")
@pytest.mark.parametrize("name", OURS)
def test_memory_does_not_grow_with_the_texts_of_the_run(name: str, tmp_path: Path) -> None:
    """2,000 rollouts of 20 kB each are 40 MB of text: an export that held them would show it."""
    small = odd_run(tmp_path / "small", [example(0), generated(0)])
    lines: list[Record] = []
    for index in range(2000):
        lines += [example(index), generated(index, completion="x" * 20_000)]
    large = odd_run(tmp_path / "large", lines)
    peaks: list[float] = []
    for run in (small, large):
        done = python(PEAK + MEASURED, run.path, tmp_path / run.id, name)
        assert done.returncode == 0, done.stderr
        peaks.append(float(done.stdout))
    # A row group of parquet holds up to 16 MB of text, which exists in a few forms at once.
    assert peaks[1] - peaks[0] < (90 if name == "parquet" else 12), peaks
