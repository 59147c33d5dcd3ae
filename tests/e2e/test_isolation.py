"""Environments in processes of their own, as users meet them: whatever one does, the others finish, the result says
what happened, nothing is left behind, and no key is in reach."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Done, Running, Workshop, lines, summary, until
from dead_ports import free_port
from dying import DYING, left_over
from misbehaving import TABLE

ALL = ("-n", "-1", "-r", "1", "-m", "reference/oracle")


@pytest.fixture(autouse=True)
def dying(shop: Workshop) -> None:
    shop.environment("dying", DYING)


def suite(shop: Workshop, *envs: dict[str, Any]) -> Path:
    """A suite of runs that the reference model plays."""
    text = 'model = "reference/oracle"\n'
    for env in envs:
        text += "\n[[eval]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in env.items())
    return shop.write("suite.toml", text)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def by_name(done: Done) -> dict[str, dict[str, Any]]:
    return {run["name"]: run for run in done.runs}


def failures(shop: Workshop, run: dict[str, Any]) -> dict[int, str]:
    """Example → why its rollout has no score."""
    found: dict[int, str] = {}
    written = lines(shop.cwd / run["path"])
    places = {line["example_key"]: line["index"] for line in written if line["type"] == "example"}
    examples = {line["key"]: places[line["example_key"]] for line in written if line["type"] in ("generated", "failed")}
    for line in written:
        if line["type"] == "failed":
            found[examples[line["key"]]] = line["error"]
        elif line["type"] == "scored" and line["reward"] is None:
            found[examples[line["key"]]] = line["reasons"]["*"]
    return found


@pytest.mark.slow
def test_whoever_ends_its_process_alone_fails_and_everything_else_is_finished(shop: Workshop) -> None:
    """By SIGKILL, by a segmentation fault, by `_exit` in C, by closing or scribbling over our pipes; in every place."""
    faults = [
        (0, "setup", "kill"), (2, "response", "segfault"), (4, "reward", "kill"), (6, "cleanup", "leave"),
        (8, "setup", "scribble"), (10, "setup", "close"),
    ]  # fmt: skip
    alone = {"env_id": "dying", "rollouts_per_example": 1, "num_examples": -1, "workers": 2}
    file = suite(
        shop,
        {**alone, "name": "deadly", "env_args": {"size": 14, "faults": faults}},
        {**alone, "name": "group", "rollouts_per_example": 2,
         "env_args": {"size": 4, "grouped": True, "faults": [(1, "group", "kill")]}},
        {**alone, "name": "unloadable", "env_args": {"loads": "segfault"}},
        {**alone, "name": "last", "env_args": {"last": True}},
        {"env_id": "sums", "name": "beside", "rollouts_per_example": 1, "num_examples": 24},
    )  # fmt: skip

    done = shop.bench("run", str(file), "--json")

    assert done.code == 1, done.err
    assert "Traceback" not in done.err, done.err
    runs = by_name(done)
    assert {name: run["state"] for name, run in runs.items()} == {
        "deadly": "done", "group": "done", "unloadable": "failed", "last": "done", "beside": "done",
    }  # fmt: skip
    deadly, group = runs["deadly"]["summary"], runs["group"]["summary"]
    assert (deadly["scored"], deadly["unscored"], deadly["reward"]["mean"]) == (8, {"worker_died": 6}, 1.0)
    process = "the process of deadly"
    found = {number: words.partition("; this happened")[0] for number, words in failures(shop, runs["deadly"]).items()}
    assert found == {
        0: f"{process} was killed by SIGKILL",
        2: f"{process} was killed by SIGSEGV",
        4: f"worker_died: {process} was killed by SIGKILL",
        6: f"{process} exited with code 3",
        8: f"{process} was ended: its code wrote into the pipe through which bench communicates with it",
        10: f"{process} was ended because its code closed the pipe to bench",
    }
    assert (group["scored"], group["unscored"]) == (6, {"worker_died": 2})
    assert set(failures(shop, runs["group"])) == {1}
    unloadable = runs["unloadable"]["note"]
    assert "'unloadable': the process of unloadable was killed by SIGSEGV while loading" in unloadable
    assert runs["last"]["summary"]["scored"] == 6
    assert "the process of last was killed by SIGKILL while its environment was being torn down" in done.said
    assert "processes were replaced: one " in runs["deadly"]["note"]
    assert runs["beside"]["summary"]["scored"] == 24 and not runs["beside"]["note"]
    assert left_over(str(shop.modules)) == []


MESSY = r"""
import ctypes, os, subprocess, sys, threading, time
from harness import Rubric, SingleTurnEnv, cleanup

