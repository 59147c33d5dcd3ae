"""`bench power`: what a plan would find, and the cheapest plan."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import Scores, scored_run
from late import Late
from run_samples import Bench

from harness.store.rundir import RunDir

scipy_stats = Late("scipy.stats")

OUT = Path("outputs")
SCORES: Scores = {n: [float(n % 2), float(n % 3 > 0), 0.5] for n in range(24)}
OTHER: Scores = {n: [float(n % 4 > 0), 0.0, 0.25] for n in range(4, 24)}


def run(scores: Scores, minute: int = 0, **changes: Any) -> RunDir:
    return scored_run(OUT, scores, minute, **changes)


def variance(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def slow_parts(scores: Scores) -> tuple[list[float], float]:
    """Means of the examples, and the variance within them."""
    groups = [[value for value in values if value is not None] for values in scores.values()]
    return [sum(group) / len(group) for group in groups], sum(map(variance, groups)) / len(groups)


def found(examples: int, spread2: float, size: float) -> float:
    """The chance that normal differences are found, by simulation (its standard error is 0.006)."""
    values = np.random.default_rng(1).normal(size, math.sqrt(spread2), (4_000, examples))
    typical = (values**2).sum(axis=1) / np.abs(values).sum(axis=1)
    every = np.column_stack([values, typical, -typical])
    t = every.mean(axis=1) / (every.std(axis=1) / math.sqrt(examples + 2))
    return float((np.abs(t) > scipy_stats.t.ppf(0.975, examples - 1)).mean())


def planned(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench("power", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_of_one_run_the_other_model_is_taken_to_be_like_it(bench: Bench, here: Path) -> None:
    whole = planned(bench, "--from", run(SCORES).id, "--mde", "0.1")

    means, within = slow_parts(SCORES)
    omega = 2 * max(0.0, variance(means) - within / 3)
    assert (whole["examples"], whole["rollouts_per_example"]) == (24, 3)
    assert whole["components"]["omega2"] == pytest.approx(omega)
    assert found(24, omega + 2 * within / 3, whole["detectable"]) == pytest.approx(0.82, abs=0.03)
    by_rollouts = {way["rollouts_per_example"]: way["examples"] for way in whole["ways"]}
    for rollouts in (1, 2, 4):
        n, spread2 = by_rollouts[rollouts], omega + 2 * within / rollouts
        assert found(n, spread2, 0.1) == pytest.approx(0.81, abs=0.03)
    spent = [way["rollouts"] for way in whole["ways"]]
    assert spent == sorted(spent)
    assert all(way["rollouts"] == 2 * way["examples"] * way["rollouts_per_example"] for way in whole["ways"])


def test_of_two_runs_it_is_seen(bench: Bench, here: Path) -> None:
    first, second = run(SCORES), run(OTHER, 1)
    whole = planned(bench, "--from", first.id, "--against", second.id)

    shared: Scores = {n: SCORES[n] for n in OTHER}
    (a, within_a), (b, within_b) = slow_parts(shared), slow_parts(OTHER)
    whole_variance = variance([x - y for x, y in zip(a, b, strict=True)])
    omega = max(0.0, whole_variance - within_a / 3 - within_b / 3)
    assert whole["examples"] == 20, "those of both"
    assert whole["components"] == pytest.approx(
        {"omega2": omega, "first2": within_a, "second2": within_b, "assumed": ""}
    )
    assert found(20, omega + (within_a + within_b) / 3, whole["detectable"]) == pytest.approx(0.82, abs=0.03)
    assert whole["ways"] == []


def test_the_table_begins_with_the_cheapest(bench: Bench, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy: Scores = {n: [float(n % 2), float(n % 2), 1.0, 0.0] for n in range(40)}
    monkeypatch.setenv("COLUMNS", "100")

    done = bench("power", "--from", run(noisy, cost=0.001).id, "--mde", "0.05", "--examples", "500")

    assert (done.code, done.err) == (0, "")
    assert (
        done.out
        == """\
