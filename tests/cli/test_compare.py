"""`bench compare`: which runs are compared with which, and what is said of it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run, suite_of
from run_samples import Bench

from harness.store.rundir import RunDir

OUT = Path("outputs")
GOOD: Scores = {n: [1.0, float(n % 4 > 0)] for n in range(16)}
FAIR: Scores = {n: [float(n % 2), 0.0] for n in range(16)}
"""Worse in every example."""
LIKE: Scores = {n: [1.0, float(n % 4 > 1)] for n in range(16)}


def run(scores: Scores, minute: int, model: str = "", **changes: Any) -> RunDir:
    return scored_run(OUT, scores, minute, model=model or f"lab/m-{minute}", **changes)


def compared(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench("compare", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def who(whole: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Name, candidate and baseline of each comparison."""
    return [(each["name"], each["candidate"], each["baseline"]) for each in whole["comparisons"]]


def test_the_table_says_who_is_better(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run(GOOD, 0, cost=0.01), run(FAIR, 1, seconds=2.0), run(LIKE, 2)]
    monkeypatch.setenv("COLUMNS", "100")

    done = bench("compare", *(each.id for each in runs), "--flips", "2")

    assert done.code == 0
    assert (
        done.out
        == """\
sums · reward
run       mean   95 % interval    scored     p50     p95  tokens in  tokens out   cost
──────────────────────────────────────────────────────────────────────────────────────
lab/m-0  0.875  [0.688, 0.978]  32 of 32  500 ms  500 ms      3,200         640  $0.32
lab/m-1  0.250  [0.112, 0.388]  32 of 32   2.0 s   2.0 s      3,200         640      –
lab/m-2  0.750  [0.612, 0.888]  32 of 32  500 ms  500 ms      3,200         640      –

Difference from lab/m-0, example by example; + is better
run      verdict  difference     95 % interval       p  wins  losses  ties  pairs
─────────────────────────────────────────────────────────────────────────────────
lab/m-1    worse      -0.625  [-0.740, -0.371]  <0.001     0      16     0     16
lab/m-2     tied      -0.125  [-0.245, +0.023]   0.097     0       4    12     16

lab/m-1 is worse than lab/m-0, by 0.625: more than noise.
lab/m-2 and lab/m-0 are tied: the difference may be noise. If it is real, about 35 examples would
show it (there are 16). These show a difference of 0.205 or more in 80 % of cases.

lab/m-0 (baseline) and lab/m-1 (run) differ on 16 of 16 examples; the 2 furthest apart
example  baseline    run  difference
────────────────────────────────────
2           1.000  0.000      -1.000
6           1.000  0.000      -1.000

lab/m-0 (baseline) and lab/m-2 (run) differ on 4 of 16 examples; the 2 furthest apart
example  baseline    run  difference
────────────────────────────────────
1           1.000  0.500      -0.500
5           1.000  0.500      -0.500

Examples are paired by content: prompt, answer, task and info. An example's value is the mean over
its scored rollouts. A verdict is better or worse where p is below 0.05. p: Student's t, as the
interval, corrected for 2 comparisons (Holm). Interval, each difference for itself: Student t on the
differences with one additional won and one additional lost pair or cluster (after Bonett & Price
2012).
"""
    )
    assert done.err == "--transcripts N prints the first N of these examples with both transcripts\n"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_figure_is_cut(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    long = "organisation/a-model-with-quite-a-long-name-that-goes-on"
    runs = [run(GOOD, 0, f"{long}-1"), run(FAIR, 1, f"{long}-2"), run(LIKE, 2, f"{long}-3")]
    monkeypatch.setenv("COLUMNS", str(width))

    done = bench("compare", *(each.id for each in runs), "--flips", "1")

    assert max(map(len, done.out.splitlines())) <= width
    for figure in ("0.875", "[0.688, 0.978]", "-0.625", "[-0.740, -0.371]", "<0.001", "worse", "tied"):
        assert figure in done.out


def test_flips_with_both_transcripts(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0), run(FAIR, 1)]

    done = bench("compare", *(each.id for each in runs), "--transcripts", "2", "--flips", "0")

    parts = done.out.split("\n=== ")[1:]
    assert [part.splitlines()[:2] for part in parts] == [
        ["lab/m-0", "Example 2 · task sums"], ["lab/m-1", "Example 2 · task sums"],
        ["lab/m-0", "Example 6 · task sums"], ["lab/m-1", "Example 6 · task sums"],
    ]  # fmt: skip
    assert [part.count("Rollout ") for part in parts] == [2, 2, 2, 2]
    assert "Rollout 0 · reward 1.000" in parts[0] and "Rollout 0 · reward 0.000" in parts[1]
    assert "furthest apart" not in done.out and done.err == ""


