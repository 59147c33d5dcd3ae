"""Quantiles of the normal distribution, of Student's t distribution, and of measured values.

The distributions are computed here instead of by `scipy.special.stdtrit`, since importing scipy takes half a second and
more, as much as hundreds of rollouts, and every run and live display needs one quantile. The tests compare both with
scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

SERIES_LIMIT = 400
"""Degrees of freedom up to which the exact finite series is used; above, the expansion in 1/df is exact to 1e-13."""


@lru_cache(maxsize=64)
def normal_quantile(probability: float) -> float:
    """The z with P(Z ≤ z) = `probability`, which must be strictly between 0 and 1."""
    return NormalDist().inv_cdf(probability)


def normal_cdf(z: float) -> float:
    """P(Z ≤ z) of the standard normal distribution."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: int) -> float:
    """The t with P(T ≤ t) = `probability` for Student's t with `df` degrees of freedom.

    Args:
        probability: Strictly between 0 and 1.
        df: At least 1.

    Raises:
        ValueError: an argument is out of range.

    Source: Abramowitz & Stegun 26.7.3 and 26.7.4 (distribution for integer df), inverted by Newton's method; 26.7.5
    (expansion of the quantile) for large df.
    """
    if df < 1 or not 0.0 < probability < 1.0:
        raise ValueError(f"t_quantile({probability}, {df}): needs df >= 1 and a probability between 0 and 1")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    z = normal_quantile(probability)
    if df > SERIES_LIMIT:
        return _expansion(z, df)
    t = z
    # z is left of the root, where the distribution function is concave, so every step stays left and gets closer.
    for _ in range(200):
        step = (2.0 * probability - 1.0 - _central_area(t, df)) / (2.0 * _density(t, df))
        t += step
        if abs(step) <= 1e-14 * max(1.0, t):
            break
    return t


def _central_area(t: float, df: int) -> float:
    """P(|T| ≤ t) of Student's t."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    if df == 1:
        return 2.0 * theta / math.pi
    odd = df % 2
    term = cosine if odd else 1.0
    total = term
    for j in range(3 if odd else 2, df - 1, 2):
        term *= cosine * cosine * (j - 1) / j
        total += term
    return 2.0 / math.pi * (theta + sine * total) if odd else sine * total


def _density(t: float, df: int) -> float:
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    return math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))


def _expansion(z: float, df: int) -> float:
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / df + g2 / df**2 + g3 / df**3 + g4 / df**4


def nearest_rank(ordered: Sequence[float], part: float) -> float:
    """Nearest-rank quantile: the smallest value that at least the share `part` of the values does not exceed.

    Args:
        ordered: Values in ascending order; at least one.
        part: Above 0, at most 1.
    """
    return ordered[math.ceil(part * len(ordered)) - 1]
