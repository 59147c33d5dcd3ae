"""`bench compare --all` and `--equal-within`: places of runs, and whether two are equal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run
from run_samples import Bench

from harness.store.rundir import RunDir

OUT = Path("outputs")
LEVELS = {"best": 0, "good": 12, "like": 12, "weak": 30}


def losing(failed: int, examples: int = 40) -> Scores:
    return {n: [float(n >= failed)] for n in range(examples)}


def run(scores: Scores, minute: int, model: str, **changes: Any) -> RunDir:
    return scored_run(OUT, scores, minute, model=f"lab/{model}", **{"status": "done", **changes})


@pytest.fixture
def runs(here: Path) -> list[RunDir]:
    return [run(losing(failed), minute, name) for minute, (name, failed) in enumerate(LEVELS.items())]


def document(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench("compare", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_all_runs_have_places_and_groups(bench: Bench, runs: list[RunDir], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = bench("compare", "--all", *(each.id for each in reversed(runs)))
    assert done.code == 0, done.err
    assert (
        done.out
        == """\
sums · reward · 4 runs on 40 examples
run       place  places  group   mean   95 % interval
─────────────────────────────────────────────────────
lab/best      1       1  a      1.000  [0.912, 1.000]
lab/like      2     2–3  b      0.700  [0.546, 0.830]
lab/good      2     2–3  b      0.700  [0.546, 0.830]
lab/weak      4       4  c      0.250  [0.131, 0.402]

