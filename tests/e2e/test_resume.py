"""Going on with a run: what is added, what is left alone, and what is refused by name."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from bench_runs import Workshop, count, lines, rows, summary

FROM_FILE = """
import json, pathlib
from harness import Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

class FromFile(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

def load_environment(file="rows.json", hint=""):
    return FromFile(dataset=json.loads(pathlib.Path(file).read_text()), rubric=Rubric([correct]))
"""

FRAGILE = """
import pathlib
from harness import Rubric, SingleTurnEnv

def broken(name, number):
    path = pathlib.Path(name)
    return path.exists() and str(number) in path.read_text().split()

def graded(answer):
    if broken("no-judge", answer):
        raise ConnectionError("the judge is away")
    return 1.0

class Fragile(SingleTurnEnv):
    async def setup_state(self, state):
        if broken("no-sandbox", state["answer"]):
            raise RuntimeError("no sandbox")

    def reference_reply(self, example, messages):
        return "yes"

def load_environment():
    rows = [{"question": str(number), "answer": str(number)} for number in range(6)]
    return Fragile(dataset=rows, rubric=Rubric([graded]))
"""


def questions(shop: Workshop, numbers: range, name: str = "rows.json") -> None:
    data = [{"question": f"question {number}", "answer": str(number)} for number in numbers]
    shop.write(name, json.dumps(data))


def contents(run: Path) -> dict[str, bytes]:
    """Every file of a run but its lock, which says who came last."""
    return {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.slow
def test_growing_n_and_r_asks_only_for_what_is_new(shop: Workshop) -> None:
    model = "reference/noisy?accuracy=0.5&seed=2"
    with shop.serving() as server:
        base = ["run", "sums", "-m", model, "-b", server.url, "-q"]

        def run(examples: int, rollouts: int, *more: str) -> Counter[str]:
            before = Counter(server.stats()["rollouts"])
            done = shop.bench(*base, "-n", str(examples), "-r", str(rollouts), *more)
            assert done.code == 0, done.err
            return Counter(server.stats()["rollouts"]) - before

        assert run(4, 1).total() == 4
        first = {row["example_id"]: row["completion"] for row in rows(shop.run_dir())}
        assert run(4, 1, "--resume").total() == 0, "nothing is left to do"
        assert run(10, 1, "--resume").total() == 6
        assert run(10, 3, "--resume").total() == 20
        assert set(Counter(server.stats()["rollouts"]).values()) == {1}
        grown = shop.run_dir()
        assert (summary(grown)["num_rollouts"], summary(grown)["planned"]) == (30, 30)
        kept = {row["example_id"]: row["completion"] for row in rows(grown) if row["rollout_index"] == 0}
        assert first.items() <= kept.items()
        assert run(10, 3, "-o", "whole").total() == 30
    assert summary(shop.run_dir("whole")) == summary(grown), "as if it had been asked for at once"
    assert [line for line in lines(grown) if line["type"] == "example"] == sorted(
        (line for line in lines(grown) if line["type"] == "example"), key=lambda line: line["index"]
    )


@pytest.mark.slow
def test_a_run_is_named_by_path_id_prefix_or_latest(shop: Workshop) -> None:
    args = ["run", "sums", "-m", "reference/oracle", "-q", "--json"]
    assert shop.bench(*args, "-n", "2", "-r", "1").code == 0
    run = shop.run_dir()
    for number, name in enumerate((str(run), str(run.relative_to(shop.cwd)), run.name, run.name[:12], "latest"), 3):
        done = shop.bench(*args, "-n", str(number), "-r", "1", "--resume-from", name)
        assert done.code == 0, done.err
        assert Path(done.run["path"]).name == run.name
        assert done.run["summary"]["scored"] == number
    assert shop.run_dir() == run
    nowhere = shop.bench(*args, "--resume-from", "20010101T")
    assert (nowhere.code, nowhere.out) == (2, "")
    assert "no run '20010101T'" in nowhere.said


def test_resume_without_an_earlier_run_starts_one(shop: Workshop) -> None:
    done = shop.bench("run", "sums", "-n", "2", "-m", "reference/oracle", "--resume", "-q")
    assert done.code == 0, done.err
    assert count(shop.run_dir(), "scored") == 6


@pytest.mark.slow
def test_what_changes_results_is_refused_by_name(shop: Workshop) -> None:
    shop.environment("from_file", FROM_FILE)
    questions(shop, range(6))
    args = ["run", "from-file", "-m", "reference/oracle", "-n", "6", "-r", "2", "-q"]
    assert shop.bench(*args, "-T", "0.5").code == 0
    run = shop.run_dir()
    before = contents(run)

    def refused(words: str, *more: str) -> None:
        done = shop.bench(*args, *more, *([] if "--resume-from" in more else ["--resume"]))
        assert (done.code, done.out) == (2, ""), done.err
        assert re.search(words, done.said), done.said
        assert "Traceback" not in done.err
        assert shop.run_dir() == run, "and nothing was started instead"
        assert contents(run) == before

    refused(r"model\.sampling_args\.temperature was 0\.5, now 0\.7", "-T", "0.7")
    refused(r"model\.sampling_args\.temperature was 0\.5, now not set")
    args += ["-T", "0.5"]
    refused(r'env\.env_args\.hint was not set, now "more"', "-a", '{"hint": "more"}')
    refused(r"order\.shuffle was false, now true", "--shuffle")
    refused(r"timeout was null, now 5", "--timeout", "5")
    refused(r"-n: the earlier value is 6, the new one 5, but", "-n", "5")
    refused(r"-r: the earlier value is 2, the new one 1", "-r", "1")
    other = ("-m", "reference/null", "--resume-from", run.name)
    refused(r'model\.names was \["reference/oracle"\], now \["reference/null"\]', *other)
    questions(shop, range(4, 10))
    refused(r"4 of 6 recorded examples are gone: the dataset, the environment or -n has changed")
    questions(shop, range(6))
    shop.environment("from_file", FROM_FILE + "# a word more\n")
    refused(r"env\.source has changed")
    shop.environment("from_file", FROM_FILE)
    assert shop.bench(*args, "--resume").code == 0, "changed back, it goes on"


def test_new_rows_behind_the_recorded_ones_are_no_change(shop: Workshop) -> None:
    shop.environment("from_file", FROM_FILE)
    questions(shop, range(3))
    args = ["run", "from-file", "-m", "reference/oracle", "-n", "-1", "-r", "1", "-q"]
    assert shop.bench(*args).code == 0
    questions(shop, range(5))
    assert shop.bench(*args, "--resume").code == 0
    run = shop.run_dir()
    assert [row["answer"] for row in rows(run)] == ["0", "1", "2", "3", "4"]
    assert count(run, "generated") == 5


def test_failures_stay_until_a_retry_is_asked_for(shop: Workshop) -> None:
    shop.environment("fragile", FRAGILE)
    sandbox, judge = shop.write("no-sandbox", "1 2"), shop.write("no-judge", "3")
    args = ["run", "fragile", "-m", "reference/oracle", "-n", "6", "-r", "2", "--json", "-q"]
    first = shop.bench(*args)
    assert first.code == 0, first.err
    assert first.run["summary"]["unscored"] == {"environment_error": 4, "graded raised ConnectionError": 2}
    assert first.run["summary"]["scored"] == 6
    assert first.run["summary"]["reward"]["mean"] == 1.0, "what failed is no zero"
    run = shop.run_dir()
    sandbox.unlink()
    judge.unlink()
    left = shop.bench(*args, "--resume")
    assert left.run["summary"]["unscored"] == first.run["summary"]["unscored"]
    generated = count(run, "generated")
    again = shop.bench(*args, "--resume", "--retry-failed")
    assert again.code == 0, again.err
    assert (again.run["summary"]["unscored"], again.run["summary"]["scored"]) == ({}, 12)
    assert count(run, "generated") == generated + 4, "what was generated is only scored again"
    table = rows(run)
    assert len(table) == len({(row["example_id"], row["rollout_index"]) for row in table}) == 12
    assert {(row["outcome"], row["error"]) for row in table} == {("scored", None)}


def test_two_processes_do_not_write_one_run(shop: Workshop) -> None:
    with shop.serving(latency=0.2) as server:
        args = ["run", "sums", "-n", "20", "-c", "2", "-m", "reference/oracle", "-b", server.url, "-q"]
        first = shop.start(*args)
        first.until(lambda: any(count(path.parent, "scored") for path in shop.run_dirs()), "it is under way")
        second = shop.bench(*args, "--resume")
        assert second.code == 1, second.err
        assert f"is being written by another process (pid {first.process.pid})" in second.said
        assert "Traceback" not in second.err
        first.process.terminate()
        assert first.wait().code == 130


def test_damage_in_the_middle_is_named_and_nothing_is_changed(shop: Workshop) -> None:
    args = ["run", "sums", "-n", "3", "-r", "1", "-m", "reference/oracle", "-q"]
    assert shop.bench(*args).code == 0
    journal = shop.run_dir() / "journal.jsonl"
    content = journal.read_bytes().splitlines(keepends=True)
    content[3] = b'{"type": "generated", "key"\n'
    journal.write_bytes(b"".join(content))
    done = shop.bench(*args, "-n", "5", "--resume")
    assert done.code == 1, done.err
    assert re.search(r"journal\.jsonl:4 \(byte \d+\): the line cannot be read", done.said)
    assert "Traceback" not in done.err
    assert journal.read_bytes() == b"".join(content)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("sums", "--no-save", "--resume"), "--resume needs the journal of a run, but --no-save saves none"),
        (("sums,sums", "--resume-from", "latest"), "resumes one run, but this command starts 2 runs"),
    ],
)
def test_what_cannot_be_resumed_is_said_before_anything_starts(
    shop: Workshop, args: tuple[str, ...], words: str
) -> None:
    shop.environment("other", (shop.modules / "sums.py").read_text())
    target = args[0].replace("sums,sums", "sums,other")
    done = shop.bench("run", target, *args[1:], "-m", "reference/oracle")
    assert (done.code, done.out) == (2, "")
    assert words in done.said
    assert not (shop.cwd / "outputs").exists()


GROUP_OF_OBJECTS = """
from harness import MultiTurnEnv, Rubric

async def members(states):
    return [float(len(states))] * len(states)

async def alive(state):
    return float(state["thing"] is not None)

class Things(MultiTurnEnv):
    async def setup_state(self, state):
        state["thing"] = object()

    async def env_response(self, messages, state, **kwargs):
        return []

    def reference_reply(self, example, messages):
        return example.answer

def load_environment():
    rows = [{"question": str(n), "answer": str(n)} for n in range(12)]
    return Things(dataset=rows, rubric=Rubric([members, alive], [1.0, 1.0], reward_range=(0, 4)), max_turns=1)
"""


def test_a_group_whose_states_no_journal_holds_is_scored_as_a_whole_also_when_scoring_waits(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    shop.environment("things", GROUP_OF_OBJECTS)
    command = ["run", "things", "-m", "reference/oracle", "-r", "2", "-c", "4", "-N", "--resume", "--json"]
    first = shop.bench(*command, "-n", "1")
    grown = shop.bench(*command, "-n", "12")
    assert grown.run["path"] == first.run["path"]
    summary = grown.run["summary"]
    assert (summary["scored"], summary["unscored"], summary["reward"]["mean"]) == (24, {}, 3.0), grown.err
    journal = (shop.cwd / grown.run["path"] / "journal.jsonl").read_text().splitlines()
    assert sum('"scored"' in line[:40] for line in journal) == 24, "nobody is scored twice"
