"""Averages over environments: by hand, and against the mean over all examples."""

from __future__ import annotations

import math

import pytest
from late import Late

from harness.stats.averages import macro_mean, micro_mean, weighted_mean
from harness.stats.intervals import Estimate, mean_interval, wilson

stats = Late("scipy.stats")


def test_two_environments_by_hand() -> None:
    first = mean_interval([0.1, 0.4, 0.3, 0.9], single_rollout=False)
    second = mean_interval([0.5, 0.7, 0.2], single_rollout=False)
    found = weighted_mean([first, second], [3.0, 1.0])
    assert first.stderr and second.stderr and first.mean and second.mean
    a, b = (0.75 * first.stderr) ** 2, (0.25 * second.stderr) ** 2
    df = (a + b) ** 2 / (a**2 / 3 + b**2 / 2)
    assert found.mean == pytest.approx(0.75 * first.mean + 0.25 * second.mean)
    assert (found.stderr, found.df) == (pytest.approx(math.sqrt(a + b)), pytest.approx(df))
    assert (found.method, found.examples) == ("satterthwaite", 7)
    assert found.half_width == pytest.approx(float(stats.t.ppf(0.975, df)) * math.sqrt(a + b))
    assert macro_mean([first, second]).mean == pytest.approx((first.mean + second.mean) / 2)
    assert micro_mean([first, second]).mean == pytest.approx((1.7 + 1.4) / 7)


@pytest.mark.parametrize("scale", [1e-140, 1e100])
def test_the_size_of_scores_changes_nothing_else(scale: float) -> None:
    first, second = [0.1, 0.4, 0.3, 0.9], [0.5, 0.7, 0.2]
    usual, found = (
        macro_mean([mean_interval([s * by for s in part], single_rollout=False) for part in (first, second)])
        for by in (1.0, scale)
    )
    assert found.low is not None and usual.low is not None
    assert (found.df, found.low / scale) == pytest.approx((usual.df, usual.low))


def test_one_environment_is_itself() -> None:
    alone = mean_interval([0.1, 0.4, 0.3, 0.9], single_rollout=False)
    found = macro_mean([alone])
    assert (found.mean, found.stderr, found.low, found.high) == pytest.approx(
        (alone.mean, alone.stderr, alone.low, alone.high)
    )


def test_a_solved_environment_still_leaves_an_interval() -> None:
    solved, half = (mean_interval(scores, single_rollout=True) for scores in ([1.0] * 20, [1.0, 0.0] * 10))
    found = macro_mean([solved, half])
    low, _ = wilson(20, 20)
    assert (found.method, found.stderr, found.mean) == ("mover", None, 0.75)
    assert half.low is not None and half.high is not None
    assert found.low == pytest.approx(0.75 - math.hypot((1 - low) / 2, (0.5 - half.low) / 2))
    assert found.high == pytest.approx(0.75 + (half.high - 0.5) / 2)


def test_what_is_missing_makes_no_average_of_the_rest() -> None:
    whole, none = Estimate(0.5, 0.1, 0.3, 0.7, "t", 10), Estimate()
    assert macro_mean([whole, none]) == Estimate(examples=10)
    assert macro_mean([whole, Estimate(mean=1.0, examples=1)]) == Estimate(mean=0.75, examples=11)
    assert weighted_mean([whole, none], [1.0, 0.0]).mean == 0.5
    assert macro_mean([]) == Estimate()


def test_weights_and_levels_that_do_not_fit_are_refused() -> None:
    one = Estimate(0.5, 0.1, 0.3, 0.7, "t", 10)
    for weights in ([1.0, 1.0], [-1.0], [math.nan]):
        with pytest.raises(ValueError, match="weights"):
            weighted_mean([one], weights)
    with pytest.raises(ValueError, match="levels"):
        macro_mean([one, Estimate(0.5, 0.1, 0.3, 0.7, "t", 10, 0.9)])