def test_two_suites_are_compared_by_name(bench: Bench, here: Path) -> None:
    old = [run(GOOD, 0, "lab/old"), run(GOOD, 1, "lab/old", name="more"), run(GOOD, 2, "lab/old", name="gone")]
    new = [run(FAIR, 4, "lab/new", name="more"), run(LIKE, 3, "lab/new"), run(FAIR, 5, "lab/new", name="extra")]
    first, second = suite_of(OUT, "20261121T091503Z-old1", old), suite_of(OUT, "20261121T091603Z-new1", new)
    whole = compared(bench, first, second)

    assert who(whole) == [("sums", new[1].id, old[0].id), ("more", new[0].id, old[1].id)]
    assert whole["not_compared"] == [f"extra of {second} is not in {first}.", f"gone of {first} is not in {second}."]
    [average] = whole["averages"]
    assert average["candidate"] == "lab/new"
    assert average["difference"] == pytest.approx((-0.625 - 0.125) / 2)
    assert average["method"] == "mover"


def test_a_run_of_a_suite_that_was_removed_is_told(bench: Bench, here: Path) -> None:
    old = [run(GOOD, 0), run(GOOD, 1, name="more")]
    new = [run(LIKE, 3), run(LIKE, 4, name="more")]
    names = [suite_of(OUT, "20261121T091503Z-old1", old), suite_of(OUT, "20261121T091603Z-new1", new)]
    new[1].manifest_path.unlink()

    whole = compared(bench, *names)

    assert who(whole) == [("sums", new[0].id, old[0].id)]
    gone, missing = whole["not_compared"]
    assert gone == f"evals/sums--lab--m-4/{new[1].id} of {names[1]} no longer exists."
    assert missing == f"more of {names[0]} is not in {names[1]}."


def test_suites_with_several_models_are_compared_model_by_model(bench: Bench, here: Path) -> None:
    old = [run(GOOD, 0, "lab/a"), run(GOOD, 1, "lab/b")]
    new = [run(LIKE, 2, "lab/b"), run(FAIR, 3, "lab/a"), run(FAIR, 4, "lab/c")]
    names = [suite_of(OUT, "20261121T091503Z-old1", old), suite_of(OUT, "20261121T091603Z-new1", new)]
    whole = compared(bench, *names)

    assert who(whole) == [("sums", new[0].id, old[1].id), ("sums", new[1].id, old[0].id)]
    assert whole["not_compared"] == [f"sums of {names[1]}: {names[0]} has no run of lab/c."]


def test_the_models_of_one_suite_are_compared_with_its_first(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0, "lab/a"), run(FAIR, 1, "lab/b"), run(LIKE, 2, "lab/c")]
    more = [run(FAIR, 3, "lab/b", name="more"), run(GOOD, 4, "lab/a", name="more"), run(GOOD, 5, "lab/b", name="one")]
    whole = compared(bench, suite_of(OUT, "20261121T091503Z-suit", [*runs, *more]))

    assert who(whole) == [
        ("sums", runs[1].id, runs[0].id), ("sums", runs[2].id, runs[0].id), ("more", more[0].id, more[1].id),
    ]  # fmt: skip
    assert whole["not_compared"] == ["one has only one run."]
    assert [each["candidate"] for each in whole["averages"]] == ["lab/b"]


