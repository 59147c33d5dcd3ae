"""What `bench judge check`, `bench judge next` and the corrected headline of `bench report` promise, by simulation
through the functions that they call. BENCH_ROUNDS multiplies the draws."""

from __future__ import annotations

import math
import os
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.plugins.judge_check.sample import draw_next
from harness.report.labels import LabelledRollout, LabelledRun, combine
from harness.stats.intervals import Estimate
from harness.stats.labels import Corrected, prediction_powered, weighted_kappa
from harness.store.draws import Draws
from harness.store.manifest import Manifest

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))

JUDGES = [(0.5, 0.9, 0.9), (0.7, 0.98, 0.8), (0.9, 0.95, 0.6), (0.9, 0.8, 0.8), (0.98, 0.97, 0.8), (0.6, 0.95, 0.95)]
"""Share of right replies; how many of the right ones, and of the wrong ones, the judge calls so."""


def made(
    generator: np.random.Generator, n: int, rollouts: int, judge: tuple[float, float, float]
) -> tuple[Floats, Floats]:
    """Truth and verdicts, a row an example; rollouts of an example resemble each other."""
    right, of_right, of_wrong = judge
    p = np.full((n, 1), right) if rollouts == 1 else generator.beta(right, 1 - right, (n, 1))
    truth = (generator.random((n, rollouts)) < p).astype(np.float64)
    luck = generator.random((n, rollouts))
    return truth, np.where(truth == 1, luck < of_right, luck >= of_wrong).astype(np.float64)


def run_of(scores: Floats) -> LabelledRun:
    """A run with these scores and no labels."""
    rollouts = [
        LabelledRollout(0, f"{n}/{k}", str(n), str(n), n, k, score)
        for n, row in enumerate(scores.tolist())
        for k, score in enumerate(row)
    ]
    manifest = Manifest(id="", env_id="toy", model="m")
    return LabelledRun(cast(Any, None), manifest, "reward", rollouts, (0.0, 1.0), True, 0, 0, 0, 0)


def labelled_by_draws(truth: Floats, scores: Floats, counts: list[int], seed: int) -> LabelledRun:
    """The run after people have labelled what `bench judge next` drew, several times in turn."""
    run, draws = run_of(scores), Draws()
    for count in counts:
        draws = Draws((*draws.draws, draw_next(run, draws, count, seed).draw))
        drawn = draws.probabilities()
        for each in run.rollouts:
            each.probability = drawn.get(each.key)
            if each.probability is not None:
                each.labels = {"ann": float(truth[int(each.example_key), each.rollout_index])}
        combine(run)
    return run


def at_random(generator: np.random.Generator, truth: Floats, scores: Floats, count: int) -> Corrected:
    """The corrected mean after a part of the rollouts was labelled, each with the same chance."""
    n, rollouts = truth.shape
    chosen = set(generator.choice(n * rollouts, count, replace=False).tolist())
    labels = [value if place in chosen else None for place, value in enumerate(truth.ravel().tolist())]
    owners = np.repeat(np.arange(n), rollouts)
    return prediction_powered(scores.ravel(), labels, clusters=owners, limits=(0.0, 1.0))


def holds(estimate: Estimate, truth: float) -> bool:
    low, high = estimate.low, estimate.high
    return low is not None and high is not None and low - 1e-9 <= truth <= high + 1e-9


