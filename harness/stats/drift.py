"""Drift of a model over dated runs of one environment: an e-process that may be looked at after every run, the time of
the change, and the drift that could have been found.

The null hypothesis is that nothing changed: the scores of each example are exchangeable over the runs. Comparing every
run with the same first one would not do: the differences share its noise. Instead, each run is compared with all runs
before it, given the scores that each example got in all of these: if nothing changed, every one of an example's scores
is equally likely to be one of the newest run. The p-values of successive runs are then uniform and independent, though
each uses all earlier scores, and a bet against them that has grown twentyfold is evidence against the null hypothesis
at 5 %, whenever one looks.

Sources: Vovk, Gammerman & Shafer 2005, Algorithmic Learning in a Random World, § 7 (independence of the p-values);
Vovk, Petej, Nouretdinov, Ahlberg, Carlsson & Gammerman 2021, arXiv 2102.10439 (betting on a change); Ville 1939."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats.distributions import normal_quantile

if TYPE_CHECKING:
    import numpy as np

    from harness.stats.arrays import Floats, Integers

ENOUGH = 20.0
"""Value of the e-process from which there is drift: reached with a probability of at most 1/20 if nothing changed."""

SIZES = (0.1, 0.5)
"""Typical sizes of a change on which is bet, in standard deviations of a single score within an example."""

HALF_TIME = 10
"""Number of runs before the change up to which half of the capital is bet."""

_SMALLEST_P = 1e-12
_CELLS, _LEAST_DRAWS, _MOST_DRAWS = 1 << 20, 1_000, 5_000
_POWER = 0.8
_LARGEST_LOG = 690.0

Run = Mapping[str, Sequence[float]]
"""Scores of one run by example key, one value for each rollout; examples without a score are omitted or empty."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Result of the test for drift."""

    e_values: tuple[float, ...]
    """The e-process after each run; 1 after the first."""
    z_values: tuple[float, ...]
    """Each run compared with the runs before it, in standard errors; negative if it is worse. 0 for the first."""
    found_at: int | None
    """Index of the run at which the e-process first reached `ENOUGH`; None if it never did."""
    change: int | None
    """Index of the first run after the most plausible change; None with fewer than two runs."""
    change_from: int | None
    """Lower end of the indices that hold 95 % of the evidence."""
    change_to: int | None
    detectable: float | None
    """Drift in the mean that would have been found with a probability of 80 % by now, had it begun half way; None if
    none could have been."""

    @property
    def is_found(self) -> bool:
        """Whether there is drift."""
        return self.found_at is not None

    @property
    def highest(self) -> int:
        """Index of the run with the highest e-value."""
        return max(range(len(self.e_values)), key=self.e_values.__getitem__)


