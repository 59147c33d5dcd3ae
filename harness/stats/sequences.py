"""Intervals that may be looked at after every value, and that hold whenever one stops for what they say. Owns these
confidence sequences; which example is asked next, and when to stop, is the caller's.

An ordinary 95 % interval that is watched until it looks good is wrong more often than in 5 % of runs. These are wrong
in at most 5 %, however one stops, and wider for it. What they need: given all values so far, each new one has the same
expectation, the mean in question. So examples come in random order, and how many rollouts one gets is not decided by
their outcome."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.stats.intervals import LEVEL, Estimate
from harness.stats.methods import Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRID = 4_000
"""Steps between the least and the greatest value: means that are told apart. An end lies a step or two too far out."""

MOST_BET = 0.5
"""Part of the capital that may be lost to one value; Waudby-Smith and Ramdas use 1/2 or 3/4."""

FIRST_LOOK = 50
"""Values before which the asymptotic sequence gives no interval."""

TUNED_TO = 500
"""Values at which a sequence is narrowest where nothing is planned."""


class ConfidenceSequence:
    """The mean of what comes, with an interval that is valid after every value.

    Args:
        limits: The least and the greatest value possible: betting, valid from the first value on. None: not known;
            asymptotic, which says nothing before 50 values and is trustworthy for late stops only.
        level: Of confidence: the chance that the interval holds the mean at all times.
        planned: Values that are expected in the end, so that it is narrowest there; None: about 500.
        population: Size of the fixed set that the values are drawn from without replacement, whose mean is meant: the
            interval shrinks to a point when all were seen. None: endless. Needs limits.

    Raises:
        ValueError: limits that are no range, or another argument out of range.

    Source: Waudby-Smith & Ramdas 2024, arXiv 2010.09686, § 4 and 5 (betting, without replacement);
    Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas 2024, arXiv 2103.06476 (asymptotic).
    """

    def __init__(
        self,
        limits: tuple[float, float] | None,
        level: float = LEVEL,
        planned: int | None = None,
        population: int | None = None,
    ) -> None:
        if limits is not None and not (all(map(math.isfinite, limits)) and limits[0] < limits[1]):
            raise ValueError(f"ConfidenceSequence: limits {limits} are no range")
        if not 0 < level < 1 or (planned is not None and planned < 1) or (population is not None and population < 1):
            raise ValueError(f"ConfidenceSequence: level {level}, planned {planned}, population {population}")
        if population is not None and limits is None:
            raise ValueError("ConfidenceSequence: drawing without replacement needs limits")
        self._limits = limits
        self._level = level
        self._planned = planned
        self._count = 0
        self._sum = 0.0
        """Of the values, moved to 0..1 where there are limits."""
        self._squares = 0.0
        """About the mean, by Welford's method."""
        self._bets = None if limits is None else _Bets(1 - level, planned, population)

    def add(self, value: float) -> None:
        """Take one more value: one example's mean.

        Raises:
            ValueError: it is not finite or outside the limits, or the population is exhausted.
        """
        if not math.isfinite(value):
            raise ValueError(f"ConfidenceSequence: {value} is not finite")
        if self._limits is not None:
            low, high = self._limits
            if not low <= value <= high:
                raise ValueError(f"ConfidenceSequence: {value} lies outside the limits {low} and {high}")
            value = (value - low) / (high - low)
        if self._bets is not None:
            self._bets.add(value)
        before = self._sum / self._count if self._count else 0.0
        self._count += 1
        self._sum += value
        self._squares += (value - before) * (value - self._sum / self._count)

    def extend(self, values: Iterable[float]) -> None:
        """Take several, in their order."""
        for value in values:
            self.add(value)

    @property
    def estimate(self) -> Estimate:
        """The mean so far with the interval; without one before the first value that allows it, and where every mean
        is refuted, as only values that did not come at random can do more often than in `1 - level` of runs."""
        n, level = self._count, self._level
        if n == 0:
            return Estimate(level=level)
        mean = self._sum / n
        stderr = math.sqrt(self._squares / (n - 1) / n) if n > 1 and self._squares > 0 else None
        if self._limits is not None and self._bets is not None:
            low, width = self._limits[0], self._limits[1] - self._limits[0]
            ends = self._bets.ends()
            if ends is None:
                return Estimate(low + width * mean, None if stderr is None else width * stderr, examples=n, level=level)
            return Estimate(
                low + width * mean,
                None if stderr is None else width * stderr,
                low + width * min(ends[0], mean),
                low + width * max(ends[1], mean),
                "betting",
                n,
                level,
            )
        if n < FIRST_LOOK or stderr is None:
            return Estimate(mean, stderr, examples=n, level=level)
        half = _asymptotic(stderr * math.sqrt(n), n, self._planned or TUNED_TO, 1 - level)
        return Estimate(mean, stderr, mean - half, mean + half, "asymptotic", n, level)


def confidence_sequence(
    values: Sequence[float],
    limits: tuple[float, float] | None,
    level: float = LEVEL,
    planned: int | None = None,
    population: int | None = None,
) -> Estimate:
    """What `ConfidenceSequence` says after all of `values`; arguments and errors as there."""
    sequence = ConfidenceSequence(limits, level, planned, population)
    sequence.extend(values)
    return sequence.estimate


