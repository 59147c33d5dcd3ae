"""`bench report`: which runs, which file, which format."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run
from report_suites import Shape, suite
from run_samples import Bench, finished, run_at

from harness.store.rundir import RunDir

SUITE = "20261121T091503Z-suit"


@pytest.fixture
def runs(here: Path) -> list[RunDir]:
    """A small suite in `outputs`."""
    return suite(Path("outputs"), Shape(environments=("sums", "browse"), examples=8, rollouts=2))


def test_without_a_name_the_newest_invocation_becomes_a_page(bench: Bench, runs: list[RunDir]) -> None:
    done = bench("report", "--no-plots")

    assert (done.code, done.out) == (0, "report.html\n")
    assert done.err.startswith("6 runs, ")
    page = Path("report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert all(run.id in page for run in runs)


def test_the_ending_says_the_format(bench: Bench, runs: list[RunDir]) -> None:
    assert bench("report", runs[0].id, "-o", "a.md").code == 0
    assert Path("a.md").read_text().startswith("# sums · lab/large-2\n")
    assert bench("report", SUITE, "-o", "a.json", "--transcripts", "1").code == 0
    whole = json.loads(Path("a.json").read_text())
    assert len(whole["transcripts"]) == 6
    assert bench("report", "latest", "-o", "a.htm", "--no-plots", "--title", " Our \n results ").code == 0
    assert "<title>Our results</title>" in Path("a.htm").read_text()


def test_the_table_alone_as_latex_and_csv(bench: Bench, runs: list[RunDir]) -> None:
    assert bench("report", SUITE, "-o", "a.tex", "--title", "Sums & more").code == 0
    table = Path("a.tex").read_text()
    assert "\\caption{Sums \\& more}" in table
    assert "model & sums & browse & average \\\\" in table
    assert bench("report", SUITE, "-f", "csv").code == 0
    rows = list(csv.DictReader(Path("report.csv").read_text().splitlines()))
    assert Counter(row["kind"] for row in rows) == {"run": 6, "attempts": 18, "average": 3}
    assert [row["run"] for row in rows if row["kind"] == "run"] == [runs[place].id for place in (0, 3, 1, 4, 2, 5)]
    assert bench("report", *(run.id for run in runs), "-f", "latex", "-o", "-").out.count("\\benchchar") == 0
    assert bench("report", SUITE, "-f", "latex").out == "report.tex\n"


def test_figures_are_drawn(bench: Bench, runs: list[RunDir]) -> None:
    assert bench("report", runs[0].id, "-o", "a.html").code == 0
    assert Path("a.html").read_text().count('class="plot"') == 5


def test_stdout_gets_the_page_and_nothing_else(bench: Bench, runs: list[RunDir]) -> None:
    done = bench("report", runs[0].id, "-f", "json", "-o", "-")

    assert done.code == 0
    assert json.loads(done.out)["environments"][0]["runs"][0]["id"] == runs[0].id
    assert done.err == ""


def test_a_file_is_replaced_only_with_force(bench: Bench, runs: list[RunDir]) -> None:
    Path("a.md").write_text("mine")

    done = bench("report", "-o", "a.md")
    assert (done.code, done.out, Path("a.md").read_text()) == (2, "", "mine")
    assert done.err == "error: a.md already exists; replace it with --force, or give another file with -o\n"

    assert bench("report", "-o", "a.md", "--force").code == 0
    assert Path("a.md").read_text().startswith("# 2 environments")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-f", "htlm"], '--format htlm: unknown format; did you mean "html"?'),
        (
            ["-o", "a.pdf"],
            "-o a.pdf: unknown file ending (known are .html, .md, .json, .tex and .csv); give the format with --format",
        ),
        (["-o", "outputs"], "unknown file ending"),
        (["-o", "outputs", "-f", "md"], "-o outputs is a folder; give a file in it"),
        (["-o", "no/where.md"], "-o no/where.md: the folder no does not exist"),
        (["nothing"], "no run 'nothing' under outputs/evals"),
    ],
)
def test_wrong_usage_is_said_before_any_work(bench: Bench, runs: list[RunDir], arguments: list[str], said: str) -> None:
    done = bench("report", *arguments)

    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not Path("report.html").exists()


def test_runs_that_cannot_be_shown_are_told(bench: Bench, runs: list[RunDir]) -> None:
    runs[1].manifest_path.unlink()
    empty = run_at(Path("outputs"), minute=9)

    done = bench("report", SUITE, empty.id, "-f", "md")

    assert done.code == 0
    gone = f"evals/sums--lab--small-2/{runs[1].id}: this run of the suite no longer exists"
    assert f"note: not in the report: {gone}\n" in done.err
    assert f"note: not in the report: {empty.id} (sums, done) has no rollouts yet\n" in done.err
    assert "5 runs, " in done.err
    assert gone.replace("_", "\\_") in Path("report.md").read_text()


def test_without_matplotlib_it_says_what_to_install(
    bench: Bench, runs: list[RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed

    done = bench("report", runs[0].id)

    assert done.code == 2
    assert "pip install 'bench-harness[report]', or leave them out with --no-plots" in done.err
    assert bench("report", runs[0].id, "--no-plots").code == 0


def test_a_page_of_a_private_run_is_private(bench: Bench, here: Path) -> None:
    run = finished(Path("outputs"), settings={"save.private": True})
    assert run.read_manifest().is_private
    finished(Path("outputs"), minute=1, letters="bbbb")

    done = bench("report", run.id, "latest", "-f", "md")

    assert done.code == 0
    assert "so only you can read the file" in done.err
    assert Path("report.md").stat().st_mode & 0o777 == 0o600


def test_another_output_folder(bench: Bench, here: Path) -> None:
    run = finished(Path("elsewhere"))

    assert bench("report", "--output-dir", "elsewhere", "-f", "md").code == 0
    assert run.id in Path("report.md").read_text()


def test_a_file_that_cannot_be_written_is_one_message(bench: Bench, runs: list[RunDir]) -> None:
    name = "x" * 300 + ".md"

    done = bench("report", "-o", name)

    assert done.code == 1
    assert done.err.startswith(f"error: cannot write {name}: File name too long")


def test_a_name_that_no_file_can_have_is_no_run(bench: Bench, runs: list[RunDir]) -> None:
    for name in ("x" * 300 + ".json", "a\0b"):
        done = bench("report", name)

        assert done.code == 2
        assert "no run" in done.err


PASSES: Scores = {n: [float(n % 3 > 0)] for n in range(30)}
ALL: Scores = {n: [1.0] for n in range(30)}
SHARES: Scores = {n: [1.0, float(n % 5 > 0), 1.0, float(n % 3 > 0)] for n in range(30)}
GRADED: Scores = {n: [n % 7 / 10, n % 4 / 10] for n in range(12)}
BEYOND: Scores = {**SHARES, 3: [2.0, 0.0, -1.0, 0.5]}
"""Scores that the rubric does not promise, in an example whose mean is one that it does."""
DOUBLED: Scores = {n: [2 * score for score in scores if score is not None] for n, scores in SHARES.items()}
LATER: Scores = {n + 29: scores for n, scores in ALL.items()}
"""One example is in the others, too."""


@pytest.mark.parametrize(
    ("first", "second", "changes"),
    [
        (ALL, PASSES, {}),
        ({**ALL, 0: [0.0], 1: [0.0], 3: [0.0]}, PASSES, {}),
        (ALL, {n: [1.0, 1.0] for n in ALL}, {}),
        (SHARES, {n: [1.0] * 4 for n in SHARES}, {}),
        ({**SHARES, 7: [None] * 4, 8: [None, 1.0]}, PASSES, {}),
        (GRADED, {n: [0.3] for n in GRADED}, {}),
        (BEYOND, SHARES, {}),
        (DOUBLED, {n: [2.0] * 4 for n in DOUBLED}, {}),
        (SHARES, DOUBLED, {"reward_range": (0.0, 2.0)}),
        (SHARES, DOUBLED, {"reward_range": (0.0, math.inf)}),
        ({n: [1.0] for n in range(5)}, {n: [0.0] for n in range(5)}, {}),
        (LATER, PASSES, {}),
        ({n + 100: scores for n, scores in SHARES.items()}, PASSES, {}),
        ({7: [1.0]}, {7: [0.0]}, {}),
        ({0: [1.0]}, {7: [0.0]}, {}),
    ],
    ids=["found", "tied", "alike", "shares", "unscored", "graded", "beyond", "doubled", "ranges", "unbounded",
         "too few", "one in common", "none in common", "one pair", "nothing"],
)  # fmt: skip
def test_the_page_says_of_two_runs_what_compare_says(
    bench: Bench, here: Path, first: Scores, second: Scores, changes: dict[str, Any]
) -> None:
    runs = [
        scored_run(Path("outputs"), scores, minute, model=f"lab/{minute}", **more).id
        for minute, (scores, more) in enumerate(((first, {}), (second, changes)))
    ]

    shown = bench("report", *runs, "-f", "json", "-o", "-")
    [difference] = json.loads(shown.out)["environments"][0]["differences"]
    better, worse = difference.pop("first"), difference.pop("second")
    told = bench("compare", worse, better, "--json")  # the first is the baseline

    [comparison] = json.loads(told.out)["comparisons"]
    assert comparison["settling_examples"] == difference.pop("settled_by")
    assert {name: comparison[name] for name in difference} == difference