def drift_of(runs: Sequence[Run]) -> Drift:
    """Test whether the scores of a sequence of runs drift.

    For scores of two values the p-values are exact; for others they are by random permutations of the runs' means of
    each example, which takes an example's number of rollouts to be the same in all runs. New examples count from
    their second run on.

    Args:
        runs: The runs, oldest first; at least one.

    Random numbers (to break ties, and for permutations) are derived from the scores, so the same scores give the same
    result, and that for earlier runs never changes.
    """
    import numpy as np

    history = _History()
    weights: list[Floats] = []
    z_values: list[float] = []
    for run in runs:
        z, weight = history.add({key: values for key, values in run.items() if len(values)})
        z_values.append(z)
        weights.append(weight)
    count = len(runs)
    e_values, best, plausible = [1.0], 0.0, np.zeros(0)
    sums, squares = np.zeros(count), np.zeros(count)
    for now in range(1, count):
        # Position t of these arrays is for a change before run t; a change cannot be in the future.
        sums[1 : now + 1] += weights[now] * z_values[now]
        squares[1 : now + 1] += weights[now] ** 2
        logs = _log_bets(sums[1 : now + 1], squares[1 : now + 1])
        idle = math.log(HALF_TIME / (now + HALF_TIME))
        total = float(np.logaddexp.reduce([*logs, idle]))
        e_values.append(math.exp(min(total, _LARGEST_LOG)))
        if now == 1 or total > best:
            best, plausible = total, np.exp(logs - np.logaddexp.reduce(logs))
    found_at = next((place for place, e in enumerate(e_values) if e >= ENOUGH), None)
    if count < 2:
        return Drift(tuple(e_values), tuple(z_values), None, None, None, None, None)
    running = np.cumsum(plausible)
    ends = (int(np.searchsorted(running, part)) + 1 for part in (0.025, 0.975))
    low, high = (min(end, len(plausible)) for end in ends)
    middle = max(1, count // 2)
    reach = _detectable(float(squares[middle]), middle, history.variance)
    return Drift(
        tuple(e_values), tuple(z_values), found_at, int(plausible.argmax()) + 1, low, high, reach,
    )  # fmt: skip


def _log_weights(changes: Integers) -> Floats:
    """Logarithms of the shares of the capital that are bet on changes before the runs with these indices."""
    import numpy as np

    return math.log(HALF_TIME) - np.log(changes + HALF_TIME - 1.0) - np.log(changes + HALF_TIME)


def _log_bets(sums: Floats, squares: Floats) -> Floats:
    """Logarithm of the capital of the bets on each time of the change: likelihood ratios of a normal distribution, with
    a normal distribution of the size of the change."""
    import numpy as np

    bets = [
        sums**2 * size**2 / (2 * (1 + size**2 * squares)) - 0.5 * np.log1p(size**2 * squares) - math.log(len(SIZES))
        for size in SIZES
    ]
    return np.logaddexp.reduce(bets, axis=0) + _log_weights(np.arange(1, len(sums) + 1))


def _detectable(squares: float, change: int, variance: float) -> float | None:
    """Drift that makes one of the bets reach `ENOUGH` with a probability of 80 %; None if no run tells anything."""
    import numpy as np

    if squares <= 0 or variance <= 0:
        return None
    share = math.log(ENOUGH * len(SIZES)) - float(_log_weights(np.array([change]))[0])
    needed = min(
        math.sqrt(2 * (1 + size**2 * squares) / size**2 * (share + 0.5 * math.log1p(size**2 * squares)))
        for size in SIZES
    )
    return (needed + normal_quantile(_POWER) * math.sqrt(squares)) / squares * math.sqrt(variance)


class _History:
    """Scores of the runs so far, by example."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}
        self._means: dict[str, list[float]] = {}
        self._ends: dict[str, list[int]] = {}
        """Number of an example's scores after each run."""
        self._runs: dict[str, list[int]] = {}
        """Number of an example's means after each run."""
        self._distinct: set[float] = set()
        self._count = 0
        self._seed = hashlib.sha256()
        """Hash of all scores."""

    def add(self, run: Run) -> tuple[float, Floats]:
        """Compare a run with the runs before it, and add it.

        Returns:
            The comparison as a standard normal number, and its weights: its expected value for each time of a change
            of one standard deviation.
        """
        import numpy as np

        common = [key for key in run if key in self._values]
        for key, values in run.items():
            self._values.setdefault(key, []).extend(values)
            self._means.setdefault(key, []).append(math.fsum(values) / len(values))
            self._distinct.update(values)
        self._seed.update(repr([(key, list(map(float, run[key]))) for key in sorted(run)]).encode())
        generator = np.random.default_rng(int.from_bytes(self._seed.digest()[:8], "big"))
        is_binary = len(self._distinct) <= 2
        z, weights = 0.0, np.zeros(self._count)
        if common:
            p = self._exact(run, common, generator.random()) if is_binary else self._drawn(common, generator)
            z = normal_quantile(min(1 - _SMALLEST_P, max(_SMALLEST_P, p)))
            weights = self._weights(common, {key: len(run[key]) if is_binary else 1 for key in common}, is_binary)
        self._count += 1
        for key in self._values:
            for ends, held in ((self._ends, self._values), (self._runs, self._means)):
                earlier = ends.setdefault(key, [0] * (self._count - 1))
                earlier.append(len(held[key]))
        return z, weights

    @property
    def variance(self) -> float:
        """Variance of single scores within an example, or of a run's means of an example."""
        groups = self._values if len(self._distinct) <= 2 else self._means
        total, freedom = 0.0, 0
        for values in groups.values():
            mean = math.fsum(values) / len(values)
            total += math.fsum((value - mean) ** 2 for value in values)
            freedom += len(values) - 1
        return total / freedom if freedom else 0.0

    def _weights(self, common: Sequence[str], new: Mapping[str, int], is_binary: bool) -> Floats:
        """Expected comparison if the mean changed by one standard deviation before each of the runs 1, 2, …"""
        import numpy as np

        ends = self._ends if is_binary else self._runs
        before = np.array([ends[key] for key in common], dtype=np.float64)
        added = np.array([new[key] for key in common], dtype=np.float64)
        shares = added / (before[:, -1] + added)
        return shares @ before / math.sqrt(float(shares @ before[:, -1]))

    def _exact(self, run: Run, common: Sequence[str], tie: float) -> float:
        """Exact p-value for scores of two values: the number of the higher ones in the run, given the number of them in
        all runs, is a sum of hypergeometric numbers."""
        import numpy as np

        high = max(self._distinct)
        kinds: Counter[tuple[int, int, int]] = Counter()
        seen = 0
        for key in common:
            values, added = self._values[key], len(run[key])
            passes = values.count(high)
            kinds[len(values), passes, added] += 1
            seen += sum(value == high for value in run[key]) - max(0, added + passes - len(values))
        tables = [(_hypergeometric(*kind), number) for kind, number in kinds.items()]
        longest = sum((len(table) - 1) * number for table, number in tables) + 1
        length = 1 << max(1, longest - 1).bit_length()
        product = np.ones(length // 2 + 1, dtype=np.complex128)
        for table, number in tables:
            if len(table) > 1:
                product *= np.fft.rfft(table, length) ** number
        chances = np.clip(np.fft.irfft(product, length)[:longest], 0.0, None)
        chances /= chances.sum()
        return float(chances[:seen].sum() + tie * chances[seen])

    def _drawn(self, common: Sequence[str], generator: np.random.Generator) -> float:
        """p-value by random permutations of the runs' means of each example."""
        import numpy as np

        counts = np.array([len(self._means[key]) for key in common])
        flat = np.array([mean for key in common for mean in self._means[key]])
        starts = np.cumsum(counts) - counts
        seen = float(flat[starts + counts - 1].sum())
        draws = min(_MOST_DRAWS, max(_LEAST_DRAWS, _CELLS // len(common)))
        slack = 1e-9 * float(np.abs(flat).max() or 1.0)
        less = equal = 0
        most = max(1, _CELLS // len(common))
        for start in range(0, draws, most):
            rows = min(most, draws - start)
            chosen = starts + (generator.random((rows, len(common))) * counts).astype(np.int64)
            sums = flat[chosen].sum(axis=1)
            less += int((sums < seen - slack).sum())
            equal += int((np.abs(sums - seen) <= slack).sum())
        return (less + generator.random() * (1 + equal)) / (1 + draws)


def _hypergeometric(total: int, passes: int, drawn: int) -> list[float]:
    """Probabilities of 0, 1, … passes above the least possible number among `drawn` of `total` scores."""
    least, most = max(0, drawn + passes - total), min(drawn, passes)
    ways = math.comb(total, drawn)
    return [math.comb(passes, k) * math.comb(total - passes, drawn - k) / ways for k in range(least, most + 1)]
