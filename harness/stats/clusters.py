"""Means over clustered examples, with cluster-robust standard errors. Clusters are, for example, questions on one
document, tasks in one repository, or variants of one template; the caller defines them.

Examples of one cluster are similar, so there are fewer independent observations than examples. If every cluster is a
single example, the interval is the ordinary one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.core.types import JsonDict
from harness.stats.arrays import column, number_groups, sums_of
from harness.stats.distributions import t_quantile
from harness.stats.intervals import INFORMATIVE, LEVEL, Estimate, added_interval, informative
from harness.stats.methods import Method

if TYPE_CHECKING:
    from harness.stats.arrays import Labels, Numbers


@dataclass(frozen=True, slots=True)
class Clusters:
    """Clusters of a run's examples: those with the same value of a key resemble each other."""

    key: str
    """Key of the examples' `info`, or `task`."""
    labels: Mapping[int, str]
    """Label of each example's cluster, by the example's index."""
    alone: int = 0
    """Number of examples without the key, each of which is a cluster of its own."""

    def to_json(self) -> JsonDict:
        """Convert to the format of `summary.json`."""
        return {"key": self.key, "count": len({*self.labels.values()}), "without_key": self.alone}


def clustered_mean(
    means: Numbers, clusters: Labels, level: float = LEVEL, *, limits: tuple[float, float] | None = None
) -> Estimate:
    """Mean over examples with a standard error that allows for correlation within clusters.

    CR1: SE² = C/(C−1) · (1/n²) · Σ over clusters of (Σ over its examples of (s̄ − μ̂))², and Student's t with C−1
    degrees of freedom. If the limits of the scores are known, and either fewer than 15 clusters determine the spread
    (see `INFORMATIVE`) or t would exceed the limits, one cluster of average size is added at each limit (`adjusted_t`),
    since few clusters that nearly always pass say little about others. With few clusters of very different sizes both
    intervals are still too narrow.

    Args:
        means: One finite value per example.
        clusters: Label of each example's cluster.
        level: Confidence level.
        limits: Lowest and highest possible score. None means 0 and 1 if every value is one of these, and unknown
            otherwise.

    Returns:
        The estimate; without a standard error or an interval if there are fewer than two clusters, or if there are no
        limits and no variation between clusters.

    Raises:
        ValueError: the lengths differ, or a value is not finite.

    Source: Miller 2024, arXiv 2411.00640, App. A; Cameron & Miller 2015 (CR1).
    """
    values = column(means, "clustered_mean")
    codes, count = number_groups(clusters, len(values), "clustered_mean")
    if not len(values):
        return Estimate(level=level, clusters=0)
    listed = values.tolist()
    mean = math.fsum(listed) / len(values)
    low, high = float(values.min()), float(values.max())
    if limits is not None:
        limits = min(limits[0], low), max(limits[1], high)
    elif {*listed} == {0.0, 1.0}:
        limits = 0.0, 1.0
    sums = sums_of(values - mean, codes, count)
    # Differences within rounding errors count as no variation.
    if float(abs(sums).max()) <= 1e-12 * max(abs(low), abs(high)) * len(values):
        sums *= 0.0
    plain = Estimate(mean=mean, examples=len(values), level=level, clusters=count)
    if count < 2:
        return plain
    deviations = [each * count / len(values) for each in sums.tolist()]  # in units of a cluster of average size
    spread = math.hypot(*deviations)
    if not spread and limits is None:
        return plain
    stderr = spread / math.sqrt(count * (count - 1))
    t = t_quantile(0.5 + level / 2, count - 1)
    low, high = mean - t * stderr, mean + t * stderr
    method: Method = "cluster_t"
    if limits is not None and (informative(deviations) < INFORMATIVE or low < limits[0] or high > limits[1]):
        low, high = added_interval(mean, spread, count, limits, t)
        method = "adjusted_t"
    return replace(plain, stderr=stderr or None, low=low, high=high, method=method, df=count - 1)
