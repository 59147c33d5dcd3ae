"""Sample sizes for comparing two models: the examples and rollouts needed to find a difference, the smallest detectable
difference, and the cheapest design.

The variance of a paired difference of means is (ω² + σ_A²/K_A + σ_B²/K_B) / n. ω² is the variance of the true
difference between questions, σ² that of single answers around their question's mean. More rollouts only reduce the
latter. Source: Miller 2024, arXiv 2411.00640, § 5. Unlike Miller, who uses the normal distribution, this uses the test
of `paired`: Student's t, since the variance is unknown, with one additional win and one additional loss. It needs three
to seven examples more, which matters for small samples.

If examples are clustered, the cluster is the sampling unit: the variance per example is n times the squared
cluster-robust standard error (`clusters`), and n/m clusters of m examples are tested as that many pairs."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats.clusters import clustered_mean
from harness.stats.distributions import beta_quantile, normal_quantile, t_quantile
from harness.stats.intervals import ALPHA, EXACT_TAIL, Estimate, sample_variance
from harness.stats.paired import Paired, fewest_pairs
from harness.stats.variance import noise

if TYPE_CHECKING:
    from harness.stats.arrays import Labels

POWER = 0.8
"""Default probability of finding an existing difference (power)."""

SLACK = 1e-9
"""Tolerance for rounding a number of examples up."""

MOST_ROLLOUTS = 64
"""Maximum rollouts per example of a design."""

LARGE = 10**6
"""Number of examples above which unobserved losses are negligible."""

MOST_EXAMPLES = 10**12
"""Upper limit of the search for a number of examples."""


@dataclass(frozen=True, slots=True)
class Components:
    """Variance components of the difference between two models."""

    omega2: float
    """Variance of the true difference between questions (ω²)."""
    first2: float
    """Variance of single answers of the first model around their question's mean (σ_A²)."""
    second2: float
    pairs: int | None = None
    """Number of examples used for the estimate; None if the components were given, not estimated."""
    assumed: str = ""
    """Description of the components that were assumed because they could not be estimated."""
    cluster_size: float = 1.0
    """Examples per cluster, if clusters are the sampling units. ω² then includes the correlation within clusters, for
    clusters of this size."""

    def variance(self, rollouts: int, second_rollouts: int | None = None) -> float:
        """Variance of one example's difference, with these numbers of rollouts per side."""
        return self.omega2 + self.first2 / rollouts + self.second2 / (second_rollouts or rollouts)


def components(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], clusters: Labels | None = None
) -> Components | None:
    """Estimate the variance components of a difference from two runs of the same examples.

    ω² = max(0, variance of d − σ_A²/K_A − σ_B²/K_B). If a side has one rollout per example, its re-run variance cannot
    be estimated. It is then taken as 0 and remains in ω², so the required examples are right for one rollout, and no
    benefit of more rollouts is claimed.

    Args:
        first: Scores of each example; examples without scores on a side are ignored.
        second: Scores of each example on the other side; the same examples in the same order.
        clusters: Label of each example's cluster, if examples of one cluster are correlated. Clusters of the planned
            run are assumed to be like these: as large, and as correlated.

    Returns:
        The estimate; None if fewer than two examples, or examples of only one cluster, have scores on both sides.

    Raises:
        ValueError: the numbers of examples differ.
    """
    if len(first) != len(second):
        raise ValueError(f"components: needs runs of the same examples, but got {len(first)} and {len(second)}")
    kept = [place for place, (a, b) in enumerate(zip(first, second, strict=True)) if a and b]
    pairs = [(first[place], second[place]) for place in kept]
    if len(pairs) < 2:
        return None
    variance, size = sample_variance, 1.0
    if clusters is not None:
        owners = [clusters[place] for place in kept]
        variance, size = _clustered(owners), len(owners) / len({*owners})
        if size == len(owners):
            return None
    differences = [math.fsum(a) / len(a) - math.fsum(b) / len(b) for a, b in pairs]
    sides = [noise(a for a, _ in pairs), noise(b for _, b in pairs)]
    within = [(side.rerun_std or 0.0) ** 2 for side in sides]
    own = [math.fsum(1 / len(pair[side]) for pair in pairs) / len(pairs) * within[side] for side in (0, 1)]
    blind = [name for name, side in zip(("first", "second"), sides, strict=True) if side.rerun_std is None]
    assumed = (
        f"the re-run noise of the {' and the '.join(blind)} run is unknown (one rollout per example)" if blind else ""
    )
    omega2 = max(0.0, variance(differences) - own[0] - own[1])
    return Components(omega2, within[0], within[1], len(pairs), assumed, size)


