"""What becomes of a run after it was made: played again from its recording, put to another model, scored anew, and gone
on with after a kill."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from agent_evals import Evals
from bench_runs import Done, Workshop, count, lines, rows

BY_THE_CLOCK = {"wall_s", "rollouts_per_s", "resumed"}
"""Of a summary: all else is what the rollouts came to."""


def summary(run: Path) -> dict[str, Any]:
    whole = json.loads((run / "summary.json").read_text())
    return {name: value for name, value in whole.items() if name not in BY_THE_CLOCK}


def manifest(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def made(shop: Workshop, done: Done) -> Path:
    """The folder of the run that a command made."""
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    return shop.cwd / done.run["path"]


def told(run: Path) -> list[dict[str, Any]]:
    """The rollouts of a run as its dataset has them, without what only this run knows."""
    return [{name: value for name, value in row.items() if name != "timing"} for row in rows(run)]


def check_replayed(parent: Path, child: Path) -> None:
    """A replay is its parent again, in a folder of its own."""
    assert child != parent
    assert summary(child) == summary(parent)
    assert told(child) == told(parent)
    about = manifest(child)
    assert (about["parent"], about["kind"], about["status"]) == (parent.name, manifest(parent)["kind"], "done")
    assert about["derived"]["how"] == "replay" and about["derived"]["parent"] == parent.name


TOOLS = '''
from harness import Rubric, ToolEnv

def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a == 3:
        raise ValueError("three is out of order")
    return a + b

def right(completion, answer):
    return float(completion[-1]["content"].endswith(answer))

class Adding(ToolEnv):
    def reference_reply(self, example, messages):
        if messages[-1]["role"] == "tool":
            return "It is " + messages[-1]["content"]
        number = example.answer
        call = {"name": "add", "arguments": '{"a": %d, "b": %d}' % (int(number) // 2, int(number) // 2)}
        return {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": call}]}

    def null_reply(self, example, messages):
        return "I would rather not say, since this is a long story"

def load_environment():
    rows = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(8)]
    return Adding(dataset=rows, tools=[add], rubric=Rubric([right]), max_turns=4)
'''

GROUPS = """
from harness import Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

def share(completions, answers):
    right = sum(c[-1]["content"] == a for c, a in zip(completions, answers))
    return [right / len(answers) for _ in answers]

class Groups(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return "?"

def load_environment():
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(12)]
    return Groups(dataset=rows, rubric=Rubric([correct, share], [0.5, 0.5]))
"""

GAME = """
from harness import MultiTurnEnv, Rubric

class Board:
    def __init__(self):
        self.moves = []

async def played(state):
    return float(len(state["board"].moves))

class Game(MultiTurnEnv):
    async def setup_state(self, state):
        state["board"] = Board()

    async def env_response(self, messages, state, **kwargs):
        state["board"].moves.append(messages[-1]["content"])
        if state["answer"] == "3":
            raise RuntimeError("the board is broken")
        return [{"role": "user", "content": "go on"}]

    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    rows = [{"question": str(n), "answer": str(n)} for n in range(5)]
    rubric = Rubric([played], needs_live_state=True, reward_range=(0, 9))
    return Game(dataset=rows, rubric=rubric, max_turns=3)
"""

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
    return Words(dataset=rows, rubric=Rubric([right]), max_turns=3)
"""

TASKS = [
    {"id": "capital", "prompt": "The capital of France?", "expected": "Paris"},
    {"prompt": "Say something long", "timeoutMs": 60000},
    {"id": "object", "prompt": "An object", "schema": {"type": "object", "required": ["a"]}},
]

NOISY = "reference/noisy?accuracy=0.6&seed=5"


