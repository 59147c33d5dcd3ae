"""`bench export`: its words, what it prints where, and what of model output reaches a terminal."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from odd_runs import odd_run
from store_samples import example, generated, rollouts, scored

from harness.store.rundir import RunDir

Bench = Callable[..., Any]
"""The `bench` fixture: arguments to what the command left behind."""

COMMAND = [sys.executable, "-m", "harness.cli.main", "export"]


@pytest.fixture
def run(here: Path) -> RunDir:
    return odd_run(here / "outputs")


def test_the_path_goes_to_stdout_and_the_rest_to_stderr(bench: Bench, here: Path, run: RunDir) -> None:
    done = bench("export", "latest", "--format", "csv")
    name = f"sums--lab--m-1--{run.id}.csv"
    assert (done.code, done.out, done.err) == (0, f"{name}\n", "6 rollouts\n")
    assert len(list(csv.DictReader(io.StringIO((here / name).read_text(), newline="")))) == 6


@pytest.mark.parametrize("named", ["id", "prefix", "path", "file"])
def test_a_run_is_named_as_everywhere(named: str, bench: Bench, here: Path, run: RunDir) -> None:
    name = {"id": run.id, "prefix": run.id[:10], "path": str(run.path), "file": str(run.journal_path)}[named]
    assert bench("export", name, "-f", "jsonl", "-o", "a.jsonl").code == 0
    assert (here / "a.jsonl").read_text().count("\n") == 6


@pytest.mark.plugins
def test_notes_and_the_way_to_open_it_are_told(bench: Bench, run: RunDir) -> None:
    done = bench("export", "latest", "-f", "verifiers")
    folder = f"verifiers/evals/sums--lab--m-1/{run.id}"
    assert (done.code, done.out) == (0, f"{folder}/results.jsonl\n{folder}/metadata.json\n")
    lines = done.err.splitlines()
    assert lines[0] == "6 rollouts"
    assert lines[1].startswith("note: 3 of 6 rollouts have no score: their reward is null")
    assert lines[-1] == "Open it: VF_OUTPUTS_DIR=verifiers vf-tui"


@pytest.mark.plugins
def test_a_folder_where_its_viewer_does_not_look_is_not_said_to_open(bench: Bench, run: RunDir) -> None:
    done = bench("export", "latest", "-f", "verifiers", "-o", "elsewhere")
    assert done.out == "elsewhere/results.jsonl\nelsewhere/metadata.json\n"
    assert "Open it" not in done.err


def test_json_is_all_that_stdout_holds(bench: Bench, run: RunDir) -> None:
    done = bench("export", "latest", "-o", "rows.parquet", "--json")
    assert json.loads(done.out) == {"format": "parquet", "paths": ["rows.parquet"], "rollouts": 6, "notes": []}
    assert done.err == ""


def test_dash_is_stdout(bench: Bench, here: Path, run: RunDir) -> None:
    done = bench("export", "latest", "-f", "jsonl", "-o", "-")
    assert [json.loads(line)["rollout_index"] for line in done.out.splitlines()] == [0, 1, 0, 1, 0, 1]
    assert done.err == "6 rollouts\n"
    done = bench("export", "latest", "-f", "csv", "-o", "-")
    assert len(list(csv.DictReader(io.StringIO(done.out, newline="")))) == 6
    assert [path.name for path in here.iterdir()] == ["outputs"]


@pytest.mark.plugins
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-f", "verifier"], "error: --format: unknown export format 'verifier'; did you mean \"verifiers\"?"),
        ([], "error: --format is missing; use one of csv, jsonl, parquet, verifiers, every-eval-ever, inspect"),
        (["-o", "-"], "error: --format is missing; use one of csv, jsonl, parquet, verifiers, every-eval-ever"),
        (["-o", "a.xlsx"], "error: unknown format: 'a.xlsx' has no known suffix; add --format csv|"),
        (
            ["-f", "parquet", "-o", "-"],
            "error: parquet cannot be written to a pipe; name a file or folder with -o, or",
        ),
        (
            ["-f", "inspect", "-o", "-"],
            "error: inspect cannot be written to a pipe; name a file or folder with -o, or",
        ),
        (["-f", "csv", "-o", "-", "--json"], "error: --json and -o - both write to stdout: remove one of them"),
        (["-f", "csv", "-o", "there.csv"], "error: there.csv already exists; choose another path with -o, or"),
        (["-f", "csv", "--output-dir", "none"], "error: no runs under none/evals"),
    ],
)
def test_wrong_words_are_met_before_anything_is_written(
    words: list[str], message: str, bench: Bench, here: Path, run: RunDir
) -> None:
    (here / "there.csv").write_text("mine")
    done = bench("export", "latest", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message), done.err
    assert "Traceback" not in done.err
    assert (here / "there.csv").read_text() == "mine"
    assert sorted(path.name for path in here.iterdir()) == ["outputs", "there.csv"]


def test_no_such_run(bench: Bench, run: RunDir) -> None:
    done = bench("export", "19990101", "-f", "csv")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: no run '19990101' under outputs/evals; the newest are " + run.id)


def test_force_replaces(bench: Bench, here: Path, run: RunDir) -> None:
    (here / "there.csv").write_text("mine")
    assert bench("export", "latest", "-o", "there.csv", "--force").out == "there.csv\n"
    assert (here / "there.csv").read_text().startswith("example_id,")


def test_a_damaged_journal_is_one_message(bench: Bench, here: Path, run: RunDir) -> None:
    run.journal_path.write_bytes(b"{]\n" + run.journal_path.read_bytes())
    done = bench("export", "latest", "-f", "csv")
    assert (done.code, done.out) == (1, "")
    assert "journal.jsonl:1 (byte 0): the line cannot be read" in done.err
    assert [path.name for path in here.iterdir()] == ["outputs"]


@pytest.mark.plugins
def test_names_of_columns_in_notes_obey_nobody(bench: Bench, here: Path) -> None:
    name = "cost"
    lines = [example(0), generated(0, state={"run_id": 1}), scored(0, 0, 1.0, metrics={name: 1.0})]
    odd_run(here / "outputs", lines, metric_names=(name,), state_columns=("token\x1b[2J", "error_chain"))
    done = bench("export", "latest", "-f", "verifiers")
    assert (
        "note: state column 'error_chain' has the name of a format key, so it is renamed to 'state_error_chain'\n"
        in done.err
    )
    assert "\x1b" not in done.err


def test_a_reader_that_goes_away_is_no_error(here: Path) -> None:
    run = odd_run(here / "outputs", list(rollouts(3000)))
    command = [*COMMAND, str(run.path), "-f", "jsonl", "-o", "-"]
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as export:
        assert export.stdout is not None and export.stderr is not None
        assert json.loads(export.stdout.readline())["example_id"] == 0
        export.stdout.close()
        said = export.stderr.read()
    assert (export.returncode, said) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="Linux has a device that is always full")
def test_a_full_disk_behind_stdout_is_one_message(run: RunDir, here: Path) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        command = [*COMMAND, str(run.path), "-f", "csv", "-o", "-"]
        done = subprocess.run(command, cwd=here, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: cannot write standard output: No space left on device (ENOSPC, errno 28)")
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_terminal_gets_no_control_sequence_and_a_pipe_every_byte(form: str, here: Path) -> None:
    said = "a\x1b[2J\x1b]52;c;eA==\x07b\u009b31mc\u202ed"
    run = odd_run(here / "outputs", [example(0), generated(0, completion=said), scored(0)])
    command = [*COMMAND, str(run.path), "-f", form, "-o", "-"]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=here, stdout=theirs, stderr=subprocess.PIPE) as export:
        os.close(theirs)
        seen = drained(ours)
        assert export.wait() == 0
    os.close(ours)
    text = seen.decode()
    assert "example_id" in text
    assert not {"\x1b", "\x07", "\u009b", "\u202e"} & set(text)
    piped = subprocess.run(command, cwd=here, capture_output=True, check=True).stdout.decode()
    assert said in (piped if form == "csv" else json.loads(piped)["completion"][0]["content"])


def drained(terminal: int) -> bytes:
    """What is written to a terminal until nobody has it open."""
    seen = b""
    while True:
        try:
            new = os.read(terminal, 1 << 16)
        except OSError as error:  # Linux says so, others give nothing
            assert error.errno == errno.EIO
            return seen
        if not new:
            return seen
        seen += new