def _clustered(owners: Labels) -> Callable[[Sequence[float]], float]:
    """Return a function that computes n times the squared cluster-robust standard error of a mean of n values."""
    return lambda values: (clustered_mean(values, owners).stderr or 0.0) ** 2 * len(values)


def components_of_one(
    groups: Sequence[Sequence[float]], correlation: float = 0.0, clusters: Labels | None = None
) -> Components | None:
    """Estimate the variance components of a difference from one run; the other model is assumed to be similar.

    Args:
        groups: Scores of each example.
        correlation: Correlation of the two models' true scores over questions. 0 is conservative and makes ω² twice the
            variance of the questions. Similar models have 0.5 and more.
        clusters: As in `components`.

    Returns:
        The estimate; None if fewer than two examples, or examples of only one cluster, have scores.

    Raises:
        ValueError: the correlation is not from −1 to 1.
    """
    if not -1 <= correlation <= 1:
        raise ValueError(f"components_of_one: the correlation must be from -1 to 1, not {correlation}")
    parts = noise(groups)
    if parts.examples < 2:
        return None
    within = (parts.rerun_std or 0.0) ** 2
    # The square of the standard error is the variance between examples, divided by their number.
    between = (parts.stderr or 0.0) ** 2 * parts.examples if parts.question_std is None else parts.question_std**2
    assumed = f"the other model is similar to this one, with a correlation of {correlation:g} between their scores"
    if parts.rerun_std is None:
        assumed += "; the re-run noise is unknown (one rollout per example)"
    size = 1.0
    if clusters is not None:
        scored = [(group, owner) for group, owner in zip(groups, clusters, strict=True) if group]
        own = math.fsum(1 / len(group) for group, _ in scored) / len(scored) * within
        owners = [owner for _, owner in scored]
        if len({*owners}) < 2:
            return None
        between = max(0.0, _clustered(owners)([math.fsum(group) / len(group) for group, _ in scored]) - own)
        size = len(owners) / len({*owners})
    return Components(2 * between * (1 - correlation), within, within, parts.examples, assumed, size)


def miller_examples(
    parts: Components,
    delta: float,
    *,
    rollouts: int = 1,
    second_rollouts: int | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
) -> int:
    """Required examples by Miller's formula, for comparison with published figures; assumes a known variance.

    (z_{α/2} + z_β)² · (ω² + σ_A²/K_A + σ_B²/K_B) / δ², rounded up.

    Arguments and errors as for `required_examples`."""
    z = _z(alpha, power)
    if not 0 < abs(delta) < math.inf or rollouts < 1 or (second_rollouts is not None and second_rollouts < 1):
        raise ValueError(
            f"required_examples: delta must be finite and not 0, and rollouts at least 1; got {delta=}, {rollouts=}"
        )
    return math.ceil((z / delta) ** 2 * parts.variance(rollouts, second_rollouts) - SLACK)


