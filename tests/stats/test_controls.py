"""Control variates: a mean of few examples, corrected by runs of other models on all of them."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.stats.controls import FEWEST, FOLDS, Controlled, controlled_mean

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))
Floats = NDArray[np.float64]
EXAMPLES = 1319


def world(generator: np.random.Generator, controls: int, ability: float, kind: str) -> tuple[Floats, list[Floats]]:
    """Passes and failures of a model and of others on all examples: of an item response model with two dimensions of
    difficulty, or of others that answer at random."""
    hard, steep = generator.normal(0, 1.5, EXAMPLES), generator.lognormal(0, 0.4, EXAMPLES)
    second = generator.normal(0, 0.8, EXAMPLES)

    def model(skill: float, taste: float) -> Floats:
        chance = 1 / (1 + np.exp(-steep * (skill - hard + taste * second)))
        return (generator.random(EXAMPLES) < chance).astype(float)

    if kind == "random":
        others = [(generator.random(EXAMPLES) < 0.5).astype(float) for _ in range(controls)]
    else:
        skills = zip(generator.normal(0.5, 1.0, controls), generator.normal(0, 1, controls), strict=True)
        others = [model(skill, taste) for skill, taste in skills]
    return model(ability, 1.0), others


def drawn(
    generator: np.random.Generator, values: Floats, others: list[Floats], n: int, population: int = EXAMPLES
) -> Controlled:
    sample = generator.permutation(population)[:n]
    return controlled_mean(values[sample].tolist(), sample.tolist(), others, limits=(0.0, 1.0))


def test_a_perfect_control_gives_the_mean_of_all() -> None:
    generator = np.random.default_rng(1)
    values = generator.random(1000)
    sample = generator.permutation(1000)[:50]
    found = controlled_mean(values[sample].tolist(), sample.tolist(), [values, 1 - values], limits=(0.0, 1.0))
    assert found.corrected.mean == pytest.approx(values.mean(), abs=0.001)
    assert found.explained is not None and found.explained > 0.99
    assert found.worth is not None and found.worth > 900


def test_hits_alone_promise_no_certainty() -> None:
    """A control that agrees on all sampled examples may still be wrong about others."""
    generator = np.random.default_rng(2)
    passes = (generator.random(200) < 0.6).astype(float)
    sample = generator.permutation(200)[:40]
    found = controlled_mean(passes[sample].tolist(), sample.tolist(), [passes], limits=(0.0, 1.0)).corrected
    assert found.method == "adjusted_t" and found.half_width and found.half_width > 0.02


def test_all_examples_need_no_correction() -> None:
    generator = np.random.default_rng(1)
    values, others = generator.random(60), [generator.random(60) for _ in range(3)]
    found = controlled_mean(values.tolist(), range(60), others)
    for estimate in (found.plain, found.corrected):
        assert estimate.mean == pytest.approx(values.mean()) and estimate.low == estimate.mean == estimate.high
    assert found.plain_new.stderr == pytest.approx(values.std(ddof=1) / math.sqrt(60))
    assert found.corrected_new.stderr == pytest.approx(found.plain_new.stderr)
    assert found.worth == pytest.approx(60)


def test_the_estimate_is_a_difference_from_the_prediction_fold_by_fold() -> None:
    """A slow twin for one control, with ordinary least squares: its smallest penalty is a thousandth."""
    generator = np.random.default_rng(4)
    control = generator.normal(0, 1, 300)
    values = 0.8 * control + generator.normal(0, 0.3, 300)
    sample = generator.permutation(300)[:80]
    found = controlled_mean(values[sample].tolist(), sample.tolist(), [control], seed=9)
    folds = np.random.default_rng(9).permutation(80) % FOLDS
    total = 0.0
    for fold in range(FOLDS):
        train, test = sample[folds != fold], sample[folds == fold]
        slope, base = np.polyfit(control[train], values[train], 1)
        rest = np.setdiff1d(np.arange(300), train)
        guess = np.mean(slope * control[rest] + base) + np.mean(values[test] - slope * control[test] - base)
        total += len(test) * (values[train].sum() + len(rest) * guess) / 300
    assert found.corrected.mean == pytest.approx(total / 80, abs=1e-4)
    assert found.plain.stderr == pytest.approx(values[sample].std(ddof=1) * math.sqrt((1 - 80 / 300) / 80))


def test_scores_that_are_all_equal_have_nothing_to_predict() -> None:
    found = controlled_mean([1.0] * 30, range(30), [np.arange(100.0)], limits=(0.0, 1.0))
    assert found.corrected == found.plain and found.worth is None
    assert found.plain.low is not None and found.plain.low < 1


def test_controls_that_do_not_vary() -> None:
    values = [0.0, 1.0] * 20
    found = controlled_mean(values, range(40), [np.ones(100)] * 3, limits=(0.0, 1.0))
    assert found.corrected.mean == pytest.approx(0.5) and found.explained == pytest.approx(0.0)
    assert found.worth == pytest.approx(40)


def test_estimates_stay_within_the_limits() -> None:
    generator = np.random.default_rng(2)
    control = generator.random(500)
    values = (control > 0.03).astype(float)
    for _ in range(20):
        found = drawn(generator, values, [control], 30, 500)
        for each in (found.corrected, found.corrected_new, found.plain):
            assert each.low is not None and each.high is not None and each.mean is not None
            assert 0 <= each.low <= each.mean <= each.high <= 1


def test_bad_arguments() -> None:
    values, rows = [0.0, 1.0] * 20, [np.arange(100.0)]
    for bad in ([], [np.arange(100.0), np.arange(99.0)]):
        with pytest.raises(ValueError, match="control"):
            controlled_mean(values, range(40), bad)
    for sample in (range(39), [0] * 40, range(61, 101), range(-1, 39)):
        with pytest.raises(ValueError, match="controlled_mean"):
            controlled_mean(values, sample, rows)
    with pytest.raises(ValueError, match=f"needs {FEWEST}"):
        controlled_mean(values[: FEWEST - 1], range(FEWEST - 1), rows)
    with pytest.raises(ValueError, match="finite"):
        controlled_mean(values, range(40), [np.full(100, math.nan)])


@pytest.mark.slow
@pytest.mark.parametrize("ability", [0.5, 3.0])
@pytest.mark.parametrize("controls", [3, 10, 45])
@pytest.mark.parametrize("n", [50, 200])
def test_the_corrected_mean_covers_and_has_no_bias(n: int, controls: int, ability: float) -> None:
    """The mean of all examples of 1,319, about half or nine of ten of which pass; another world every few draws."""
    generator = np.random.default_rng(n + controls)
    rounds = 100 * TIMES
    covered, errors, plain, worth = 0, list[float](), list[float](), list[float]()
    worlds = [world(generator, controls, ability, "models") for _ in range(rounds // 4)]
    for draw in range(rounds):
        values, others = worlds[draw // 4]
        truth = float(values.mean())
        found = drawn(generator, values, others, n)
        mean, low, high = found.corrected.mean, found.corrected.low, found.corrected.high
        assert mean is not None and low is not None and high is not None and found.plain.mean is not None
        covered += low <= truth <= high
        errors.append(mean - truth)
        plain.append(found.plain.mean - truth)
        worth.append((found.worth or n) / n)
    error = math.sqrt(0.93 * 0.07 / rounds)
    assert covered / rounds >= 0.93 - error, f"{covered / rounds:.3f} ± {error:.3f}"
    bias = float(np.std(errors)) / math.sqrt(rounds)
    assert abs(float(np.mean(errors))) <= 3 * bias, f"{np.mean(errors):.4f} ± {bias:.4f}"
    least = {3: 1.03, 10: 1.1, 45: 1.15}[controls] if ability < 1 else 0.97  # where nearly all pass, nothing is gained
    assert float(np.mean(worth)) >= least, np.mean(worth)


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 200])
@pytest.mark.parametrize("controls", [3, 45])
def test_useless_controls_cost_little(n: int, controls: int) -> None:
    generator = np.random.default_rng(n + controls)
    values, others = world(generator, controls, 0.5, "random")
    found = [drawn(generator, values, others, n) for _ in range(60 * TIMES)]
    corrected, plain = (
        [(way.mean or 0.0) - values.mean() for way in ways]
        for ways in zip(*[(each.corrected, each.plain) for each in found], strict=True)
    )
    lost = float(np.var(corrected) / np.var(plain)) - 1
    assert lost <= 0.06, f"{lost:.3f}"