DAEMON = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(3600)\n"

class Messy(SingleTurnEnv):
    flood = 0

    async def setup_state(self, state):
        if state["example_id"]:
            return
        threading.Thread(target=time.sleep, args=(3600,)).start()
        subprocess.Popen(["sleep", "3600"])
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
        subprocess.run([sys.executable, "-c", DAEMON])
        print("in python")
        os.write(1, b"past python\n")
        subprocess.run(["echo", "from a child"])
        key = os.environ.get("LET_THROUGH_KEY")
        print(key)
        print("\x1b[2J\x1b]0;owned\x07loud\u202e", key[:9] + "\x1b[0m" + key[9:])
        os.write(1, b"10 %\r20 %\r\n")
        for before in range(65536 - len(key), 65536):  # the key stands across the cut of a long line, in every way
            os.write(1, b"-" * before + key.encode() + b" end\n")
        for _ in range(self.flood):
            os.write(1, b"x" * 65536)
        if self.flood:
            os.write(1, b"\n")

    def reference_reply(self, example, messages):
        return "yes"

def load_environment(flood=0):
    environment = Messy(dataset=[{"question": str(n)} for n in range(4)], rubric=Rubric())
    environment.flood = flood
    return environment
"""


@pytest.mark.slow
def test_what_it_starts_is_ended_and_what_it_prints_is_on_stderr(shop: Workshop) -> None:
    """Threads, children, children in sessions of their own, daemons; 64 MiB on stdout without a newline; a key."""
    shop.environment("messy", MESSY)
    key = "canary-x7f3a-000000000"

    done = shop.bench(
        "run", "messy", *ALL, "--workers", "1", "--worker-vars", "LET_THROUGH_KEY", "-a", '{"flood": 1024}', "--json",
        env={"LET_THROUGH_KEY": key},
    )  # fmt: skip

    assert done.code == 0, done.err[-2000:]
    assert done.run["summary"]["scored"] == 4
    for words in (
        "messy: in python", "messy: past python", "messy: from a child", "messy: [redacted]", "messy: loud [redacted]",
        "messy: 20 %",
    ):  # fmt: skip
        assert words in done.err.split("\n")
    assert not set("\x1b\x07\u202e") & set(done.err)
    assert [key[at : at + 6] for at in range(len(key) - 5) if key[at : at + 6] in done.err] == []
    assert done.err.count(" end\n") == len(key)
    assert done.err.count("x") > 64 << 20 and key not in done.err
    assert left_over(str(shop.modules)) == []


HOLDS = """
import ctypes, pathlib, subprocess, time
from harness import Rubric, SingleTurnEnv

class Holds(SingleTurnEnv):
    async def setup_state(self, state):
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
        pathlib.Path("held").touch()
        ctypes.PyDLL(None).sleep(3600)  # and nothing else runs in this interpreter

    def reference_reply(self, example, messages):
        return "yes"

def load_environment():
    return Holds(dataset=[{"question": "q"}], rubric=Rubric())
"""


def held(shop: Workshop) -> Running:
    """A run whose environment holds the interpreter's lock for ever."""
    shop.environment("holds", HOLDS)
    running = shop.start("run", "holds", *ALL, "--workers", "1", "--no-save", env={"TMPDIR": str(shop.cwd)})
    running.until((shop.cwd / "held").exists, "it is held")
    assert len(left_over(str(shop.modules))) >= 4  # bench, keeper, environment, its child
    return running


def test_nothing_is_left_when_the_parent_is_killed(shop: Workshop) -> None:
    running = held(shop)

    running.send(signal.SIGKILL)

    assert running.wait().code == -signal.SIGKILL
    until(lambda: left_over(str(shop.modules)) == [], "all have ended", 20)


