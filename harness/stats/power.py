"""How much it takes to tell two models apart: examples and rollouts for a difference of a given size, the difference
that so many can show, and the cheapest way to get there. Owns these plans; a pilot's numbers go in, no run does.

The variance of a paired difference of means is (ω² + σ_A²/K_A + σ_B²/K_B) / n: ω² is how much the true difference
varies from question to question, σ² how much one answer varies about its question's average. Rollouts only shrink that.
Source: Miller 2024, arXiv 2411.00640, § 5; but where Miller has the normal distribution there is the test of `paired`:
Student's t, since the variance is not known, with one pair more won and one more lost. It takes three to seven examples
more than by Miller, which is a lot of ten."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from harness.stats.distributions import beta_quantile
from harness.stats.intervals import EXACT_TAIL, LEVEL
from harness.stats.paired import Paired, fewest_pairs
from harness.stats.quantiles import normal_quantile, t_quantile
from harness.stats.variance import Noise, noise

ALPHA = 0.05
POWER = 0.8
"""The chance to find a difference that is there, where none is named."""

SLACK = 1e-9
"""A count this little above a whole number is that number."""

MOST_ROLLOUTS = 64
"""Rollouts of an example that a plan considers."""

LARGE = 10**6
"""Examples beyond which losses that were not seen do not matter."""

MOST_EXAMPLES = 10**12
"""Beyond which none is looked for."""


@dataclass(frozen=True, slots=True)
class Components:
    """What makes the difference of two models vary."""

    omega2: float
    """Variance over questions of the true difference (ω²)."""
    first2: float
    """Variance of one answer of the first about its question's average (σ_A²)."""
    second2: float
    pairs: int | None = None
    """Examples that it was estimated from; None: it was given."""
    assumed: str = ""
    """What could not be estimated and was assumed, in words."""

    def variance(self, rollouts: int, second_rollouts: int | None = None) -> float:
        """Of one example's difference, with so many rollouts of each side."""
        return self.omega2 + self.first2 / rollouts + self.second2 / (second_rollouts or rollouts)


def components(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> Components | None:
    """Estimate them from two runs of the same examples.

    ω² = max(0, variance of d − σ_A²/K_A − σ_B²/K_B). Where a side has one rollout an example its re-run noise cannot be
    seen: it is taken as 0, which leaves it in ω², so that the examples needed for one rollout are right and what more
    rollouts would save is not promised.

    Args:
        first: Scores of each example; examples without scores on a side are left out.
        second: Those of the other side, the same examples in the same order.

    Returns:
        The estimate; None with fewer than two examples that both have scores for.

    Raises:
        ValueError: the numbers of examples differ.
    """
    if len(first) != len(second):
        raise ValueError(f"components: {len(first)} examples against {len(second)}")
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a and b]
    if len(pairs) < 2:
        return None
    differences = [math.fsum(a) / len(a) - math.fsum(b) / len(b) for a, b in pairs]
    mean = math.fsum(differences) / len(differences)
    variance = math.fsum((d - mean) ** 2 for d in differences) / (len(differences) - 1)
    sides = [noise(a for a, _ in pairs), noise(b for _, b in pairs)]
    within = [(side.rerun_std or 0.0) ** 2 for side in sides]
    own = [
        math.fsum(1 / len(pair[side]) for pair in pairs) / len(pairs) * within[side] for side in (0, 1)
    ]  # fmt: skip
    blind = [name for name, side in zip(("first", "second"), sides, strict=True) if side.rerun_std is None]
    assumed = f"re-run noise of the {' and the '.join(blind)} is unknown: one rollout an example" if blind else ""
    return Components(max(0.0, variance - own[0] - own[1]), within[0], within[1], len(pairs), assumed)