@pytest.mark.parametrize("count", [5, 10, 20, 50, 100])
@pytest.mark.parametrize("rollouts", [1, 4])
def test_a_corrected_mean_covers_from_five_labels_on(count: int, rollouts: int) -> None:
    generator, rounds, short = np.random.default_rng(count), 150 * TIMES, dict[str, float]()
    for judge in JUDGES:
        found = [at_random(generator, *made(generator, 300 // rollouts, rollouts, judge), count) for _ in range(rounds)]
        short[str(judge)] = sum(holds(each.estimate, judge[0]) for each in found) / rounds
    error = math.sqrt(0.93 * 0.07 / rounds)
    assert min(short.values()) >= 0.93 - error, short


@pytest.mark.parametrize("count", [20, 50, 100])
def test_nor_does_a_graded_score_mislead(count: int) -> None:
    """A judge that is too mild by 0.1 and noisy, and people who give grades."""
    generator, rounds, covered = np.random.default_rng(count), 400 * TIMES, 0
    for _ in range(rounds):
        truth = generator.beta(2, 2, (300, 1))
        scores = np.clip(truth + 0.1 + generator.normal(0, 0.1, truth.shape), 0, 1)
        covered += holds(at_random(generator, truth, scores, count).estimate, 0.5)
    error = math.sqrt(0.93 * 0.07 / rounds)
    assert covered / rounds >= 0.93 - error, f"{covered / rounds:.3f} ± {error:.3f}"


@pytest.mark.parametrize("counts", [[20], [50], [20, 30], [50, 50]])
@pytest.mark.parametrize("rollouts", [1, 4])
def test_drawn_labels_are_unbiased_and_cover(counts: list[int], rollouts: int) -> None:
    """Also after a second draw, whose numbers depend on the labels of the first. The judges are too mild by 0.1 and by
    0.02, and too strict by 0.17."""
    rounds, covered = 40 * TIMES, 0
    judges = [(0.7, 0.98, 0.6), (0.9, 0.95, 0.3), (0.9, 0.8, 0.9)]
    for judge in judges:
        generator, errors, biases = np.random.default_rng(counts), list[float](), list[float]()
        for seed in range(rounds):
            truth, scores = made(generator, 300 // rollouts, rollouts, judge)
            estimate = labelled_by_draws(truth, scores, counts, seed).corrected.estimate
            covered += holds(estimate, judge[0])
            errors.append((estimate.mean or 0.0) - float(truth.mean()))
            biases.append(float(scores.mean() - truth.mean()))
        bias, spread = float(np.mean(errors)), float(np.std(errors)) / math.sqrt(rounds)
        assert abs(bias) <= 3 * spread + 0.2 / sum(counts), f"{judge}: bias {bias:.4f} ± {spread:.4f}"
        assert abs(np.mean(biases)) > 0.01, "the judge should be biased"
    rate, error = covered / rounds / len(judges), math.sqrt(0.93 * 0.07 / rounds / len(judges))
    assert rate >= 0.93 - error, f"{rate:.3f} ± {error:.3f}"


def test_a_selection_that_is_no_random_part_is_noticed() -> None:
    """The labels of failures alone always; those of a random part hardly ever."""
    generator, rounds, false_alarms = np.random.default_rng(1), 400 * TIMES, 0
    for _ in range(rounds):
        truth, scores = made(generator, 300, 1, (0.9, 0.9, 0.9))
        p_random = at_random(generator, truth, scores, 30).p_random
        false_alarms += p_random is not None and p_random < 0.001
        failures = np.flatnonzero(scores.ravel() == 0)[:20].tolist()
        labels = [value if place in failures else None for place, value in enumerate(truth.ravel().tolist())]
        p_failures = prediction_powered(scores.ravel(), labels, limits=(0.0, 1.0)).p_random
        assert p_failures is not None and p_failures < 0.001
    assert false_alarms / rounds <= 0.005, false_alarms


@pytest.mark.parametrize("count", [10, 50, 200])
def test_kappa_covers(count: int) -> None:
    generator, rounds, short = np.random.default_rng(count), 250 * TIMES, dict[str, float]()
    for judge in JUDGES:
        right, of_right, of_wrong = judge
        agreed, ours = right * of_right + (1 - right) * of_wrong, right * of_right + (1 - right) * (1 - of_wrong)
        chance = right * ours + (1 - right) * (1 - ours)
        truth = (agreed - chance) / (1 - chance)
        covered = 0
        for _ in range(rounds):
            y, f = (side.ravel() == 1 for side in made(generator, count, 1, judge))
            found = weighted_kappa(y.tolist(), f.tolist(), [1.0] * count, [*range(count)])
            covered += found.mean is None or holds(found, truth)
        short[str(judge)] = covered / rounds
    error = math.sqrt(0.93 * 0.07 / rounds)
    assert min(short.values()) >= 0.93 - error, short


@pytest.mark.parametrize("count", [50, 100])
def test_the_forecast_of_the_interval_comes_true(count: int) -> None:
    """Within a quarter, for judges that are wrong in about a tenth of cases, which it takes them to be."""
    for judge in [(0.5, 0.9, 0.9), (0.7, 0.9, 0.9)]:
        generator, ratios = np.random.default_rng(count), list[float]()
        for seed in range(20 * TIMES):
            truth, scores = made(generator, 300, 1, judge)
            expected = draw_next(run_of(scores), Draws(), count, seed).forecast[count]
            half = labelled_by_draws(truth, scores, [count], seed).corrected.estimate.half_width
            ratios.append((half or 0.0) / expected)
        assert 0.8 <= float(np.mean(ratios)) <= 1.25, f"{judge}: {np.mean(ratios):.2f}"
