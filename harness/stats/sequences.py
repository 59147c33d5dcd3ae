"""Confidence sequences: intervals that may be inspected after every value and remain valid if one stops because of
them.

If one watches an ordinary 95 % interval and stops when it looks good, it is wrong in more than 5 % of runs. A
confidence sequence is wrong in at most 5 %, for any stopping rule, but it is wider. Requirement: given all values so
far, the expectation of each new value is the mean in question. So examples must come in random order, and the number of
rollouts of an example must not depend on their outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

MOST_BET_OF_GAP = 0.75
"""The same for bets that are sized for a gap: values that hardly vary are then decided sooner."""

PART_OF_GAP = 0.8
"""Bets are sized for this part of the gap. Where the true distance is a little smaller than the gap, larger bets would
take much longer, and where it is the gap, these take hardly longer."""

PRIOR_PAIRS, PRIOR_SLOPE = 4.0, 0.5
"""Weight, in pairs, and value of the slope of a control variate before any pair is known."""

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
        control: A known number for each member of the population, in any order, such as the score of another model on
            the same example. Where the values resemble it, the interval is narrower; it is valid for any numbers.
            Requires a population.
        gap: Distance from the true mean at which a mean should be rejected as early as possible. None makes the
            interval as narrow as possible at `planned`. Requires a population.

    Raises:
        ValueError: invalid limits, or another argument out of range.

    Source: Waudby-Smith & Ramdas 2024, arXiv 2010.09686, § 4 and 5 (betting, without replacement);
    Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas 2024, arXiv 2103.06476 (asymptotic). With a control variate, the bets
    are on value − slope · (control − mean of the controls that remain): the second term has the expectation 0, so the
    bets stay fair for any slope that depends on earlier values only.
    """

    def __init__(
        self,
        limits: tuple[float, float] | None,
        level: float = LEVEL,
        planned: int | None = None,
        population: int | None = None,
        control: Sequence[float] | None = None,
        gap: float | None = None,
    ) -> None:
        if limits is not None and not (all(map(math.isfinite, limits)) and limits[0] < limits[1]):
            raise ValueError(f"ConfidenceSequence: the limits must be finite and ascending, not {limits}")
        if not 0 < level < 1 or (planned is not None and planned < 1) or (population is not None and population < 1):
            raise ValueError(f"ConfidenceSequence: {level=} not in (0, 1), or {planned=} or {population=} is below 1")
        if population is not None and limits is None:
            raise ValueError("ConfidenceSequence: drawing without replacement needs limits")
        if (control is not None or gap is not None) and population is None:
            raise ValueError("ConfidenceSequence: a control variate or a gap needs a population")
        if control is not None and (len(control) != population or not all(map(math.isfinite, control))):
            raise ValueError("ConfidenceSequence: the control variate needs one finite number for each member")
        if gap is not None and not 0 <= gap < math.inf:
            raise ValueError(f"ConfidenceSequence: {gap=} must be a finite number of 0 or more")
        self._limits = limits
        self._level = level
        self._planned = planned
        self._count = 0
        self._sum = 0.0
        """Sum of the values, scaled to 0..1 if there are limits."""
        self._squares = 0.0
        """Sum of squared deviations from the mean, by Welford's method."""
        self._control = _Control(control) if control else None
        self._bets = None
        if limits is not None:
            gap = None if gap is None else gap / (limits[1] - limits[0])
            self._bets = _Bets(1 - level, planned, population, gap)

    def add(self, value: float, control: float = 0.0) -> None:
        """Add one value: the mean of one example.

        Args:
            value: The value.
            control: The known number of this member of the population; ignored without a control variate.

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
            self._bets.add(value, _NO_SHIFT if self._control is None else self._control.shift(control))
        if self._control is not None:
            self._control.add(value, control)
        before = self._sum / self._count if self._count else 0.0
        self._count += 1
        self._sum += value
        self._squares += (value - before) * (value - self._sum / self._count)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The interval alone, which need not contain the mean of the values so far; None as in `estimate`, and for the
        asymptotic method."""
        found = None if self._bets is None or not self._count else self._bets.ends()
        if found is None or self._limits is None:
            return None
        low, width = self._limits[0], self._limits[1] - self._limits[0]
        return low + width * found[0], low + width * found[1]

    @property
    def adjusted_mean(self) -> float | None:
        """Estimated mean of the whole population: the mean of the values, corrected for controls that were by chance
        higher or lower than those of the population. None before the first value."""
        if not self._count:
            return None
        mean = self._sum / self._count - (0.0 if self._control is None else self._control.excess)
        return mean if self._limits is None else self._limits[0] + (self._limits[1] - self._limits[0]) * mean

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


