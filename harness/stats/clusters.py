"""A mean whose examples come in clusters: questions on one document, tasks in one repository, variants of one template.
Owns the cluster-robust standard errors; what makes a cluster is the caller's.

Examples of one cluster resemble each other, so that there are fewer independent observations than examples. Where the
clusters are single examples, the interval is the ordinary one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness.stats.arrays import column, number_groups, sums_of
from harness.stats.intervals import LEVEL, Estimate
from harness.stats.quantiles import t_quantile

if TYPE_CHECKING:
    from harness.stats.arrays import Labels, Numbers


def clustered_mean(means: Numbers, clusters: Labels, level: float = LEVEL) -> Estimate:
    """The mean over examples, with a standard error that allows for whatever the examples of one cluster share.

    CR1: SE² = C/(C−1) · (1/n²) · Σ over clusters of (Σ over its examples of (s̄ − μ̂))², and Student's t with C−1
    degrees of freedom. With few clusters, of very different size, it is still too narrow; 20 equal ones are enough.

    Args:
        means: One value an example, finite.
        clusters: Label of each example's cluster.
        level: Of confidence.

    Returns:
        The estimate; without a standard error and interval for fewer than two clusters, and where nothing varies
        between clusters.

    Raises:
        ValueError: the lengths differ, or a value is not finite.

    Source: Miller 2024, arXiv 2411.00640, App. A; Cameron & Miller 2015 (CR1).
    """
    values = column(means, "clustered_mean")
    codes, count = number_groups(clusters, len(values), "clustered_mean")
    if not len(values):
        return Estimate(level=level, clusters=0)
    mean = math.fsum(values.tolist()) / len(values)
    sums = sums_of(values - mean, codes, count)
    # What is left of rounding is no variation.
    noise = 1e-12 * float(abs(values).max()) * len(values)
    if count < 2 or float(abs(sums).max()) <= noise:
        return Estimate(mean=mean, examples=len(values), level=level, clusters=count)
    stderr = math.sqrt(count / (count - 1) * float((sums**2).sum())) / len(values)
    half = t_quantile(0.5 + level / 2, count - 1) * stderr
    return Estimate(
        mean, stderr, mean - half, mean + half, "cluster_t", len(values), level, clusters=count, df=count - 1
    )


def miller_stderr(means: Numbers, clusters: Labels) -> float:
    """The clustered standard error as Miller writes it, to compare with others' figures; NaN where it is undefined.

    SE² = Σ (s̄−μ̂)²/((n−1)·n) + (1/n²) · Σ over pairs of different examples of one cluster of (s̄ᵢ−μ̂)(s̄ⱼ−μ̂).

    Raises:
        ValueError: the lengths differ, or a value is not finite.

    Source: Miller 2024, arXiv 2411.00640, App. A.
    """
    values = column(means, "miller_stderr")
    codes, count = number_groups(clusters, len(values), "miller_stderr")
    n = len(values)
    if n < 2 or count < 2:
        return math.nan
    deviations = values - values.mean()
    squares = float((deviations**2).sum())
    cross = float((sums_of(deviations, codes, count) ** 2).sum()) - squares
    variance = squares / ((n - 1) * n) + cross / n**2
    return math.sqrt(variance) if variance > 0 else math.nan