def required_examples(
    parts: Components,
    delta: float,
    *,
    rollouts: int = 1,
    second_rollouts: int | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
) -> int:
    """Number of examples needed to find a true difference of `delta` with probability `power`.

    The smallest n for which the test of `paired_difference` is significant with that probability, but at least the
    minimum of that test: 6 at a level of 0.05. With clusters, n counts these, and the result is their examples.

    Args:
        parts: Variance components of the difference.
        delta: The true difference; its sign does not matter.
        rollouts: Rollouts per example, K.
        second_rollouts: Rollouts per example of the second side, if different.
        alpha: Level of the two-sided test.
        power: Probability of finding the difference.

    Raises:
        ValueError: an argument is out of range.
    """
    by_miller = miller_examples(
        parts, delta, rollouts=rollouts, second_rollouts=second_rollouts, alpha=alpha, power=power
    )
    size = parts.cluster_size
    n = max(fewest_pairs(alpha), math.ceil(by_miller / size))
    variance = parts.variance(rollouts, second_rollouts) / size  # of a cluster's mean
    while not _finds(abs(delta) * (1 + SLACK), variance, n, alpha, power):
        n += 1
    return math.ceil(n * size - SLACK)


def _finds(delta: float, variance: float, n: int, alpha: float, power: float) -> bool:
    """Return whether n pairs whose differences have this mean and variance give a significant result with this
    probability, that is, whether the sample mean that is exceeded with this probability is significant."""
    spread = math.sqrt(variance)
    mean = delta - normal_quantile(power) * spread / math.sqrt(n)
    if mean <= 0:
        return False
    absolute = mean  # mean absolute value of normal differences
    if mean < 40 * spread:
        ratio = mean / spread
        centre = math.sqrt(2 / math.pi) * math.exp(-ratio * ratio / 2)
        absolute = spread * centre + mean * math.erf(ratio / math.sqrt(2))
    typical = (variance + mean * mean) / absolute
    stderr = math.sqrt((n - 1) * variance + 2 * mean**2 + 2 * typical**2)
    return n * mean >= t_quantile(1 - alpha / 2, n - 1) * stderr


def detectable(
    parts: Components,
    examples: int,
    *,
    rollouts: int = 1,
    second_rollouts: int | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
) -> float:
    """Smallest true difference that these examples can find with probability `power` (MDE); NaN if there are too few
    examples for any finding.

    Arguments and errors as for `required_examples`."""
    _z(alpha, power)
    if rollouts < 1 or (second_rollouts is not None and second_rollouts < 1):
        raise ValueError(f"detectable: the number of rollouts must be at least 1, not {rollouts}")
    n = int(examples / parts.cluster_size + SLACK)
    if n < fewest_pairs(alpha):
        return math.nan
    variance = parts.variance(rollouts, second_rollouts) / parts.cluster_size
    if variance == 0.0:
        return 0.0
    low, high = 0.0, 100 * math.sqrt(variance)
    if not _finds(high, variance, n, alpha, power):
        return math.nan
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _finds(middle, variance, n, alpha, power) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class Split:
    """A design for finding a difference: examples, rollouts per example and model, and cost."""

    examples: int
    rollouts: int
    cost: float
    """Cost of both models together, in the unit of the prices."""
    detectable: float
    """The smallest difference that the design can find."""


def splits(
    parts: Components,
    delta: float,
    *,
    example_cost: float = 0.0,
    rollout_cost: float = 1.0,
    most_examples: int | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
) -> list[Split]:
    """All designs for finding a true difference of `delta`, with 1 to 64 rollouts per example, cheapest first.

    Args:
        parts: Variance components of the difference.
        delta: The true difference.
        example_cost: Cost of one more example, independent of its rollouts (writing it, preparing a sandbox).
        rollout_cost: Cost of one rollout of both models together.
        most_examples: Number of available examples; None for no limit.
        alpha: Level of the two-sided test.
        power: Probability of finding the difference.

    Returns:
        The designs; among equally cheap ones, fewer rollouts first. Empty if there are not enough examples for any.

    Raises:
        ValueError: an argument is out of range.
    """
    if not (0 <= example_cost < math.inf and 0 <= rollout_cost < math.inf):
        raise ValueError(f"splits: costs must be finite and not negative, not {example_cost} and {rollout_cost}")
    found: list[Split] = []
    for rollouts in range(1, MOST_ROLLOUTS + 1):
        n = required_examples(parts, delta, rollouts=rollouts, alpha=alpha, power=power)
        if most_examples is None or n <= most_examples:
            cost = n * (example_cost + rollouts * rollout_cost)
            found.append(Split(n, rollouts, cost, detectable(parts, n, rollouts=rollouts, alpha=alpha, power=power)))
    return sorted(found, key=lambda split: (split.cost, split.rollouts))


