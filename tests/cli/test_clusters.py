"""Clusters that an environment or a setting declares, in every command that shows or uses an interval."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run, suite_of
from run_samples import SETTINGS, Bench, summarized

from harness.stats.clusters import clustered_mean
from harness.stats.paired import paired_difference
from harness.store.rundir import RunDir

OUT = Path("outputs")

DOCUMENTS = """
from harness import Rubric, SingleTurnEnv

class Documents(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer if example.info.get("doc") != 1 else "?"

    def null_reply(self, example, messages):
        return "?"

def load_environment(key="doc", lacks=()):
    rows = [
        {"question": f"question {n}", "answer": f"answer {n}", "info": {} if n in lacks else {"doc": n // 4, "n": n}}
        for n in range(40)
    ]
    rubric = Rubric([lambda completion, answer: float(completion[-1]["content"] == answer)])
    return Documents(dataset=rows, rubric=rubric, cluster_key=key)
"""

EVERY: Scores = {n: [1.0, float(n % 8 > 1)] if n // 4 % 3 else [0.0, float(n % 4 == 3)] for n in range(48)}
LESS: Scores = {n: [float(n // 4 % 2), 0.0] for n in range(48)}
INFOS = {n: {"doc": n // 4, "n": n} for n in range(48)}


def run_documents(bench: Bench, *options: str, model: str = "reference/oracle") -> dict[str, Any]:
    Path("documents.py").write_text(DOCUMENTS)
    done = bench("run", "./documents.py", "-n", "-1", "-r", "1", "-m", model, "--json", *options)
    assert done.code == 0, done.err
    [run] = json.loads(done.out)["runs"]
    return {**run, "err": done.err}


def recorded(minute: int, scores: Scores, key: str = "doc", **changes: Any) -> RunDir:
    run = scored_run(OUT, scores, minute, model=f"lab/m-{minute}", cluster_key=key, **{"infos": INFOS, **changes})
    summarized(run)
    return run


def means(scores: Scores) -> list[float]:
    return [sum(value or 0.0 for value in values) / len(values) for values in scores.values()]


def test_an_environment_declares_clusters_once(bench: Bench, here: Path) -> None:
    run = run_documents(bench)
    summary, folder = run["summary"], RunDir(Path(run["path"]))
    slow = clustered_mean([float(n // 4 != 1) for n in range(40)], [n // 4 for n in range(40)], limits=(0.0, 1.0))

    assert summary["clusters"] == {"key": "doc", "count": 10, "without_key": 0}
    assert (summary["reward"]["ci95"], summary["reward"]["clusters"]) == (slow.ends, 10)
    assert summary["pass_estimates"]["pass@1"]["ci95"] == slow.ends
    assert "clustered: 10 clusters of 40 examples, by doc" in " ".join(run["err"].split())
    assert folder.read_manifest().cluster_key == "doc"
    assert json.loads((folder.path / "summary.json").read_text())["reward"] == summary["reward"]
    shown = json.loads(bench("runs", "show", "latest", "--json").out)["summary"]
    assert shown["reward"] == summary["reward"]
    page = json.loads(bench("report", "latest", "-f", "json", "-o", "-").out)
    assert page["environments"][0]["runs"][0]["summary"]["reward"] == summary["reward"]


def test_the_setting_wins_and_none_switches_it_off(bench: Bench, here: Path) -> None:
    declared = run_documents(bench)["summary"]
    off, empty = (run_documents(bench, "--cluster-key", word)["summary"] for word in ("none", ""))
    alone = run_documents(bench, "--cluster-key", "n")["summary"]
    Path("suite.toml").write_text('cluster_key = "n"\n[[eval]]\nenv_id = "./documents.py"\nnum_examples = -1\n')
    done = bench("run", "suite.toml", "-r", "1", "-m", "reference/oracle", "--json")

    assert "clusters" not in off and "clusters" not in off["reward"] and off["reward"] == empty["reward"]
    assert off["reward"]["method"] == "wilson" != declared["reward"]["method"]
    assert alone["clusters"]["count"] == 40
    assert json.loads(done.out)["runs"][0]["summary"]["clusters"]["key"] == "n"


def test_an_isolated_environment_declares_them_too(bench: Bench, here: Path) -> None:
    assert run_documents(bench, "--isolate")["summary"]["reward"] == run_documents(bench)["summary"]["reward"]


def test_a_resumed_run_may_get_a_key(bench: Bench, here: Path) -> None:
    first = run_documents(bench, "--cluster-key", "none")
    again = run_documents(bench, "--resume")

    assert again["path"] == first["path"], "a key is no part of a run's identity"
    assert again["summary"]["clusters"]["count"] == 10
    assert RunDir(Path(first["path"])).read_manifest().cluster_key == "doc"
    off = json.loads(bench("rescore", "latest", "--set", "env.cluster_key=none", "--json").out)
    assert "clusters" not in off["runs"][0]["summary"]


def test_a_key_that_no_example_has_is_refused_before_the_first_request(bench: Bench, here: Path) -> None:
    Path("documents.py").write_text(DOCUMENTS)
    command = ("run", "./documents.py", "-n", "8", "-m", "reference/oracle")

    wrong = bench(*command, "--cluster-key", "dok")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--cluster-key dok: no example of" in wrong.err and "did you mean 'doc'?" in wrong.err
    assert "its examples have doc, n" in wrong.err and wrong.err.count("\n") == 1
    authors = bench(*command, "-a", '{"key": "document"}')
    assert authors.code == 1 and "no example of" in authors.err and "has 'document' in its info" in authors.err
    assert not list(OUT.glob("evals/*/*/run.json"))


def test_examples_without_the_key_are_clusters_of_their_own(bench: Bench, here: Path) -> None:
    run = run_documents(bench, "-a", '{"lacks": [0, 1, 39]}')

    assert run["summary"]["clusters"] == {"key": "doc", "count": 13, "without_key": 3}
    said = " ".join(run["err"].split())
    assert "13 clusters of 40 examples, by doc; 3 examples have no doc and are clusters of their own" in said


def test_early_stopping_needs_independent_examples(bench: Bench, here: Path) -> None:
    Path("documents.py").write_text(DOCUMENTS)
    done = bench("run", "./documents.py", "-m", "reference/oracle", "--until-ci", "0.2")

    assert (done.code, done.out) == (2, "")
    assert "--until-ci 0.2 assumes that examples are independent" in done.err and "the same doc" in done.err
    assert "add --cluster-key=none" in done.err
    independent = run_documents(bench, "--until-ci", "0.2", "--cluster-key", "none")["summary"]
    assert "clusters" not in independent and independent["scored"] == 40
    gated = bench("run", "./documents.py", "-m", "reference/oracle", "--gate", "latest", "--margin", "0.2")
    assert (gated.code, gated.out) == (2, "")
    assert "--gate latest assumes that examples are independent" in gated.err
    assert "remove --gate, or add --cluster-key=none" in gated.err


def test_a_sequential_gate_against_a_run_with_clusters(bench: Bench, here: Path) -> None:
    base = Path(run_documents(bench)["path"]).name
    command = ("gate", "--against", base, "--sequential", "-m", "reference/null", "--margin", "0.2")
    refused = bench(*command)
    assert refused.code == 2 and "remove --sequential, or add --set env.cluster_key=none" in refused.err
    assert bench(*command, "--set", "env.cluster_key=none", "-c", "1", "-q").code == 1
    later = ("gate", "latest", "--baseline", base, "--margin", "0.2")
    undecided = bench(*later)
    assert undecided.code == 3 and "--cluster none takes them as such" in " ".join(undecided.out.split())
    assert bench(*later, "--cluster", "none").code == 1


def test_a_run_that_ended_early_has_no_interval_of_clusters(bench: Bench, here: Path) -> None:
    early = {"settings": {"env.until_ci": 0.3}, "planned": {"num_examples": 4000, "rollouts_per_example": 1}}
    scores = {n: [float(n // 4 % 2)] for n in range(400)}
    infos = {n: {"doc": n // 4} for n in range(400)}
    run = scored_run(OUT, scores, 0, infos=infos, **early)

    assert json.loads(bench("runs", "show", run.id, "--json").out)["summary"]["reward"]["ci95"] is not None
    done = bench("runs", "show", run.id, "--cluster", "doc")
    assert "no interval: that of a run that ended early assumes that examples are independent" in " ".join(
        done.out.split()
    )


@pytest.fixture
def pair(here: Path) -> tuple[RunDir, RunDir]:
    return recorded(0, EVERY), recorded(1, LESS)


def test_compare_and_gate_use_the_declared_clusters(bench: Bench, pair: tuple[RunDir, RunDir]) -> None:
    names = [run.id for run in pair]
    slow = paired_difference(means(LESS), means(EVERY), clusters=[n // 4 for n in range(48)], limits=(0.0, 1.0))

    whole = json.loads(bench("compare", *names, "--json").out)
    [only] = whole["comparisons"]
    assert (only["clusters"], only["ci95"], only["p_value"]) == (12, slow.estimate.ends, slow.p_value)
    assert [side["cluster_key"] for side in whole["runs"]] == ["doc", "doc"]
    assert json.loads(bench("compare", *names, "--json", "--cluster", "doc").out) == whole
    said = " ".join(bench("compare", *names).out.split())
    assert "Examples with the same doc are one cluster, the unit of intervals and p." in said
    gated = json.loads(bench("gate", names[1], "--baseline", names[0], "--margin", "0.1", "--json").out)
    assert gated["environments"][0]["ci95"] == slow.estimate.ends
    off = json.loads(bench("compare", *names, "--json", "--cluster", "none").out)["comparisons"][0]
    assert off["clusters"] is None and off["ci95"] != only["ci95"]


def test_old_runs_take_the_key_of_the_other(bench: Bench, here: Path) -> None:
    old, new = recorded(0, EVERY, key=""), recorded(1, LESS)
    whole = json.loads(bench("compare", old.id, new.id, "--json").out)

    assert whole["comparisons"][0]["clusters"] == 12
    assert [side["score"]["clusters"] for side in whole["runs"]] == [12, 12]
    other = recorded(2, LESS, key="n")
    done = bench("compare", new.id, other.id)
    assert done.code == 2 and "the runs declare different clusters: 'doc'" in done.err and "--cluster KEY" in done.err
    assert bench("report", new.id, other.id, "-f", "md", "-o", "-").code == 2
    assert bench("compare", new.id, other.id, "--cluster", "doc").code == 0


def test_every_format_of_the_report(bench: Bench, pair: tuple[RunDir, RunDir]) -> None:
    names = [run.id for run in pair]
    whole = json.loads(bench("compare", *names, "--json").out)
    page = json.loads(bench("report", *names, "-f", "json", "-o", "-").out)
    ends = {run["id"]: run["summary"]["reward"]["ci95"] for run in page["environments"][0]["runs"]}
    [beside] = page["environments"][0]["differences"]

    assert ends == {side["run"]: side["score"]["ci95"] for side in whole["runs"]}
    assert sorted(map(abs, beside["ci95"])) == sorted(map(abs, whole["comparisons"][0]["ci95"]))
    rows = list(csv.DictReader(io.StringIO(bench("report", *names, "-f", "csv", "-o", "-").out)))
    assert [float(row["low"]) for row in rows if row["kind"] == "run"] == [ends[name][0] for name in names]
    for form in ("md", "latex"):
        assert "a run has 12 clusters" in bench("report", *names, "-f", form, "-o", "-").out.replace("\n", " ") or (
            form == "md"
        )
    assert "12 clusters of 48 examples, by doc" in bench("report", *names, "-f", "md", "-o", "-").out
    assert "12 clusters of 48 examples, by doc" in bench("report", *names, "--no-plots", "-o", "-").out
    plain = json.loads(bench("report", *names, "-f", "json", "-o", "-", "--cluster", "none").out)
    assert plain["environments"][0]["runs"][0]["summary"]["reward"]["method"] == "t"
    wrong = bench("report", *names, "-o", "-", "--cluster", "dok")
    assert wrong.code == 2 and "did you mean 'doc'?" in wrong.err


def test_one_suite_with_and_without_clusters(bench: Bench, here: Path) -> None:
    runs = [recorded(0, EVERY), recorded(1, EVERY, key="", env_id="other"), recorded(2, LESS, key="", env_id="other")]
    suite = suite_of(OUT, "20261121T101503Z-both", runs)

    page = json.loads(bench("report", suite, "-f", "json", "-o", "-").out)
    clusters = [run["summary"]["reward"].get("clusters") for each in page["environments"] for run in each["runs"]]
    assert clusters == [12, None, None]


def test_power_plans_clusters(bench: Bench, pair: tuple[RunDir, RunDir]) -> None:
    names = ["--from", pair[0].id, "--against", pair[1].id, "--mde", "0.2"]
    with_key = json.loads(bench("power", *names, "--json").out)
    without = json.loads(bench("power", *names, "--cluster", "none", "--json").out)

    assert (with_key["clusters"], with_key["cluster_size"]) == (12, 4.0)
    assert with_key["components"]["omega2"] > without["components"]["omega2"]
    assert all(way["examples"] % 4 == 0 for way in with_key["ways"])
    assert with_key["ways"][0]["examples"] > without["ways"][0]["examples"]
    said = " ".join(bench("power", *names).out.split())
    assert "Examples with the same doc are one cluster: 12 clusters of 4 examples on average." in said
    one = recorded(3, EVERY, infos={n: {"doc": 1} for n in range(48)})
    done = bench("power", "--from", one.id)
    assert done.code == 2 and "all examples are in one cluster" in done.err


def test_groups_of_rollouts_have_intervals_of_clusters(bench: Bench, pair: tuple[RunDir, RunDir]) -> None:
    groups = json.loads(bench("runs", "show", pair[0].id, "--group-by", "stop", "--json").out)["groups"]
    whole = json.loads(bench("runs", "show", pair[0].id, "--json").out)["summary"]["reward"]

    assert [(group["mean"], group["ci95"]) for group in groups] == [(whole["mean"], whole["ci95"])]


def test_nothing_changes_without_a_declaration(bench: Bench, here: Path) -> None:
    """What a run of an earlier version has in its summary, a run without clusters still has."""
    run = recorded(0, EVERY, key="", settings=SETTINGS)
    summary = json.loads(bench("runs", "show", run.id, "--json").out)["summary"]

    assert "clusters" not in summary
    assert {*summary["reward"]} == {"mean", "stderr", "ci95", "std", "min", "max", "count", "examples", "method"}
    assert bench("runs", "show", run.id, "--cluster", "none").out == bench("runs", "show", run.id).out


def test_a_hostile_label_does_no_harm(bench: Bench, here: Path) -> None:
    labels: list[object] = ["\x1b[2J<b>", {"a": [1]}, 1e308, None, "none", "", "\0", True]
    run = recorded(0, EVERY, infos={n: {"doc": labels[n % 8], "[x](y)": n} for n in range(48)})
    whole = json.loads(bench("runs", "show", run.id, "--json").out)["summary"]

    assert whole["clusters"] == {"key": "doc", "count": 7 + 6, "without_key": 6}
    assert "\x1b" not in bench("runs", "show", run.id).out
    wrong = bench("runs", "show", run.id, "--cluster", "no\x1b[2J")
    assert wrong.code == 2 and "\x1b" not in wrong.err and "[x](y)" in wrong.err
