"""`bench gate`: what passes, what does not, and that nothing passes which was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from compared_runs import Scores, scored_run, suite_of
from run_samples import Bench

from harness.store.rundir import RunDir

OUT = Path("outputs")
HARD = 60
BASE: Scores = {n: [float(n % 3 > 0)] for n in range(HARD)}
BETTER: Scores = {n: [float(n % 5 > 0)] for n in range(HARD)}
WORSE: Scores = {n: [float(n % 6 == 1)] for n in range(HARD)}
NEAR: Scores = {n: [float(n % 3 > 0 and n != 4)] for n in range(HARD)}
"""One wrong that was right."""


def run(scores: Scores, minute: int = 1, **changes: Any) -> RunDir:
    return scored_run(OUT, scores, minute, model=f"lab/m-{minute}", **changes)


def gate(bench: Bench, candidate: RunDir | str, baseline: RunDir | str, *more: str) -> tuple[int, str]:
    """Exit code and what was said, as one line."""
    names = [each if isinstance(each, str) else each.id for each in (candidate, baseline)]
    done = bench("gate", names[0], "--baseline", names[1], *(more or ("--margin", "0.2")))
    return done.code, " ".join((done.out + done.err).split())


@pytest.fixture
def baseline(here: Path) -> RunDir:
    return run(BASE, 0)


def test_the_three_verdicts(bench: Bench, baseline: RunDir) -> None:
    assert gate(bench, run(BETTER), baseline) == (
        0,
        "environment verdict difference 95 % interval pairs "
        "───────────────────────────────────────────────────────── "
        "sums pass +0.133 [-0.032, +0.290] 60 "
        "sums: pass: the whole interval [-0.032, +0.290] lies above -0.2. "
        "PASS: lab/m-1 (20261121T091603Z-aaaa) against lab/m-0 (20261121T091503Z-aaaa), margin 0.2.",
    )
    code, said = gate(bench, run(WORSE, 2), baseline)
    assert code == 1 and "sums: fail: the whole interval" in said and "FAIL: lab/m-2" in said
    code, said = gate(bench, run(NEAR, 3), baseline, "--margin", "0.01")
    assert code == 3 and "sums: inconclusive: the interval" in said
    assert "contains -0.01; about 1,385 examples would settle it if the true difference is 0." in said


def test_what_was_measured_too_coarsely_does_not_pass_however_good_it_looks(bench: Bench, baseline: RunDir) -> None:
    """As many right, but others: the difference is 0, and what it would be on further examples is unknown."""
    code, said = gate(bench, run({n: [float(n % 3 < 2)] for n in range(HARD)}), baseline, "--margin", "0.1")
    assert code == 3 and "sums: inconclusive: the interval" in said and "contains -0.1" in said


def test_few_examples_that_agree_are_too_few_and_no_near_loss(bench: Bench, here: Path) -> None:
    few = {n: [1.0] for n in range(10)}
    code, said = gate(bench, run(few, 1), run(few, 2), "--margin", "0.1")
    assert code == 3 and "contains -0.1; about 34 examples would settle it if the true difference is 0." in said


def test_one_example_or_one_cluster_tells_nothing(bench: Bench, here: Path) -> None:
    first, second = run({0: [1.0]}, 1), run({0: [0.0]}, 2)
    code, said = gate(bench, first, second, "--margin", "0.1")
    assert code == 3 and "one example is not enough" in said
    said = " ".join(bench("compare", second.id, first.id).out.split())
    assert "unknown +1.000 [-1.000, +1.000] 1.000 1 0 0 1" in said, "as bench multi has it"
    assert "1 example is too few for a significant difference: it takes 6 or more." in said
    infos = {n: {"doc": "x"} for n in range(HARD)}
    alike = [run(scores, minute, infos=infos) for scores, minute in ((BASE, 3), (BETTER, 4))]
    code, said = gate(bench, alike[1], alike[0], "--margin", "0.1", "--cluster", "doc")
    assert code == 3 and "all examples are in one cluster, so the variance between clusters is unknown" in said


def test_samples_differ_by_no_more_than_scores_can(bench: Bench, here: Path) -> None:
    first, second = run({0: [1.0], 1: [0.5]}, 1), run({0: [0.0], 5: [0.5]}, 2)
    said = " ".join(bench("compare", second.id, first.id).out.split())
    assert "tied +0.500 [-1.000, +1.000] 0.293" in said and "two independent samples" in said


def test_rollouts_without_a_score_count_at_their_worst(bench: Bench, here: Path) -> None:
    """Of 1,000 all the same, 15 are missing: enough by --min-coverage, and yet more than the margin could be lost."""
    whole = {n: [1.0] for n in range(1000)}
    holed: Scores = {**whole, **{n: [None] for n in range(15)}}
    code, said = gate(bench, run(holed, 1), run(whole, 2), "--margin", "0.01")
    assert code == 3 and "15 rollouts have no score, and with the worst case for these it would be [-0.02" in said
    assert "--retry-failed runs them again" in said
    code, said = gate(bench, run({**whole, **{n: [0.0] for n in range(15)}}, 3), run(holed, 4), "--margin", "0.01")
    assert code == 3 and "with the worst case" in said
    assert gate(bench, run(holed, 5), run(whole, 6), "--margin", "0.04")[0] == 0


def test_graded_noise_does_not_stand_for_losses_that_were_not_seen(bench: Bench, here: Path) -> None:
    """100 examples whose scores differ a little: an interval far within the margin, of too few for it."""
    scores = [{n: [0.9 + 0.001 * ((n * step) % 7)] for n in range(100)} for step in (2, 3)]
    code, said = gate(bench, run(scores[0], 1), run(scores[1], 2), "--margin", "0.01")
    assert code == 3 and "but 100 examples could miss rare losses that reach -0.02" in said


def test_what_it_takes_to_settle_it_without_a_margin(bench: Bench, baseline: RunDir) -> None:
    code, said = gate(bench, run(NEAR), baseline, "--margin", "0")
    assert code == 3 and "contains 0; with a margin of 0, only a better candidate can pass." in said


def test_the_same_scores_pass_where_the_range_is_known(bench: Bench, baseline: RunDir) -> None:
    assert gate(bench, run(BASE), baseline)[0] == 0
    unknown = {"reward_range": (float("-inf"), float("inf"))}
    code, said = gate(bench, run(BASE, 2, **unknown), run(BASE, 3, **unknown))
    assert code == 3 and "its variance is unknown, and the scores have no bounds" in said


MISSING: list[tuple[str, Scores, dict[str, Any], int, str]] = [
    ("half failed", {n: ([1.0] if n % 2 else [None]) for n in range(HARD)}, {}, 1, "30 of its 60 rollouts have a"),
    (
        "the hard ones failed", {n: [None if n % 3 == 0 else 1.0] for n in range(HARD)}, {}, 1,
        "40 of its 60 rollouts have a score, but the gate requires 98 %; bench resume outputs/evals/sums--lab--m-1/"
        "20261121T091603Z-aaaa --retry-failed runs them again",
    ),
    ("a rollout of each failed", {n: [1.0, None] for n in range(HARD)}, {}, 1, "60 of its 120 rollouts"),
    ("nothing scored", {n: [None] for n in range(HARD)}, {}, 1, "0 of its 60 rollouts"),
    ("nothing made", {}, {"planned": {"num_examples": HARD, "rollouts_per_example": 1}}, 1, "0 of its 60 rollouts"),
    ("nothing planned", {}, {"planned": {}}, 1, "0 of its 0 rollouts"),
    (
        "stopped half way", {n: [1.0] for n in range(30)},
        {"planned": {"num_examples": HARD, "rollouts_per_example": 1}}, 1, "30 of its 60 rollouts",
    ),
    (
        "the easy half only", {n: [1.0] for n in range(30)}, {}, 3,
        "30 of 60 examples can be compared, but the gate requires 98 % (30 of the baseline alone); run both",
    ),
    ("other examples", {n + 900: [1.0] for n in range(HARD)}, {}, 3, "0 of 60 examples can be compared"),
    ("one example", {0: [1.0]}, {}, 3, "1 of 60 examples can be compared"),
    (
        "half others", {n + 30: [1.0] for n in range(HARD)}, {}, 3,
        "30 of 60 examples can be compared, but the gate requires 98 % (30 of the candidate alone, 30 of the baseline",
    ),
    ("many more", {n: [1.0] for n in range(200)}, {}, 3, "60 of 200 examples can be compared"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("scores", "changes", "code", "said"), [row[1:] for row in MISSING], ids=[m[0] for m in MISSING]
)
def test_what_was_not_measured_never_passes(
    bench: Bench, baseline: RunDir, scores: Scores, changes: dict[str, Any], code: int, said: str
) -> None:
    candidate = run(scores, **changes)

    found = gate(bench, candidate, baseline, "--margin", "0.99", "--junit", "junit.xml")

    assert found[0] == code
    assert said in found[1]
    suite = ElementTree.parse("junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == (("1", "0") if code == 1 else ("0", "1"))


@pytest.mark.parametrize(
    ("scores", "changes"),
    [
        ({n: [1.0 if n < 30 else None] for n in range(HARD)}, {}),
        ({n: [1.0, None] for n in range(HARD)}, {}),
        ({n: [1.0] for n in range(30)}, {"planned": {"num_examples": HARD, "rollouts_per_example": 1}}),
        ({}, {}),
    ],
)
def test_nothing_passes_against_a_baseline_that_was_not_measured(
    bench: Bench, here: Path, scores: Scores, changes: dict[str, Any]
) -> None:
    code, said = gate(bench, run(BETTER), run(scores, 0, **changes), "--margin", "0.99")

    assert code == 3
    assert "of the baseline's" in said and "sums--lab--m-0" in said


@pytest.mark.parametrize("which", [0, 1])
def test_a_run_that_ended_once_its_mean_was_known_is_no_gate(bench: Bench, here: Path, which: int) -> None:
    early = {"settings": {"env.until_ci": 0.3}, "planned": {"num_examples": 400, "rollouts_per_example": 1}}
    scores: Scores = {n: [1.0] for n in range(100)}
    runs = [run(scores, n, **(early if n == which else {})) for n in range(2)]

    code, said = gate(bench, runs[1], runs[0], "--margin", "0.99")

    assert code == 3
    who = "it" if which else "the baseline"
    assert f"inconclusive: {who} ended early because of --until-ci" in said
    table = " ".join(bench("compare", *(each.id for each in runs)).out.split())
    assert f"lab/m-{which}: ended early (--until-ci)." in table and "100 of 100" in table


def test_a_little_may_be_missing(bench: Bench, baseline: RunDir) -> None:
    candidate = run({n: [None if n == 7 else value for value in values] for n, values in BETTER.items()})

    code, said = gate(bench, candidate, baseline)
    assert code == 0 and "lies above -0.2; 1 of its rollouts have no score and are left out." in said
    assert gate(bench, candidate, baseline, "--margin", "0.2", "--min-coverage", "1")[0] == 1


@pytest.mark.parametrize("what", ["itself", "removed", "unlike", "latest"])
def test_what_cannot_be_a_gate_is_wrong_usage(bench: Bench, baseline: RunDir, what: str) -> None:
    if what == "itself":
        names = baseline.id, str(baseline.path)
    elif what == "latest":
        names = "latest", "latest"
    else:
        old = [run(BASE, 5), run(BASE, 6, name="more")]
        new = [run(BETTER, 7), run(BETTER, 8, name="more" if what == "removed" else "others")]
        names = suite_of(OUT, "20261121T091603Z-new1", new), suite_of(OUT, "20261121T091503Z-old1", old)
        if what == "removed":
            old[1].manifest_path.unlink()
    code, said = gate(bench, *names)
    assert code == 2
    assert said.startswith("error: ") and "PASS" not in said


@pytest.mark.parametrize("margin", ["1", "5"])
def test_a_margin_that_lets_everything_pass_is_refused(bench: Bench, baseline: RunDir, margin: str) -> None:
    """Who means 5 % writes 5."""
    done = bench("gate", run(BETTER).id, "--baseline", baseline.id, "--margin", margin)

    assert (done.code, done.out) == (2, "")
    assert f"--margin {margin}: rewards of sums lie between 0 and 1, so no two runs differ by more" in done.err


@pytest.mark.parametrize(
    ("margin", "coverage"), [("-0.1", "0.9"), ("nan", "0.9"), ("inf", "0.9"), ("0.1", "1.1"), ("0.1", "nan")]
)
def test_numbers_out_of_range(bench: Bench, baseline: RunDir, margin: str, coverage: str) -> None:
    assert gate(bench, run(BETTER), baseline, "--margin", margin, "--min-coverage", coverage)[0] == 2


def test_every_environment_of_a_suite_must_pass(bench: Bench, here: Path) -> None:
    old = [run(BASE, 0), scored_run(OUT, BASE, 2, model="lab/m-0", name="more")]
    new = [run(BETTER, 3), scored_run(OUT, WORSE, 4, model="lab/m-3", name="more")]
    names = suite_of(OUT, "20261121T091603Z-new1", new), suite_of(OUT, "20261121T091503Z-old1", old)

    done = bench(
        "gate", names[0], "--baseline", names[1], "--margin", "0.2", "--json", "--junit", "j.xml", "--markdown", "c.md"
    )

    assert done.code == 1
    whole = json.loads(done.out)
    assert (whole["verdict"], whole["margin"], whole["min_coverage"]) == ("fail", 0.2, 0.98)
    assert [(each["name"], each["verdict"]) for each in whole["environments"]] == [("sums", "pass"), ("more", "fail")]
    suite = ElementTree.parse("j.xml").getroot()
    assert suite.attrib == {"name": "bench gate", "tests": "2", "failures": "1", "errors": "0"}
    assert [(case.get("name"), [child.tag for child in case]) for case in suite] == [
        ("sums", []), ("more", ["failure"]),
    ]  # fmt: skip
    comment = Path("c.md").read_text().splitlines()
    assert comment[0] == "**Gate: fail** · lab/m-3 against lab/m-0, 2 comparisons · margin 0.2"
    assert [line.split(" | ")[:3] for line in comment[4:6]] == [
        ["| sums", "pass", "+0.133"],
        ["| more", "fail", "-0.500"],
    ]


def test_files_about_private_runs_are_private(bench: Bench, baseline: RunDir) -> None:
    candidate = run(BETTER, settings={"save.private": True})
    gate(bench, candidate, baseline, "--margin", "0.2", "--junit", "j.xml", "--markdown", "c.md")

    assert [Path(name).stat().st_mode & 0o777 for name in ("j.xml", "c.md")] == [0o600, 0o600]


NASTY = "\x1b[2J\x1b]0;pwned\x07 <b>&\"' | `code` [x](http://evil) \n## fake \ufffe\uffff" + "x" * 300


def test_names_of_strangers_break_neither_xml_nor_markdown(bench: Bench, here: Path) -> None:
    old, new = run(BASE, 0, name=NASTY), run(WORSE, 1, name=NASTY)
    for each in (old, new):
        manifest = json.loads(each.manifest_path.read_text())
        each.manifest_path.write_text(json.dumps({**manifest, "model": NASTY}))

    done = bench("gate", new.id, "--baseline", old.id, "--margin", "0.2", "--junit", "j.xml", "--markdown", "c.md")

    assert done.code == 1
    assert "\x1b" not in done.out and "\n## fake" not in done.out
    case = ElementTree.parse("j.xml").getroot()[0]
    assert (case.get("name") or "").startswith("<b>&\"' | `code` [x](http://evil) ## fake \ufffd\ufffd")
    comment = Path("c.md").read_text()
    assert len(comment.splitlines()) == 7
    assert "<b>" not in comment and "](http" not in comment.replace("\\](http", "")
    assert [line.count(" | ") for line in comment.splitlines()[2:5:2]] == [5, 5]


SUITE = """
num_examples = 60
rollouts_per_example = 1
[[eval]]
id = "reverse-text"
[[eval]]
id = "gsm8k"
env_args = { split = "sample" }
"""


@pytest.mark.slow
def test_the_documented_workflow_fails_when_any_environment_of_a_suite_got_worse(bench: Bench, here: Path) -> None:
    Path("suite.toml").write_text(SUITE)
    run = ("run", "suite.toml", "-m", "reference/oracle", "--quiet")
    gate = ("gate", "latest", "--baseline", "baselines/current", "--margin", "0.1")
    assert bench(*run, "-o", "baselines/current").code == 0

    for name in ("reverse-text", "gsm8k"):
        assert bench(*run, "--set", f"{name}:model.model=reference/null").code == 0
        done = bench(*gate, "--junit", "gate.xml", "--markdown", "gate.md")
        assert done.code == 1 and f"{name}: fail" in done.out, name
    done = bench(*run)
    assert done.code == 0 and f"bench gate {json.loads(bench('runs', '--json').out)['runs'][0]['suite']} " in done.out
    assert bench(*gate).code == 0

    Path("broken.py").write_text("def load_environment():\n    raise RuntimeError('no')\n")
    Path("suite.toml").write_text(SUITE.replace('"gsm8k"\nenv_args = { split = "sample" }', '"./broken.py"'))
    assert bench(*run).code == 1
    done = bench(*gate)
    assert done.code == 2 and "broken of latest could not be loaded." in done.err
    assert "gsm8k of baselines/current is not in latest." in done.err
    Path("suite.toml").write_text('[[eval]]\nid = "./broken.py"\n')
    assert bench(*run).code == 1
    done = bench(*gate)
    assert done.code == 2 and "which could not load broken" in done.err

    one = json.loads(bench("runs", "--json").out)["runs"][0]["id"]
    assert bench("gate", one, *gate[2:]).code == 2
    held = next(Path("baselines/current/evals").glob("reverse-text--*/2*"))
    done = bench("gate", one, "--baseline", str(held), "--margin", "0.1")
    assert "note: the baseline is one of the 2 runs of the suite" in done.err