def test_without_a_name_the_newest_invocation_is_compared(bench: Bench, here: Path) -> None:
    run(GOOD, 0, "lab/a")
    suite_id = "20261121T091603Z-suit"
    runs = [run(each, 1 + n, f"lab/{n}", suite=suite_id) for n, each in enumerate((GOOD, FAIR))]
    suite_of(OUT, suite_id, runs)
    assert who(compared(bench)) == [("sums", runs[1].id, runs[0].id)]

    run(GOOD, 9)
    done = bench("compare")
    assert (done.code, done.out) == (2, "") and "sums has only one run. Name two runs" in done.err


def test_the_runs_of_a_sweep_are_told_apart(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run(GOOD if n else LIKE, n, "lab/a", name=f"sums[temperature=0.{n}, max_turns=100]") for n in range(3)]
    monkeypatch.setenv("COLUMNS", "100")

    done = bench("compare", suite_of(OUT, "20261121T091503Z-suit", runs), "--flips", "0")

    assert done.out.startswith("sums · lab/a · reward\nrun ")
    first = [line.split("  ")[0] for line in done.out.splitlines()]
    assert [each[:3] for each in first if each.endswith("=100")] == ["1 t", "2 t", "3 t", "2 t", "3 t"]
    assert "2 temperature=0.1, max_turns=100 and 1 temperature=0.0, max_turns=100 are tied" in done.out.replace(
        "\n", " "
    )


def test_runs_of_one_model_are_called_by_their_ids(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0, "lab/a"), run(LIKE, 1, "lab/a")]

    done = bench("compare", *(each.id for each in runs), "--flips", "0")

    assert f"{runs[1].id} and {runs[0].id} are tied" in done.out
    assert done.out.startswith("sums · lab/a · reward\n")


def test_a_suite_with_two_runs_of_one_model_is_ambiguous(bench: Bench, here: Path) -> None:
    old = [run(GOOD, 0, "lab/a"), run(LIKE, 1, "lab/a")]
    new = [run(GOOD, 2, "lab/a"), run(LIKE, 3, "lab/b")]
    names = [suite_of(OUT, "20261121T091503Z-old1", old), suite_of(OUT, "20261121T091603Z-new1", new)]

    done = bench("compare", *names)

    assert (done.code, done.out) == (2, "")
    assert f"sums of {names[0]} has several runs of one model: name the runs" in done.err


def test_a_run_is_not_compared_with_itself(bench: Bench, here: Path) -> None:
    one = run(GOOD, 0)

    for names in ((one.id, "latest"), (str(one.path), one.id[:10])):
        done = bench("compare", *names)
        assert (done.code, done.out) == (2, "")
        assert "would be compared with itself; give another run" in done.err


@pytest.mark.parametrize("how", ["one", "empty", "unscored"])
def test_nothing_to_compare(bench: Bench, here: Path, how: str) -> None:
    first = run(GOOD, 0)
    second = [] if how == "one" else [run({} if how == "empty" else {n: [None] for n in GOOD}, 1)]

    done = bench("compare", first.id, *(each.id for each in second))

    assert (done.code, done.out) == (2, "")
    said = "sums has only one run. Name two runs" if how == "one" else "no two of these runs have scores to compare"
    assert said in done.err and done.err.count("\n") == 1