All intervals of places hold together with 95 %; equal models share places, and
each interval contains all of these. Test of a pair: Student's t on the
differences by example, corrected for 6 pairs (Holm). Runs that share a letter
cannot be told apart on these examples, which does not show that they are equal.
"""
    )


def test_the_places_as_json(bench: Bench, runs: list[RunDir]) -> None:
    [found] = document(bench, "--all", *(each.id for each in runs))["rankings"]
    assert (found["env_id"], found["measure"], found["examples"]) == ("sums", "reward", 40)
    assert [(each["model"], each["place"], each["places"], each["groups"]) for each in found["runs"]] == [
        ("lab/best", 1, [1, 1], ["a"]), ("lab/good", 2, [2, 3], ["b"]), ("lab/like", 2, [2, 3], ["b"]),
        ("lab/weak", 4, [4, 4], ["c"]),
    ]  # fmt: skip
    ids = [each.id for each in runs]
    assert found["groups"] == [[ids[0]], [ids[1], ids[2]], [ids[3]]]
    assert {(each["first"], each["second"]) for each in found["pairs"]} == {
        (ids[a], ids[b]) for a in range(4) for b in range(a + 1, 4)
    }
    assert found["runs"][0]["score"]["mean"] == 1.0


def test_env_finds_the_newest_finished_run_of_each_model(bench: Bench, runs: list[RunDir]) -> None:
    newer = run(losing(10), 10, "weak")
    run(losing(0), 11, "stopped", status="interrupted")
    run(losing(0), 12, "replayed", derived={"how": "replay", "parent": runs[0].id})
    run(losing(0), 13, "other", env_id="products")
    [found] = document(bench, "--all", "--env", "sums")["rankings"]
    assert {each["run"] for each in found["runs"]} == {*(each.id for each in runs[:3]), newer.id}
    both = document(bench, "--all", "--env", "*s")
    assert [each["env_id"] for each in both["rankings"]] == ["sums"]
    assert both["not_ranked"] == ["products has only one run."]
    done = bench("compare", "--all", "--env", "nothing")
    assert done.code == 2 and done.err == "error: no finished run of nothing under outputs/evals\n"


def test_runs_with_few_or_missing_scores(bench: Bench, runs: list[RunDir]) -> None:
    few = run(losing(1, examples=5), 5, "few")
    holes = run({n: [None if n % 10 == 0 else 1.0] for n in range(40)}, 6, "holes")
    names = [each.id for each in (*runs, few, holes, few)]  # one of them twice
    [found] = document(bench, "--all", *names)["rankings"]
    assert found["examples"] == 36
    assert [each["place"] for each in found["runs"] if each["run"] == few.id] == [None]
    said = bench("compare", "--all", *names).out
    assert "lab/few: not ranked: it has a score on 5 of 40 examples." in said
    assert "Only the 36 of 40 examples that every ranked run scored are counted." in said
    assert "lab/holes: without a score:" in said


def test_the_table_has_places(bench: Bench, runs: list[RunDir]) -> None:
    names = [each.id for each in runs]
    rows = list(csv.DictReader(io.StringIO(bench("compare", "--all", "--table", "csv", *names).out)))
    assert [(each["model"], each["place"], each["place_low"], each["place_high"], each["groups"]) for each in rows] == [
        ("lab/best", "1", "1", "1", "a"), ("lab/good", "2", "2", "3", "b"), ("lab/like", "2", "2", "3", "b"),
        ("lab/weak", "4", "4", "4", "c"),
    ]  # fmt: skip
    text = bench("compare", "--all", "--table", "md", *names).out
    assert r"| lab/good | 0.700 \[0.546, 0.830\] #2–3 b |" in text
    assert "All intervals of places hold together with 95 %" in text
    latex = bench("compare", "--all", "--table", "latex", *names).out
    assert r"{\scriptsize [0.546, 0.830] \#2\textendash{}3 b}" in latex
    plain = list(csv.DictReader(io.StringIO(bench("compare", "--table", "csv", *names).out)))
    assert {each["place"] for each in plain} == {""}


def test_a_report_has_places_of_three_runs_or_more(bench: Bench, runs: list[RunDir]) -> None:
    names = [each.id for each in runs]
    text = bench("report", "-f", "md", "-o", "-", *names).out
    assert r"| lab/good | 0.700 | \[0.546, 0.830\] | 2–3 | b |" in text and "Places and groups" in text
    page = json.loads(bench("report", "-f", "json", "-o", "-", *names).out)
    found = page["environments"][0]["runs"]
    assert [(each["place"], each["places"], each["groups"]) for each in found][-1] == (4, [4, 4], ["c"])
    html = bench("report", "-f", "html", "--no-plots", "-o", "-", *names).out
    assert ">2–3 b<" in html and "Places are from the examples that all runs scored" in html
    two = bench("report", "-f", "md", "-o", "-", *names[:2]).out
    assert "places" not in two.lower()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env", "sums"), "--env chooses the runs that --all ranks: use it with --all, and name no runs"),
        (("--all", "--env", "sums", "latest"), "--env chooses the runs that --all ranks"),
        (("--all", "--flips", "2"), "--all ranks all runs: leave out --equal-within, --flips and --transcripts"),
        (("--all", "--equal-within", "0.1"), "--all ranks all runs"),
        (("--all", "latest"), "nothing to rank: sums has only one run. Name several runs of one environment"),
        (("--equal-within", "0"), "--equal-within 0: must be a difference in reward greater than 0"),
        (("--equal-within", "nan"), "--equal-within nan: must be"),
    ],
)
def test_wrong_usage(bench: Bench, runs: list[RunDir], arguments: tuple[str, ...], message: str) -> None:
    done = bench("compare", *arguments)
    assert done.code == 2 and message in done.err


def test_without_common_examples_nothing_is_ranked(bench: Bench, here: Path) -> None:
    one, two = run({n: [1.0] for n in range(9)}, 0, "a"), run({n: [1.0] for n in range(8, 17)}, 1, "b")
    done = bench("compare", "--all", one.id, two.id)
    assert done.code == 2 and "sums has no two examples that all of its 2 runs scored" in done.err
    few = run({n: [1.0] for n in range(3)}, 2, "c")
    refused = bench("compare", "--all", one.id, few.id).err
    assert "sums has only one run with a score on half of 9 examples." in refused
    alone = bench("compare", "--all", one.id, "--k", "1")
    assert alone.err.count("sums has only one run.") == 1


def test_clusters_are_said_with_the_places(bench: Bench, here: Path) -> None:
    infos = {n: {"document": n // 10} for n in range(100)}
    made = [
        run({n: [float(n // 10 >= 5 * m)] for n in infos}, m, name, infos=infos, cluster_key="document")
        for m, name in enumerate("ab")
    ]
    done = bench("compare", "--all", *(each.id for each in made))
    assert "Examples with the same document are one cluster, the unit of intervals and tests." in " ".join(
        done.out.split()
    )


def test_places_of_a_pass_rate_have_its_means(bench: Bench, here: Path) -> None:
    infos = {n: {"document": n // 4} for n in range(40)}
    ways = [{n: [float((n * k) % 5 > 0) for k in range(1, 4)] for n in range(40)}, {n: [1.0, 0.0, 1.0] for n in infos}]
    names = [run(scores, minute, f"m-{minute}", infos=infos).id for minute, scores in enumerate(ways)]
    for options in ((), ("--cluster", "document")):
        [found] = document(bench, "--all", *names, "--metric", "pass^2", *options)["rankings"]
        [compared] = document(bench, *names, "--metric", "pass^2", *options)["comparisons"]
        means = {each["run"]: each["score"]["mean"] for each in found["runs"]}
        assert [means[names[1]], means[names[0]]] == pytest.approx(compared["means"])
        assert means[names[1]] == pytest.approx(1 / 3)


def test_a_run_that_ended_early_is_ranked_with_its_own_interval(bench: Bench, here: Path) -> None:
    changes = {"settings": {"env.until_ci": 0.3}, "planned": {"num_examples": 4000, "rollouts_per_example": 1}}
    early = run({n: [float(n % 3 > 0)] for n in range(300)}, 0, "early", **changes)
    whole, other = (run({n: [float(n % 4 > 0)] for n in range(size)}, size, f"n-{size}") for size in (500, 250))

    def intervals(*names: str) -> dict[str, Any]:
        [found] = document(bench, "--all", *names)["rankings"]
        return {each["run"]: each["score"]["ci95"] for each in found["runs"]}

    [shown, *_] = document(bench, early.id, whole.id)["runs"]
    assert intervals(early.id, whole.id)[early.id] == shown["score"]["ci95"]
    assert intervals(early.id, whole.id, other.id)[early.id] is None, "of a part of its examples it has none"


# --- equality


ALIKE: Scores = {n: [float(n % 3 > 0)] for n in range(400)}


def nearly(changes: int) -> Scores:
    """As `ALIKE`, with as many wins as losses."""
    return {n: [float((n % 3 > 0) == (n >= 6 * changes or n % 3 == 1))] for n in ALIKE}


def test_equal_different_and_cannot_tell(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    runs = [run(ALIKE, 0, "base"), run(nearly(1), 1, "same")]
    runs += [run(nearly(30), 2, "noisy"), run({n: [0.0] for n in ALIKE}, 3, "bad")]
    names = [each.id for each in runs]
    done = bench("compare", *names, "--equal-within", "0.05", "--flips", "0")
    assert done.code == 0, done.err
    begin = done.out.index("Equal to lab/base within 0.05")
    assert (
        done.out[begin : done.out.index("\nExamples are paired")]
        == """\