def empirical_bernstein(values: Sequence[float], limits: tuple[float, float], level: float = LEVEL) -> Estimate:
    """The same guarantee in closed form, wider than betting: what an auditor can recompute with a pocket calculator.

    Args:
        values: In the order in which they came.
        limits: The least and the greatest value possible.
        level: Of confidence.

    Raises:
        ValueError: limits that are no range, or a value outside them.

    Source: Waudby-Smith & Ramdas 2024, arXiv 2010.09686, theorem 2.
    """
    low, high = limits
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"empirical_bernstein: limits {limits} are no range")
    if not all(low <= value <= high for value in values):
        raise ValueError(f"empirical_bernstein: a value lies outside the limits {low} and {high}")
    if not values:
        return Estimate(level=level)
    budget = math.log(2 / (1 - level))
    guess, variance = 0.5, 0.25
    bets = weighted = cost = 0.0
    total, squares = 0.5, 0.25
    for t, raw in enumerate(values, start=1):
        value = (raw - low) / (high - low)
        bet = min(MOST_BET, math.sqrt(2 * budget / (variance * t * math.log1p(t))))
        bets += bet
        weighted += bet * value
        cost += 4 * (value - guess) ** 2 * (-math.log1p(-bet) - bet) / 4
        total += value
        guess_now = total / (t + 1)
        squares += (value - guess_now) ** 2
        guess, variance = guess_now, squares / (t + 1)
    centre, half = weighted / bets, (budget + cost) / bets
    mean = math.fsum(values) / len(values)
    ends = (low + (high - low) * max(0.0, centre - half), low + (high - low) * min(1.0, centre + half))
    method: Method = "empirical_bernstein"
    return Estimate(mean, None, min(ends[0], mean), max(ends[1], mean), method, len(values), level)


def _asymptotic(std: float, n: int, tuned_to: int, alpha: float) -> float:
    twice = -2 * math.log(alpha)
    rho2 = (twice + math.log(twice) + 1) / tuned_to
    grown = n * rho2 + 1
    return std * math.sqrt(2 * grown / (n * n * rho2) * math.log(math.sqrt(grown) / alpha))


class _Bets:
    """Two gamblers for each possible mean, one betting that values come out higher, one lower. Whoever multiplies a
    fair gambler's capital by 1/α has refuted that mean."""

    def __init__(self, alpha: float, planned: int | None, population: int | None) -> None:
        import numpy as np

        self._means: NDArray[np.float64] = np.linspace(0.0, 1.0, GRID + 1)
        """Those that are not refuted."""
        self._up = np.zeros(GRID + 1)
        """Log capital of who bets on higher values."""
        self._down = np.zeros(GRID + 1)
        self._ruin = math.log(2 / alpha)
        """Each begins with half of the capital, so that one must multiply it by 2/α."""
        self._budget = 2 * math.log(2 / alpha)
        self._planned, self._population = planned, population
        self._count = 0
        self._sum = 0.0
        self._total, self._squares = 0.5, 0.25
        """A guess of the mean and the variance before there are values, worth one value."""

    def add(self, value: float) -> None:
        import numpy as np

        t = self._count + 1
        means = self._means
        if self._population is not None:
            left = self._population - self._count
            if left < 1:
                raise ValueError(f"ConfidenceSequence: more values than the population of {self._population} has")
            # The mean of what is left, if this were the mean of all.
            means = (self._population * means - self._sum) / left
            alive = (means >= -1e-9) & (means <= 1 + 1e-9)
            self._keep(alive)
            means = np.clip(means[alive], 0.0, 1.0)
        variance = self._squares / t
        horizon = self._planned if self._planned is not None else t * math.log1p(t)
        bet = math.sqrt(self._budget / (variance * horizon))
        with np.errstate(divide="ignore"):
            up = np.minimum(bet, MOST_BET / means)
            down = np.minimum(bet, MOST_BET / (1 - means))
        away = value - means
        self._up += np.log1p(up * away)
        self._down += np.log1p(-down * away)
        self._count = t
        self._sum += value
        self._total += value
        self._squares += (value - self._total / (t + 1)) ** 2
        self._keep(np.maximum(self._up, self._down) < self._ruin)

    def ends(self) -> tuple[float, float] | None:
        """The least and the greatest mean that is not refuted, and a step further: what lies between two of the grid
        was not looked at. None if all are refuted: the values did not come at random, and nothing is known."""
        if self._population is None:
            seen = (0.0, 1.0)
        else:
            # What was not seen is between 0 and 1.
            left = self._population - self._count
            seen = self._sum / self._population, (self._sum + left) / self._population
        if not len(self._means):
            # Between two of the grid a mean was never looked at, and so never refuted.
            return seen if seen[1] - seen[0] < 1 / GRID else None
        low, high = float(self._means[0]) - 1 / GRID, float(self._means[-1]) + 1 / GRID
        return max(seen[0], low), min(seen[1], high)

    def _keep(self, alive: NDArray[np.bool_]) -> None:
        if not alive.all():
            self._means, self._up, self._down = self._means[alive], self._up[alive], self._down[alive]