def components_of_one(groups: Sequence[Sequence[float]], correlation: float = 0.0) -> Components | None:
    """Estimate them from one run; the other model is taken to be like it.

    Args:
        groups: Scores of each example.
        correlation: Of the two models' true scores over questions; 0, the cautious value, makes ω² twice the variance
            of the questions. Models of one kind come to 0.5 and more.

    Returns:
        The estimate; None with fewer than two examples that have scores.

    Raises:
        ValueError: the correlation is not from −1 to 1.
    """
    if not -1 <= correlation <= 1:
        raise ValueError(f"components_of_one: a correlation of {correlation} is not from -1 to 1")
    parts = noise(groups)
    if parts.examples < 2:
        return None
    within = (parts.rerun_std or 0.0) ** 2
    if parts.question_std is not None:
        between = parts.question_std**2
    else:
        between = 0.0 if parts.stderr is None else parts.stderr**2 * parts.examples
    assumed = f"the other model is like this one; their scores correlate by {correlation:g} over examples"
    if parts.rerun_std is None:
        assumed += "; re-run noise is unknown: one rollout an example"
    return Components(2 * between * (1 - correlation), within, within, parts.examples, assumed)


def miller_examples(
    parts: Components,
    delta: float,
    *,
    rollouts: int = 1,
    second_rollouts: int | None = None,
    alpha: float = ALPHA,
    power: float = POWER,
) -> int:
    """Examples as Miller has them, to compare with others' figures: right if the variance were known.

    (z_{α/2} + z_β)² · (ω² + σ_A²/K_A + σ_B²/K_B) / δ², rounded up.

    Arguments and errors as for `required_examples`.
    """
    z = _z(alpha, power)
    if not 0 < abs(delta) < math.inf or rollouts < 1 or (second_rollouts is not None and second_rollouts < 1):
        raise ValueError(f"required_examples: a difference of {delta} with {rollouts} rollouts is none to plan for")
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
    """Examples with which a true difference of `delta` is found with the chance `power`.

    The fewest n at which the test of `paired_difference` is significant with that chance; but no fewer than those with
    which it can find anything: 6 at a level of 0.05.

    Args:
        parts: What the difference varies by.
        delta: The true difference; its sign does not matter.
        rollouts: Of each example, K.
        second_rollouts: Those of the second, if others.
        alpha: Level of the two-sided test.
        power: Chance to find it.

    Raises:
        ValueError: an argument is out of range.
    """
    by_miller = miller_examples(
        parts, delta, rollouts=rollouts, second_rollouts=second_rollouts, alpha=alpha, power=power
    )
    n, variance = max(fewest_pairs(alpha), by_miller), parts.variance(rollouts, second_rollouts)
    while not _finds(abs(delta) * (1 + SLACK), variance, n, alpha, power):
        n += 1
    return n


def _finds(delta: float, variance: float, n: int, alpha: float, power: float) -> bool:
    """Whether n pairs whose differences have this mean and variance are significant with this chance: whether the mean
    that is exceeded with this chance is significant."""
    spread = math.sqrt(variance)
    mean = delta - normal_quantile(power) * spread / math.sqrt(n)
    if mean <= 0:
        return False
    absolute = mean  # of normal differences
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
    """The smallest true difference that so many examples find with the chance `power` (MDE); NaN for fewer than those
    with which the test can find anything.

    Arguments and errors as for `required_examples`.
    """
    _z(alpha, power)
    if rollouts < 1 or (second_rollouts is not None and second_rollouts < 1):
        raise ValueError(f"detectable: {rollouts} rollouts")
    if examples < fewest_pairs(alpha):
        return math.nan
    variance = parts.variance(rollouts, second_rollouts)
    if variance == 0.0:
        return 0.0
    low, high = 0.0, 100 * math.sqrt(variance)
    if not _finds(high, variance, examples, alpha, power):
        return math.nan
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _finds(middle, variance, examples, alpha, power) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class Split:
    """One way to find a difference: examples, rollouts of each for each model, and what it costs."""

    examples: int
    rollouts: int
    cost: float
    """Of both models together, in the unit of the prices."""
    detectable: float
    """The difference that it finds."""


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
    """All ways to find a true difference of `delta`, from one rollout an example to 64, the cheapest first.

    Args:
        parts: What the difference varies by.
        delta: The true difference.
        example_cost: Of one more example, however many rollouts (writing it, preparing a sandbox).
        rollout_cost: Of one rollout of both models together.
        most_examples: That there are; None: any number.
        alpha: Level of the two-sided test.
        power: Chance to find it.

    Returns:
        The ways; of equally cheap ones that with fewer rollouts first. Empty if there are too few examples for any.

    Raises:
        ValueError: an argument is out of range.
    """
    if not (0 <= example_cost < math.inf and 0 <= rollout_cost < math.inf):
        raise ValueError("splits: a cost is below 0 or not finite")
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
    """Examples that would settle a comparison that came out undecided, with rollouts as they were.

    Args:
        paired: The comparison.
        delta: The true difference to be found (a gate's margin); None: one as large as was seen.
        alpha: Level of the two-sided test.
        power: Chance to find it.

    Returns:
        The number in all, those that were compared included; None if the difference seen is 0 or its spread unknown.
        Several differences that are all the same have no spread: then as few as the test can do with.
    """
    estimate = paired.estimate
    if delta is None and estimate.mean and estimate.stderr is None and estimate.clusters is None and paired.pairs > 1:
        return fewest_pairs(alpha)
    delta = estimate.mean if delta is None else delta
    if not delta or estimate.stderr is None:
        return None
    return required_examples(
        Components(estimate.stderr**2 * estimate.examples, 0.0, 0.0), delta, alpha=alpha, power=power
    )


