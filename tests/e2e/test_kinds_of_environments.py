"""Environments that are not what the other tests use: named by a path, in a group, or blocking the event loop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bench_runs import SUMS, Workshop, rows

WORDS = """
from harness import MultiTurnEnv, Rubric

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

class Words(MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "once more"}]

    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    rows = [{"question": f"say {word}", "answer": word} for word in ("one", "two", "three", "four")]
    return Words(dataset=rows, rubric=Rubric([right]), max_turns=2)
"""

BOTH = """
from harness import EnvGroup, load_environment as load

def load_environment():
    return EnvGroup([load("sums", size=6), load("words")])
"""

BLOCKING = """
import time
from harness import Rubric, SingleTurnEnv

async def slow_judge(completion):
    time.sleep(0.8)
    return 1.0

class Blocking(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return "x"

def load_environment():
    return Blocking(dataset=[{"question": "?"}], rubric=Rubric([slow_judge]))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_an_environment_by_path_runs_resumes_and_repeats(shop: Workshop) -> None:
    shop.write("my envs/adding.py", SUMS)
    command = ["run", "./my envs/adding.py", "-m", "reference/oracle", "-r", "2", "--json"]
    done = shop.bench(*command, "-n", "3")
    assert done.code == 0, done.err
    assert (done.run["name"], done.run["env_id"], done.run["summary"]["reward"]["mean"]) == ("adding", "adding", 1.0)
    assert Path(done.run["path"]).parent.name == "adding--reference--oracle"
    assert {row["env_id"] for row in rows(shop.cwd / done.run["path"])} == {"adding"}
    grown = shop.bench(*command, "-n", "5", "--resume")
    assert (grown.run["path"], grown.run["summary"]["resumed"]) == (done.run["path"], 6)
    repeated = shop.bench("run", f"{done.run['path']}/config.toml", "--json")
    assert (repeated.code, repeated.run["env_id"], repeated.run["summary"]["scored"]) == (0, "adding", 10)
    shutil.rmtree(shop.cwd / "my envs")
    gone = shop.bench(*command)
    assert (gone.code, gone.out) == (2, "")
    assert (
        "bench run: ./my envs/adding.py: no environment found, because this file or folder does not exist" in gone.said
    )


def test_a_group_is_one_run_with_a_mean_a_metric_for_each_environment(shop: Workshop) -> None:
    shop.environment("words", WORDS)
    shop.environment("both", BOTH)
    done = shop.bench(
        "run", "both", "-m", "reference/oracle", "-n", "-1", "-r", "1", "--no-interleave-scoring", "--json"
    )
    assert done.code == 0, done.err
    summary = done.run["summary"]
    assert (summary["scored"], summary["reward"]["mean"]) == (10, 1.0)
    means = {name: metric["mean"] for name, metric in summary["metrics"].items()}
    assert means == {"correct": 1.0, "said": pytest.approx(7 / 6), "right": 1.0, "num_turns": 2.0}
    table = rows(shop.cwd / done.run["path"])
    assert [row["task"] for row in table] == ["sums"] * 6 + ["words"] * 4
    assert [row["right"] for row in table] == [None] * 6 + [1.0] * 4
    null = shop.bench("run", "both", "-m", "reference/null", "-n", "-1", "-r", "1", "--json")
    assert null.run["summary"]["reward"]["mean"] == 0.0


def test_an_environment_that_blocks_the_loop_is_named_on_stderr(shop: Workshop) -> None:
    shop.environment("blocking", BLOCKING)
    done = shop.bench("run", "blocking,sums", "-m", "reference/oracle", "-n", "4", "-r", "2", "--json")
    assert done.code == 0, done.err
    assert [run["summary"]["reward"]["mean"] for run in done.runs] == [1.0, 1.0]
    assert "blocking: slow_judge (blocking.py:6) blocks the event loop, and with it every rollout" in done.said
    assert json.loads(done.out)["runs"], "nothing of it is on stdout"


GROUP_OF_A_FILE = """
from harness import EnvGroup, load_environment as load

def load_environment():
    return EnvGroup([load("./inner.py")])
"""

SCORED_BESIDE = """
from harness import Rubric, SingleTurnEnv
from marks import mark

class Asks(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    rows = [{"question": str(n), "answer": str(n)} for n in range(6)]
    return Asks(dataset=rows, rubric=Rubric([mark]))
"""

MARKS = """
def mark(completion, answer):
    return float(completion[-1]["content"] == answer)
"""

SELF_CANCELLING = """
import asyncio
from harness import MultiTurnEnv, Rubric

async def waits_for_what_it_cancelled():
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task

async def fine(answer):
    if answer == "1":
        await waits_for_what_it_cancelled()
    return 1.0

class Cancelling(MultiTurnEnv):
    async def setup_state(self, state):
        if state["answer"] == "0":
            await waits_for_what_it_cancelled()

    async def env_response(self, messages, state, **kwargs):
        return []

    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    rows = [{"question": str(n), "answer": str(n)} for n in range(4)]
    return Cancelling(dataset=rows, rubric=Rubric([fine]), max_turns=1)
"""


@pytest.mark.parametrize("target", ["./one.py", "./group.py"])
def test_a_resume_refuses_when_a_module_that_the_environment_is_made_of_has_changed(
    shop: Workshop, target: str
) -> None:
    shop.write("one.py", SCORED_BESIDE)
    shop.write("inner.py", SCORED_BESIDE)
    shop.write("group.py", GROUP_OF_A_FILE)
    shop.write("marks.py", MARKS)
    command = ["run", target, "-m", "reference/oracle", "-r", "1", "--resume", "--json"]
    first = shop.bench(*command, "-n", "2")
    assert first.run["summary"]["reward"]["mean"] == 1.0, first.err
    again = shop.bench(*command, "-n", "4")
    assert again.run["path"] == first.run["path"], "nothing has changed"
    shop.write("marks.py", MARKS + "\n    # another version\n")
    changed = shop.bench(*command, "-n", "6")
    assert changed.code == 2
    assert "source" in changed.said
    assert "cannot be resumed" in changed.said


def test_two_environments_by_path_never_share_a_module_of_one_name(shop: Workshop) -> None:
    for folder, value in (("x", "1.0"), ("y", "0.0")):
        shop.write(f"{folder}/env.py", SCORED_BESIDE)
        shop.write(f"{folder}/marks.py", f"def mark():\n    return {value}\n")
    both = shop.bench("run", "./x/env.py,./y/env.py", "-m", "reference/oracle", "-n", "2", "-r", "1", "--json")
    assert both.code == 1
    assert [run["state"] for run in both.runs] == ["done", "failed"]
    assert both.runs[0]["summary"]["reward"]["mean"] == 1.0
    assert "have the same module name" in both.runs[1]["note"]
    alone = shop.bench("run", "./y/env.py", "-m", "reference/oracle", "-n", "2", "-r", "1", "--json")
    assert alone.run["summary"]["reward"]["mean"] == 0.0


def test_code_that_cancels_itself_fails_its_rollout_and_nothing_goes_missing(shop: Workshop) -> None:
    shop.environment("cancelling", SELF_CANCELLING)
    done = shop.bench("run", "cancelling", "-m", "reference/oracle", "-n", "4", "-r", "1", "--json")
    summary = done.run["summary"]
    assert (done.code, summary["scored"], summary["unscored"]) == (
        0,
        2,
        {"environment_error": 1, "fine raised CancelledError": 1},
    ), done.err
    errors = {row["answer"]: row["error"] for row in rows(shop.cwd / done.run["path"])}
    assert "CancelledError (in waits_for_what_it_cancelled, cancelling.py:8)" in errors["0"]
    assert errors["2"] is None


def test_the_watchdog_knows_the_files_of_a_groups_environments(shop: Workshop) -> None:
    shop.write("inner.py", BLOCKING)
    shop.write("group.py", GROUP_OF_A_FILE)
    done = shop.bench("run", "./group.py", "-m", "reference/oracle", "-n", "1", "-r", "1", "--json")
    assert "group: slow_judge (inner.py:6) blocks the event loop" in done.said


def test_a_project_whose_folder_is_not_called_like_its_module_is_found(shop: Workshop) -> None:
    shop.write("proj/src/thing/__init__.py", SUMS)
    shop.write("proj/pyproject.toml", '[project]\nname = "the-thing"\nversion = "1"\n'
               '[project.entry-points."harness.environments"]\nthe-thing = "thing:load_environment"\n')  # fmt: skip
    done = shop.bench("run", "./proj", "-m", "reference/oracle", "-n", "1", "-r", "1", "--json")
    assert (done.code, done.run["env_id"]) == (0, "proj"), done.err
