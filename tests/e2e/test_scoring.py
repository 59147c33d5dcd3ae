"""When and how rollouts are scored: beside generation or after it, alone or in groups, live or from the journal."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop, count, lines, rows, summary

GAME = """
from harness import MultiTurnEnv, Rubric

def won(state):
    return float(state["secret"]["found"])

def told(completion, state):
    state["verdict"] = {"words": [m["content"] for m in completion if m["role"] == "assistant"]}
    return float(len(state["verdict"]["words"]))

class Game(MultiTurnEnv):
    async def setup_state(self, state):
        state["secret"] = {"found": False, "low": 0}

    async def env_response(self, messages, state, **kwargs):
        state["secret"]["found"] = messages[-1]["content"] == state["answer"]
        if state["secret"]["found"]:
            state["final_env_response"] = [{"role": "user", "content": "found"}]
            return []
        return [{"role": "user", "content": "no"}]

    def reference_reply(self, example, messages):
        return example.answer if len(messages) > 2 else "first try"

    def null_reply(self, example, messages):
        return "?"

def load_environment():
    rows = [{"question": f"guess {n}", "answer": str(n)} for n in range(8)]
    return Game(max_turns=4, dataset=rows, rubric=Rubric([won, told], [1.0, 0.0]))
"""

RANKED = """
from harness import Rubric, SingleTurnEnv

def right(completion, answer):
    return float(completion[-1]["content"] == answer)

def better_than_most(completions, answers):
    good = [c[-1]["content"] == a for c, a in zip(completions, answers)]
    assert len(good) == SIZE, f"{len(good)} of {SIZE}"
    return [sum(mine > other for other in good) / max(1, len(good) - 1) for mine in good]