@pytest.mark.slow
def test_nothing_is_left_after_ctrl_c_and_a_stopped_parent_kills_nobody(shop: Workshop) -> None:
    running = held(shop)
    before = set(left_over(str(shop.modules)))

    running.send(signal.SIGSTOP)
    os.sched_yield()
    running.send(signal.SIGCONT)
    running.send(signal.SIGINT)
    running.says("press Ctrl-C again")
    assert set(left_over(str(shop.modules))) == before
    running.send(signal.SIGINT)
    running.says("once more")
    running.send(signal.SIGINT)

    assert running.wait().code == 130
    until(lambda: left_over(str(shop.modules)) == [], "all have ended", 20)


JUDGED = """
from harness import JudgeRubric, MultiTurnEnv, Rubric
from harness.rubrics.judge import quoted_response

class Judged(MultiTurnEnv):
    async def env_response(self, messages, state):
        return [{"role": "user", "content": "and?"}]

    def reference_reply(self, example, messages):
        return example.answer

    def reference_verdict(self, example, messages):
        said = "Same." if quoted_response(messages) == example.answer else "Other."
        return said + "\\n<verdict>" + ("CORRECT" if said == "Same." else "INCORRECT") + "</verdict>"

def mean(completions):
    return [float(len(completions))] * len(completions)

def load_environment(size=8):
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)]
    environment = Judged(dataset=rows, rubric=JudgeRubric(judge_model="far/judge"), max_turns=2)
    environment.add_rubric(Rubric([mean]))
    return environment
"""


def scores(run: Path) -> dict[str, Any]:
    """What a journal says of each rollout, but for times."""
    found: dict[str, Any] = {}
    for line in lines(run):
        for name in ("timing", "seconds"):
            line.pop(name, None)
        line.get("calls", {}).pop("seconds", None)
        for judgement in line.get("extra", {}).get("judgements", ()):
            judgement.pop("seconds")
        if line["type"] != "example":
            found[f"{line['type']} {line['key']}"] = line
    return found


