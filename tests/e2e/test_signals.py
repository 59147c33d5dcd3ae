"""Ctrl-C once, Ctrl-C twice, SIGTERM: what is paid for is kept, and the run can go on."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from bench_runs import Running, Server, Workshop, count, lines, rows, summary

SLOW_LOAD = """
import pathlib, time

def load_environment():
    pathlib.Path("loading").touch()
    time.sleep(600)
"""

STUBBORN = """
import asyncio
from harness import Rubric, SingleTurnEnv, cleanup

class Stubborn(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return "yes"

    @cleanup
    async def never(self, state):
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass

def load_environment():
    return Stubborn(dataset=[{"question": "q", "answer": "a"}], rubric=Rubric())
"""


BLOCKING = """
import pathlib, time
from harness import Rubric, SingleTurnEnv

class Blocking(SingleTurnEnv):
    async def setup_state(self, state):
        pathlib.Path("blocked").touch()
        time.sleep(600)

def load_environment():
    return Blocking(dataset=[{"question": "q", "answer": "a"}], rubric=Rubric())
"""


def started(shop: Workshop, server: Server, *more: str) -> Running:
    return shop.start(
        "run", "sums", "-n", "20", "-r", "2", "-c", "4", "-m", "reference/noisy?accuracy=0.5&seed=1", "-b", server.url,
        *more,
    )  # fmt: skip


def until_scored(shop: Workshop, running: Running, number: int) -> Path:
    running.until(
        lambda: any(count(path.parent, "scored") >= number for path in shop.run_dirs()), f"{number} are scored"
    )
    return shop.run_dir()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_one_signal_finishes_what_is_in_flight_and_can_be_resumed(shop: Workshop, number: signal.Signals) -> None:
    with shop.bench_serve("--env", "sums", "--latency", "150", "--sigma", "0.3") as server:
        running = started(shop, server)
        run = until_scored(shop, running, 4)
        running.send(number)
        done = running.wait()
        assert done.code == 130, done.err
        assert "stopping: 10 s for rollouts in flight" in done.said
        assert "Traceback" not in done.err
        manifest = json.loads((run / "run.json").read_text())
        assert manifest["status"] == "interrupted"
        generated = {line["key"] for line in lines(run) if line["type"] == "generated"}
        assert generated == {line["key"] for line in lines(run) if line["type"] == "scored"}, "in flight: finished"
        assert 4 <= len(generated) < 40
        numbers = summary(run)
        assert (numbers["scored"], numbers["not_run"], numbers["unscored"]) == (len(generated), 40 - len(generated), {})
        assert len(rows(run)) == len(generated)
        assert f"{40 - len(generated)} of 40 not run" in done.out

        go_on = next(line for line in done.out.splitlines() if line.strip().startswith("go on:"))
        again = shop.bench(*shlex.split(go_on.partition("bench ")[2]))
        assert again.code == 0, again.err
    assert summary(run)["scored"] == 40
    keys = Counter(line["key"] for line in lines(run) if line["type"] == "generated")
    assert (len(keys), set(keys.values())) == (40, {1})
    assert json.loads((run / "run.json").read_text())["status"] == "done"


def test_two_signals_end_it_now(shop: Workshop) -> None:
    with shop.bench_serve("--env", "sums", "--hang-rate", "1") as server:
        running = started(shop, server, "--json")
        running.until(lambda: server.stats()["in_flight"] == 4, "four requests hang")
        running.send(signal.SIGINT)
        running.says("for rollouts in flight")
        running.send(signal.SIGINT)
        done = running.wait()
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    assert done.run["state"] == "interrupted", "and still exactly one object on stdout"
    run = shop.run_dir()
    assert count(run, "generated") == count(run, "failed") == 0
    resumed = shop.bench(
        "run", "sums", "-n", "20", "-r", "2", "-m", "reference/noisy?accuracy=0.5&seed=1", "-b", server.url, "--resume"
    )
    assert resumed.code == 1, "nobody is there any more"
    assert shop.run_dir() == run, "but the run is the same"


def test_a_third_signal_leaves_even_a_cleanup_that_will_not_be_cancelled(shop: Workshop) -> None:
    shop.environment("stubborn", STUBBORN)
    running = shop.start("run", "stubborn", "-r", "1", "-m", "reference/oracle")
    running.until(lambda: any(count(path.parent, "example") for path in shop.run_dirs()), "a rollout has begun")
    running.send(signal.SIGINT)
    running.says("stopping")
    running.send(signal.SIGTERM)
    running.says("quitting; press Ctrl-C once more to skip the rest of the cleanup")
    insist(running)


@pytest.mark.slow
def test_a_third_signal_leaves_even_code_that_blocks_the_event_loop(shop: Workshop) -> None:
    shop.environment("blocking", BLOCKING)
    running = shop.start("run", "blocking", "-m", "null", "-b", "http://127.0.0.1:9/v1")
    running.until(lambda: (shop.cwd / "blocked").exists(), "it blocks")
    insist(running)


def insist(running: Running) -> None:
    """Press Ctrl-C again and again, as people do: signals that come too fast are one."""
    deadline = time.monotonic() + 30
    while running.process.poll() is None and time.monotonic() < deadline:
        running.send(signal.SIGINT)
        time.sleep(0.1)
    assert running.wait(60).code == 130


def test_a_signal_while_an_environment_loads(shop: Workshop) -> None:
    shop.environment("slow_load", SLOW_LOAD)
    running = shop.start("run", "sums,slow-load", "-m", "reference/oracle")
    running.until(lambda: (shop.cwd / "loading").exists(), "it loads")
    running.send(signal.SIGINT)
    done = running.wait()
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    assert shop.run_dirs() == [], "no run has begun"


@pytest.mark.slow
def test_a_suite_is_interrupted_as_a_whole(shop: Workshop) -> None:
    shop.write(
        "suite.toml",
        """
        [[eval]]
        env.env_id = "sums"
        env.name = "one"
        [[eval]]
        env.env_id = "sums"
        env.name = "two"
        """,
    )
    args = ["run", "suite.toml", "-n", "24", "-r", "2", "-c", "4", "-m", "reference/oracle"]
    with shop.bench_serve("--env", "sums", "--latency", "150") as server:
        running = shop.start(*args, "-b", server.url, "--json")
        running.until(
            lambda: len(shop.run_dirs()) == 2 and all(count(path.parent, "scored") >= 2 for path in shop.run_dirs()),
            "both runs are under way",
        )
        running.send(signal.SIGINT)
        done = running.wait()
        assert done.code == 130, done.err
        assert [(run["name"], run["state"]) for run in done.runs] == [("one", "interrupted"), ("two", "interrupted")]
        assert all(0 < run["summary"]["scored"] < 48 for run in done.runs)
        again = shop.bench(*args, "-b", server.url, "--json", "--resume")
    assert again.code == 0, again.err
    assert {run["path"] for run in again.runs} == {run["path"] for run in done.runs}
    assert [run["summary"]["scored"] for run in again.runs] == [48, 48]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_an_interrupted_run_that_is_not_saved(shop: Workshop, number: signal.Signals) -> None:
    """The process that is killed leaves its folder; a run removes it, but none that is in use or somebody's own."""
    temporary = shop.cwd / "tmp"
    temporary.mkdir()
    usual = ("run", "sums", "-n", "20", "-c", "2", "-m", "reference/oracle", "--no-save")
    with shop.bench_serve("--env", "sums", "--latency", "1000") as server:
        running = shop.start(*usual, "-b", server.url, env={"TMPDIR": str(temporary)})
        running.until(lambda: server.stats()["requests"] >= 4, "it asks")
        [folder] = temporary.iterdir()
        (temporary / "bench-unsaved-mine").mkdir()
        (temporary / "bench-unsaved-link").symlink_to(shop.cwd)
        beside = shop.start(*usual, env={"TMPDIR": str(temporary)}).wait()
        assert beside.code == 0 and folder.exists(), "it is in use"
        running.send(number)
        done = running.wait()
    if number == signal.SIGINT:
        assert done.code == 130, done.err
        assert "1.000" in done.out, "what was scored is shown"
    else:
        assert folder.exists()
        saved = shop.start("run", "sums", "-n", "1", "-m", "reference/oracle", env={"TMPDIR": str(temporary)})
        assert saved.wait().code == 0
    assert sorted(path.name for path in temporary.iterdir()) == ["bench-unsaved-link", "bench-unsaved-mine"]
    assert (shop.cwd / "outputs").exists() == (number == signal.SIGKILL)
