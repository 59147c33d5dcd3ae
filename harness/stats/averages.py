"""Averages over several environments, weighted equally (macro), by given weights, or by numbers of examples (micro).
Their intervals are computed from the environments' intervals, on the assumption that environments are independent."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.stats.distributions import t_quantile
from harness.stats.intervals import LEVEL, Estimate
from harness.stats.methods import STUDENTS


def macro_mean(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of the environments' means with equal weights. See `weighted_mean`."""
    return weighted_mean(estimates, [1.0] * len(estimates))


def micro_mean(estimates: Sequence[Estimate]) -> Estimate:
    """Mean of the environments' means, weighted by their numbers of examples. See `weighted_mean`."""
    return weighted_mean(estimates, [float(each.examples) for each in estimates])


def weighted_mean(estimates: Sequence[Estimate], weights: Sequence[float]) -> Estimate:
    """Weighted mean Σ w·μ̂ / Σ w, with SE² = Σ w²·SE² / (Σ w)².

    If all parts have t intervals, the result has one too, with Satterthwaite's degrees of freedom. If some have another
    interval (such as Wilson's for a small environment, or one in which all rollouts pass), the result's interval is
    combined from the ends of the parts' intervals: μ̂ − √(Σ w²(μ̂ₑ − lowₑ)²), and likewise for the upper end.

    Args:
        estimates: One per environment, all with the same confidence level.
        weights: One per environment, none negative and not all 0. Environments with weight 0 are ignored.

    Returns:
        The average. Its mean is None if one of the environments has none, since an average of the others would describe
        a different suite. No interval if one of them has no interval.

    Raises:
        ValueError: invalid weights, or intervals of different levels.

    Source: Satterthwaite 1946; Zou & Donner 2008 (combined intervals).
    """
    if len(weights) != len(estimates) or not all(0 <= weight < math.inf for weight in weights):
        raise ValueError(f"weighted_mean: needs {len(estimates)} finite weights, each 0 or more, one per mean")
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
        half = t_quantile(0.5 + level / 2, df) * stderr
        return Estimate(mean, stderr, mean - half, mean + half, "satterthwaite", examples, level, df=df)
    down: list[float] = []
    up: list[float] = []
    for each, weight in parts:
        if each.mean is None or each.low is None or each.high is None:
            return Estimate(mean, stderr, examples=examples, level=level)
        down.append((weight / total * (each.mean - each.low)) ** 2)
        up.append((weight / total * (each.high - each.mean)) ** 2)
    ends = mean - math.sqrt(math.fsum(down)), mean + math.sqrt(math.fsum(up))
    return Estimate(mean, stderr, *ends, "mover", examples, level)
