"""One number over several environments: every environment alike (macro), by given weights, or every example alike
(micro), with an interval made of the environments' own. Owns these averages; environments are independent samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.stats.distributions import t_quantile_real
from harness.stats.intervals import LEVEL, Estimate

STUDENTS = frozenset({"t", "cluster_t", "welch", "satterthwaite"})
"""Methods whose intervals are a multiple of the standard error on both sides, so that variances add up."""


def macro_mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of the environments' means, each counting alike. As `weighted_mean`."""
    return weighted_mean(estimates, [1.0] * len(estimates))


def micro_mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean over the examples of all environments: each counts by its examples. As `weighted_mean`."""
    return weighted_mean(estimates, [float(each.examples) for each in estimates])


def weighted_mean(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """Σ w·μ̂ / Σ w, with SE² = Σ w²·SE² / (Σ w)².

    The interval is Student's with Satterthwaite's degrees of freedom where all parts have t intervals; where some have
    another (Wilson's of a small environment, or of one that was solved entirely) it is combined from the parts' own
    ends: μ̂ − √(Σ w²(μ̂ₑ − lowₑ)²), and so upwards.

    Args:
        estimates: Of each environment, all at one level of confidence.
        weights: As many, none below 0 and not all 0. What weighs 0 is left out.

    Returns:
        The average. None of a mean if one of the environments has none, since an average over what happened to have a
        score is that of another suite; no interval if one of them has no interval.

    Raises:
        ValueError: weights that cannot be used, or intervals of different levels.

    Source: Satterthwaite 1946; Zou & Donner 2008 (combined intervals).
    """
    if len(weights) != len(estimates) or not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"weighted_mean: {len(estimates)} means need as many finite weights, none below 0")
    parts = [(each, weight) for each, weight in zip(estimates, weights, strict=True) if weight > 0]
    if len({each.level for each, _ in parts}) > 1:
        raise ValueError("weighted_mean: the intervals have different levels of confidence")
    level = parts[0][0].level if parts else LEVEL
    examples = sum(each.examples for each, _ in parts)
    total = math.fsum(weight for _, weight in parts)
    means = [(weight / total, each.mean) for each, weight in parts if each.mean is not None]
    if not parts or len(means) < len(parts):
        return Estimate(examples=examples, level=level)
    mean = math.fsum(weight * value for weight, value in means)
    variances = [(weight / total * each.stderr) ** 2 for each, weight in parts if each.stderr is not None]
    stderr = math.sqrt(math.fsum(variances)) if len(variances) == len(parts) else None
    if stderr and all(each.method in STUDENTS for each, _ in parts):
        degrees = [each.examples - 1 if each.df is None else each.df for each, _ in parts]
        df = 1 / math.fsum((v / stderr / stderr) ** 2 / d for v, d in zip(variances, degrees, strict=True))
        half = t_quantile_real(0.5 + level / 2, df) * stderr
        return Estimate(mean, stderr, mean - half, mean + half, "satterthwaite", examples, level, df=df)
    ends = _combined([(each, weight / total) for each, weight in parts])
    if ends is None:
        return Estimate(mean, stderr, examples=examples, level=level)
    return Estimate(mean, stderr, mean - ends[0], mean + ends[1], "mover", examples, level)


def _combined(parts: Sequence[tuple[Estimate, float]]) -> tuple[float, float] | None:
    """How far the interval reaches down and up; None if a part has none."""
    down: list[float] = []
    up: list[float] = []
    for each, weight in parts:
        if each.mean is None or each.low is None or each.high is None:
            return None
        down.append((weight * (each.mean - each.low)) ** 2)
        up.append((weight * (each.high - each.mean)) ** 2)
    return math.sqrt(math.fsum(down)), math.sqrt(math.fsum(up))
