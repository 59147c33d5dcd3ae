"""The sequential gate: how often it is wrong, how soon it decides, and that missing scores decide nothing."""

from __future__ import annotations

import math
import os
import random
from statistics import NormalDist, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness.stats.paired_target import PairedAim, PairedStoppingRule
from harness.stats.sequences import (
    MOST_BET_OF_GAP,
    PART_OF_GAP,
    PRIOR_PAIRS,
    PRIOR_SLOPE,
    ConfidenceSequence,
)

Floats = NDArray[np.float64]

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))
GSM8K = 1319
"""Questions of GSM8K's test split."""


def aim_of(
    baseline: list[float], margin: float, rollouts: int = 1, limits: tuple[float, float] = (0.0, 1.0)
) -> PairedAim:
    scores = tuple((score, score) for score in baseline)
    return PairedAim(math.inf, len(baseline), rollouts, limits, False, margin, scores, "base")


def decided(
    candidate: list[list[float]], baseline: list[float], margin: float, generator: np.random.Generator
) -> PairedStoppingRule:
    """The rule after it has decided, or after all examples, in random order."""
    order = generator.permutation(len(baseline)).tolist()
    rule = PairedStoppingRule(aim_of([baseline[n] for n in order], margin, len(candidate[0])))
    for place, n in enumerate(order):
        for reward in candidate[n]:
            rule.count(place, reward)
        if rule.is_reached:
            break
    return rule


def alike(
    generator: np.random.Generator, first: float, second: float, rho: float, n: int
) -> tuple[list[float], list[float]]:
    """Passes and failures of two models on the same examples, which find the same ones hard to this degree."""
    z = generator.normal(size=(2, n))
    hard = np.stack([z[0], rho * z[0] + math.sqrt(1 - rho * rho) * z[1]])
    cuts = [NormalDist().inv_cdf(p) for p in (first, second)]
    one, other = (np.where(row < cut, 1.0, 0.0).tolist() for row, cut in zip(hard, cuts, strict=True))
    return one, other


def at_the_margin(
    generator: np.random.Generator, p: float, rho: float, n: int, lost: int
) -> tuple[list[float], list[float]]:
    """A baseline, and a candidate that is right on exactly so many examples fewer."""
    baseline, candidate = alike(generator, p, p - lost / n, rho, n)
    surplus = round(sum(candidate) - sum(baseline)) + lost
    value = float(surplus > 0)
    for place in generator.choice([k for k in range(n) if candidate[k] == value], abs(surplus), replace=False):
        candidate[int(place)] = 1.0 - value
    assert round(sum(baseline) - sum(candidate)) == lost
    return baseline, candidate