@dataclass(frozen=True, slots=True)
class _Shift:
    """Correction of the next value by a control variate. Its expectation is 0."""

    by: float = 0.0
    above: float = 0.0
    """Largest possible correction."""
    below: float = 0.0
    """Largest possible correction downwards; 0 or more."""


_NO_SHIFT = _Shift()


class _Control:
    """A control variate: numbers that are known of all members of the population before any value is.

    Args:
        numbers: The numbers of all members, in any order.
    """

    def __init__(self, numbers: Sequence[float]) -> None:
        self._low, self._high = min(numbers), max(numbers)
        self._size = len(numbers)
        self._total = math.fsum(numbers)
        self._mean = self._total / self._size
        self._variance = math.fsum((each - self._mean) ** 2 for each in numbers) / self._size
        self._count = 0
        self._sum = 0.0
        self._products, self._squares, self._values = 0.0, 0.0, 0.0

    @property
    def slope(self) -> float:
        """Slope of the values over the numbers, according to the pairs so far; at least 0."""
        prior = PRIOR_PAIRS * self._variance
        weight = self._squares + prior
        # Numbers on another scale than 0..1 begin with the slope that changes a value by as much.
        first = PRIOR_SLOPE / max(1.0, self._high - self._low)
        return max(0.0, (self._products + prior * first) / weight) if weight > 0 else 0.0

    @property
    def excess(self) -> float:
        """Estimated mean of the values so far minus that of the population, according to the numbers."""
        return self.slope * (self._sum / self._count - self._mean) if self._count else 0.0

    def shift(self, number: float) -> _Shift:
        """Return the correction of the next value, which belongs to the member with this number. Its slope and its
        limits depend on earlier pairs only."""
        slope, left = self.slope, self._size - self._count
        if left < 1:
            return _NO_SHIFT
        rest = min(self._high, max(self._low, (self._total - self._sum) / left))
        return _Shift(slope * (number - rest), slope * (self._high - rest), slope * (rest - self._low))

    def add(self, value: float, number: float) -> None:
        usual = (self._values + 0.5) / (self._count + 1)
        self._products += (number - self._mean) * (value - usual)
        self._squares += (number - self._mean) ** 2
        self._count += 1
        self._sum += number
        self._values += value


class _Bets:
    """Two bettors for each candidate mean, one betting on higher and one on lower values. If the bets are fair, a
    bettor rarely multiplies the capital by 1/α; when that happens, the candidate is rejected."""

    def __init__(self, alpha: float, planned: int | None, population: int | None, gap: float | None) -> None:
        import numpy as np

        self._means: NDArray[np.float64] = np.linspace(0.0, 1.0, GRID + 1)
        """Candidate means that are not rejected."""
        self._up = np.zeros(GRID + 1)
        """Log capital of the bettors on higher values."""
        self._down = np.zeros(GRID + 1)
        self._ruin = math.log(2 / alpha)
        """Log capital at which a bettor rejects a candidate: 2/α, since each bettor starts with half of the capital."""
        self._budget = 2 * math.log(2 / alpha)
        self._planned, self._population, self._gap = planned, population, gap
        self._most = MOST_BET if gap is None else MOST_BET_OF_GAP
        self._count = 0
        self._sum = 0.0
        self._total, self._squares = 0.5, 0.25
        """Prior guess of mean and variance, with the weight of one value."""

    def add(self, value: float, shift: _Shift) -> None:
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
        bet = self._bet(t)
        with np.errstate(divide="ignore"):
            up = np.minimum(bet, self._most / (means + shift.above))
            down = np.minimum(bet, self._most / (1 - means + shift.below))
        away = value - shift.by - means
        self._up += np.log1p(up * away)
        self._down += np.log1p(-down * away)
        self._count = t
        self._sum += value
        self._total += value - shift.by
        self._squares += (value - shift.by - self._total / (t + 1)) ** 2
        self._keep(np.maximum(self._up, self._down) < self._ruin)

    def _bet(self, t: int) -> float:
        """The bet on the value number `t`, before limits: per unit of the distance between a value and a mean."""
        variance = self._squares / t
        horizon = self._planned if self._planned is not None else t * math.log1p(t)
        narrow = math.sqrt(self._budget / (variance * horizon))
        if self._gap is None or self._population is None:
            return narrow
        # Without replacement, a mean that is wrong by the gap is wrong by more on the rest.
        gap = PART_OF_GAP * self._gap * self._population / max(1, self._population - self._count)
        return max(gap / (variance + gap * gap), math.sqrt(self._budget / (variance * self._population)))

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
