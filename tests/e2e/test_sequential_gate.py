"""The sequential gate from end to end: what it decides, saves, resumes, says later and refuses."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from bench_runs import ROOT, Done, Workshop, count, lines, summary

BASE = ("run", "sums", "-a", '{"size": 400}', "-n", "-1", "-r", "1", "-c", "4", "-q")
GOOD, EQUAL, WORSE = (f"reference/noisy?accuracy={text}" for text in ("0.9", "0.9&seed=2", "0.6"))
QUESTIONS = ROOT.parent / "shared" / "data" / "gsm8k" / "test.jsonl"


def baseline_of(shop: Workshop, *more: str, model: str = GOOD) -> str:
    """A whole run; returns its id."""
    done = shop.bench(*BASE, *more, "-m", model)
    assert done.code == 0, done.err
    return newest(shop).name


def ask(shop: Workshop, against: str, model: str, *more: str, margin: str = "0.1") -> Done:
    return shop.bench("gate", "--against", against, "--sequential", "-m", model, "--margin", margin, "-q", *more)


def newest(shop: Workshop) -> Path:
    """The run that ended last; two of one second have no order of their names."""
    return max(shop.run_dirs(), key=lambda path: path.stat().st_mtime_ns).parent


def gate_of(folder: Path) -> dict[str, Any]:
    return summary(folder)["until_ci"]["gate"]


def test_an_equal_candidate_passes_early_and_every_screen_says_so(shop: Workshop) -> None:
    base = baseline_of(shop)
    done = ask(shop, base, EQUAL)
    assert done.code == 0, done.err
    folder = newest(shop)
    told, flat = summary(folder), " ".join(done.out.split())
    made = told["num_rollouts"]
    assert 40 < made < 400 and told["planned"] == made and told["coverage"] == 1.0
    gate = gate_of(folder)
    assert (gate["baseline"], gate["margin"], gate["verdict"]) == (base, 0.1, "pass")
    low, high = gate["interval"]
    assert -0.1 < low <= gate["difference"] <= high
    assert f"{400 - made} examples saved" in flat and "PASS: " in flat
    assert f"sums: pass: the interval [{low:+.3f}, {high:+.3f}] of the difference over all examples lies above" in flat
    # The same verdict later, from the folders alone; other margins are as valid, other baselines are not.
    later = shop.bench("gate", "latest", "--baseline", base, "--margin", "0.1", "--json")
    document = json.loads(later.out)
    [environment] = document["environments"]
    assert (later.code, document["verdict"], environment["ci95"]) == (0, "pass", gate["interval"])
    assert environment["method"] == "betting" and environment["p_value"] is None
    assert environment["sequential"]["rollouts_saved"] == 400 - made
    assert environment["settling_examples"] is None
    assert shop.bench("gate", "latest", "--baseline", base, "--margin", "0.001").code == 3
    metric = shop.bench("gate", "latest", "--baseline", base, "--margin", "0.1", "--metric", "correct")
    assert metric.code == 3 and "ended early because of a sequential gate" in " ".join(metric.out.split())
    compared = " ".join(shop.bench("compare", base, "latest").out.split())
    assert "sequential gate, valid at any stopping time: pass" in compared and "approximate" in compared
    assert "ended early: pass: the difference" in " ".join(shop.bench("runs", "show", "latest").out.split())
    assert "by a sequential gate" in (folder.parent / "README.md").read_text()


def test_a_clearly_worse_candidate_fails_early(shop: Workshop) -> None:
    base = baseline_of(shop)
    done = ask(shop, base, WORSE, "--junit", "gate.xml", "--markdown", "gate.md", "--json")
    assert done.code == 1, done.err
    document = json.loads(done.out)
    assert (document["verdict"], document["runs"][0]["state"]) == ("fail", "done")
    assert document["runs"][0]["summary"]["num_rollouts"] < 250
    assert "<failure" in (shop.cwd / "gate.xml").read_text() and "Gate: fail" in (shop.cwd / "gate.md").read_text()


def test_what_is_never_decided_is_a_whole_run_with_the_ordinary_verdict(shop: Workshop) -> None:
    args = ("-a", '{"size": 40}')
    base = baseline_of(shop, *args)
    done = ask(shop, base, EQUAL, margin="0")
    folder = newest(shop)
    assert summary(folder)["num_rollouts"] == 40 and summary(folder)["until_ci"] is None
    ordinary = shop.bench("gate", "latest", "--baseline", base, "--margin", "0")
    assert done.code == ordinary.code == 3
    assert ordinary.out.strip() in done.out


def test_a_killed_gate_is_resumed_to_the_same_verdict(shop: Workshop) -> None:
    base = baseline_of(shop)
    with shop.serving(args={"size": 400}, latency=0.02) as server:
        args = ("-b", server.url, "-c", "4", "--json")
        whole = ask(shop, base, EQUAL, *args)
        first = newest(shop)
        made, told = summary(first)["num_rollouts"], gate_of(first)
        running = shop.start(
            "gate", "--against", base, "--sequential", "-m", EQUAL, "--margin", "0.1", "-q", *args
        )  # fmt: skip
        running.until(lambda: newest(shop) != first and count(newest(shop), "scored") >= 20, "20 are scored")
        running.send(signal.SIGKILL)
        running.wait()
        killed = newest(shop)
        assert count(killed, "scored") < made
        early = shop.bench("gate", killed.name, "--baseline", base, "--margin", "0.1")
        assert early.code == 3 and f"bench resume {killed}"[-20:] in " ".join(early.out.split())
        resumed = shop.bench("resume", killed.name, "--json", "-q")
        assert resumed.code == whole.code == 0, resumed.err
        assert json.loads(resumed.out)["gate"]["verdict"] == "pass"
    order = [[line["example_key"] for line in lines(run) if line["type"] == "example"] for run in (first, killed)]
    shared = min(map(len, order))
    assert order[0][:shared] == order[1][:shared], "the same random order"
    again = gate_of(killed)
    assert (again["verdict"], again["baseline"], again["margin"]) == (told["verdict"], base, 0.1)
    # Complete: the verdict is only repeated.
    repeated = shop.bench("resume", killed.name)
    assert repeated.code == 0 and "PASS" in repeated.out and "nothing is left to do" in repeated.out
    [home] = [path.parent for path in shop.run_dirs() if path.parent.name == base]
    home.rename(shop.cwd / base)
    moved = shop.bench("resume", killed.name)
    assert moved.code == 1 and "is not there any more" in moved.said and "--baseline RUN --margin 0.1" in moved.said


def test_a_smaller_margin_goes_on(shop: Workshop) -> None:
    base = baseline_of(shop)
    assert ask(shop, base, EQUAL).code == 0
    folder = newest(shop)
    made = summary(folder)["num_rollouts"]
    done = shop.bench("resume", folder.name, "--set", "env.margin=0.04", "-q", "--json")
    assert done.code in (0, 1, 3), done.err
    assert done.run["summary"]["num_rollouts"] > made == done.run["summary"]["resumed"]
    assert json.loads(done.out)["gate"]["margin"] == 0.04


def test_a_run_with_a_gate_ends_like_one(shop: Workshop) -> None:
    base = baseline_of(shop)
    args = ("run", "sums", "-a", '{"size": 400}', "-n", "-1", "-r", "1", "-c", "4", "-m", WORSE)
    done = shop.bench(*args, "--gate", base, "--margin", "0.1", "--json")
    assert done.code == 1, done.err
    assert json.loads(done.out)["gate"]["verdict"] == "fail"
    again = shop.bench(*args, "--gate", base, "--margin", "0.1", "--json", "--resume")
    assert again.code == 1 and again.run["summary"]["num_rollouts"] == done.run["summary"]["num_rollouts"]
    assert len(shop.run_dirs()) == 2


def test_repeats_count_as_one_value(shop: Workshop) -> None:
    base = baseline_of(shop, "-r", "3", "-a", '{"size": 150}')
    done = ask(shop, base, EQUAL)
    folder = newest(shop)
    told = summary(folder)
    assert done.code == 0, done.err
    assert told["num_rollouts"] == 3 * told["num_examples"] < 450
    saved = 150 - told["num_examples"]
    assert f"{saved} examples with {3 * saved} rollouts saved" in " ".join(done.out.split())


SUITE = """
[env]
num_examples = -1
rollouts_per_example = 1
[[eval]]
id = "sums"
args = {size = 300}
[[eval]]
id = "sums"
name = "more"
args = {size = 300, first = 1000}
"""


def test_each_environment_of_a_suite_has_its_own_baseline(shop: Workshop) -> None:
    shop.write("suite.toml", SUITE)
    assert shop.bench("run", "suite.toml", "-m", GOOD, "-q", "-c", "4").code == 0
    [suite] = (shop.cwd / "outputs" / "suites").glob("*.json")
    done = ask(shop, suite.stem, EQUAL, "--json", "-c", "4")
    document = json.loads(done.out)
    assert done.code == 0, done.err
    assert {each["name"]: each["verdict"] for each in document["environments"]} == {"sums": "pass", "more": "pass"}
    run = shop.bench("run", "suite.toml", "-m", WORSE, "-c", "4", "--gate", suite.stem, "--margin", "0.1", "--json")
    assert run.code == 1, run.err
    assert {each["verdict"] for each in json.loads(run.out)["gate"]["environments"]} == {"fail"}
    assert "compare suites: bench compare" in run.said and "gate: bench gate" not in run.said
    one = json.loads((shop.cwd / "outputs" / "suites" / suite.name).read_text())["runs"][0]
    name = Path(one["path"] if isinstance(one, dict) else one).name
    refused = shop.bench("run", "suite.toml", "-m", EQUAL, "--gate", name, "--margin", "0.1")
    assert refused.code == 2 and "300 examples" in refused.said and "0 are the same" in refused.said


FAILING = """
import hashlib
from sums import Sums, load_environment as plain
from harness import Rubric