@pytest.mark.parametrize(
    ("arguments", "flaw"),
    [
        (("gsm8k", "-a", "split=sample", "-n", "12", "-m", NOISY), "wrong"),
        (("wordle", "-n", "6", "-r", "2", "-m", NOISY), "wrong"),
        (("tools", "-n", "-1", "-r", "2", "-m", NOISY, "-t", "6"), "truncated"),
        (("groups", "-n", "-1", "-r", "4", "-m", NOISY), "wrong"),
        (("game", "-n", "-1", "-r", "2", "-m", NOISY), "unscored"),
        (("multi-eval", "-a", '{"tasks": "tasks.json"}', "-r", "2", "-m", NOISY, "-t", "30"), "truncated"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_a_replay_is_the_run_again(shop: Workshop, arguments: tuple[str, ...], flaw: str) -> None:
    for name, source in (("tools", TOOLS), ("groups", GROUPS), ("game", GAME)):
        shop.environment(name, source)
    shop.write("tasks.json", json.dumps(TASKS))
    parent = made(shop, shop.bench("run", *arguments, "-q", "--json"))
    found = summary(parent)
    assert {**found, "wrong": 0 < found["reward"]["mean"] < 1}[flaw], "no picture book"
    done = shop.bench("replay", parent.name, "-q", "--json")
    child = made(shop, done)
    check_replayed(parent, child)
    document = json.loads(done.out)
    assert document["changes"]["same"] == summary(parent)["scored"]


@pytest.mark.plugins
def test_a_replay_of_an_agent_is_the_evaluation_again(evals: Evals) -> None:
    evals.rows("2 + 2", "raise", "5 + 7", "give up", "7 + 5", "fail")
    functions = ("rewards:exact_match", "rewards:broken")
    made = evals.eval("--n", "2", "--set", "model.request_retries=0", model="weak", fns=functions)
    assert made.code == 0, made.err
    [parent] = evals.runs()
    failures = {"agent_error": 4, "rewards:broken raised KeyError": 2, "server_error": 2}
    assert summary(parent)["unscored"] == failures
    asked = len(evals.model.requests)
    done = evals.bench("replay", "latest", "-q", "--json")
    assert done.code == 0, done.err
    check_replayed(parent, evals.cwd / json.loads(done.out)["runs"][0]["path"])
    assert len(evals.model.requests) == asked, "nobody was asked"


def test_a_failed_request_fails_again_at_the_same_turn(shop: Workshop) -> None:
    shop.environment("words", WORDS)
    with shop.bench_serve("--env", "words", "--policy", "oracle", "--fail-rate", "0.3", "--seed", "3") as server:
        parent = made(shop, shop.bench("run", "words", *ALL, "-r", "6", "-m", "x", "-b", server.url, "-q", "--json",
                                       "--set", "model.request_retries=0"))  # fmt: skip
    failed = [line for line in lines(parent) if line["type"] == "failed"]
    assert {bool(line["completion"]) for line in failed} == {True, False}, "some in the middle"
    assert summary(parent)["unscored"] == {"server_error": len(failed)}
    child = made(shop, shop.bench("replay", "latest", "-q", "--json"))
    check_replayed(parent, child)
    again = [line for line in lines(child) if line["type"] == "failed"]
    key = lambda line: line["key"]  # noqa: E731
    assert sorted(again, key=key) == sorted(failed, key=key)


def test_neither_a_key_nor_a_network_is_needed(shop: Workshop) -> None:
    parent = made(shop, shop.bench("run", "sums", "-n", "4", "-r", "1", "-m", "reference/noisy", "-q", "--json"))
    config = parent / "config.toml"
    text = config.read_text().replace('model = "reference/noisy"', 'model = "far-model"')
    far = 'api_base_url = "https://api.example.invalid/v1"\napi_key_var = "NOBODY_HAS_THIS_KEY"\n'
    config.write_text(text.replace("[eval.model]\n", f"[eval.model]\n{far}"))
    edited = shop.bench("run", str(config))
    assert edited.code == 2 and "(or its settings were edited)" in edited.err and "--trust" in edited.err, edited.err
    refused = shop.bench("run", str(config), "--trust")
    assert (refused.code, "NOBODY_HAS_THIS_KEY is not set" in refused.said) == (2, True), refused.said
    child = made(shop, shop.bench("replay", parent.name, "-q", "--json"))
    assert summary(child) == summary(parent)
    assert child.parent.name == "sums--far-model"
    rescored = made(shop, shop.bench("rescore", parent.name, "-q", "--json"))
    assert summary(rescored) == summary(parent)


# Scored anew

MOODY = """
import asyncio, pathlib
from harness import Rubric, SingleTurnEnv

def mood(name):
    path = pathlib.Path(name)
    return path.read_text().split() if path.exists() else []

async def graded(completion, answer):
    if answer in mood("broken"):
        raise ConnectionError("the grader is away")
    if mood("slow"):
        await asyncio.sleep(float(mood("slow")[0]))
    return float(completion[-1]["content"] == answer) * float((mood("factor") or ["1"])[0])

async def length(completion, state):
    pathlib.Path("lengths").open("a").write("x")
    state["words"] = ["counted", "by", "length"]
    return float(len(completion[-1]["content"]))

class Moody(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return "?"

def load_environment(size=12):
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)]
    return Moody(dataset=rows, rubric=Rubric([graded, length], [1.0, 0.1], reward_range=(0, 9)))
"""

ALL = ("-n", "-1")


def moody(shop: Workshop, *more: str) -> Path:
    shop.environment("moody", MOODY)
    done = shop.bench("run", "moody", *ALL, "-r", "2", "-m", NOISY, "-C", "words", "-q", "--json", *more)
    return made(shop, done)


def taken_over(run: Path) -> list[bytes]:
    """The lines of a journal that are no scores, as they are."""
    whole = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    return sorted(line for line in whole if not line.startswith(b'{"type":"scored"'))


def scores(run: Path) -> dict[str, dict[str, Any]]:
    """The newest score of each rollout, without what the clock says."""
    found = {line["key"]: line for line in lines(run) if line["type"] == "scored"}
    return {key: {name: value for name, value in line.items() if name != "seconds"} for key, line in found.items()}


def test_rescoring_after_a_changed_reward_touches_only_scores(shop: Workshop) -> None:
    parent = moody(shop)
    before = {path.name: path.read_bytes() for path in parent.rglob("*") if path.is_file() and path.name != ".lock"}
    shop.environment("moody", MOODY.replace("== answer)", "!= answer)  # turned round"))
    done = shop.bench("rescore", "latest", "-q", "--json")
    child = made(shop, done)
    assert {
        path.name: path.read_bytes() for path in parent.rglob("*") if path.is_file() and path.name != ".lock"
    } == before
    assert taken_over(child) == taken_over(parent) and len(taken_over(parent)) == 12 + 24
    old, new = scores(parent), scores(child)
    assert old.keys() == new.keys() and count(child, "scored") == 24
    assert all(new[key]["metrics"]["graded"] == 1.0 - line["metrics"]["graded"] for key, line in old.items())
    assert all(new[key]["metrics"]["length"] == line["metrics"]["length"] for key, line in old.items())
    fixed = [name for name in rows(parent)[0] if name not in ("reward", "graded", "timing")]
    assert [[row[name] for name in fixed] for row in rows(child)] == [
        [row[name] for name in fixed] for row in rows(parent)
    ]
    same = ("usage", "rollout_seconds", "truncated", "num_rollouts", "planned", "not_run")
    assert [summary(child)[name] for name in same] == [summary(parent)[name] for name in same]
    right = sum(line["metrics"]["graded"] for line in old.values())
    changes = json.loads(done.out)["changes"]
    assert (changes["same"], changes["up"], changes["down"], changes["scored"], changes["unscored"]) == (
        0, 24 - right, right, 0, 0,
    )  # fmt: skip
    about = manifest(child)
    assert (about["parent"], about["derived"]["how"], about["derived"]["only"]) == (parent.name, "rescore", None)


def test_only_unscored_leaves_alone_what_has_a_score(shop: Workshop) -> None:
    broken = shop.write("broken", "4 8")
    parent = moody(shop)
    assert summary(parent)["unscored"] == {"graded raised ConnectionError": 4}
    broken.unlink()
    shop.environment("moody", MOODY.replace("== answer)", "!= answer)  # turned round"))
    counted = len((shop.cwd / "lengths").read_text())
    done = shop.bench("rescore", "latest", "--only", "unscored", "-q", "--json")
    child = made(shop, done)
    assert len((shop.cwd / "lengths").read_text()) - counted == 4, "nothing else was scored"
    assert taken_over(child) == taken_over(parent)
    old, new = scores(parent), scores(child)
    kept = {key for key, line in old.items() if line["outcome"] == "scored"}
    assert {key: new[key] for key in kept} == {key: old[key] for key in kept} and len(kept) == 20
    assert all(new[key]["outcome"] == "scored" for key in new.keys() - kept)
    whole = {
        line for line in (parent / "journal.jsonl").read_bytes().splitlines() if line.startswith(b'{"type":"scored"')
    }
    again = {
        line for line in (child / "journal.jsonl").read_bytes().splitlines() if line.startswith(b'{"type":"scored"')
    }
    assert len(whole & again) == 20, "byte for byte"
    changes = json.loads(done.out)["changes"]
    assert (changes["same"], changes["scored"], changes["up"], changes["down"]) == (20, 4, 0, 0)
    assert [change["example_id"] for change in changes["first"]] == [2, 4]


def test_only_one_function_runs_and_the_others_keep_their_values(shop: Workshop) -> None:
    parent = moody(shop)
    counted = len((shop.cwd / "lengths").read_text())
    shop.write("factor", "0.5")
    child = made(shop, shop.bench("rescore", "latest", "--only", "graded", "-q", "--json"))
    assert len((shop.cwd / "lengths").read_text()) == counted, "length did not run"
    assert taken_over(child) == taken_over(parent)
    old, new = scores(parent), scores(child)
    for key, line in old.items():
        graded, length = line["metrics"]["graded"], line["metrics"]["length"]
        assert new[key]["metrics"] == {"graded": graded / 2, "length": length}
        assert new[key]["reward"] == graded / 2 + 0.1 * length
        assert new[key]["extra"] == {"words": ["counted", "by", "length"]}, "what length had left is there"
    assert [row["words"] for row in rows(child)] == [row["words"] for row in rows(parent)]
    (shop.cwd / "factor").unlink()
    again = made(shop, shop.bench("rescore", parent.name, "--only", "length", "-q", "--json"))
    assert summary(again) == summary(parent), "to the last bit"


def test_group_rewards_are_scored_as_groups(shop: Workshop) -> None:
    shop.environment("groups", GROUPS)
    parent = made(shop, shop.bench("run", "groups", *ALL, "-r", "4", "-m", NOISY, "-q", "--json"))
    shop.environment("groups", GROUPS.replace("right / len(answers)", "right * 2 / len(answers)"))
    whole = made(shop, shop.bench("rescore", parent.name, "-q", "--json"))
    part = made(shop, shop.bench("rescore", parent.name, "--only", "share", "-q", "--json"))
    single = made(shop, shop.bench("rescore", parent.name, "--only", "correct", "-q", "--json"))
    old = {key: line["metrics"] for key, line in scores(parent).items()}
    doubled = {key: {**metrics, "share": 2 * metrics["share"]} for key, metrics in old.items()}
    assert {key: line["metrics"] for key, line in scores(whole).items()} == doubled
    assert {key: line["metrics"] for key, line in scores(part).items()} == doubled
    assert {key: line["metrics"] for key, line in scores(single).items()} == old
    assert {key: line["reward"] for key, line in scores(part).items()} == {
        key: 0.5 * metrics["correct"] + 0.5 * metrics["share"] for key, metrics in doubled.items()
    }


def test_a_judge_is_asked_again_and_nobody_else(shop: Workshop) -> None:
    shop.environment("judged", JUDGED)
    with shop.bench_serve("--env", "judged", "-a", '{"size": 24}', "--policy", "judge") as judges:
        arguments = json.dumps({"size": 24, "judge_base_url": judges.url})
        run = ("run", "judged", *ALL, "-r", "1", "-a", arguments, "-m", NOISY, "-q", "--json")
        parent = made(shop, shop.bench(*run))
        assert judges.stats()["requests"] == 24
        child = made(shop, shop.bench("rescore", "latest", "-q", "--json"))
        assert judges.stats()["requests"] == 48
        exact = made(shop, shop.bench("rescore", parent.name, "--only", "exact", "-q", "--json"))
        assert judges.stats()["requests"] == 48, "exact asks no judge"
    unreachable = made(shop, shop.bench("rescore", parent.name, "--only", "exact", "-q", "--json"))
    means = [summary(run)["reward"]["mean"] for run in (parent, child, exact, unreachable)]
    assert means == [means[0]] * 4
    assert 0 < means[0] < 2, "24 draws by keys that contain the port are all alike once in 8 million"
    assert summary(exact)["judge_usage"] == summary(parent)["judge_usage"]


JUDGED = """
from harness import JudgeRubric, SingleTurnEnv
from harness.rubrics.judge import judge_verdict, quoted_response

async def exact(completion, answer):
    return float(completion[-1]["content"] == answer)

class Judged(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def reference_verdict(self, example, messages):
        said = "CORRECT" if quoted_response(messages) == example.answer else "INCORRECT"
        return "<verdict>" + said + "</verdict>"

def load_environment(size=8, judge_base_url=None):
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)]
    rubric = JudgeRubric([judge_verdict, exact], judge_model="reference/judge", judge_base_url=judge_base_url)
    return Judged(dataset=rows, rubric=rubric)
"""


def test_what_only_a_live_state_can_tell_is_not_rescored(shop: Workshop) -> None:
    shop.environment("game", GAME)
    parent = made(shop, shop.bench("run", "game", *ALL, "-r", "1", "-m", NOISY, "-q", "--json"))
    for only in ((), ("--only", "unscored"), ("--only", "played")):
        refused = shop.bench("rescore", parent.name, *only)
        assert (refused.code, refused.out) == (2, "")
        assert "the rubric of game reads state that a journal cannot store" in refused.said
        assert "bench replay" in refused.said
    assert shop.run_dir() == parent, "and no folder was made"


# Another model


def test_the_same_prompts_go_to_another_model(shop: Workshop) -> None:
    parent = made(shop, shop.bench("run", "sums", "-n", "20", "-r", "2", "-m", NOISY, "-q", "--json"))
    with shop.serving(args={"size": 24}) as server:
        source = (shop.modules / "sums.py").read_text()
        shop.environment("sums", source.replace('f"{tag}{n} + {n}"', 'f"what is {n} + {n}"'))
        done = shop.bench("replay", "latest", "--model", "reference/oracle", "-b", server.url, "-q", "--json")
        assert done.code == 0, done.err
        assert sum(server.stats()["rollouts"].values()) == 40
    child = made(shop, done)
    assert child.parent.name == "sums--reference--oracle"
    examples = [line for line in lines(child) if line["type"] == "example"]
    assert examples == [line for line in lines(parent) if line["type"] == "example"], "as they were asked"
    assert summary(child)["num_rollouts"] == 40
    document = json.loads(done.out)
    paired = document["changes"]["paired"]
    assert (paired["pairs"], paired["difference"]) == (20, pytest.approx(1.0 - summary(parent)["reward"]["mean"]))
    assert paired["ci95"][0] < paired["difference"] < paired["ci95"][1]
    assert document["parent"] == {
        "id": parent.name, "path": str(parent.relative_to(shop.cwd)), "env_id": "sums", "model": NOISY,
        "how": "replay", "only": None, "rollouts": 40, "planned": 40,
    }  # fmt: skip


# Gone on with


def kill(shop: Workshop, kind: str, number: int, *command: str) -> Path:
    """Start a command that makes a run, and kill it when the run has so many lines of a kind."""
    known = set(shop.run_dirs())
    running = shop.start(*command)
    running.until(
        lambda: any(count(path.parent, kind) >= number for path in set(shop.run_dirs()) - known),
        f"{number} lines are on disk",
    )
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    [made] = set(shop.run_dirs()) - known
    return made.parent


@pytest.mark.slow
def test_a_killed_rescore_goes_on_as_a_rescore(shop: Workshop) -> None:
    parent = moody(shop, "-c", "4")
    shop.write("factor", "0.5")
    slow = shop.write("slow", "0.05")
    child = kill(shop, "scored", 6, "rescore", "latest", "-c", "2", "-q")
    assert manifest(child)["status"] == "running"
    done_before = scores(child)
    slow.unlink()
    done = shop.bench("resume", child.name, "-q", "--json")
    assert made(shop, done) == child
    assert json.loads(done.out)["parent"]["id"] == parent.name
    assert taken_over(child) == taken_over(parent)
    assert count(child, "scored") == 24, "nothing is scored twice"
    assert {key: scores(child)[key] for key in done_before} == done_before
    calm = made(shop, shop.bench("rescore", parent.name, "-q", "--json"))
    assert summary(child) == summary(calm)
    assert (manifest(child)["parent"], manifest(child)["derived"]["how"]) == (parent.name, "rescore")


@pytest.mark.slow
def test_a_killed_replay_goes_on_as_a_replay(shop: Workshop) -> None:
    parent = moody(shop)
    slow = shop.write("slow", "0.05")
    child = kill(shop, "scored", 6, "replay", "latest", "-c", "2", "-q")
    slow.unlink()
    refused = shop.bench("run", str(child / "config.toml"), "--resume-from", str(child))
    assert refused.code == 2, "it would ask the model"
    assert made(shop, shop.bench("resume", child.name, "-q", "--json")) == child
    assert (count(child, "generated"), count(child, "scored")) == (24, 24)
    check_replayed(parent, child)
    whole = shop.bench("resume", child.name)
    assert (whole.code, whole.err) == (0, "")
    assert "is done: 24 of 24 rollouts have an outcome, and nothing is left to do" in whole.out


@pytest.mark.slow
def test_a_replay_by_another_model_goes_on_with_that_model(shop: Workshop) -> None:
    moody(shop)
    slow = shop.write("slow", "0.05")
    child = kill(shop, "scored", 4, "replay", "latest", "--model", "reference/null", "-c", "2", "-q")
    slow.unlink()
    assert made(shop, shop.bench("resume", child.name, "-q", "--json")) == child
    assert (manifest(child)["model"], count(child, "generated")) == ("reference/null", 24)
    assert summary(child)["reward"]["mean"] == pytest.approx(0.1)


@pytest.mark.slow
def test_a_killed_run_goes_on_by_its_name_alone(shop: Workshop) -> None:
    shop.environment("moody", MOODY)
    slow = shop.write("slow", "0.05")
    run = kill(shop, "scored", 6, "run", "moody", *ALL, "-r", "2", "-m", NOISY, "-c", "2", "-q")
    slow.unlink()
    assert made(shop, shop.bench("resume", run.name[:15], "-q", "--json")) == run
    assert (count(run, "generated"), count(run, "scored"), summary(run)["not_run"]) == (24, 24, 0)
    shutil.move(shop.cwd / "outputs", shop.cwd / "archive")
    assert shop.bench("resume", "latest").code == 2
    moved = shop.bench("rescore", "latest", "-o", "archive", "-q", "--json")
    assert made(shop, moved).is_relative_to(shop.cwd / "archive"), "a new run stands beside its parent"