class Ranked(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return "?"

def load_environment(size):
    global SIZE
    SIZE = size
    rows = [{"question": f"question {n}", "answer": str(n)} for n in range(10)]
    return Ranked(dataset=rows, rubric=Rubric([right, better_than_most], [0.5, 0.5]))
"""

LIVE = """
import asyncio, pathlib
from harness import Rubric, SingleTurnEnv

class Socket:
    answer = "yes"

async def works(state):
    while pathlib.Path("hold").exists() and state["answer"] != "0":
        await asyncio.sleep(0.01)
    return float(state["socket"].answer == "yes")

class Live(SingleTurnEnv):
    async def setup_state(self, state):
        state["socket"] = Socket()

    def reference_reply(self, example, messages):
        return "yes"

def load_environment(declared=True):
    rows = [{"question": str(n), "answer": str(n)} for n in range(6)]
    return Live(dataset=rows, rubric=Rubric([works], needs_live_state=declared))
"""

MODEL = "reference/noisy?accuracy=0.6&seed=5"


def order(run: Path) -> list[str]:
    return [line["type"] for line in lines(run) if line["type"] in ("generated", "scored")]


def plain(run: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "timing"} for row in rows(run)]


@pytest.mark.parametrize(
    ("env_id", "source", "args"),
    [("game", GAME, ("-r", "2")), ("ranked", RANKED, ("-r", "4", "-a", '{"size": 4}'))],
)
def test_scoring_afterwards_gives_the_same_numbers(
    shop: Workshop, env_id: str, source: str, args: tuple[str, ...]
) -> None:
    shop.environment(env_id, source)
    # Behind a gate of 2 not everything can be generated before anything is scored.
    both = ["run", env_id, "-m", MODEL, "-n", "-1", "-c", "2", "-q", "-C", "verdict", *args]
    assert shop.bench(*both, "-o", "beside").code == 0
    after = shop.bench(*both, "-o", "after", "-N", "--json")
    assert after.code == 0, after.err
    run = shop.run_dir("after")
    total = len(rows(run))
    assert order(run) == ["generated"] * total + ["scored"] * total
    beside = shop.run_dir("beside")
    assert order(beside) != order(run), "and otherwise scoring does not wait"
    assert plain(beside) == plain(run)
    assert summary(beside) == summary(run)
    assert 0.0 < summary(run)["reward"]["mean"] < 1.0


def test_an_interrupted_run_that_scores_afterwards_goes_on_where_it_was(shop: Workshop) -> None:
    with shop.serving(latency=0.05) as server:
        args = ["run", "sums", "-n", "-1", "-r", "2", "-c", "4", "-m", MODEL, "-b", server.url, "-q", "-N"]
        running = shop.start(*args)
        running.until(lambda: any(count(path.parent, "generated") >= 15 for path in shop.run_dirs()), "it generates")
        running.send(signal.SIGINT)
        assert running.wait().code == 130
        run = shop.run_dir()
        assert count(run, "scored") == 0, "what comes later is not begun after a Ctrl-C"
        assert summary(run)["unscored"] == {"not scored": count(run, "generated")}
        done = shop.bench(*args, "--resume", "--json")
        assert done.code == 0, done.err
        assert set(server.stats()["rollouts"].values()) == {1}
    assert (done.run["summary"]["scored"], done.run["summary"]["unscored"]) == (48, {})
    assert order(run) == ["generated"] * 48 + ["scored"] * 48


def test_group_rewards_see_the_whole_group(shop: Workshop) -> None:
    shop.environment("ranked", RANKED)
    done = shop.bench(
        "run", "ranked", "-m", MODEL, "-n", "-1", "-r", "5", "-a", '{"size": 5}', "-c", "3", "--json", "-q"
    )
    assert done.code == 0, done.err
    numbers = done.run["summary"]
    assert (numbers["scored"], numbers["unscored"]) == (50, {})
    table = rows(shop.run_dir())
    for example in {row["example_id"] for row in table}:
        group = [row for row in table if row["example_id"] == example]
        wrong = sum(row["right"] == 0.0 for row in group)
        assert {row["better_than_most"] for row in group if row["right"] == 1.0} <= {wrong / 4}
        assert {row["better_than_most"] for row in group if row["right"] == 0.0} <= {0.0}


def test_live_state_is_scored_at_once_and_after_a_crash_it_is_lost(shop: Workshop) -> None:
    shop.environment("live", LIVE)
    hold = shop.write("hold", "")
    args = ["run", "live", "-m", "reference/oracle", "-n", "6", "-r", "1", "-q", "-N"]
    running = shop.start(*args)
    running.until(
        lambda: any(
            count(path.parent, "generated") == 6 and count(path.parent, "scored") == 1 for path in shop.run_dirs()
        ),
        "all are generated, one is scored",
    )
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    hold.unlink()
    done = shop.bench(*args, "--resume", "--json")
    numbers = done.run["summary"]
    assert (numbers["scored"], numbers["unscored"]) == (1, {"state lost": 5})
    assert numbers["reward"]["mean"] == 1.0, "lost is not wrong"
    assert "note: live: -N has no effect: its rubric needs live state" in done.said
    assert numbers["bounds"] == [pytest.approx(1 / 6), 1.0]
    assert done.code == 0, done.err


def test_state_that_no_journal_holds_is_noticed_where_it_is_read(shop: Workshop) -> None:
    shop.environment("live", LIVE)
    shop.write("hold", "")
    args = ["run", "live", "-m", "reference/oracle", "-n", "6", "-r", "1", "-q", "-a", '{"declared": false}']
    running = shop.start(*args)
    running.until(lambda: any(count(path.parent, "generated") == 6 for path in shop.run_dirs()), "all are generated")
    running.send(signal.SIGKILL)
    running.wait()
    (shop.cwd / "hold").unlink()
    done = shop.bench(*args, "--resume", "--json")
    assert done.run["summary"]["unscored"] == {"works state lost": 6 - done.run["summary"]["scored"]}
    assert done.run["summary"]["scored"] <= 1
    errors = {row["error"] for row in rows(shop.run_dir()) if row["outcome"] == "unscored"}
    assert all("state['socket'] was not a JSON value" in error for error in errors)