def test_what_is_missing_is_said(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores: Scores = {**{n: LIKE[n] for n in range(10)}, 10: [None, 1.0], 11: [None, None], 99: [1.0, 1.0]}
    planned = {"num_examples": 16, "rollouts_per_example": 2}
    runs = [run(GOOD, 0), run(scores, 1, planned=planned, status="interrupted")]
    monkeypatch.setenv("COLUMNS", "200")

    said = bench("compare", *(each.id for each in runs)).out

    assert "lab/m-1: without a score: timeout 3." in said
    assert "lab/m-1: 6 of 32 rollouts not run (interrupted)." in said
    left_out = "1 of lab/m-1 alone, 4 of lab/m-0 alone, 1 without a score on one side or the other"
    assert f"11 examples paired; on these the means are 0.727 and 0.864. Not paired: {left_out}." in said


def test_examples_that_are_too_few_for_any_finding_make_no_tie(bench: Bench, here: Path) -> None:
    """Five of five won has p = 0.06: with the built-in -n 5 no two models differ, and that is no finding about them."""
    runs = [run({n: [0.0] for n in range(5)}, 0), run({n: [1.0 - n / 100] for n in range(5)}, 1)]

    said = " ".join(bench("compare", *(each.id for each in runs), "--flips", "0").out.split())
    [match] = compared(bench, *(each.id for each in runs))["comparisons"]

    assert (
        "lab/m-1: too little to compare with lab/m-0. 5 examples are too few for a significant difference: it takes"
        in said
    )
    assert "tied" not in said
    assert (match["verdict"], match["settling_examples"], match["detectable"]) == ("unknown", 6, None)


def test_the_fewest_examples_grow_with_the_comparisons(bench: Bench, here: Path) -> None:
    """Also where every difference is the same, so that nothing is known of their spread."""
    lost, won = {n: [0.0] for n in range(5)}, {n: [1.0] for n in range(5)}

    done = bench("compare", *(run(scores, at).id for at, scores in enumerate((lost, won, won))), "--flips", "0")

    assert (
        " ".join(done.out.split()).count("5 examples are too few for a significant difference: it takes 6 or more.")
        == 2
    )


def test_six_examples_can_tell(bench: Bench, here: Path) -> None:
    runs = [run({n: [0.0] for n in range(6)}, 0), run({n: [1.0] for n in range(6)}, 1)]

    [match] = compared(bench, *(each.id for each in runs))["comparisons"]

    assert (match["verdict"], match["p_value"]) == ("better", pytest.approx(0.0238047373))


def test_examples_of_one_cluster_tell_nothing_of_others(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0), run(FAIR, 1)]

    said = " ".join(bench("compare", *(each.id for each in runs), "--cluster", "task", "--flips", "0").out.split())

    assert "1 cluster is too few for a significant difference: it takes 6 or more." in said
    assert " unknown " in said and " tied " not in said


def test_one_example_tells_nothing(bench: Bench, here: Path) -> None:
    runs = [run({0: [0.0]}, 0), run({0: [1.0]}, 1)]

    said = " ".join(bench("compare", *(each.id for each in runs), "--flips", "0").out.split())

    assert "lab/m-1: too little to compare with lab/m-0. 1 example is too few for a significant difference" in said
    assert "unknown +1.000 [-1.000, +1.000] 1.000" in said and "Welch" not in said


def test_only_comparisons_that_have_a_p_value_are_counted(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0), run(FAIR, 1), run({n: [None] for n in GOOD}, 2)]

    said = " ".join(bench("compare", *(each.id for each in runs), "--flips", "0").out.split())

    assert "p: Student's t, as the interval. Interval" in said and "corrected" not in said


def test_two_samples_are_called_that(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0), run({n + 50: values for n, values in FAIR.items()}, 1)]

    said = " ".join(bench("compare", *(each.id for each in runs)).out.split())

    assert "lab/m-1 is worse than lab/m-0, by 0.625: more than noise." in said
    assert "The two share no example, so they are compared as two independent samples (Welch)." in said
    assert "p: Welch's t test." in said and "sign-flip" not in said


def test_a_metric_and_clusters(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0), run(FAIR, 1)]
    whole = compared(bench, *(each.id for each in runs), "--metric", "correct", "--cluster", "n")

    [only] = whole["comparisons"]
    assert (only["measure"], only["clusters"], only["difference"]) == ("correct", 16, -0.625)
    wrong = bench("compare", *(each.id for each in runs), "--metric", "corect")
    assert (wrong.code, wrong.out) == (2, "") and "did you mean 'correct'?" in wrong.err


