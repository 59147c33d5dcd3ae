"""What `bench gate`, `bench compare`, `bench power` and the headline promise, by simulation through the functions that
these commands call. Each rate is allowed one standard error of its own, which a failure names beside it; BENCH_ROUNDS
multiplies the draws."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.core.types import Usage
from harness.report.compare.sides import Match
from harness.report.compare.verdicts import GateRule, apply_rule
from harness.stats.difference import Difference, Range, Scores, adjust, difference_of, scores_of
from harness.stats.intervals import Estimate
from harness.stats.power import components, required_examples
from harness.stats.scores import ScoreTable
from harness.stats.summary import Clusters, spread, summarize

pytestmark = pytest.mark.slow

Floats = NDArray[np.float64]

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))


def compared(first: Floats, second: Floats, limits: Range = (0.0, 1.0), clusters: int | None = None) -> Difference:
    """Two runs as `bench compare` compares them: one row an example, one column a rollout."""
    owners = None if clusters is None else {str(n): str(n % clusters) for n in range(len(first))}
    a, b = (scores_of({str(n): row for n, row in enumerate(side.tolist())}, limits, owners) for side in (first, second))
    [found] = adjust([difference_of(a, b)])
    return found


def passes(found: Difference, margin: float) -> bool:
    """What the gate says of runs with all of their scores."""
    count = found.paired.pairs
    side = SimpleNamespace(
        ended_early=None,
        sequential=None,
        scored=count,
        planned=count,
        coverage=1.0,
        examples=count,
        scores=Scores({}, frozenset({0.0, 1.0})),
    )
    match = SimpleNamespace(
        candidate=side, baseline=side, paired=found.paired, unpaired=None, units=found.units, verdict=found.verdict,
        only_candidate=0, only_baseline=0, lost=0,
    )  # fmt: skip
    return apply_rule(cast(Match, cast(Any, match)), GateRule(margin, 0.98)).verdict == "pass"


def rolled(generator: np.random.Generator, p: Floats, rollouts: int) -> Floats:
    return (generator.random((len(p), rollouts)) < p[:, None]).astype(np.float64)


def lost(generator: np.random.Generator, n: int, base: float, margin: float, kind: str, units: int) -> Floats:
    """What a candidate scores that is worse by exactly the margin: at all examples, or all of it at few units."""
    if kind == "everywhere":
        return np.full(n, base - margin)
    hit = generator.random(units) < margin / base
    return np.where(hit[np.arange(n) % units], 0.0, base)


GATES = [
    (50, 1, 1.0, 0.05, None), (50, 1, 0.98, 0.05, None), (100, 1, 1.0, 0.1, None), (100, 1, 0.9, 0.05, None),
    (100, 1, 0.98, 0.02, None), (200, 1, 1.0, 0.02, None), (200, 4, 0.98, 0.02, None), (100, 4, 1.0, 0.05, None),
    (100, 1, 0.98, 0.05, 10), (100, 1, 0.9, 0.05, 10), (100, 1, 1.0, 0.1, 10), (200, 1, 0.9, 0.05, 20),
    (200, 1, 0.98, 0.05, 20), (200, 4, 1.0, 0.1, 20),
    (500, 1, 1.0, 0.05, 100), (500, 1, 0.9, 0.02, 100), (500, 4, 0.98, 0.05, 100),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["everywhere", "few"])
@pytest.mark.parametrize(("n", "rollouts", "base", "margin", "clusters"), GATES)
def test_a_gate_passes_few_that_are_worse_by_the_margin(
    n: int, rollouts: int, base: float, margin: float, clusters: int | None, kind: str
) -> None:
    generator, rounds = np.random.default_rng(n), 300 * TIMES
    passed = 0
    for _ in range(rounds):
        first = rolled(generator, lost(generator, n, base, margin, kind, clusters or n), rollouts)
        second = rolled(generator, np.full(n, base), rollouts)
        passed += passes(compared(first, second, clusters=clusters), margin)
    error = math.sqrt(0.04 * 0.96 / rounds)
    assert passed / rounds <= 0.04 + error, f"{passed / rounds:.3f} ± {error:.3f}"


@pytest.mark.parametrize(("n", "margin"), [(50, 0.02), (100, 0.01), (100, 0.05), (200, 0.02)])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05, 0.2])
def test_nor_of_partial_credit(n: int, margin: float, noise: float) -> None:
    """Graded noise everywhere, and on few examples all is lost: that noise must not stand for what was not seen."""
    generator, rounds, passed = np.random.default_rng(n), 300 * TIMES, 0
    for _ in range(rounds):
        second = np.clip(1.0 - np.abs(generator.normal(0, noise, n)), 0, 1)
        first = np.clip(1.0 - np.abs(generator.normal(0, noise, n)), 0, 1)
        level = 1.0 - noise * math.sqrt(2 / math.pi)
        first[generator.random(n) < margin / level] = 0.0
        passed += passes(compared(first[:, None], second[:, None]), margin)
    error = math.sqrt(0.04 * 0.96 / rounds)
    assert passed / rounds <= 0.04 + error, f"{passed / rounds:.3f} ± {error:.3f}"


def holds(estimate: Estimate, truth: float) -> bool:
    return (
        estimate.low is not None and estimate.high is not None and estimate.low - 1e-9 <= truth <= estimate.high + 1e-9
    )


def correlated(generator: np.random.Generator, n: int, rollouts: int, p: float, alike: float) -> Floats:
    """Pass and fail, with this correlation between the rollouts of an example."""
    if alike >= 1:
        return np.repeat(rolled(generator, np.full(n, p), 1), rollouts, axis=1)
    if alike == 0:
        return rolled(generator, np.full(n, p), rollouts)
    scale = 1 / alike - 1
    return rolled(generator, generator.beta(p * scale, (1 - p) * scale, n), rollouts)


def beta(a: float, b: float) -> Callable[[np.random.Generator, int], Floats]:
    return lambda generator, n: generator.beta(a, b, (n, 1))


def valued(low: float, high: float, p: float) -> Callable[[np.random.Generator, int], Floats]:
    return lambda generator, n: np.where(generator.random((n, 1)) < p, high, low)


BOUNDED: list[tuple[str, Callable[[np.random.Generator, int], Floats], float, Range]] = [
    ("beta", beta(2, 3), 0.4, (0.0, 1.0)),
    ("beta near 1", beta(4.9, 0.1), 0.98, (0.0, 1.0)),
    ("of (-1, 1)", valued(-1.0, 1.0, 0.98), 0.96, (-1.0, 1.0)),
    ("of (0, 5)", valued(0.0, 5.0, 0.3), 1.5, (0.0, 5.0)),
    ("1 or 2 of (0, 2)", valued(1.0, 2.0, 0.02), 1.02, (0.0, 2.0)),
    ("two values, no limits", valued(-3.0, 7.0, 0.75), 4.5, (-math.inf, math.inf)),
]


SHARES = [(1, 0.9, 0), (1, 0.98, 0), (4, 0.98, 0.1), (10, 0.9, 0.9), (10, 0.98, 0.5), (10, 0.98, 1)]
"""Rollouts of an example, how many pass, and how alike those of one example are."""


@pytest.mark.parametrize("n", [20, 50, 200])
def test_a_headline_covers(n: int) -> None:
    rounds = {20: 300, 50: 300, 200: 150}[n] * TIMES
    short: dict[str, float] = {}

    def note(name: str, covered: int) -> None:
        short[name] = covered / rounds

    for rollouts, p, alike in SHARES:
        generator = np.random.default_rng(n + rollouts)
        draws = (correlated(generator, n, rollouts, p, alike).tolist() for _ in range(rounds))
        note(f"{rollouts} × {p}, {alike}", sum(holds(spread(rows, (0.0, 1.0)).estimate, p) for rows in draws))
    for name, make, truth, limits in BOUNDED:
        generator = np.random.default_rng(n)
        known = limits if math.isfinite(limits[0]) else None
        estimates = [spread(make(generator, n).tolist(), known).estimate for _ in range(rounds)]
        note(name, sum(holds(each, truth) for each in estimates))
        if known is not None:
            assert all(each.low is None or known[0] <= each.low <= (each.high or 9) <= known[1] for each in estimates)
    for p in (0.9, 0.98):
        generator, covered = np.random.default_rng(n), 0
        owners = [k // 10 for k in range(200)]
        for _ in range(rounds):
            rows = np.repeat(correlated(generator, 20, 1, p, 0), 10, axis=0)
            covered += holds(spread(rows.tolist(), (0.0, 1.0), owners).estimate, p)
        note(f"20 clusters, {p}", covered)
    error = math.sqrt(0.93 * 0.07 / rounds)
    assert min(short.values()) >= 0.93 - error, {name: rate for name, rate in short.items() if rate < 0.94}


@pytest.mark.parametrize("n", [20, 50, 200])
def test_a_difference_covers_and_its_verdict_agrees_with_its_interval(n: int) -> None:
    rounds, short = {20: 250, 50: 200, 200: 100}[n] * TIMES, dict[str, float]()

    def note(name: str, pairs: list[Difference], truth: float) -> None:
        short[name] = sum(holds(each.estimate, truth) for each in pairs) / rounds
        for each in pairs:
            low, high = each.estimate.low, each.estimate.high
            outside = low is not None and high is not None and (low > 0 or high < 0)
            assert each.is_found == outside, name

    for rollouts, p, alike in SHARES:
        for loss in (0.0, 0.1):
            generator = np.random.default_rng(n + rollouts)
            draws = [[correlated(generator, n, rollouts, q, alike) for q in (p - loss, p)] for _ in range(rounds)]
            note(f"{rollouts} × {p}, {alike}, {loss}", [compared(a, b) for a, b in draws], -loss)
    for name, make, _, limits in BOUNDED:
        generator = np.random.default_rng(n)
        pairs = [compared(make(generator, n), make(generator, n), limits) for _ in range(rounds)]
        note(name, pairs, 0.0)
    generator = np.random.default_rng(n)
    rows = [[np.tile(correlated(generator, 20, 1, p, 0), (10, 1)) for p in (0.9, 0.98)] for _ in range(rounds)]
    note("20 clusters", [compared(a, b, clusters=20) for a, b in rows], -0.08)
    error = math.sqrt(0.93 * 0.07 / rounds)
    assert min(short.values()) >= 0.93 - error, {name: rate for name, rate in short.items() if rate < 0.94}


@pytest.mark.parametrize("rollouts", [1, 2, 4])
@pytest.mark.parametrize(("kind", "size"), [("pass", 0.1), ("pass", 0.2), ("graded", 0.05), ("graded", 0.1)])
def test_a_planned_power_of_80_percent_is_one(kind: str, size: float, rollouts: int) -> None:
    """The examples that `bench power --against` recommends, and the verdict of `bench compare`."""
    generator, rounds = np.random.default_rng(rollouts), 400 * TIMES

    def made(n: int) -> tuple[Floats, Floats]:
        if kind == "pass":
            hard = generator.beta(2, 2, n)
            sides = [np.clip(0.1 + 0.6 * hard + gain, 0, 1) for gain in (size, 0.0)]
            return rolled(generator, sides[0], rollouts), rolled(generator, sides[1], rollouts)
        hard = generator.random((n, 1))
        noise = [generator.uniform(-0.2, 0.2, (n, rollouts)) for _ in range(2)]
        return 0.3 + 0.3 * hard + size + noise[0], 0.3 + 0.3 * hard + noise[1]

    pilot = made(4_000)
    parts = components(*(side.tolist() for side in pilot))
    assert parts is not None
    n = required_examples(parts, size, rollouts=rollouts)
    rate = sum(compared(*made(n)).is_found for _ in range(rounds)) / rounds
    error = math.sqrt(0.8 * 0.2 / rounds)
    assert 0.77 - error <= rate <= 0.87 + error, f"{rate:.3f} ± {error:.3f} with {n} examples"


def in_clusters(
    generator: np.random.Generator, count: int, size: int, rollouts: int, p: float, alike: float, gain: float = 0.0
) -> tuple[Floats, Floats, list[str]]:
    """Two runs of examples in clusters: pass and fail, with a common difficulty of each cluster, and for each side a
    deviation of its own. Returns the rewards, one row an example, and the labels."""
    hard = np.repeat(generator.uniform(-alike, alike, count), size) + generator.uniform(-0.05, 0.05, count * size)
    own = (np.repeat(generator.uniform(-alike, alike, count), size) for _ in range(2))
    first, second = (np.clip(p + hard + each + more, 0, 1) for each, more in zip(own, (gain, 0.0), strict=True))
    owners = [str(n // size) for n in range(count * size)]
    return rolled(generator, first, rollouts), rolled(generator, second, rollouts), owners


def clustered_table(rows: Floats, owners: list[str]) -> tuple[ScoreTable, Clusters]:
    table = ScoreTable()
    for example, row in enumerate(rows.tolist()):
        for rollout, reward in enumerate(row):
            table.add(example, rollout, reward, {}, None, usage=Usage())
    return table, Clusters("document", dict(enumerate(owners)))


@pytest.mark.parametrize(("rollouts", "p", "alike"), [(1, 0.5, 0.4), (4, 0.5, 0.25), (4, 0.9, 0.5), (1, 0.95, 0.5)])
def test_a_headline_of_20_clusters_of_ten_covers(rollouts: int, p: float, alike: float) -> None:
    """The reward, pass@k and pass^k of a run whose environment declares clusters; and how short it falls without."""
    generator, rounds = np.random.default_rng(rollouts), 150 * TIMES
    drawn = [in_clusters(generator, 20, 10, rollouts, p, alike) for _ in range(rounds)]
    many, _, _ = in_clusters(np.random.default_rng(99), 40_000, 10, rollouts, p, alike)
    passed = many.sum(axis=1)
    truths = {
        "reward": float(many.mean()),
        "any": float((passed > 0).mean()),
        "all": float((passed == rollouts).mean()),
    }
    covered = dict.fromkeys([*truths, "independent"], 0)
    for rows, _, owners in drawn:
        table, clusters = clustered_table(rows, owners)
        options: Any = {
            "pass_threshold": 1.0, "rollouts_per_example": rollouts, "planned": rows.size, "reward_range": (0.0, 1.0),
            "wall_s": None, "pass_k": (rollouts,),
        }  # fmt: skip
        found = summarize(table, **options, clusters=clusters)
        covered["reward"] += holds(found.reward.estimate, truths["reward"])
        covered["any"] += holds(found.pass_at_k[rollouts].estimate, truths["any"])
        covered["all"] += holds(found.pass_hat_k[rollouts].estimate, truths["all"])
        covered["independent"] += holds(spread(rows.tolist(), (0.0, 1.0)).estimate, truths["reward"])
    short, error = {name: count / rounds for name, count in covered.items()}, math.sqrt(0.93 * 0.07 / rounds)
    assert min(short[name] for name in truths) >= 0.93 - error, short
    assert short["independent"] < 0.9, short


@pytest.mark.parametrize(
    ("size", "rollouts", "alike", "gain"), [(10, 1, 0.17, 0.1), (10, 4, 0.17, 0.1), (4, 2, 0.17, 0.1)]
)
def test_a_planned_power_of_80_percent_is_one_with_clusters(
    size: int, rollouts: int, alike: float, gain: float
) -> None:
    """The examples that `bench power --against` recommends of runs with clusters, and the verdict of `bench compare`;
    planned without them, it is missed."""
    generator, rounds = np.random.default_rng(size + rollouts), 300 * TIMES
    first, second, owners = in_clusters(generator, 3_000, size, rollouts, 0.45, alike, gain)
    plans: list[int] = []
    for labels in (owners, None):
        parts = components(first.tolist(), second.tolist(), labels)
        assert parts is not None
        plans.append(required_examples(parts, gain, rollouts=rollouts))
    assert plans[0] % size == 0
    rates: list[float] = []
    for examples in plans:
        draws = (in_clusters(generator, -(-examples // size), size, rollouts, 0.45, alike, gain) for _ in range(rounds))
        found = (adjust([difference_of(*scores_in_clusters(*draw))])[0].is_found for draw in draws)
        rates.append(sum(found) / rounds)
    error = math.sqrt(0.8 * 0.2 / rounds)
    assert 0.77 - error <= rates[0] <= 0.87 + error, f"{rates[0]:.3f} ± {error:.3f} with {plans[0]} examples"
    assert size < 10 or rates[1] < 0.74, f"{rates[1]:.3f} with {plans[1]} examples, as if they were independent"


def scores_in_clusters(first: Floats, second: Floats, owners: list[str]) -> tuple[Scores, Scores]:
    labels = {str(n): owner for n, owner in enumerate(owners)}
    a, b = (
        scores_of({str(n): row for n, row in enumerate(side.tolist())}, (0.0, 1.0), labels) for side in (first, second)
    )
    return a, b
