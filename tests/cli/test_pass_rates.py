"""pass@k and pass^k with their intervals, for the k of `--k`, in every command and format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run, suite_of
from run_samples import SETTINGS, Bench, summarized

from harness.stats.intervals import mean_interval
from harness.stats.paired import paired_difference
from harness.stats.passk import pass_at_k, pass_hat_k
from harness.store.rundir import RunDir

OUT = Path("outputs")
STRONG: Scores = {n: [float((n * k) % 5 > 0) for k in range(1, 6)] for n in range(24)}
WEAK: Scores = {n: [float((n + k) % 4 > 1) for k in range(5)] for n in range(24)}


def recorded(minute: int, scores: Scores, **changes: Any) -> RunDir:
    run = scored_run(OUT, scores, minute, **{"model": f"lab/m-{minute}", **changes})
    summarized(run)
    return run


def rates(scores: Scores, k: int, *, of_all: bool = False) -> list[float]:
    estimator = pass_hat_k if of_all else pass_at_k
    return [estimator(len(values), int(sum(value or 0.0 for value in values)), k) for values in scores.values()]


@pytest.fixture
def pair(here: Path) -> list[str]:
    return [recorded(0, STRONG).id, recorded(1, WEAK).id]


def test_a_run_shows_the_chosen_k(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = ("run", "reverse-text", "-n", "20", "-r", "5", "-m", "reference/noisy?accuracy=0.7")
    done = bench(*command, "--k", "5,1,3", "--json")
    summary = json.loads(done.out)["runs"][0]["summary"]

    assert [*summary["pass_at_k"]] == ["1", "3", "5"]
    assert [*summary["pass_estimates"]] == ["pass@1", "pass@3", "pass^3", "pass@5", "pass^5"]
    low, high = summary["pass_estimates"]["pass@3"]["ci95"]
    assert low < summary["pass_at_k"]["3"] <= high and summary["pass_estimates"]["pass@3"]["method"]
    assert f"[{low:.3f}, {high:.3f}]" in done.err and "pass^5" in done.err
    run = json.loads((RunDir(Path(json.loads(done.out)["runs"][0]["path"])).path / "run.json").read_text())
    assert run["settings"]["env.pass_k"] == [1, 3, 5]
    again = bench("runs", "show", "latest", "--json")
    assert json.loads(again.out)["summary"]["pass_estimates"] == summary["pass_estimates"]
    usual = json.loads(bench(*command, "--json").out)["runs"][0]["summary"]
    assert [*usual["pass_at_k"]] == ["1", "2", "4"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--k", "0"], "contains 0, but a number of attempts is 1 to 100,000"),
        (["--k", "2,2"], "contains a number twice"),
        (["--k", "two"], "must be a list of integers, such as 1,3,5"),
        (["--k", "1,8"], "--k 1,8: pass@8 needs 8 rollouts of each example, but -r 4 makes 4"),
        (["--set", "env.pass_k=9"], "pass@9 needs 9 rollouts of each example, but -r 4 makes 4"),
    ],
)
def test_a_wrong_k_is_refused(bench: Bench, here: Path, options: list[str], said: str) -> None:
    done = bench("run", "reverse-text", "-r", "4", "-m", "reference/oracle", *options)
    assert (done.code, done.out) == (2, "")
    assert said in done.err and done.err.count("\n") == 1


def test_the_table_of_a_run_has_intervals(bench: Bench, pair: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = bench("runs", "show", pair[0], "--k", "3").out
    estimate = mean_interval(rates(STRONG, 3), single_rollout=False, limits=(0.0, 1.0))

    assert max(map(len, out.splitlines())) <= 80 or "command" in out
    [line] = [line for line in out.splitlines() if line.startswith("3  ")]
    assert f"{estimate.mean:.3f}  [{estimate.low:.3f}, {estimate.high:.3f}]" in line
    assert "k  pass@k   95 % interval  pass^k   95 % interval" in out


def test_the_report_in_every_format(bench: Bench, pair: list[str]) -> None:
    estimate = mean_interval(rates(STRONG, 3, of_all=True), single_rollout=False, limits=(0.0, 1.0))
    interval = f"[{estimate.low:.3f}, {estimate.high:.3f}]"

    def report(form: str, *options: str) -> str:
        done = bench("report", *pair, "-f", form, "-o", "-", "--k", "1,3", *options)
        assert done.code == 0, done.err
        return done.out

    page = json.loads(report("json"))["environments"][0]["runs"]
    assert {*page[0]["summary"]["pass_estimates"]} == {"pass@1", "pass@3", "pass^3"}
    markdown = report("md")
    assert "| pass@1 | pass@3 | pass^3 |" in markdown and interval in markdown.replace("\\", "")
    html = report("html", "--no-plots")
    assert "pass^3" in html and interval in html
    latex = report("latex")
    assert r"model & pass@1 & pass@3 & pass\textasciicircum{}3 \\" in latex and interval in latex
    rows = list(csv.DictReader(io.StringIO(report("csv"))))
    [row] = [row for row in rows if row["measure"] == "pass^3" and row["model"] == "lab/m-0"]
    assert (row["kind"], float(row["low"]), float(row["mean"])) == ("attempts", estimate.low, estimate.mean)
    assert bench("report", *pair, "-o", "-", "-f", "md").out.count("pass@4 | pass^4") == 1, "the largest"


def test_compare_pairs_the_rates(bench: Bench, pair: list[str]) -> None:
    whole = json.loads(bench("compare", *pair, "--k", "1,3", "--json").out)
    found = {each["measure"]: each for each in whole["comparisons"]}

    assert [*found] == ["reward", "pass@1", "pass@3", "pass^3"]
    for of_all, name in ((False, "pass@3"), (True, "pass^3")):
        slow = paired_difference(rates(WEAK, 3, of_all=of_all), rates(STRONG, 3, of_all=of_all), limits=(0.0, 1.0))
        assert found[name]["ci95"] == slow.estimate.ends and found[name]["p_value"] == slow.p_value
    assert found["reward"]["p_adjusted"] > found["reward"]["p_value"], "of four comparisons"
    alone = json.loads(bench("compare", *pair, "--metric", "pass^3", "--json").out)["comparisons"]
    assert [each["ci95"] for each in alone] == [found["pass^3"]["ci95"]]
    assert "sums · pass^3" in bench("compare", *pair, "--k", "3").out
    table = bench("compare", *pair, "--k", "3", "--table", "md").out
    assert "| model | sums | sums · pass@3 | sums · pass^3 |" in table
    gate = ("gate", pair[1], "--baseline", pair[0], "--margin", "0.1", "--metric", "pass@3", "--json")
    gated = json.loads(bench(*gate).out)
    assert gated["environments"][0]["ci95"] == found["pass@3"]["ci95"]


def test_averages_are_of_one_measure_each(bench: Bench, here: Path) -> None:
    runs = [
        recorded(n, scores, env_id=env, model=model)
        for n, (scores, env, model) in enumerate(
            (each, env, model) for env in ("one", "two") for each, model in ((STRONG, "lab/a"), (WEAK, "lab/b"))
        )
    ]
    suite = suite_of(OUT, "20261121T101503Z-both", runs)

    averages = json.loads(bench("compare", suite, "--k", "3", "--json").out)["averages"]
    assert [each["candidate"] for each in averages] == ["lab/b", "lab/b · pass@3", "lab/b · pass^3"]
    assert averages[0] == json.loads(bench("compare", suite, "--json").out)["averages"][0]


@pytest.mark.parametrize("command", [["compare"], ["report", "-f", "md", "-o", "-"]])
def test_k_above_the_rollouts_of_all_runs(bench: Bench, pair: list[str], command: list[str]) -> None:
    for value, said in (
        ("9", "the runs have at most 5 rollouts of each example"),
        ("x", "must be numbers of attempts"),
    ):
        done = bench(*command, *pair, "--k", value)
        assert done.code == 2 and f"--k {value}: {said}" in done.err, done.err
    assert bench("runs", "show", pair[0], "--k", "6").code == 2
    assert bench("power", "--from", pair[0], "--metric", "pass@3").code == 2
    short = recorded(3, {n: values[:2] for n, values in STRONG.items()}).id
    done = bench(*command, pair[0], short, "--k", "3")
    assert (done.code == 0 and "–" in done.out) or "unknown" in done.out
    gate = bench("gate", short, "--baseline", pair[0], "--margin", "0.2", "--metric", "pass@3")
    said = " ".join(gate.out.split())
    assert gate.code == 3 and "24 with fewer than 3 scored rollouts on one side); run both with -r 3 or more" in said
    said = " ".join(bench("compare", pair[0], short, "--k", "3").out.split())
    assert "24 with fewer than 3 scored rollouts on one side or the other" in said


def test_runs_with_other_thresholds_are_not_compared(bench: Bench, here: Path) -> None:
    one, other = recorded(0, STRONG), recorded(1, WEAK, settings={**SETTINGS, "env.pass_threshold": 0.5})
    names = [one.id, other.id]
    said = f"of at least 1, one of {other.id} with 0.5, so their pass rates cannot be compared; make one alike"
    for more in (("--k", "2"), ("--metric", "pass@2"), ("--all", "--k", "2"), ("--k", "2", "--table", "md")):
        done = bench("compare", *names, *more)
        assert done.code == 2 and said in done.err, done.err
    assert bench("compare", *names).code == 0
    gate = bench("gate", other.id, "--baseline", one.id, "--margin", "0.2", "--metric", "pass@2")
    assert gate.code == 2 and said in gate.err


def test_missing_scores_are_no_attempts(bench: Bench, here: Path) -> None:
    holed: Scores = {**STRONG, 0: [1.0, None, None, 0.0, None], 1: [None] * 5}
    run = recorded(0, holed)
    summary = json.loads(bench("runs", "show", run.id, "--k", "3", "--json").out)["summary"]

    assert summary["pass_estimates"]["pass@3"]["excluded"] == 2
    assert summary["pass_estimates"]["pass@3"]["examples"] == 22
    other = recorded(1, STRONG)
    [_, at, _] = json.loads(bench("compare", other.id, run.id, "--k", "3", "--json").out)["comparisons"]
    assert at["without_value_on_one_side"] == 2
    gappy = recorded(2, {**STRONG, **{n: [None] * 5 for n in (1, 2, 3, 4, 6)}})
    gate = ("--baseline", other.id, "--margin", "0.2", "--metric", "pass@3", "--min-coverage", "0.5")
    done = bench("gate", gappy.id, *gate)
    assert done.code == 3 and "with the worst case for these it would be" in " ".join(done.out.split()), done.out


def test_clusters_widen_them(bench: Bench, here: Path) -> None:
    infos = {n: {"doc": n // 4} for n in range(24)}
    scores: Scores = {n: [float(n // 4 % 2), float(n % 4 == 0), float(n // 4 % 2)] for n in range(24)}
    run = recorded(0, scores, infos=infos, settings={**SETTINGS, "env.pass_k": [2]})

    def width(*options: str) -> float:
        summary = json.loads(bench("runs", "show", run.id, "--json", *options).out)["summary"]
        low, high = summary["pass_estimates"]["pass@2"]["ci95"]
        return high - low

    assert width("--cluster", "doc") > 1.5 * width()


def test_the_card_and_exports_have_the_intervals(bench: Bench, here: Path) -> None:
    done = bench(
        "run", "reverse-text", "-n", "12", "-r", "3", "-m", "reference/noisy?accuracy=0.6", "--k", "3", "--json"
    )
    run = json.loads(done.out)["runs"][0]
    low, high = run["summary"]["pass_estimates"]["pass@3"]["ci95"]
    card = (Path(run["path"]).parent / "README.md").read_text()

    assert f"({low:.4g} to {high:.4g})" in card
    assert rf" \[{low:.3f}, {high:.3f}\] (k=3) |" in card
    assert bench("export", "latest", "--format", "inspect-ai", "-o", "log.json").code in (0, 2)