40 examples like those of 20261121T091503Z-aaaa, 4 rollouts each, find a difference of 0.166 or more
between two models, 80 % of the time.

To find a difference of 0.05, the cheapest first
examples  rollouts of each  in all, of both models   cost
─────────────────────────────────────────────────────────
406                      4                   3,248  $3.25
210                      8                   3,360  $3.36
112                     16                   3,584  $3.58
63                      32                   4,032  $4.03

Two-sided test at the level 0.05, the same examples for both models. Assumed: the other model is
similar to this one, with a correlation of 0 between their scores.
"""
    )


def test_too_few_examples_for_any_number_of_rollouts(bench: Bench, here: Path) -> None:
    uneven: Scores = {n: [float(n % 2)] * 2 for n in range(20)}
    done = bench("power", "--from", run(uneven).id, "--mde", "0.01", "--examples", "100")

    assert done.code == 0
    assert "No number of rollouts of 100 examples finds a difference of 0.01: they differ too much" in done.out


def test_fewer_examples_than_any_finding_takes(bench: Bench, here: Path) -> None:
    """Five of five won has p = 0.06: no plan of five finds anything."""
    pilot = run({n: [float(n % 2), 1.0, 0.0] for n in range(5)})

    said = bench("power", "--from", pilot.id, "--mde", "0.9", "--examples", "5").out

    assert "3 rollouts each, are too few to tell two models apart: it takes 6 or more." in " ".join(said.split())
    assert "5 examples are too few to tell two models apart." in said
    whole = planned(bench, "--from", pilot.id, "--mde", "0.9")
    assert whole["detectable"] is None
    assert min(way["examples"] for way in whole["ways"]) >= 6


def test_what_cannot_be_meant_is_refused(bench: Bench, here: Path) -> None:
    first, second = run(SCORES), run(OTHER, 1)
    for words, said in (
        (("--mde", "5"), "--mde 5: rewards of sums lie between 0 and 1, so no two runs differ by more"),
        (("--against", first.id), "this is the run of --from; give a run of another model"),
        (("--against", second.id, "--correlation", "0.5"), "--correlation and --against are mutually exclusive"),
    ):
        done = bench("power", "--from", first.id, *words)
        assert (done.code, done.out) == (2, "")
        assert said in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            {n: [1.0, 1.0] for n in range(9)},
            "every example has the same score, so it does not show how much scores vary",
        ),
        ({0: [1.0, 0.0]}, "fewer than two examples have a score"),
        ({0: [None], 1: [None]}, "fewer than two examples have a score"),
        ({}, "fewer than two examples have a score"),
    ],
)
def test_a_run_that_tells_nothing(bench: Bench, here: Path, scores: Scores, said: str) -> None:
    done = bench("power", "--from", run(scores).id, "--mde", "0.1")

    assert (done.code, done.out) == (2, "")
    assert said in done.err and done.err.count("\n") == 1


def test_runs_that_share_nothing(bench: Bench, here: Path) -> None:
    first, second = run(SCORES), run({n + 90: values for n, values in OTHER.items()}, 1)
    done = bench("power", "--from", first.id, "--against", second.id, "--mde", "0.1")

    assert done.code == 2 and "share fewer than two examples with a score" in done.err


@pytest.mark.parametrize(
    "wrong",
    [
        ["--mde", "0"], ["--mde", "-1"], ["--mde", "nan"], ["--mde", "inf"], ["--correlation", "1.5"], ["--power", "1"],
        ["--power", "nan"], ["--alpha", "0"], ["--examples", "1"], ["--metric", "none"],
    ],
)  # fmt: skip
def test_numbers_out_of_range(bench: Bench, here: Path, wrong: list[str]) -> None:
    done = bench("power", "--from", run(SCORES).id, *wrong)

    assert (done.code, done.out) == (2, "")