def settling_examples(
    paired: Paired, delta: float | None = None, *, alpha: float = ALPHA, power: float = POWER
) -> int | None:
    """Number of examples with which an inconclusive comparison becomes significant, with the same number of rollouts
    per example.

    Args:
        paired: The comparison.
        delta: The true difference to find (a gate's margin); None for the observed difference.
        alpha: Level of the two-sided test.
        power: Probability of finding the difference.

    Returns:
        The total number, including the examples compared so far; None if the observed difference is 0 or its spread
        unknown. If all observed differences are equal (no spread), the smallest number that the test accepts.
    """
    estimate = paired.estimate
    if estimate.method == "betting":  # valid at any stopping time, so its width says nothing about a fixed number
        return None
    if delta is None and estimate.mean and estimate.stderr is None and estimate.clusters is None and paired.pairs > 1:
        return fewest_pairs(alpha)
    delta = estimate.mean if delta is None else delta
    if not delta or estimate.stderr is None:
        return None
    return required_examples(seen_components(estimate), delta, alpha=alpha, power=power)


def seen_components(estimate: Estimate) -> Components:
    """Variance of a difference as a comparison has measured it, for the same numbers of rollouts."""
    size = estimate.examples / (estimate.clusters or estimate.examples)
    return Components((estimate.stderr or 0.0) ** 2 * estimate.examples, 0.0, 0.0, cluster_size=size)


def passing_examples(paired: Paired, margin: float, width: float | None, *, power: float = POWER) -> int | None:
    """Number of examples needed for the first side to pass a gate if both sides are equally good, with the same number
    of rollouts.

    Args:
        paired: The inconclusive comparison.
        margin: The allowed loss, above 0.
        width: Width of the range of scores; None if unknown.
        power: Probability of passing.

    Returns:
        The total number, including the examples compared so far; None if the spread is unknown.
    """
    estimate = paired.estimate
    needed = settling_examples(paired, margin, alpha=round(1 - estimate.level, 12), power=power)
    if width is None:
        return needed
    # Fewer examples would not exclude unobserved losses.
    seen = estimate.clusters or estimate.examples
    share = 0.0 if estimate.stderr is None else estimate.stderr**2 * seen / width**2
    z, z_power = normal_quantile(0.5 + estimate.level / 2), normal_quantile(power)

    def passes(n: int) -> bool:
        t = t_quantile(0.5 + estimate.level / 2, n - 1) if n > 1 else math.inf
        unseen = 0.0 if n > LARGE else beta_quantile(1 - (1 - estimate.level) * EXACT_TAIL, 1, n)
        chance = z_power * math.sqrt(share / n)
        floor = max(t * math.sqrt(2) / (n + 2), unseen)
        return max(floor, z * math.sqrt(share * n + 2) / (n + 2)) + chance <= margin / width

    units = bisect_left(range(1, MOST_EXAMPLES), True, key=passes) + 1
    return max(needed or 0, math.ceil(units * estimate.examples / seen))


def _z(alpha: float, power: float) -> float:
    if not (0 < alpha < 1 and 0 < power < 1):
        raise ValueError(f"alpha and power must be between 0 and 1, not {alpha} and {power}")
    return normal_quantile(1 - alpha / 2) + normal_quantile(power)
