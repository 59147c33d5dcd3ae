"""`bench view` as a process: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from bench_command import Bench, bench, here
from run_samples import finished
from view_server import Client

__all__ = ["bench", "here"]


def started(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A server as a process, and its first line."""
    command = [sys.executable, "-m", "harness.cli.main", "view", "--no-open", *arguments]
    process = subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    return process, process.stdout.readline().rstrip("\n")


def ended(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return out, err, process.returncode


def test_it_prints_a_link_and_ends_at_ctrl_c(tmp_path: Path) -> None:
    run = finished(tmp_path / "outputs")
    process, link = started(tmp_path, run.id[:20])
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", link)
        client = Client(link)
        client.open_link()
        assert [each["id"] for each in client.get("/api/runs")["runs"]] == [run.id]
    finally:
        out, err, code = ended(process)
    assert (out, err, code) == ("", "Ctrl-C ends the server.\n", 0)


def test_several_runs_are_opened_side_by_side(tmp_path: Path) -> None:
    first, second = (finished(tmp_path / "outputs", minute=minute) for minute in range(2))
    process, link = started(tmp_path, "latest", first.id)
    try:
        assert link.endswith(f"#/compare/{second.id},{first.id}")
        client = Client(link)
        client.open_link()
        runs = f"{second.id},{first.id}"
        assert [each["id"] for each in client.get("/api/compare", runs=runs)["runs"]] == runs.split(",")
    finally:
        ended(process)
    process, link = started(tmp_path, first.id, first.id)
    ended(process)
    assert "#" not in link


def test_another_address_is_served_with_a_warning(tmp_path: Path) -> None:
    finished(tmp_path / "outputs")
    process, link = started(tmp_path, "--host", "0.0.0.0")
    try:
        client = Client(link.replace("0.0.0.0", "127.0.0.1"))
        client.open_link()
        port = client.port
        assert client.send("/api/runs", Host=f"0.0.0.0:{port}").status == 200
        assert client.send("/api/runs", Host=f"192.0.2.7:{port}").status == 200
        assert client.send("/api/runs", Host=f"attacker.example:{port}").status == 403
        assert client.send("/api/runs", Cookie="").status == 403
    finally:
        _, err, code = ended(process)
    assert err.startswith("warning: 0.0.0.0 is not a loopback address: everybody who gets the link")
    assert code == 0


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    finished(tmp_path / "outputs")
    first, link = started(tmp_path)
    try:
        port = str(Client(link).port)
        second, nothing = started(tmp_path, "--port", port)
        _, err = second.communicate(timeout=60)
        assert (nothing, second.returncode) == ("", 2)
        assert err.startswith(f"error: cannot listen on 127.0.0.1, port {port}: Address already in use; choose another")
    finally:
        ended(first)


def test_unknown_folders_runs_and_hosts_are_errors(bench: Bench) -> None:
    done = bench("view")
    assert (done.code, done.out) == (2, "")
    assert done.err == ("error: no folder outputs: make a run with bench run, or name the output folder with -o\n")
    finished(Path("outputs"))
    done = bench("view", "nothing")
    assert done.code == 2
    assert done.err.startswith("error: no run 'nothing' under outputs/evals; the newest are ")
    done = bench("view", "--host", "no.such.host.invalid")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("error: cannot listen on no.such.host.invalid: ")
    assert bench("view", "--port", "70000").code == 2


def test_a_run_suggests_it_unless_its_output_is_to_be_short(bench: Bench) -> None:
    command = ["run", "gsm8k", "-a", "split=sample", "-n", "1", "-r", "1", "-m", "reference/oracle"]
    done = bench(*command)
    [folder] = Path("outputs/evals").glob("*/2*")
    assert f"\n  read in a browser: bench view {folder}\n" in done.out
    assert "bench view" not in bench(*command, "-q").out
    done = bench(*command, "--json")
    assert "bench view" not in done.out + done.err
    Path("suite.toml").write_text('model = "reference/oracle"\n' + '[[eval]]\nenv_id = "gsm8k"\n' * 2)
    done = bench("run", "suite.toml", "-a", "split=sample", "-n", "1", "-r", "1", "-o", "my outputs")
    [suite] = Path("my outputs/suites").glob("*.json")
    assert f"\n  read in a browser: bench view {suite.stem} -o 'my outputs'\n" in done.out