def test_another_output_folder(bench: Bench, here: Path) -> None:
    runs = [scored_run(Path("elsewhere"), GOOD, n, model=f"lab/{n}") for n in range(2)]

    assert bench("compare", *(each.id for each in runs), "-o", "elsewhere").code == 0
    assert bench("compare", *(str(each.path) for each in runs)).code == 0
    assert bench("compare", *(each.id for each in runs)).code == 2


def test_a_terminal_without_other_characters(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0), run(LIKE, 1)]
    from harness.cli.compare import Measured, compared
    from harness.report.compare.screen import screen
    from harness.report.layout import print_lines
    from harness.report.text import make_console

    found = compared([each.id for each in runs], OUT, Measured())
    with Path("out").open("w", encoding="ascii", errors="replace") as file:
        print_lines(screen(found, 80, flips=3), make_console(file=file, width=80))
    text = Path("out").read_text()
    assert text.isascii() and "?" not in text
    assert "-----" in text


def test_the_table_of_models_and_environments(bench: Bench, here: Path) -> None:
    runs = [run(GOOD, 0), run(FAIR, 1), run(GOOD, 2, env_id="other", model="lab/m-0"), run(LIKE, 3, env_id="other")]
    suite = suite_of(OUT, "20261121T101503Z-both", runs)

    named = bench("compare", *(each.id for each in runs), "--table", "md")
    as_suite = bench("compare", suite, "--table", "md")

    assert (named.code, as_suite.code) == (0, 0)
    assert as_suite.out == named.out
    lines = as_suite.out.splitlines()
    assert lines[0] == "| model | sums | other | average |"
    assert lines[2].startswith("| lab/m-0 | **0.875** ")
    assert lines[3].startswith("| lab/m-1 | 0.250 ")
    assert lines[4].startswith("| lab/m-3 | – | 0.750")
    table = bench("compare", suite, "--table", "latex")
    assert table.out.startswith("% Made by bench. Needs ")
    rows = list(csv.DictReader(io.StringIO(bench("compare", suite, "--table", "csv").out)))
    assert [(row["kind"], row["mark"]) for row in rows] == [
        ("run", "best"), ("run", "best"), ("run", "worse"), ("run", "tied"), ("average", ""),
    ]  # fmt: skip


def test_a_table_of_another_measure_or_of_clusters(bench: Bench, here: Path) -> None:
    infos = {n: {"text": n // 4} for n in GOOD}
    runs = [run(GOOD, 0, infos=infos), run(FAIR, 1, infos=infos)]
    names = [each.id for each in runs]

    metric = runs[0].read_manifest().metric_names[0]
    assert f"Mean {metric} over examples" in bench("compare", *names, "--table", "md", "--metric", metric).out
    assert "dependent; a run has 4 clusters." in bench("compare", *names, "--table", "md", "--cluster", "text").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--table", "tex"], 'error: --table tex: unknown format; did you mean "latex"?'),
        (["--table", "md", "--json"], "--table prints only the table: leave out --json, --flips and --transcripts"),
        (["--table", "md", "--transcripts", "1"], "leave out --json, --flips and --transcripts"),
        (["--table", "md", "--metric", "nothing"], "has no metric 'nothing'"),
        (["--table", "md", "none"], "no run 'none' under outputs/evals"),
    ],
)
def test_wrong_usage_of_the_table(bench: Bench, here: Path, arguments: list[str], said: str) -> None:
    run(GOOD, 0)
    done = bench("compare", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_table_of_runs_without_scores_is_refused(bench: Bench, here: Path) -> None:
    run({0: [None]}, 0)
    done = bench("compare", "latest", "--table", "csv")
    assert (done.code, done.out) == (2, "")
    assert "none of these runs has a score; try `bench runs show` on " in done.err


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="Linux has a device that is always full")
def test_a_table_for_a_full_disk_is_one_message(here: Path) -> None:
    run(GOOD, 0)
    with Path("/dev/full").open("wb", buffering=0) as full:
        command = [sys.executable, "-m", "harness.cli.main", "compare", "latest", "--table", "csv"]
        done = subprocess.run(command, cwd=here, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"error: cannot write to stdout: No space left on device\n"
