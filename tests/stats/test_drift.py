"""The e-process for drift: against slow twins, and by simulation. BENCH_ROUNDS multiplies the draws."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.stats.distributions import normal_cdf
from harness.stats.drift import Run, drift_of

Floats = NDArray[np.float64]

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))


def named(scores: Floats) -> Run:
    return dict(zip(map(str, range(len(scores))), scores.tolist(), strict=True))


def by_hand(runs: list[list[list[float]]]) -> tuple[float, float]:
    """P(fewer), and P(fewer or as many) passes in the newest run, over all orders of the scores within examples."""
    sums: Counter[float] = Counter({0.0: 1})
    for example in zip(*runs, strict=True):
        scores, last = [value for run in example for value in run], len(example[-1])
        ways: Counter[float] = Counter(
            sum(scores[place] for place in chosen) for chosen in itertools.combinations(range(len(scores)), last)
        )
        sums = _added(sums, ways)
    seen, total = sum(sum(example) for example in runs[-1]), sum(sums.values())
    return (
        sum(number for value, number in sums.items() if value < seen) / total,
        sum(number for value, number in sums.items() if value <= seen) / total,
    )


def _added(first: Counter[float], second: Counter[float]) -> Counter[float]:
    found: Counter[float] = Counter()
    for (a, n), (b, m) in itertools.product(first.items(), second.items()):
        found[a + b] += n * m
    return found


def test_each_run_is_compared_with_all_orders_of_the_scores_within_examples() -> None:
    generator = np.random.default_rng(4)
    for _ in range(30):
        rollouts = generator.integers(1, 4, 3)
        runs = [generator.integers(0, 2, (4, each)).astype(np.float64).tolist() for each in rollouts]
        found = drift_of([named(np.array(run)) for run in runs])
        for count in (2, 3):
            below, upto = by_hand(runs[:count])
            p = normal_cdf(found.z_values[count - 1])
            assert max(0.0, below - 1e-9) <= p <= upto + 1e-9


def test_graded_scores_are_compared_by_permutations_of_means() -> None:
    generator = np.random.default_rng(5)
    table = generator.random((3, 5))
    found = drift_of([named(table[run][:, None]) for run in range(3)])
    sums = [
        sum(table[run, place] for place, run in enumerate(chosen)) for chosen in itertools.product(range(3), repeat=5)
    ]
    exact = sum(each < table[2].sum() for each in sums) / len(sums)
    assert normal_cdf(found.z_values[2]) == pytest.approx(exact, abs=0.03)


def test_earlier_results_never_change_when_runs_are_added() -> None:
    generator = np.random.default_rng(6)
    runs = [named((generator.random((30, 2)) < 0.7).astype(np.float64)) for _ in range(12)]
    runs[7] = {**runs[7], "new": [0.5]}  # from here on, scores have more than two values
    whole = drift_of(runs)
    for count in (1, 5, 8, 11):
        part = drift_of(runs[:count])
        assert part.e_values == whole.e_values[:count]
        assert part.z_values == whole.z_values[:count]


def test_few_runs_or_nothing_in_common_show_nothing() -> None:
    one = drift_of([{"a": [1.0]}])
    assert (one.e_values, one.change, one.detectable, one.is_found) == ((1.0,), None, None, False)
    apart = drift_of([{"a": [1.0]}, {"b": [0.0]}, {"c": [0.0], "d": []}])
    assert not apart.is_found and apart.detectable is None
    assert apart.z_values == (0.0, 0.0, 0.0)
    same = drift_of([{"a": [1.0], "b": [1.0]}] * 30)
    assert not same.is_found and same.detectable is None


def test_a_drop_is_found_and_dated_also_with_new_examples_and_unequal_rollouts() -> None:
    generator = np.random.default_rng(7)
    runs: list[Run] = []
    for night in range(30):
        first, p = 5 * (night // 3), 0.8 if night < 15 else 0.65
        runs.append({
            str(place): (generator.random(generator.integers(1, 4)) < p).astype(float).tolist()
            for place in range(first, first + 150)
        })  # fmt: skip
    found = drift_of(runs)
    assert found.is_found and found.found_at is not None and 15 <= found.found_at < 22
    assert found.change_from is not None and found.change_to is not None
    assert found.change_from <= 15 <= found.change_to


Draw = Callable[[np.random.Generator, int], Callable[[int], Floats]]


def passes(n: int, rollouts: int, a: float, b: float) -> Draw:
    """Passes and failures of examples with different pass rates."""

    def draw(generator: np.random.Generator, nights: int) -> Callable[[int], Floats]:
        p = generator.beta(a, b, n)
        return lambda night: (generator.random((n, rollouts)) < p[:, None]).astype(np.float64)

    return draw


def graded(n: int) -> Draw:
    def draw(generator: np.random.Generator, nights: int) -> Callable[[int], Floats]:
        level = generator.random(n)
        return lambda night: np.clip(level[:, None] + generator.normal(0, 0.2, (n, 1)), 0, 1)

    return draw


CALM = {
    "of all difficulties": (passes(200, 1, 0.5, 0.5), 20),
    "four rollouts": (passes(40, 4, 1.0, 1.0), 30),
    "hardly any fails": (passes(100, 1, 4.9, 0.1), 30),
    "graded": (graded(40), 10),
}
"""Kinds of scores, and numbers of draws."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALM)
def test_false_alarms_over_100_nights(kind: str) -> None:
    make, rounds = CALM[kind]
    rounds *= TIMES
    generator, found = np.random.default_rng(len(kind)), 0
    for _ in range(rounds):
        night = make(generator, 100)
        found += drift_of([named(night(number)) for number in range(100)]).is_found
    error = math.sqrt(0.05 * 0.95 / rounds)
    assert found / rounds <= 0.05 + error, f"{found / rounds:.3f} ± {error:.3f}"
    print(f"{kind}: {found / rounds:.4f} of {rounds}")


