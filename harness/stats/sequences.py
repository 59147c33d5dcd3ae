"""Confidence sequences: intervals that may be inspected after every value and remain valid if one stops because of
them.

If one watches an ordinary 95 % interval and stops when it looks good, it is wrong in more than 5 % of runs. A
confidence sequence is wrong in at most 5 %, for any stopping rule, but it is wider. Requirement: given all values so
far, the expectation of each new value is the mean in question. So examples must come in random order, and the number of
rollouts of an example must not depend on their outcomes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.stats.intervals import LEVEL, Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

GRID = 4_000
"""Number of grid steps from the lowest to the highest value. Each grid point is tested as the mean, so the ends of an
interval are up to one step too far out."""

MOST_BET = 0.5
"""Maximum share of the capital that is bet on one value; Waudby-Smith and Ramdas use 1/2 or 3/4."""

FIRST_LOOK = 50
"""Minimum number of values for an interval of the asymptotic sequence."""

TUNED_TO = 500
"""Default number of values at which the sequence is narrowest."""


class ConfidenceSequence:
    """A running mean with an interval that is valid after every value.

    Args:
        limits: Lowest and highest possible value, for the betting method, which is valid from the first value on. None
            if unknown: the asymptotic method, which has no interval before 50 values and is reliable for late stops
            only.
        level: Confidence level: the probability that the interval always contains the mean.
        planned: Expected total number of values, at which the interval is narrowest; None for about 500.
        population: Size of the fixed set from which the values are drawn without replacement and whose mean is
            estimated. The interval shrinks to a point when all values were drawn. None for an infinite population.
            Requires limits.

    Raises:
        ValueError: invalid limits, or another argument out of range.

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
            raise ValueError(f"ConfidenceSequence: the limits must be finite and ascending, not {limits}")
        if not 0 < level < 1 or (planned is not None and planned < 1) or (population is not None and population < 1):
            raise ValueError(f"ConfidenceSequence: {level=} not in (0, 1), or {planned=} or {population=} is below 1")
        if population is not None and limits is None:
            raise ValueError("ConfidenceSequence: drawing without replacement needs limits")
        self._limits = limits
        self._level = level
        self._planned = planned
        self._count = 0
        self._sum = 0.0
        """Sum of the values, scaled to 0..1 if there are limits."""
        self._squares = 0.0
        """Sum of squared deviations from the mean, by Welford's method."""
        self._bets = None if limits is None else _Bets(1 - level, planned, population)

    def add(self, value: float) -> None:
        """Add one value: the mean of one example.

        Raises:
            ValueError: the value is not finite or outside the limits, or the population is exhausted.
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

    @property
    def estimate(self) -> Estimate:
        """The current mean with its interval. No interval before enough values, or if all means are rejected, which for
        values in random order happens in at most `1 - level` of runs."""
        n, level = self._count, self._level
        if n == 0:
            return Estimate(level=level)
        mean = self._sum / n
        stderr = math.sqrt(self._squares / (n - 1) / n) if n > 1 and self._squares > 0 else None
        if self._limits is not None and self._bets is not None:
            low, width = self._limits[0], self._limits[1] - self._limits[0]
            ends = self._bets.ends()
            whole = Estimate(low + width * mean, None if stderr is None else width * stderr, examples=n, level=level)
            if ends is None:
                return whole
            least, greatest = low + width * min(ends[0], mean), low + width * max(ends[1], mean)
            return replace(whole, low=least, high=greatest, method="betting")
        if n < FIRST_LOOK or stderr is None:
            return Estimate(mean, stderr, examples=n, level=level)
        alpha = 1 - level
        twice = -2 * math.log(alpha)
        rho2 = (twice + math.log(twice) + 1) / (self._planned or TUNED_TO)
        grown = n * rho2 + 1
        half = stderr * math.sqrt(n) * math.sqrt(2 * grown / (n * n * rho2) * math.log(math.sqrt(grown) / alpha))
        return Estimate(mean, stderr, mean - half, mean + half, "asymptotic", n, level)


class _Bets:
    """Two bettors for each candidate mean, one betting on higher and one on lower values. If the bets are fair, a
    bettor rarely multiplies the capital by 1/α; when that happens, the candidate is rejected."""

    def __init__(self, alpha: float, planned: int | None, population: int | None) -> None:
        import numpy as np

        self._means: NDArray[np.float64] = np.linspace(0.0, 1.0, GRID + 1)
        """Candidate means that are not rejected."""
        self._up = np.zeros(GRID + 1)
        """Log capital of the bettors on higher values."""
        self._down = np.zeros(GRID + 1)
        self._ruin = math.log(2 / alpha)
        """Log capital at which a bettor rejects a candidate: 2/α, since each bettor starts with half of the capital."""
        self._budget = 2 * math.log(2 / alpha)
        self._planned, self._population = planned, population
        self._count = 0
        self._sum = 0.0
        self._total, self._squares = 0.5, 0.25
        """Prior guess of mean and variance, with the weight of one value."""

    def add(self, value: float) -> None:
        import numpy as np

        t = self._count + 1
        means = self._means
        if self._population is not None:
            left = self._population - self._count
            if left < 1:
                raise ValueError(f"ConfidenceSequence: more values than the population has ({self._population})")
            # The mean of the remaining values, if this candidate is the mean of all.
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
        """The lowest and highest mean that is not rejected, plus one grid step, since means between grid points are not
        tested. None if all are rejected: then the values did not come in random order."""
        if self._population is None:
            seen = (0.0, 1.0)
        else:
            # Remaining values are between 0 and 1.
            left = self._population - self._count
            seen = self._sum / self._population, (self._sum + left) / self._population
        if not len(self._means):
            # Means between two grid points were never tested and so never rejected.
            return seen if seen[1] - seen[0] < 1 / GRID else None
        low, high = float(self._means[0]) - 1 / GRID, float(self._means[-1]) + 1 / GRID
        return max(seen[0], low), min(seen[1], high)

    def _keep(self, alive: NDArray[np.bool_]) -> None:
        if not alive.all():
            self._means, self._up, self._down = self._means[alive], self._up[alive], self._down[alive]