Equal to lab/base within 0.05
run            verdict  difference  98.33 % interval
────────────────────────────────────────────────────
lab/same         equal       0.000  [-0.015, +0.015]
lab/noisy  cannot tell       0.000  [-0.066, +0.066]
lab/bad      different      -0.665  [-0.719, -0.604]

lab/same: equal: the whole interval [-0.015, +0.015] lies within -0.05 to +0.05.
lab/noisy: cannot tell: the interval [-0.066, +0.066] of the difference is not within -0.05 to
+0.05, nor beyond it; about 1,629 examples would settle it if the true difference is 0.
lab/bad: different: the whole interval [-0.719, -0.604] lies beyond -0.05 to +0.05.
"""
    )
    found = [each["equality"] for each in document(bench, *names, "--equal-within", "0.05")["comparisons"]]
    assert [each["verdict"] for each in found] == ["equal", "cannot tell", "different"]
    assert found[0]["margin"] == 0.05 and found[0]["level"] == pytest.approx(1 - 0.05 / 3)
    assert found[1]["settling_examples"] == 1629 and found[0]["settling_examples"] is None
    assert "equality" not in document(bench, *names)["comparisons"][0]


def test_the_table_has_signs_of_equality(bench: Bench, here: Path) -> None:
    runs = [run(ALIKE, 0, "base"), run(nearly(1), 1, "same"), run({n: [0.0] for n in ALIKE}, 3, "bad")]
    names = [each.id for each in runs]
    rows = list(csv.DictReader(io.StringIO(bench("compare", "--table", "csv", "--equal-within", "0.05", *names).out)))
    assert [each["equality"] for each in rows] == ["", "equal", "different"]
    text = bench("compare", "--table", "md", "--equal-within", "0.05", *names).out
    assert "| lab/bad | 0.000≠" in text and "=: equal to the best within 0.05" in text
    assert r"^{\neq}" in bench("compare", "--table", "latex", "--equal-within", "0.05", *names).out


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (
            {n: [None if n < 40 else values[0]] for n, values in ALIKE.items()},
            "80 rollouts have no score and could move",
        ),
        ({n: ALIKE[n] for n in range(30)}, "losses too rare to be seen could reach"),
        ({400: [1.0], 401: [0.0]}, "they share fewer than two examples with a score"),
    ],
)
def test_equality_is_not_claimed_without_evidence(bench: Bench, here: Path, scores: Scores, why: str) -> None:
    holes = {n: [None if n < 40 else values[0]] for n, values in ALIKE.items()} if "80" in why else ALIKE
    names = [run(holes, 0, "base").id, run(scores, 1, "other").id]
    margin = "0.05" if "rare" not in why else "0.1"
    [found] = document(bench, *names, "--equal-within", margin)["comparisons"]
    assert found["equality"]["verdict"] == "cannot tell" and why in found["equality"]["why"]


def test_a_margin_as_wide_as_the_rewards_is_refused(bench: Bench, runs: list[RunDir]) -> None:
    done = bench("compare", runs[0].id, runs[1].id, "--equal-within", "2")
    assert done.code == 2 and "--equal-within 2: rewards of sums lie between 0 and 1" in done.err
