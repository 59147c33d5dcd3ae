"""Environments that break in every way: each is named, none is a score of 0, and the others finish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_runs import Workshop, count, lines, rows

BASE = """
import asyncio, time
from harness import MultiTurnEnv, Rubric, SingleTurnEnv

ROWS = [{"question": f"question {n}", "answer": str(n)} for n in range(4)]

def fine(completion, answer):
    return float(completion[-1]["content"] == answer)

class Good(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer
"""

ENVIRONMENTS = {
    "no_import": "import a_package_that_nobody_has\n",
    "bad_import": "raise ValueError('left half way')\n",
    "no_load": "x = 1\n",
    "bad_load": BASE + "def load_environment():\n    raise FileNotFoundError('data.csv')\n",
    "no_rows": BASE + "def load_environment():\n    return Good(dataset=[], rubric=Rubric([fine]))\n",
    "bad_list": BASE
    + """
def load_environment():
    return Good(dataset=[*ROWS, {"answer": "no question"}, *ROWS], rubric=Rubric([fine]))
""",
    "bad_row": BASE
    + """
class Lazy:
    reads = 0

    def __len__(self):
        return 9

    def __getitem__(self, index):
        if index == 4:
            Lazy.reads += 1
            if Lazy.reads > ALLOWED:
                raise OSError("the shard is truncated")
        return {"question": f"question {index}", "answer": str(index)}

def load_environment(allowed):
    global ALLOWED
    ALLOWED = allowed
    return Good(dataset=Lazy(), rubric=Rubric([fine]))
""",
    "bad_turn": BASE
    + """
class Turns(MultiTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    async def env_response(self, messages, state, **kwargs):
        if state["answer"] in "01":
            raise ZeroDivisionError("by zero")
        return [{"role": "user", "content": "again"}]

def load_environment():
    return Turns(max_turns=2, dataset=ROWS, rubric=Rubric([fine]))
""",
    "bad_reward": BASE
    + """
def shaky(answer):
    if answer == "1":
        raise KeyError("verdict")
    return float("nan") if answer == "2" else 1.0

def extra(answer):
    raise RuntimeError("only a metric")

def load_environment():
    return Good(dataset=ROWS, rubric=Rubric([shaky, extra], [1.0, 0.0]))
""",
    "slow_rollout": BASE
    + """
class Slow(Good):
    async def setup_state(self, state):
        if state["answer"] == "1":
            await asyncio.sleep(600)

def load_environment():
    return Slow(dataset=ROWS, rubric=Rubric([fine]))
""",
    "slow_scoring": BASE
    + """
async def patient(answer):
    if answer == "1":
        await asyncio.sleep(600)
    return 1.0

def blocking(answer):
    if answer == "2":
        time.sleep(600)
    return 1.0

def load_environment():
    return Good(dataset=ROWS, rubric=Rubric([patient, blocking]))
""",
    "all_hang": BASE
    + """
def blocking():
    time.sleep(600)

def load_environment():
    return Good(dataset=ROWS, rubric=Rubric([blocking]))
""",
    "odd_state": BASE
    + """
class Odd(Good):
    async def setup_state(self, state):
        state["odd \\ud800"] = {"\\ud800": float("inf"), "big": 2**70}
        if state["answer"] == "1":
            state["info"]["cycle"] = state["info"]

def load_environment():
    return Odd(dataset=ROWS, rubric=Rubric([fine]))
""",
    "exits": BASE
    + """
import sys
class Exits(Good):
    async def setup_state(self, state):
        if state["answer"] == "1":
            sys.exit("enough")

def load_environment():
    return Exits(dataset=ROWS, rubric=Rubric([fine]))
""",
}


@pytest.fixture
def broken(shop: Workshop) -> Iterator[Workshop]:
    for module, source in ENVIRONMENTS.items():
        shop.environment(module, source)
    yield shop


def suite(shop: Workshop, *names: str, **settings: object) -> str:
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    text += "".join(f'[[eval]]\nenv_id = "{name.replace("_", "-")}"\n' for name in names)
    shop.write("suite.toml", text)
    return "suite.toml"


def test_environments_that_do_not_load_do_not_touch_the_others(broken: Workshop) -> None:
    bad = {
        "no_import": "it needs the module 'a_package_that_nobody_has', which is not installed",
        "bad_import": "importing it failed: ValueError: left half way",
        "no_load": "has no load_environment()",
        "bad_load": "load_environment() failed: FileNotFoundError: data.csv",
        "no_rows": "dataset is empty",
        "bad_list": "dataset row 4",
    }
    done = broken.bench("run", suite(broken, *bad, "sums"), "-n", "4", "-r", "1", "-m", "reference/oracle", "--json")
    assert done.code == 1, done.err
    assert "Traceback" not in done.err
    runs = {run["name"].replace("-", "_"): run for run in done.runs}
    assert list(runs) == [*bad, "sums"]
    for name, words in bad.items():
        run = runs[name]
        assert (run["state"], run["path"], run["summary"]) == ("failed", None, None)
        assert words in run["note"], run["note"]
        assert name.replace("_", "-") in run["note"]
    assert (runs["sums"]["state"], runs["sums"]["summary"]["reward"]["mean"]) == ("done", 1.0)
    assert [path.parent.parent.name for path in broken.run_dirs()] == ["sums--reference--oracle"]


def test_rollouts_that_break_are_named_and_no_zeros(broken: Workshop) -> None:
    reasons = {
        "bad_turn": {"environment_error": 4},
        "bad_reward": {"shaky raised KeyError": 2, "shaky returned nan": 2},
        "slow_rollout": {"timeout": 2},
        "slow_scoring": {"scoring timeout": 4},
        "sums": {},
    }
    target = suite(broken, *reasons, num_examples=4, rollouts_per_example=2, timeout=1.5, scoring_timeout=1.5)
    done = broken.bench("run", target, "-m", "reference/oracle", "--json")
    assert done.code == 0, done.err
    runs = {run["name"].replace("-", "_"): run for run in done.runs}
    assert {name: run["summary"]["unscored"] for name, run in runs.items()} == reasons
    for name, run in runs.items():
        numbers = run["summary"]
        assert run["state"] == "done"
        assert numbers["scored"] == 8 - sum(reasons[name].values())
        assert numbers["reward"]["min"] >= 1.0, "what broke is nowhere a 0"
    assert runs["bad_reward"]["summary"]["metrics"]["extra"]["mean"] is None
    errors = {
        row["example_id"]: row["error"] for row in rows(broken.cwd / runs["bad_turn"]["path"]) if row["reward"] is None
    }
    assert errors.keys() == {"0", "1"}
    assert all("ZeroDivisionError: by zero (in env_response, bad_turn.py:" in error for error in errors.values())
    [shaky] = {row["error"] for row in rows(broken.cwd / runs["bad_reward"]["path"]) if row["answer"] == "1"}
    assert "raised KeyError: 'verdict'" in shaky


def test_nothing_scored_is_no_success(broken: Workshop) -> None:
    broken.environment("never", BASE + "def zero():\n    raise OSError('no judge')\n\n"
                       "def load_environment():\n    return Good(dataset=ROWS, rubric=Rubric([zero]))\n")  # fmt: skip
    done = broken.bench("run", "never", "-m", "reference/oracle", "-r", "1", "-n", "4")
    assert done.code == 1
    said = " ".join(done.out.split())
    assert "4 unscored (zero raised OSError 4); mean 0.000 if all were worst, 1.000 if all best" in said
    assert "0.000" not in said.partition("4 unscored")[0], "no score is not a score of 0"


def test_a_broken_row_is_found_before_anything_is_paid_for(broken: Workshop) -> None:
    args = ["run", "bad-row", "-r", "1", "-m", "reference/oracle", "-a", '{"allowed": 0}', "--json"]
    done = broken.bench(*args, "-n", "-1")
    assert done.code == 1, done.err
    assert (done.run["state"], done.run["path"]) == ("failed", None)
    assert "row 4 cannot be read: OSError: the shard is truncated" in done.run["note"]
    without = broken.bench(*args, "-n", "4")
    assert without.code == 0, "a row that is not asked for is not missed"


def test_a_row_that_breaks_later_ends_its_run_and_keeps_what_is_done(broken: Workshop) -> None:
    broken.write(
        "suite.toml",
        """
        num_examples = -1
        rollouts_per_example = 1
        max_concurrent = 1
        [[eval]]
        env_id = "bad-row"
        args = { allowed = 1 }
        [[eval]]
        env_id = "sums"
        """,
    )
    args = ["run", "suite.toml", "-m", "reference/oracle", "--json"]
    done = broken.bench(*args)
    assert done.code == 1, done.err
    bad, good = done.runs
    assert (bad["state"], good["state"]) == ("failed", "done")
    assert "row 4 cannot be read: OSError: the shard is truncated" in bad["note"]
    assert bad["summary"]["reward"]["mean"] == 1.0
    kept = broken.cwd / bad["path"]
    assert count(kept, "generated") == bad["summary"]["num_rollouts"]
    assert bad["summary"]["not_run"] == 9 - bad["summary"]["num_rollouts"]
    # A resume reads the rows again to see whether they are still there, and is no more than a failed run either.
    again = broken.bench(*args, "--resume")
    assert again.code == 1, again.err
    assert [run["state"] for run in again.runs] == ["failed", "done"]
    assert "row 4" in again.runs[0]["note"]


def test_calls_that_all_hang_stop_their_run(broken: Workshop) -> None:
    target = suite(
        broken, "all_hang", "sums", num_examples=4, rollouts_per_example=6, scoring_timeout=0.3, max_concurrent=4
    )
    done = broken.bench("run", target, "-m", "reference/oracle", "--json")
    assert done.code == 1, done.err
    hung, good = done.runs
    assert hung["state"] == "failed"
    assert "calls to blocking environment code are hanging (reward function blocking)" in hung["note"]
    assert hung["summary"]["scored"] == 0
    assert good["state"] == "done", good["note"]


def test_odd_values_in_a_state_cost_at_most_their_rollout(broken: Workshop) -> None:
    done = broken.bench("run", "odd-state", "-m", "reference/oracle", "-n", "4", "-r", "2", "--json", "-C", "odd")
    assert done.code == 0, done.err
    numbers = done.run["summary"]
    assert numbers["num_rollouts"] == 8
    assert numbers["scored"] >= 6
    assert len(rows(broken.run_dir())) == 8


def test_an_environment_that_exits_fails_its_rollout(broken: Workshop) -> None:
    done = broken.bench("run", "exits", "-m", "reference/oracle", "-n", "4", "-r", "2", "--json")
    assert done.code == 0, done.err
    assert done.run["summary"]["unscored"] == {"environment_error": 2}
    assert done.run["summary"]["scored"] == 6
    assert "Traceback" not in done.err
    failures = [line for line in lines(broken.run_dir()) if line["type"] == "failed"]
    assert all("SystemExit" in failure["error"] for failure in failures)


@pytest.mark.parametrize("limit", [40_000])
def test_a_disk_that_is_full_stops_the_run_with_one_message(shop: Workshop, limit: int) -> None:
    import resource

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = shop.start("run", "sums", "-n", "-1", "-r", "40", "-m", "reference/oracle", preexec_fn=small_files).wait()
    assert done.code == 1, done.err
    run = shop.run_dir()
    assert (run / "journal.jsonl").stat().st_size <= limit
    assert done.err.count("cannot write") == 1, done.err
    assert "journal.jsonl: File too large" in done.said
    assert "Traceback" not in done.err
    generated, scored = count(run, "generated"), count(run, "scored")
    assert 0 < scored <= generated < 960
    again = shop.bench("run", "sums", "-n", "-1", "-r", "40", "-m", "reference/oracle", "--resume", "--json")
    assert again.code == 0, again.err
    assert (again.run["summary"]["scored"], Path(again.run["path"]).name) == (960, run.name)