def many(
    candidate: list[float], baseline: list[float], margin: float, orders: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """The decisions (1 passes, -1 fails, 0 none) in many orders at once, and after how many examples: the bets of the
    sequence on the one mean that matters, which is not rounded to a grid."""
    rounds, n = orders.shape
    scores, known = np.array(candidate)[orders], np.array(baseline)[orders]
    mean, spread = known[0].mean(), known[0].var()
    up, down, won, seen, products, squares = (np.zeros(rounds) for _ in range(6))
    total, noise, decision, used = np.full(rounds, 0.5), np.full(rounds, 0.25), np.zeros(rounds), np.full(rounds, n)
    for t in range(n):
        rest = (n * (mean - margin) - won) / (n - t)
        of_rest = (n * mean - seen) / (n - t)
        up[rest < -1e-9], down[rest > 1 + 1e-9] = math.inf, math.inf
        rest, weight = np.clip(rest, 0, 1), squares + PRIOR_PAIRS * spread
        slope = np.maximum(0, (products + PRIOR_PAIRS * PRIOR_SLOPE * spread) / weight)
        variance, gap = noise / (t + 1), PART_OF_GAP * margin * n / (n - t)
        bet = np.maximum(gap / (variance + gap**2), np.sqrt(2 * math.log(40) / (variance * n)))
        value = scores[:, t] - slope * (known[:, t] - of_rest)
        with np.errstate(divide="ignore"):
            most = MOST_BET_OF_GAP / (rest + slope * (1 - of_rest)), MOST_BET_OF_GAP / (1 - rest + slope * of_rest)
        up += np.log1p(np.minimum(bet, most[0]) * (value - rest))
        down += np.log1p(-np.minimum(bet, most[1]) * (value - rest))
        for sign, wealth in ((1, up), (-1, down)):
            now = (decision == 0) & (wealth >= math.log(40))
            decision[now], used[now] = sign, t + 1
        total += value
        noise += (value - total / (t + 2)) ** 2
        products += (known[:, t] - mean) * (scores[:, t] - (won + 0.5) / (t + 1))
        squares += (known[:, t] - mean) ** 2
        won, seen = won + scores[:, t], seen + known[:, t]
    return decision, used


@pytest.mark.slow
@pytest.mark.parametrize(("p", "rho"), [(0.95, 0.7), (0.9, 0.6), (0.8, 0.0)])
def test_a_loss_of_the_margin_passes_and_fails_in_at_most_one_of_forty(p: float, rho: float) -> None:
    """66 of 1,319 fewer right, in random orders."""
    generator, rounds = np.random.default_rng(20261128), 400 * TIMES
    baseline, candidate = at_the_margin(generator, p, rho, GSM8K, 66)
    orders = np.stack([generator.permutation(GSM8K) for _ in range(rounds)])
    decision, used = many(candidate, baseline, 66 / GSM8K, orders)
    error = math.sqrt(0.025 * 0.975 / rounds)
    for wrong in (1, -1):
        rate = float((decision == wrong).mean())
        assert rate <= 0.025 + 2 * error, f"{wrong}: {rate:.3f} ± {error:.3f}"
    # The rule itself decides alike; its grid, which is never in favour of a verdict, may take a little longer.
    for row in np.flatnonzero((decision != 0) & (used < 400))[:4].tolist():
        rule = PairedStoppingRule(aim_of([baseline[n] for n in orders[row]], 66 / GSM8K))
        for place, n in enumerate(orders[row].tolist()):
            rule.count(place, candidate[n])
            if rule.is_reached:
                break
        assert rule.decision is None or (rule.decision == "pass") == (decision[row] > 0)
        assert rule.used >= used[row]


@pytest.mark.slow
def test_the_rule_decides_as_its_twin_does() -> None:
    generator = np.random.default_rng(6)
    baseline, candidate = alike(generator, 0.9, 0.9, 0.6, GSM8K)
    orders = np.stack([generator.permutation(GSM8K) for _ in range(8)])
    decision, used = many(candidate, baseline, 0.05, orders)
    for row in range(8):
        rule = PairedStoppingRule(aim_of([baseline[n] for n in orders[row]], 0.05))
        for place, n in enumerate(orders[row].tolist()):
            rule.count(place, candidate[n])
            if rule.is_reached:
                break
        assert (rule.decision, decision[row]) == ("pass", 1)
        assert used[row] <= rule.used <= 1.15 * used[row] + 10


@pytest.mark.slow
@pytest.mark.parametrize(("p", "rho", "most"), [(0.95, 0.7, 320), (0.9, 0.6, 400), (0.8, 0.6, 480), (0.8, 0.0, 550)])
def test_equal_and_clearly_worse_candidates_are_decided_by_a_part_of_the_examples(
    p: float, rho: float, most: int
) -> None:
    generator, rounds = np.random.default_rng(1), 40 * TIMES
    for worse, right in ((0.0, "pass"), (0.1, "fail")):
        used, wrong = list[int](), 0
        for _ in range(rounds):
            baseline, candidate = alike(generator, p, p - worse, rho, GSM8K)
            rule = decided([[each] for each in candidate], baseline, 0.05, generator)
            loss = sum(baseline) / GSM8K - sum(candidate) / GSM8K
            wrong += rule.decision != ("pass" if loss < 0.05 else "fail")
            used.append(rule.used)
        assert wrong <= max(2, 0.05 * rounds), f"{wrong} of {rounds} wrong"
        assert 100 < median(used) < most, f"{right} after {median(used)}"


@pytest.mark.slow
def test_repeats_of_examples_and_partial_credit_decide_as_well() -> None:
    generator, rounds = np.random.default_rng(2), 25 * TIMES
    used, wrong = list[int](), 0
    for _ in range(rounds):
        ability = generator.beta(6, 2, 600)
        baseline = np.round(generator.binomial(4, ability) / 4, 2).tolist()
        candidate = np.clip(ability[:, None] + generator.normal(0, 0.2, (600, 3)), 0, 1).tolist()
        rule = decided(candidate, baseline, 0.05, generator)
        loss = (sum(baseline) - sum(map(sum, candidate)) / 3) / 600
        wrong += rule.decision != ("pass" if loss < 0.05 else "fail")
        used.append(rule.used)
    assert wrong <= max(2, 0.05 * rounds) and median(used) < 300


def test_the_bets_are_those_of_a_slow_twin() -> None:
    """One mean, one side, in plain arithmetic; the sequence rejects it at the same example."""
    draw, size, margin = random.Random(7), 300, 0.1
    baseline = [float(draw.random() < 0.8) for _ in range(size)]
    values = [max(0.0, min(1.0, 0.6 * each + 0.35 * draw.random())) for each in baseline]
    sequence = ConfidenceSequence((0.0, 1.0), population=size, control=baseline, gap=margin)
    null, wealth, rejected = 0.5, 1.0, None
    mean_of_baseline = sum(baseline) / size
    spread = sum((each - mean_of_baseline) ** 2 for each in baseline) / size
    seen = list[tuple[float, float]]()
    corrected = list[float]()
    guesses = [(0.5, 0.25)]
    for t, (value, control) in enumerate(zip(values, baseline, strict=True), 1):
        left = size - t + 1
        rest = (size * null - sum(v for v, _ in seen)) / left
        of_rest = sum(baseline[t - 1 :]) / left
        products, squares = PRIOR_PAIRS * spread * PRIOR_SLOPE, PRIOR_PAIRS * spread
        for k, (v, c) in enumerate(seen):
            products += (c - mean_of_baseline) * (v - (sum(each for each, _ in seen[:k]) + 0.5) / (k + 1))
            squares += (c - mean_of_baseline) ** 2
        slope = max(0.0, products / squares)
        variance = sum(square for _, square in guesses) / t
        gap = PART_OF_GAP * margin * size / left
        bet = max(gap / (variance + gap**2), math.sqrt(2 * math.log(40) / (variance * size)))
        bet = min(bet, MOST_BET_OF_GAP / (rest + slope * (1 - of_rest)))
        value_then = value - slope * (control - of_rest)
        wealth *= 1 + bet * (value_then - rest)
        corrected.append(value_then)
        guesses.append((0.0, (value_then - (0.5 + sum(corrected)) / (t + 1)) ** 2))
        seen.append((value, control))
        sequence.add(value, control)
        assert sequence.ends is not None
        if wealth >= 40 and rejected is None:
            rejected = t
            assert sequence.ends[0] >= null - 1 / 4000 - 1e-9
        elif rejected is None:
            assert sequence.ends[0] < null
    assert rejected is not None and 5 < rejected < 100


def test_a_control_that_says_nothing_does_little_harm_and_one_that_says_all_helps() -> None:
    draw = random.Random(3)
    values = [float(draw.random() < 0.7) for _ in range(600)]
    noise = [float(draw.random() < 0.7) for _ in range(600)]
    widths: dict[str, float] = {}
    for name, control in {"none": None, "noise": noise, "itself": values}.items():
        sequence = ConfidenceSequence((0.0, 1.0), population=600, control=control, gap=0.05)
        for place in range(200):
            sequence.add(values[place], 0.0 if control is None else control[place])
        ends = sequence.ends
        assert ends is not None and ends[0] <= sum(values) / 600 <= ends[1]
        widths[name] = ends[1] - ends[0]
    assert widths["itself"] < 0.7 * widths["none"] and widths["noise"] < 1.1 * widths["none"]


def test_missing_scores_never_decide() -> None:
    """Of a candidate that is as good as its baseline, wherever it has a score."""
    rule = PairedStoppingRule(aim_of([1.0] * 200, 0.05))
    for place in range(200):
        rule.count(place, None if place % 8 == 0 else 1.0)
    assert rule.decision is None and rule.ends is not None
    assert rule.ends == (pytest.approx(-25 / 200), pytest.approx(0.0))
    worse = PairedStoppingRule(aim_of([1.0] * 200, 0.05))
    for place in range(200):
        worse.count(place, None if place % 8 == 0 else float(place % 20 > 0))
    assert worse.decision is None, "the missing ones might be right"
    scores = tuple((0.0, 1.0) if place % 8 == 0 else (1.0, 1.0) for place in range(200))
    lacking = PairedStoppingRule(PairedAim(math.inf, 200, 1, (0.0, 1.0), False, 0.05, scores, "base"))
    for place in range(200):
        lacking.count(place, float(place % 10 != 3))
    assert lacking.decision is None, "the baseline may have them all right, or none"
    assert lacking.ends == (pytest.approx(-0.1), pytest.approx(0.025))


def test_a_margin_of_nothing_is_decided_too() -> None:
    generator = np.random.default_rng(4)
    baseline, candidate = alike(generator, 0.7, 0.85, 0.5, 800)
    rule = decided([[each] for each in candidate], baseline, 0.0, generator)
    assert rule.decision == "pass" and rule.used < 600


def test_an_exhausted_population_at_the_margin_is_not_decided() -> None:
    rule = PairedStoppingRule(aim_of([1.0] * 40, 0.05))
    for place in range(40):
        rule.count(place, float(place not in (7, 31)))
    assert rule.decision is None and not rule.ended_early
    assert rule.to_json()["gate"]["verdict"] == "inconclusive"


def test_a_reward_outside_the_range_decides_nothing() -> None:
    rule = PairedStoppingRule(aim_of([1.0] * 100, 0.05))
    rule.count(0, 7.0)
    for place in range(1, 100):
        rule.count(place, 1.0)
    assert (rule.decision, rule.ends, rule.outside) == (None, None, 7.0)


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_no_such_margin(margin: float) -> None:
    with pytest.raises(ValueError, match="margin"):
        aim_of([1.0], margin)


def test_a_control_needs_a_number_for_each() -> None:
    for control in ([1.0], [1.0, math.nan]):
        with pytest.raises(ValueError, match="one finite number for each"):
            ConfidenceSequence((0.0, 1.0), population=2, control=control)
    with pytest.raises(ValueError, match="needs a population"):
        ConfidenceSequence((0.0, 1.0), gap=0.1)
    with pytest.raises(ValueError, match="gap"):
        ConfidenceSequence((0.0, 1.0), population=2, gap=-1.0)


@given(st.permutations(range(12)), st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=12, max_size=12))
def test_the_order_in_which_rollouts_end_changes_nothing(order: list[int], rewards: list[float | None]) -> None:
    first, second = (PairedStoppingRule(aim_of([1.0, 0.0, 0.5, 1.0, 1.0, 0.0], 0.3, 2)) for _ in range(2))
    for place in range(12):
        first.count(place // 2, rewards[place])
    for place in order:
        second.count(place // 2, rewards[place])
    assert first.used == second.used == 6
    assert (first.decision, first.ends is None) == (second.decision, second.ends is None)
