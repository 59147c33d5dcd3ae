"""`bench eval` as a process: killed, interrupted, watched on a terminal, and started in no time."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from agent_evals import write_files
from bench_runs import Workshop, count, lines
from hub_runs import TOKEN
from hub_server import HubServer
from sums_model import SumsModel
from terminals import read_all

USUAL = [
    "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--eval-fn", "rewards:exact_match", "--model", "my-model",
    "-o", "results.json",
]  # fmt: skip


@pytest.fixture
def place(shop: Workshop) -> Workshop:
    """A workshop with an agent and twenty sums, no two of them alike."""
    write_files(shop.cwd)
    rows = [
        {"system_prompt": "Add.", "user_prompt": f"{n} + {n}", "ground_truth": str(2 * n), "level": "easy"}
        for n in range(20)
    ]
    (shop.cwd / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return shop


def command(model: SumsModel, *more: str) -> list[str]:
    return ["eval", *USUAL, "--base-url", model.url, *more]


def results(place: Workshop) -> dict[str, Any]:
    return json.loads((place.cwd / "results.json").read_text())


def questions(model: SumsModel) -> Counter[tuple[str, str]]:
    """How often each run has begun, by model and question: its first request has no reply in it."""
    first = [body for body in model.asked if len(body["messages"]) == 2]
    return Counter((body["model"], body["messages"][1]["content"]) for body in first)


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_and_loses_nothing(place: Workshop) -> None:
    with SumsModel(latency=0.02) as model:
        baseline = ["--baseline-model", "weak", "--baseline-base-url", model.url]
        args = command(model, *baseline, "--n", "3", "--batch-size", "4")
        keys = ["--api-key", "canary-of-the-first", "--baseline-api-key", "canary-of-the-first"]
        running = place.start(*args, *keys)
        running.until(lambda: sum(count(path.parent, "scored") for path in place.run_dirs()) >= 30, "30 are on disk")
        running.send(signal.SIGKILL)
        assert running.wait().code == -signal.SIGKILL
        assert not (place.cwd / "results.json").exists()
        folders = [path.parent for path in place.run_dirs()]
        kept = {line["key"] for folder in folders for line in lines(folder) if line["type"] == "generated"}
        # The model may still read requests of the killed process, so the others have another key.
        done = place.bench(*args, "--resume", *(key.replace("first", "second") for key in keys))
        assert done.code == 0, done.err
        of_runs = [key for key, body in zip(model.keys, model.requests, strict=True) if body in model.asked]
    assert [path.parent for path in place.run_dirs()] == folders
    generated = [line["key"] for folder in folders for line in lines(folder) if line["type"] == "generated"]
    assert len(generated) == len(set(generated)) == 120 and kept <= set(generated)
    # What was not on disk is asked for again, and nothing else: two requests a run.
    assert of_runs.count("Bearer canary-of-the-second") == 2 * (120 - len(kept))
    assert set(of_runs) == {"Bearer canary-of-the-first", "Bearer canary-of-the-second"}
    document = results(place)
    assert (document["summary"]["total_runs"], document["summary"]["failed_runs"]) == (60, 0)
    assert [len(row["runs"]) for row in document["rows"]] == [6] * 20
    means = [each["eval_fns"]["rewards:exact_match"]["mean"] for each in document["model_summaries"]]
    assert means == [1.0, pytest.approx(0.9)], "2 + 2 and 12 + 12 end with 2"
    assert "canary" not in "".join(path.read_text() for path in place.logs.iterdir())


@pytest.mark.slow
def test_an_interrupt_leaves_results_and_the_way_to_go_on(place: Workshop) -> None:
    with SumsModel(latency=0.05) as model:
        running = place.start(*command(model, "--batch-size", "2"))
        running.until(lambda: "[4/20] OK" in running.out, "four runs have ended")
        running.send(signal.SIGINT)
        done = running.wait()
        assert done.code == 130, done.err
        summary = results(place)["summary"]
        made = summary["total_rows"]
        assert 4 <= made < 20 and summary["interrupted"] and not summary["stopped_early"]
        assert f"  Total runs: {made}" in done.out
        assert "Results written to: results.json (incomplete)" in done.out
        [again] = [line.partition("go on: ")[2] for line in done.out.splitlines() if "go on: " in line]
        done = place.bench(*shlex.split(again)[1:])
        assert done.code == 0, done.err
    assert f"[{made + 1}/20] OK" in done.out and "[20/20] OK" in done.out
    assert results(place)["summary"]["total_rows"] == 20
    assert set(questions(model).values()) == {1}, "nothing is run twice"
    assert len(place.run_dirs()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("piped", ["stdout", None])
def test_on_a_terminal_there_is_a_live_table_and_in_a_pipe_a_line_a_run(place: Workshop, piped: str | None) -> None:
    master, slave = pty.openpty()
    with SumsModel(latency=0.03) as model:
        env = {"TERM": "xterm-256color", "NO_COLOR": "", "LINES": "40", "COLUMNS": "100"}
        running = place.start_on(slave, *command(model), piped=piped, env=env)
        os.close(slave)
        seen = read_all(master)
        done = running.wait()
    assert done.code == 0, done.err
    if piped is None:
        assert re.search(r"\d+/20", seen) and "\x1b[" in seen, "a table that is redrawn"
        assert "[1/20]" not in seen
        assert "Agent name: calc" in seen and "Evaluation Results:" in seen
    else:
        assert [line.split()[0] for line in done.out.splitlines() if line.startswith("[")] == [
            f"[{number}/20]" for number in range(1, 21)
        ]
        assert "\x1b[2K" not in seen + done.out


def test_a_session_is_left_by_ctrl_c_at_its_prompt(place: Workshop) -> None:
    with SumsModel() as model:
        args = ["test", "-i", "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--model", "m", "--base-url", model.url]
        stdin, typed = os.pipe()
        running = place.start(*args, stdin=stdin)
        running.until(lambda: "Turn 1: " in running.out, "it asks")
        running.send(signal.SIGINT)
        done = running.wait()
        os.close(stdin)
        os.close(typed)
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    assert model.asked == []


def test_a_session_is_driven_through_a_pipe(place: Workshop) -> None:
    with SumsModel() as model:
        args = ["test", "-i", "-m", "my_agent:MyAgentLoop", "-d", "data.jsonl", "--model", "m", "--base-url", model.url]
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli.main", *args], cwd=place.cwd, env=place.environ(), input="n\nc\nr 7\nc",
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "> n\n" in done.stdout and "Row 0: OK" in done.stdout and "Row 7: OK" in done.stdout
    assert "printed by the agent's module" in done.stderr and "printed" not in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to write to")
def test_a_full_disk_behind_the_screen_costs_no_result(place: Workshop) -> None:
    with SumsModel() as model, open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli.main", *command(model)], cwd=place.cwd, env=place.environ(),
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=90, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: cannot write to the terminal or file that shows the results")
    assert results(place)["summary"]["total_rows"] == 20


@pytest.mark.slow
def test_a_reader_that_goes_away_costs_no_result(place: Workshop) -> None:
    with SumsModel(latency=0.02) as model:
        running = subprocess.Popen(
            [sys.executable, "-m", "harness.cli.main", *command(model)], cwd=place.cwd, env=place.environ(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.readline().startswith("bench eval")
        running.stdout.close()
        said = running.stderr.read()
        code = running.wait(90)
        running.stderr.close()
    assert (code, said) == (0, "printed by the agent's module\n")
    assert results(place)["summary"]["total_rows"] == 20


CLOSED = """
import os, sys
os.close(0), os.close(1)
os.execv(sys.executable, [sys.executable, "-m", "harness.cli.main", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_a_process_without_stdin_and_stdout_does_its_work(place: Workshop) -> None:
    with SumsModel() as model:
        for args in (command(model, "--limit", "2"), ["test", "-i", *USUAL[:4], "--base-url", model.url]):
            done = subprocess.run(
                [sys.executable, "-c", CLOSED, *args], cwd=place.cwd, env=place.environ(), stderr=subprocess.PIPE,
                text=True, timeout=90, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stderr) == (0, "printed by the agent's module\n")
    assert results(place)["summary"]["total_rows"] == 2


def test_a_session_with_nothing_to_read_ends(place: Workshop) -> None:
    with SumsModel() as model:
        done = subprocess.run(
            [sys.executable, "-m", "harness.cli.main", "test", "-i", *USUAL[:4], "--base-url", model.url],
            cwd=place.cwd, env=place.environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90,
            check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "printed by the agent's module\n")
    assert done.stdout.splitlines()[-1].startswith("Turn 1: ")
    assert model.asked == []


HELP = """
import contextlib, io, sys
from harness.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    for name in ("eval", "test"):
        main([name, "--help"])
print([name for name in ("aiohttp", "datasets", "pyarrow", "fastmcp", "uvloop", "rich") if name in sys.modules])
"""


def test_the_help_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout == "[]\n"


def test_the_second_interrupt_quits_at_once_with_what_the_journal_has(place: Workshop) -> None:
    with SumsModel() as model:
        running = place.start(*command(model, "--batch-size", "2"))
        running.until(lambda: "[2/20] OK" in running.out, "two runs have ended")
        model.latency = 30.0
        running.until(lambda: model.in_flight == 2, "two runs wait for their answers")
        running.send(signal.SIGINT)
        running.says("press Ctrl-C again to quit now")
        running.send(signal.SIGINT)
        done = running.wait(60)
    assert done.code == 130, done.err
    summary = results(place)["summary"]
    assert summary["interrupted"] and summary["total_rows"] >= 2 and summary["total_duration_ms"] > 0
    assert "go on: " in done.out


@pytest.mark.slow
def test_both_runs_of_a_comparison_are_published(place: Workshop) -> None:
    with HubServer() as hub, SumsModel() as model:
        hub.hub.account(TOKEN, "alice")
        baseline = ["--baseline-model", "weak", "--baseline-base-url", model.url]
        args = command(model, *baseline, "--limit", "2", "-H", "--api-key", "canary-of-the-user")
        done = place.bench(*args, env={"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN})
        assert done.code == 0, done.err
        assert sorted(hub.hub.repos) == ["alice/MyAgentLoop-data_my-model", "alice/MyAgentLoop-data_weak"]
        for name, repo in hub.hub.repos.items():
            assert f"to {hub.url}/datasets/{name}" in done.err
            assert "canary" not in repo.text("README.md")
            assert any(path.endswith(".parquet") for path in repo.files)


def test_a_run_is_repeated_from_its_own_config(place: Workshop) -> None:
    with SumsModel() as model:
        first = place.bench(*command(model, "--n", "2", "--limit", "3", "--temperature", "0.5", "--max-turns", "4"))
        assert first.code == 0, first.err
        run = place.run_dir()
        asked = [body["messages"] for body in model.asked]
        again = place.bench("run", str(run / "config.toml"), "--json")
        assert again.code == 0, again.err
    assert again.run["summary"]["reward"]["mean"] == 1.0
    assert sorted(map(str, asked)) == sorted(str(body["messages"]) for body in model.asked[len(asked) :])
    manifests = [json.loads((path.parent / "run.json").read_text()) for path in place.run_dirs()]
    assert manifests[0]["identity"] == manifests[1]["identity"]
