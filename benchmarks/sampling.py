"""Sampling until the mean is known (`--until-ci`), simulated: how often the interval misses the mean of the whole run,
how many rollouts are saved, and what an ordinary interval that is watched in the same way would have done."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.stats.intervals import mean_interval
from harness.stats.target import Aim, StoppingRule

SEED = 20260801
REPEATS = 200
LOOK_EVERY = 10
"""Examples between looks at the ordinary interval; the sequence is looked at after each."""


@dataclass(frozen=True, slots=True)
class Case:
    """A benchmark and a model."""

    what: str
    examples: int
    half_width: float
    draw: Callable[[random.Random], float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What stopping early came to, over all repeats."""

    case: Case
    missed: float
    """Part of the runs whose interval did not hold the mean of the whole run."""
    used: float
    """Part of the examples that were made."""
    watched_missed: float
    """The same of a 95 % t interval, corrected for the finite set, that is watched until it is narrow enough."""
    watched_used: float


def _binary(rate: float) -> Callable[[random.Random], float]:
    return lambda draw: float(draw.random() < rate)


def _graded(draw: random.Random) -> float:
    return round(draw.betavariate(2.0, 1.0), 2)


CASES = (
    Case("1,319 examples, 80 % right, \u00b10.03", 1319, 0.03, _binary(0.8)),
    Case("1,319 examples, 96 % right, \u00b10.02", 1319, 0.02, _binary(0.96)),
    Case("10,000 examples, 50 % right, \u00b10.02", 10_000, 0.02, _binary(0.5)),
    Case("200 examples, 30 % right, \u00b10.1", 200, 0.1, _binary(0.3)),
    Case("1,000 examples, graded 0 to 1, \u00b10.02", 1000, 0.02, _graded),
)


def simulate(case: Case, repeats: int = REPEATS) -> Outcome:
    """Play a case many times, each time with other examples in another order."""
    missed = used = watched_missed = watched_used = 0
    for number in range(repeats):
        draw = random.Random(SEED + number)
        values = [case.draw(draw) for _ in range(case.examples)]
        mean = math.fsum(values) / case.examples
        target = StoppingRule(Aim(case.half_width, case.examples, 1, (0.0, 1.0)))
        for index, value in enumerate(values):
            target.count(index, value)
            if target.is_reached:
                break
        estimate = target.estimate
        assert estimate.low is not None and estimate.high is not None
        missed += not estimate.low <= mean <= estimate.high
        used += target.used
        stopped, low, high = _watch(values, case)
        watched_missed += not low <= mean <= high
        watched_used += stopped
    whole = repeats * case.examples
    return Outcome(case, missed / repeats, used / whole, watched_missed / repeats, watched_used / whole)


def _watch(values: Sequence[float], case: Case) -> tuple[int, float, float]:
    """Look at the ordinary interval every few examples, and stop when it looks narrow enough."""
    for n in range(LOOK_EVERY, case.examples, LOOK_EVERY):
        estimate = mean_interval(values[:n], single_rollout=False)
        if estimate.mean is None or estimate.low is None or estimate.high is None:
            continue
        half = (estimate.high - estimate.low) / 2 * math.sqrt(1 - n / case.examples)
        if half <= case.half_width:
            return n, estimate.mean - half, estimate.mean + half
    return case.examples, -math.inf, math.inf