def load_environment(size=200, lost=0):
    def correct(completion, answer):
        if lost and int(answer) % lost == 0:
            raise ValueError("no verdict")
        return float(completion[-1]["content"] == answer)
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)]
    return Sums(dataset=rows, rubric=Rubric([correct]))
"""


def test_missing_scores_do_not_let_a_candidate_pass(shop: Workshop) -> None:
    shop.environment("failing", FAILING)
    args = ("run", "failing", "-n", "-1", "-r", "1", "-m", "reference/oracle", "-q", "-c", "4")
    assert shop.bench(*args).code == 0
    base = newest(shop).name
    done = shop.bench(*args, "-a", '{"lost": 12}', "--gate", base, "--margin", "0.1", "--json")
    assert done.code == 1, done.err
    [environment] = json.loads(done.out)["gate"]["environments"]
    assert environment["verdict"] == "fail" and "rollouts have a score" in environment["why"]


UNBOUNDED = """
from sums import Sums
from harness import Rubric

class Length(Rubric):
    @property
    def reward_range(self):
        return 0.0, float("inf")

def load_environment():
    rows = [{"question": "one", "answer": "1"}, {"question": "two", "answer": "2"}]
    return Sums(dataset=rows, rubric=Length([lambda completion: len(completion[-1]["content"])]))