def passing_examples(paired: Paired, margin: float, width: float | None, *, power: float = POWER) -> int | None:
    """Examples with which a gate would let the first pass if the two are alike, with rollouts as they were.

    Args:
        paired: The comparison that came out undecided.
        margin: The loss that is allowed, above 0.
        width: Of the range of the scores; None if it is unknown.
        power: Chance to pass.

    Returns:
        The number in all, those that were compared included. None if the spread is unknown, and with it all.
    """
    estimate = paired.estimate
    needed = settling_examples(paired, margin, power=power)
    if width is None:
        return needed
    # Fewer would not exclude losses that were not seen.
    share = 0.0 if estimate.stderr is None else estimate.stderr**2 * estimate.examples / width**2
    z, z_power = normal_quantile(0.5 + estimate.level / 2), normal_quantile(power)

    def passes(n: int) -> bool:
        t = t_quantile(0.5 + estimate.level / 2, n - 1) if n > 1 else math.inf
        unseen = 0.0 if n > LARGE else beta_quantile(1 - (1 - estimate.level) * EXACT_TAIL, 1, n)
        chance = z_power * math.sqrt(share / n)
        floor = max(t * math.sqrt(2) / (n + 2), unseen)
        return max(floor, z * math.sqrt(share * n + 2) / (n + 2)) + chance <= margin / width

    units = bisect_left(range(1, MOST_EXAMPLES), True, key=passes) + 1
    return max(needed or 0, math.ceil(units * estimate.examples / (estimate.clusters or estimate.examples)))


def examples_for_half_width(parts: Noise, half_width: float, rollouts: int = 1, level: float = LEVEL) -> int | None:
    """Examples with which the t interval of a mean reaches `half_width` to each side; None where that is unknown.

    Without repeated rollouts what is known is the spread of the examples at the number of rollouts that they had.

    Raises:
        ValueError: the half-width is not above 0, or rollouts below 1.
    """
    if not 0 < half_width < math.inf or rollouts < 1:
        raise ValueError(f"examples_for_half_width: {half_width} with {rollouts} rollouts")
    if parts.question_std is not None and parts.rerun_std is not None:
        variance = parts.question_std**2 + parts.rerun_std**2 / rollouts
    elif parts.stderr is not None:
        variance = parts.stderr**2 * parts.examples
    else:
        return None
    n = max(2, math.ceil(variance * (normal_quantile(0.5 + level / 2) / half_width) ** 2 - SLACK))
    while t_quantile(0.5 + level / 2, n - 1) * math.sqrt(variance / n) > half_width * (1 + SLACK):
        n += 1
    return n


def _z(alpha: float, power: float) -> float:
    if not (0 < alpha < 1 and 0 < power < 1):
        raise ValueError(f"alpha {alpha} and power {power} lie between 0 and 1")
    return normal_quantile(1 - alpha / 2) + normal_quantile(power)
