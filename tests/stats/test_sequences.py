"""Confidence sequences: against the capital by its definition, and what they promise about the population."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.stats.intervals import Estimate
from harness.stats.sequences import FIRST_LOOK, GRID, ConfidenceSequence

COINS = (np.random.default_rng(8).random(300) < 0.7).astype(float).tolist()


def confidence_sequence(
    values: list[float], limits: tuple[float, float] | None, planned: int | None = None, population: int | None = None
) -> Estimate:
    """The estimate after all values."""
    sequence = ConfidenceSequence(limits, planned=planned, population=population)
    for value in values:
        sequence.add(value)
    return sequence.estimate


def capital(values: list[float], mean: float) -> float:
    """The greater of the two gamblers' capitals against `mean`, by Waudby-Smith & Ramdas 2024, at any time so far."""
    highest = 0.0
    up = down = 1.0
    for t in range(1, len(values) + 1):
        past = values[: t - 1]
        guesses = [(0.5 + sum(past[:i])) / (i + 1) for i in range(1, t)]
        variance = (0.25 + sum((x - g) ** 2 for x, g in zip(past, guesses, strict=True))) / t
        bet = math.sqrt(2 * math.log(2 / 0.05) / (variance * t * math.log(1 + t)))
        up *= 1 + min(bet, 0.5 / mean) * (values[t - 1] - mean)
        down *= 1 - min(bet, 0.5 / (1 - mean)) * (values[t - 1] - mean)
        highest = max(highest, up / 2, down / 2)
    return highest


def test_the_interval_is_what_no_gambler_has_refuted() -> None:
    values = COINS[:60]
    found = confidence_sequence(values, (0, 1))
    assert found.low is not None and found.high is not None
    for inside in (found.low + 2 / GRID, found.high - 2 / GRID, sum(values) / 60):
        assert capital(values, inside) < 20
    for outside in (found.low - 2 / GRID, found.high + 2 / GRID):
        assert capital(values, outside) >= 20
    assert (found.method, found.examples) == ("betting", 60)


def test_it_only_narrows_and_one_by_one_is_all_at_once() -> None:
    sequence = ConfidenceSequence((0, 1))
    assert sequence.estimate == Estimate()
    low, high = 0.0, 1.0
    for value in COINS:
        sequence.add(value)
        found = sequence.estimate
        assert found.low is not None and found.high is not None and found.mean is not None
        assert low <= found.low + 1e-12 <= found.mean + 1e-12 and found.mean - 1e-12 <= found.high <= high + 1e-12
        low, high = found.low, found.high
    assert sequence.estimate == confidence_sequence(COINS, (0, 1))
    assert high - low < 0.3


def test_other_limits_are_the_same_on_another_scale() -> None:
    plain, wide = confidence_sequence(COINS, (0, 1)), confidence_sequence([4 * c - 1 for c in COINS], (-1, 3))
    assert plain.low is not None and plain.high is not None
    assert (wide.low, wide.high) == pytest.approx((4 * plain.low - 1, 4 * plain.high - 1))


def test_planning_narrows_it_where_it_is_planned_to_end() -> None:
    planned = confidence_sequence(COINS, (0, 1), planned=300)
    assert (planned.half_width or 1) < (confidence_sequence(COINS, (0, 1)).half_width or 0)


def test_a_population_that_was_seen_is_known() -> None:
    values = COINS[:100]
    whole = confidence_sequence(values, (0, 1), population=100)
    assert whole.low == whole.mean == whole.high == sum(values) / 100
    most = confidence_sequence(values[:90], (0, 1), population=100)
    endless = confidence_sequence(values[:90], (0, 1))
    assert most.low is not None and most.high is not None and endless.low is not None and endless.high is not None
    assert most.high - most.low <= 0.1 + 1e-12 < endless.high - endless.low
    assert sum(values[:90]) / 100 - 1e-12 <= most.low and most.high <= (sum(values[:90]) + 10) / 100 + 1e-12
    with pytest.raises(ValueError, match="population"):
        confidence_sequence([*values, 1.0], (0, 1), population=100)


def test_equal_values_are_not_taken_for_certainty() -> None:
    found = confidence_sequence([1.0] * 30, (0, 1))
    assert found.high == 1.0 and found.low is not None and 0.6 < found.low < 0.95


def test_without_limits_it_waits_and_names_itself() -> None:
    values = np.random.default_rng(1).normal(5, 2, 400).tolist()
    early, late = confidence_sequence(values[: FIRST_LOOK - 1], None), confidence_sequence(values, None, planned=400)
    assert (early.low, early.method) == (None, None)
    n, std = 400, float(np.std(values, ddof=1))
    rho2 = (-2 * math.log(0.05) + math.log(-2 * math.log(0.05)) + 1) / 400
    half = std * math.sqrt(2 * (n * rho2 + 1) / (n**2 * rho2) * math.log(math.sqrt(n * rho2 + 1) / 0.05))
    assert (late.method, late.half_width) == ("asymptotic", pytest.approx(half))


def test_arguments_out_of_range_are_refused() -> None:
    for limits in ((1.0, 0.0), (0.0, math.inf)):
        with pytest.raises(ValueError, match="must be finite and ascending"):
            ConfidenceSequence(limits)
    with pytest.raises(ValueError, match="outside"):
        ConfidenceSequence((0, 1)).add(1.5)
    with pytest.raises(ValueError, match="not finite"):
        ConfidenceSequence(None).add(math.nan)
    with pytest.raises(ValueError, match="needs limits"):
        ConfidenceSequence(None, population=10)
    with pytest.raises(ValueError, match="planned=0 or population=None is below 1"):
        ConfidenceSequence((0, 1), planned=0)


def test_values_that_refute_every_mean_say_nothing() -> None:
    # A thousand zeros and then a thousand ones came in no random order: that must not look like certainty.
    estimate = confidence_sequence([0.0] * 1000 + [1.0] * 1000, (0.0, 1.0), planned=200)
    assert estimate.mean == 0.5
    assert (estimate.low, estimate.high, estimate.method) == (None, None, None)


def test_a_population_finer_than_the_grid_ends_with_what_is_possible() -> None:
    # 9,999 of 10,000 seen: the mean of all is one of two values, and no grid of 4,000 steps lies between them.
    values = [float(index % 3 == 0) for index in range(9_999)]
    estimate = confidence_sequence(values, (0.0, 1.0), population=10_000)
    assert estimate.low is not None and estimate.high is not None
    assert estimate.low <= 3_333 / 10_000 < 3_334 / 10_000 <= estimate.high
    assert estimate.high - estimate.low < 0.001