def drop(generator: np.random.Generator, n: int, nights: int, at: int, size: float) -> list[Run]:
    p = generator.beta(0.5, 0.5, n)
    runs: list[Run] = []
    for night in range(nights):
        now = p * (1 - size / p.mean()) if night >= at else p
        runs.append(named((generator.random((n, 1)) < now[:, None]).astype(np.float64)))
    return runs


@pytest.mark.slow
def test_a_drop_of_a_twentieth_after_ten_nights_is_found_in_fifteen_more() -> None:
    generator, rounds = np.random.default_rng(1), 80 * TIMES
    results = [drift_of(drop(generator, 200, 25, 10, 0.05)) for _ in range(rounds)]
    found = [each for each in results if each.is_found]
    covered = sum((each.change_from or 0) <= 10 <= (each.change_to or 0) for each in found) / len(found)
    power, error = len(found) / rounds, math.sqrt(0.8 * 0.2 / rounds)
    assert power >= 0.8 - error, f"{power:.3f} ± {error:.3f}"
    assert covered >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / len(found)), f"{covered:.3f}"
    print(f"power {power:.4f}, date covered {covered:.4f}, of {rounds}")


@pytest.mark.slow
@pytest.mark.parametrize("nights", [10, 30])
def test_the_drift_that_would_have_been_found_is_found_in_four_cases_of_five(nights: int) -> None:
    generator, rounds = np.random.default_rng(nights), {10: 120, 30: 50}[nights] * TIMES
    found = 0
    for _ in range(rounds):
        reach = drift_of(drop(generator, 200, nights, nights, 0.0)).detectable
        assert reach is not None
        found += drift_of(drop(generator, 200, nights, nights // 2, reach)).is_found
    error = math.sqrt(0.8 * 0.2 / rounds)
    assert 0.75 - error <= found / rounds <= 0.93 + error, f"{found / rounds:.3f} ± {error:.3f}"
    print(f"{nights} nights: {found / rounds:.4f} of {rounds}")
