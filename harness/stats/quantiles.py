"""The normal distribution, and quantiles of measured values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist


@lru_cache(maxsize=64)
def normal_quantile(probability: float) -> float:
    """The z with P(Z ≤ z) = `probability`, which must be strictly between 0 and 1."""
    return NormalDist().inv_cdf(probability)


def normal_cdf(z: float) -> float:
    """P(Z ≤ z) of the standard normal distribution."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def nearest_rank(ordered: Sequence[float], part: float) -> float:
    """Nearest-rank quantile: the smallest value that at least the share `part` of the values does not exceed.

    Args:
        ordered: Values in ascending order; at least one.
        part: Above 0, at most 1.
    """
    return ordered[math.ceil(part * len(ordered)) - 1]
