"""`bench runs rm`: what is said, who is asked, and what is left."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from run_samples import Bench, finished, paid
from store_samples import example
from terminals import read_all

from harness.store.find_runs import all_runs
from harness.store.rundir import RunDir

OUTPUTS = Path("outputs")


def made(minute: int = 0, **changes: object) -> RunDir:
    records = [example(0), *paid(0, 1.0, cost=0.25), example(1), *paid(1, 0.0, cost=1.0)]
    return finished(OUTPUTS, records, minute=minute, **changes)  # type: ignore[arg-type] fields of a manifest


def test_it_says_what_goes(bench: Bench, here: Path) -> None:
    run, other = made(), made(minute=1)
    size = sum(path.stat().st_size for path in run.path.iterdir()) / 1000
    done = bench("runs", "rm", run.id, "--yes")
    assert done.code == 0
    assert done.out == f"removed {run.id}\n"
    assert done.err == f"{run.id}  sums · lab/m-1, done: 2 rollouts, 2.0k + 400 tokens, $1.25, {size:.1f} kB\n"
    assert all_runs(OUTPUTS) == [other.path]


def test_nobody_is_taken_for_a_yes(bench: Bench, here: Path) -> None:
    run = made()
    done = bench("runs", "rm", "latest")
    assert (done.code, done.out) == (2, "")
    assert (
        "nothing was removed, because there is no terminal to ask for confirmation; to remove without "
        f"asking: bench runs rm --yes {run.id}" in done.err
    )
    assert all_runs(OUTPUTS) == [run.path]


@pytest.mark.parametrize(
    ("answer", "code", "left"), [("y\n", 0, 0), ("Yes\n", 0, 0), ("n\n", 1, 1), ("\n", 1, 1), ("\x04", 1, 1)]
)
def test_a_terminal_is_asked(
    bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, left: int
) -> None:
    made()
    master, terminal = pty.openpty()
    os.write(master, answer.encode())
    with os.fdopen(terminal, "r+b", buffering=0) as both:
        monkeypatch.setattr("sys.stdin", os.fdopen(os.dup(both.fileno()), encoding="utf-8"))
        monkeypatch.setattr("sys.stderr", os.fdopen(os.dup(both.fileno()), "w", encoding="utf-8", buffering=1))
        done = bench("runs", "rm", "latest")
        sys.stdin.close()
        sys.stderr.close()
    said = read_all(master)
    assert done.code == code and len(all_runs(OUTPUTS)) == left
    assert "Remove this run for good? [y/N]: " in said
    assert ("nothing was removed" in said) == (code == 1)
    assert done.out == ("" if code else "removed 20261121T091503Z-aaaa\n")


def test_ctrl_c_is_a_no(here: Path) -> None:
    run = made()
    master, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "harness.cli.main", "runs", "rm", "latest"],
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # what makes Ctrl-C a signal
    ) as child:  # fmt: skip
        os.close(terminal)
        said = b""
        while not said.endswith(b"[y/N]: "):
            said += os.read(master, 1024)
        os.write(master, b"\x03")
        rest = read_all(master)
        assert child.wait(30) == 130
    assert rest.replace("^C", "").split() == ["nothing", "was", "removed"]
    assert all_runs(OUTPUTS) == [run.path]


def test_several_go_together_and_each_once(bench: Bench, here: Path) -> None:
    runs = [made(minute) for minute in range(3)]
    done = bench("runs", "rm", "-y", runs[0].id, str(runs[1].path), runs[0].id)
    assert done.code == 0
    assert done.out == f"removed {runs[0].id}\nremoved {runs[1].id}\n"
    assert all_runs(OUTPUTS) == [runs[2].path]


def test_one_unknown_name_removes_none(bench: Bench, here: Path) -> None:
    run = made()
    done = bench("runs", "rm", "--yes", run.id, "nope")
    assert done.code == 2 and "no run 'nope'" in done.err
    assert all_runs(OUTPUTS) == [run.path]


def test_a_run_in_use_is_refused_with_all_others(bench: Bench, here: Path) -> None:
    idle, busy = made(), made(minute=1, status="running")
    with busy.lock():
        done = bench("runs", "rm", "--yes", idle.id, busy.id)
    assert (done.code, done.out) == (1, "")
    assert f"run {busy.path} is being written by a process; stop this process first. Nothing was removed" in done.err
    assert all_runs(OUTPUTS) == [idle.path, busy.path]


def test_a_run_that_cannot_be_written_is_not_taken_for_one_in_use(bench: Bench, here: Path) -> None:
    run = made()
    lock = run.path / ".lock"
    lock.unlink(missing_ok=True)
    lock.symlink_to(lock)
    done = bench("runs", "rm", "--yes", run.id)
    assert (done.code, done.out) == (1, "")
    assert f"cannot open {lock}: " in done.err and "another process" not in done.err
    assert all_runs(OUTPUTS) == [run.path]


def test_what_died_and_what_is_damaged_can_go(bench: Bench, here: Path) -> None:
    died, damaged = made(status="running"), made(minute=1)
    damaged.manifest_path.write_text("{")
    done = bench("runs", "rm", "--yes", died.id, damaged.id)
    assert done.code == 0 and all_runs(OUTPUTS) == []
    said = done.err.splitlines()
    assert said[0].startswith(f"{died.id}  sums · lab/m-1, died: 2 rollouts, 2.0k + 400 tokens, $1.25, ")
    assert said[1].startswith(f"{damaged.id}  sums--lab--m-1, damaged: 2 rollouts, 2.0k + 400 tokens, $1.25, ")


def test_a_run_that_nobody_can_count_can_go(bench: Bench, here: Path) -> None:
    run = made()
    run.summary_path.unlink()
    run.journal_path.write_bytes(b"x\n\n")
    done = bench("runs", "rm", "--yes", run.id)
    assert done.code == 0 and "done: rollouts unknown, " in done.err


def test_runs_that_were_made_from_it_stay_and_say_so(bench: Bench, here: Path) -> None:
    parent = made()
    child = made(minute=1, parent=parent.id, derived={"how": "rescore", "parent": parent.id})
    done = bench("runs", "rm", "--yes", parent.id)
    assert f"  derived runs, which remain: {child.id}\n" in done.err
    page = bench("runs", "show", child.id)
    assert f"rescored from {parent.id}, which no longer exists" in " ".join(page.out.split())


def test_runs_elsewhere(bench: Bench, here: Path) -> None:
    run = made()
    (here / "outputs").rename(here / "archive")
    refused = bench("runs", "rm", "latest", "-o", "archive")
    assert f"bench runs rm --yes archive/evals/sums--lab--m-1/{run.id}" in refused.err
    assert bench("runs", "rm", "latest", "-o", "archive", "--yes").code == 0
    assert all_runs("archive") == []
