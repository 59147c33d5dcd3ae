"""Re-run noise and question noise told apart: by hand, and on simulated models whose noise is known."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from harness.stats.variance import Noise, noise, stderr_with


def test_a_small_run_by_hand() -> None:
    groups = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    parts = noise(groups)
    within = statistics.fmean([0.5, 0.0, 0.0, 0.5])
    between = statistics.variance([0.5, 1.0, 0.0, 0.5])
    assert (parts.examples, parts.rollouts, parts.repeated) == (4, 8, 4)
    assert parts.rerun_std == pytest.approx(math.sqrt(within))
    assert parts.question_std == pytest.approx(math.sqrt(between - within / 2))
    assert parts.stderr == pytest.approx(math.sqrt(between / 4))
    assert parts.rerun_stderr == pytest.approx(math.sqrt(4 * within / 2) / 4)


def test_a_uniform_model_saves_what_miller_says() -> None:
    # x ~ U(0,1): Var = (1/12 + 1/(6K))/n, so two rollouts save a third and four a half.
    parts = Noise(100, 100, 100, math.sqrt(1 / 12), math.sqrt(1 / 6), None, None)
    one, two, four = (stderr_with(parts, 100, rollouts) for rollouts in (1, 2, 4))
    assert one and two and four
    assert (two / one) ** 2 == pytest.approx(2 / 3)
    assert (four / one) ** 2 == pytest.approx(1 / 2)


def test_simulated_noise_is_found_again() -> None:
    generator = np.random.default_rng(5)
    chances = generator.random(20_000)
    scores = (generator.random((20_000, 4)) < chances[:, None]).astype(float)
    parts = noise(scores.tolist())
    assert parts.question_std == pytest.approx(math.sqrt(1 / 12), abs=0.005)
    assert parts.rerun_std == pytest.approx(math.sqrt(1 / 6), abs=0.005)
    assert parts.stderr == pytest.approx(stderr_with(parts, 20_000, 4), rel=1e-9)
    assert parts.rerun_stderr == pytest.approx(math.sqrt(1 / 6 / 4 / 20_000), rel=0.02)


def test_what_cannot_be_told_is_none() -> None:
    once = noise([[0.0], [1.0], [1.0]])
    assert (once.rerun_std, once.question_std, once.rerun_stderr) == (None, None, None)
    assert once.stderr == pytest.approx(statistics.stdev([0, 1, 1]) / math.sqrt(3))
    mixed = noise([[0.0, 1.0], [1.0], []])
    assert (mixed.examples, mixed.rollouts, mixed.repeated, mixed.rerun_stderr) == (2, 3, 1, None)
    assert mixed.question_std == 0.0  # 0.125 - (0.25 + 0.5)/2 is below 0
    assert noise([]) == Noise(0, 0, 0, None, None, None, None)
    assert stderr_with(once, 100, 4) is None
    assert noise([[0.5, 0.5], [0.5, 0.5]]).stderr is None