"""


def test_what_cannot_be_decided_is_refused_before_anything_is_asked(shop: Workshop) -> None:
    base = baseline_of(shop, "-a", '{"size": 100}')
    half = baseline_of(shop, "-a", '{"size": 100}', "-n", "50")
    shop.environment("open_ended", UNBOUNDED)
    assert shop.bench("run", "open-ended", "-n", "2", "-r", "1", "-m", "reference/oracle", "-q").code == 0
    unbounded = newest(shop).name
    early = shop.bench(*BASE, "-m", GOOD, "--until-ci", "0.2", "-c", "1")  # so that few are in flight at the end
    assert early.code == 0
    stopped = newest(shop).name
    before = len(shop.run_dirs())
    run = ("run", "sums", "-a", '{"size": 100}', "-n", "-1", "-r", "1", "-m", EQUAL)
    for args, words in (
        ((*run, "--gate", base), "needs a margin"),
        ((*run, "--gate", base, "--margin", "0.1", "--until-ci", "0.1"), "two rules for ending a run early"),
        ((*run, "--gate", base, "--margin", "0.1", "-N"), "needs scores during the run"),
        ((*run, "--gate", base, "--margin", "0.1", "--no-save"), "needs the journal of the run"),
        ((*run, "--gate", base, "--margin", "1"), "no two runs differ by more"),
        ((*run, "--gate", base, "--margin", "-1"), "must be at least 0"),
        ((*run, "--gate", "nothing", "--margin", "0.1"), "no run 'nothing'"),
        ((*run, "--gate", half, "--margin", "0.1"), "100 examples and the baseline"),
        ((*run, "--gate", base, "--margin", "0.1", "--example-ids", "1"), "-n, --example-ids, --shuffle"),
        ((*run, "--gate", stopped, "--margin", "0.1"), "ended early, but a baseline needs"),
        ((*run, "--gate", unbounded, "--margin", "0.1"), "is a run of open-ended, but sums is one of sums"),
        (("gate", "--against", unbounded, "--sequential", "-m", "reference/oracle", "--margin", "0.1"), "reward_range"),
        (("gate", "--sequential", "-m", EQUAL, "--margin", "0.1"), "needs --against RUN"),
        (("gate", "--against", base, "--margin", "0.1"), "--against needs --sequential"),
        (("gate", "--against", base, "--sequential", "--margin", "0.1"), "-m MODEL"),
        (("gate", base, "--against", base, "--sequential", "-m", EQUAL, "--margin", "0.1"), "cannot be given"),
        (("gate", base, "--baseline", half, "--margin", "0.1", "-m", EQUAL), "-m has no effect"),
        (("gate", "--baseline", half, "--margin", "0.1"), "name the run to check"),
        (("gate", base, "--margin", "0.1"), "--baseline RUN is missing"),
    ):
        done = shop.bench(*args)
        assert done.code == 2 and words in done.said, (args, done.code, done.said)
        assert "Traceback" not in done.err
    assert len(shop.run_dirs()) == before


def test_what_is_made_of_it_has_its_verdict(shop: Workshop) -> None:
    base = baseline_of(shop)
    assert ask(shop, base, WORSE).code == 1
    before = newest(shop)
    for command in ("rescore", "replay"):
        again = shop.bench(command, str(before), "--json")
        assert again.code == 0, again.err
        told = again.run["summary"]["until_ci"]["gate"]
        assert told == gate_of(before)
        later = shop.bench("gate", again.run["path"], "--baseline", base, "--margin", "0.1")
        assert later.code == 1 and "lies below -0.1" in " ".join(later.out.split())


def test_a_private_baseline_makes_a_private_candidate(shop: Workshop) -> None:
    base = baseline_of(shop, "--private")
    done = shop.bench(*BASE, "-m", WORSE, "--gate", base, "--margin", "0.1")
    assert done.code == 1, done.err
    folder = newest(shop)
    assert folder.name != base and folder.stat().st_mode & 0o077 == 0


@pytest.mark.slow
@pytest.mark.skipif(not QUESTIONS.exists(), reason="the 1,319 questions are not part of the repository")
def test_the_questions_of_gsm8k(shop: Workshop) -> None:
    """Models that are right on 90 and 75 % of the questions, independently of each other."""
    args = json.dumps({"dataset": str(QUESTIONS)})
    run = ("run", "gsm8k", "-n", "-1", "-r", "1", "-a", args, "-q", "-c", "64")
    assert shop.bench(*run, "-m", GOOD).code == 0
    base = newest(shop).name
    for model, code in ((EQUAL, 0), ("reference/noisy?accuracy=0.75&seed=5", 1)):
        done = ask(shop, base, model, "-c", "8", margin="0.05")
        assert done.code == code, done.err
        told = summary(newest(shop))
        assert told["until_ci"]["of_examples"] == 1319 and told["num_rollouts"] < 700