@pytest.mark.slow
def test_a_run_in_processes_is_the_same_run_and_each_goes_on_with_the_other(shop: Workshop) -> None:
    """Turns, a judge, a group reward, scoring afterwards, a replay, one function scored again."""
    shop.environment("judged", JUDGED)
    asked = ("run", "judged", "-n", "-1", "-r", "2", "-m", "reference/noisy?accuracy=0.5&seed=1", "--json")
    plain = shop.bench(*asked, "-o", "plain")
    apart = shop.bench(*asked, "-o", "apart", "--workers", "2", "-N")
    assert (plain.code, apart.code) == (0, 0), apart.err
    assert summary(shop.run_dir("apart")) == summary(shop.run_dir("plain"))
    assert scores(shop.run_dir("apart")) == scores(shop.run_dir("plain"))

    journal = shop.run_dir("plain") / "journal.jsonl"
    whole = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(whole[: len(whole) // 2]))
    (shop.run_dir("plain") / "summary.json").unlink()
    shutil.rmtree(shop.run_dir("plain") / "data")
    again = shop.bench("run", *asked[1:], "-o", "plain", "--workers", "1", "--resume")
    assert again.code == 0, again.err
    assert scores(shop.run_dir("plain")) == scores(shop.run_dir("apart"))

    parent = shop.run_dir("apart")
    for command in (("replay",), ("rescore", "--only", "mean"), ("rescore",)):
        done = shop.bench(command[0], str(parent.relative_to(shop.cwd)), *command[1:], "--json", "-o", "apart")
        assert done.code == 0, done.err
        made = shop.cwd / done.run["path"]
        assert json.loads((made / "run.json").read_text())["settings"]["env.workers"] == 2
        assert summary(made)["reward"] == summary(parent)["reward"]
    assert left_over(str(shop.modules)) == []


WAITS = """
import asyncio, pathlib
from harness import Rubric, SingleTurnEnv

class Waits(SingleTurnEnv):
    async def setup_state(self, state):
        if state["example_id"] > 1:
            pathlib.Path(f"held-{state['example_id']}").touch()
            while not pathlib.Path("go").exists():
                await asyncio.sleep(0.02)

    def reference_reply(self, example, messages):
        return "yes"

def right(completion):
    return 1.0

def load_environment():
    return Waits(dataset=[{"question": str(number)} for number in range(8)], rubric=Rubric([right]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_once_lets_finish_and_twice_does_not_and_a_resume_makes_the_rest(shop: Workshop, signals: int) -> None:
    shop.environment("waits", WAITS)
    running = shop.start("run", "waits", *ALL, "--workers", "2", "-c", "2")
    running.until(lambda: len(list(shop.cwd.glob("held-*"))) == 2, "both processes wait")
    running.send(signal.SIGINT)
    running.says("press Ctrl-C again")
    if signals == 2:
        running.send(signal.SIGINT)
    else:
        (shop.cwd / "go").touch()

    ended = running.wait()

    assert ended.code == 130 and "Traceback" not in ended.said, ended.said
    assert left_over(str(shop.modules)) == []
    run = shop.run_dir()
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    assert f"bench resume {run.relative_to(shop.cwd)}" in ended.out
    made = [line["key"] for line in lines(run) if line["type"] == "generated"]
    assert len(made) == (4 if signals == 1 else 2)

    (shop.cwd / "go").touch()
    resumed = shop.bench("resume", str(run.relative_to(shop.cwd)), "--json")
    assert (resumed.code, resumed.run["summary"]["scored"]) == (0, 8), resumed.err
    made = [line["key"] for line in lines(run) if line["type"] == "generated"]
    assert len(made) == len(set(made)) == 8


FAR = f"http://127.0.0.1:{free_port()}/v1"


@pytest.mark.slow
def test_a_dead_endpoint_and_a_dead_judge_end_their_runs_with_one_message_each(shop: Workshop) -> None:
    judged = JUDGED.replace("size=8", "size=8, judge_model='far/judge'").replace('"far/judge"', "judge_model")
    shop.environment("judged", judged.replace("judge_model=judge_model", f"judge_model=judge_model, {JUDGE_URL}"))
    workers = {"workers": 1, "num_examples": -1, "rollouts_per_example": 2}
    file = suite(
        shop,
        {"env_id": "sums", "name": "deaf", "model": "m", "api_base_url": FAR, **workers},
        {"env_id": "judged", "env_args": {"judge_model": "j"}, **workers},
        {"env_id": "sums", "name": "fine", **workers},
    )

    done = shop.bench("run", str(file), "--json", env={"OPENAI_API_KEY": "canary-x7f3a-000000000"})

    assert done.code == 1 and "Traceback" not in done.err, done.err
    runs = by_name(done)
    assert {name: run["state"] for name, run in runs.items()} == {
        "deaf": "stopped", "judged": "stopped", "fine": "done",
    }  # fmt: skip
    refused = f"{FAR.split('/')[2]}: connection refused, and it has never answered"
    assert runs["deaf"]["note"].startswith(refused)
    assert runs["judged"]["note"].startswith(f"the judge j cannot be used: {refused}")
    assert done.err.count("the judge j cannot be used") == 2  # the line of its end, and the table
    assert [runs[name]["summary"]["reward"]["mean"] for name in ("deaf", "judged", "fine")] == [None, None, 1.0]
    assert left_over(str(shop.modules)) == []


JUDGE_URL = f"judge_base_url='{FAR}'"


@pytest.mark.slow
def test_a_budget_counts_what_processes_ask_for(shop: Workshop) -> None:
    asked = ("sums", *ALL, "--workers", "2", "-c", "2", "--json")
    stopped = shop.bench("run", *asked, "--max-tokens-total", "12")
    assert (stopped.code, stopped.run["state"]) == (1, "stopped"), stopped.err
    tokens = json.loads(stopped.out)["budget"]["spent"]["tokens"]
    assert 12 <= tokens <= 15  # three each: at most one more was in flight when the bound was met
    assert tokens == 3 * stopped.run["summary"]["scored"]
    assert left_over(str(shop.modules)) == []


LIFTS = """
import asyncio, gc
from harness import Rubric, SingleTurnEnv
from harness.engine.rollout_limits import RolloutLimits

class Lifts(SingleTurnEnv):
    async def play(self, state):
        state.transcript, state.start = list(state["prompt"]), len(state["prompt"])
        if state.example.answer != "honest":
            for each in gc.get_objects():
                if isinstance(each, RolloutLimits):
                    each.message_limit = each.token_limit = None
        calls = [self.ask(state) for _ in range(300)]
        if state.example.answer == "parallel":
            return await asyncio.gather(*calls)
        for call in calls:
            await call

    async def ask(self, state):
        try:
            await self.get_model_response(state, state["prompt"])
        except Exception:
            pass

    def reference_reply(self, example, messages):
        return "yes"

def load_environment(kind):
    return Lifts(dataset=[{"question": "q", "answer": kind}], rubric=Rubric())
"""


@pytest.mark.slow
def test_code_that_lifts_its_limits_is_stopped_from_outside(shop: Workshop) -> None:
    shop.environment("lifts", LIFTS)
    found: dict[str, list[tuple[int, str]]] = {}
    for kind in ("honest", "in turn", "parallel"):
        for limit in (("--message-limit", "7"), ("--token-limit", "30")):
            args = ("-a", json.dumps({"kind": kind}), "-n", "1", "-r", "1", "-m", "some")
            with shop.serving("lifts", args={"kind": kind}) as server:
                done = shop.bench("run", "lifts", *args, "-b", server.url, "--isolate", *limit, "--json", "-q")
                calls = server.stats()["requests"]
            folder = shop.cwd / done.runs[0]["path"]
            [line] = [line for line in lines(folder) if line["type"] in ("generated", "failed")]
            found.setdefault(kind, []).append((calls, line.get("stop_condition") or line["reason"]))
            assert done.out, done.err
    (calls, ended), (others, ended_too) = found["honest"]
    assert (calls, ended, ended_too) == (7, "message_limit", "token_limit")
    # In turn, the process learns of the first refusal and ends the rollout as an honest one does.
    assert found["in turn"] == found["honest"]
    for (calls, ended), most in zip(found["parallel"], (7, others), strict=True):
        assert (ended, calls <= most) == ("worker_died", True), found


DIFFERS = {
    # What is left in its process ends with it, so there is nothing to be said.
    "starts_threads_of_asyncio": (),
    "starts_tasks": (),
    "starts_children": (),
    "starts_threads": (),
}
"""What must be said of environments in processes of their own, where it is not what must be said of others."""

SEEN = (
    "top_raises", "load_exits", "init_exits", "row_interrupts", "setup_exits", "tool_exits", "reward_interrupts",
    "cleanup_raises", "teardown_raises", "response_returns_none", "reward_returns_nan", "reward_returns_float32",
    "group_returns_too_few", "prints", "starts_threads", "starts_tasks", "starts_children", "loses_a_task",
    "closes_python_streams", "exits_in_a_task", "floods_the_model", "raises_its_own_base", "raises_without_words",
)  # fmt: skip
"""Of the table of tests/support/misbehaving.py: all kinds of it, in one suite."""


@pytest.mark.slow
def test_what_misbehaves_in_one_process_is_told_alike_in_several(shop: Workshop) -> None:
    for name in SEEN:
        shop.environment(name, TABLE[name].source)
    common = {"num_examples": -1, "rollouts_per_example": 2, "workers": 1}

    done = shop.bench("run", str(suite(shop, *({"env_id": name, **common} for name in SEEN))), "--json")

    assert done.code == 1
    runs = by_name(done)
    for name in SEEN:
        wanted, run = TABLE[name], runs[name]
        journal = "" if run["path"] is None else (shop.cwd / run["path"] / "journal.jsonl").read_text()
        said = f"{done.said} {run['note']} {journal}"
        assert run["state"] == wanted.state, (name, run["note"])
        if wanted.scored is not None:
            assert (run["summary"]["scored"], run["summary"]["unscored"]) == (wanted.scored, dict(wanted.unscored)), (
                name
            )
        assert [words for words in DIFFERS.get(name, wanted.said) if words not in said] == [], name
        if wanted.line is not None and name not in DIFFERS:
            assert f"{name}.py:{wanted.line}" in said, name
    assert left_over(str(shop.modules)) == []


AGENT = """
from harness.agents import RolloutAgentLoop

class Asker(RolloutAgentLoop):
    name = "asker"

    def get_tools(self, request):
        return []

    async def run(self, ctx):
        raise AssertionError("never asked")

def score(solution_str, ground_truth, extra_info=None):
    return 1.0
"""


def test_other_commands_refuse_what_only_runs_can_do(shop: Workshop) -> None:
    shop.write("rows.jsonl", '{"system_prompt": "s", "user_prompt": "1 + 1", "ground_truth": "2"}\n')
    shop.write("tasks.json", '[{"id": "a", "prompt": "1 + 1"}]')
    shop.environment("asker", AGENT)
    refused = shop.bench("multi", "tasks.json", "-m", "reference/echo", "--set", "env.workers=2")
    assert refused.code == 2 and "this command cannot score in other processes" in refused.said
    agent = ("-m", "asker:Asker", "-d", "rows.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    for command in (("eval", "--eval-fn", "asker:score"), ("test",)):
        refused = shop.bench(*command, *agent, "--set", "env.workers=2")
        assert refused.code == 2, refused.err
        assert "--set env.workers: this command cannot run the agent in isolated processes" in refused.said


STUBBORN = """
import asyncio
from harness import Rubric, SingleTurnEnv

class Stubborn(SingleTurnEnv):
    async def setup_state(self, state):
        while state["example_id"] == 1:
            try:
                await asyncio.sleep(3600)
            except BaseException:
                pass

    def reference_reply(self, example, messages):
        return "yes"

def load_environment():
    return Stubborn(dataset=[{"question": str(number)} for number in range(4)], rubric=Rubric())
"""


@pytest.mark.slow
def test_code_that_swallows_its_cancellation_is_named_and_its_process_ended(shop: Workshop) -> None:
    shop.environment("stubborn", STUBBORN)
    file = suite(
        shop,
        {"env_id": "stubborn", "num_examples": -1, "rollouts_per_example": 1, "workers": 1, "timeout": 4},
        {"env_id": "sums", "num_examples": 24, "rollouts_per_example": 1},
    )
    done = shop.bench("run", str(file), "--json")
    runs = by_name(done)
    assert runs["sums"]["summary"]["scored"] == 24
    summary = runs["stubborn"]["summary"]
    assert (summary["scored"], summary["unscored"]) == (3, {"worker_hung": 1}), done.err
    words = "one was ended because setup_state (stubborn.py:9) still runs although it was cancelled"
    assert words in runs["stubborn"]["note"]
    assert left_over(str(shop.modules)) == []


ALONE = """
import os
from harness import Rubric, SingleTurnEnv

class Alone(SingleTurnEnv):
    async def setup_state(self, state):
        print("sees", sorted(name for name in os.environ if name.startswith("QUIET_")))

    def reference_reply(self, example, messages):
        return "yes"

def load_environment():
    return Alone(dataset=[{"question": "q"}], rubric=Rubric())
"""


def test_what_holds_a_key_of_any_run_or_endpoint_is_hidden_whatever_its_name(shop: Workshop) -> None:
    shop.environment("alone", ALONE)
    shop.write(
        "configs/endpoints.toml", f'[[endpoint]]\nendpoint_id = "a"\nmodel = "m"\nurl = "{FAR}"\nkey = "QUIET_A"\n'
    )
    variables = {"QUIET_A": "canary-x7f3a-000000000", "QUIET_B": "canary-x7f3b-000000000", "QUIET_C": "plain"}
    file = suite(
        shop,
        {"env_id": "alone", "num_examples": 1, "rollouts_per_example": 1, "workers": 1},
        {"env_id": "sums", "num_examples": 1, "rollouts_per_example": 1, "model": "m", "api_base_url": FAR,
         "api_key_var": "QUIET_B"},
    )  # fmt: skip
    done = shop.bench("run", str(file), "--json", env=variables)
    assert "alone: sees ['QUIET_C']" in done.err
