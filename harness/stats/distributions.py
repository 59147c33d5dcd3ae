"""The beta distribution, and Student's t with non-integer degrees of freedom, without scipy (see `quantiles` for the
reason). The tests compare them with scipy."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import lru_cache

from harness.stats.quantiles import normal_quantile, t_quantile

PRECISION = 1e-15
"""Relative precision of continued fractions and of quantiles."""

LEAST_P = sys.float_info.min
"""Smallest p-value that is returned; no p-value is 0."""

LARGEST_DF = 1e8
"""Degrees of freedom from which Student's t equals the normal distribution to eight digits."""


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(X ≤ x) for X with a beta distribution: the regularised incomplete beta function.

    Args:
        x: Any number; the result is 0 below 0 and 1 above 1.
        a: Above 0.
        b: Above 0.

    Raises:
        ValueError: a or b is not above 0.

    Source: Abramowitz & Stegun 26.5.8 (continued fraction), evaluated by Lentz's method.
    """
    if not (a > 0 and b > 0):
        raise ValueError(f"beta_cdf({x}, {a}, {b}): needs a > 0 and b > 0")
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # here the continued fraction of the other tail converges faster
        return 1.0 - _beta_tail(1.0 - x, b, a)
    return _beta_tail(x, a, b)


@lru_cache(maxsize=1024)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """The x with P(X ≤ x) = `probability` for X with a beta distribution.

    Raises:
        ValueError: the probability is not strictly between 0 and 1, or a or b is not above 0.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError(f"beta_quantile({probability}, {a}, {b}): needs a probability between 0 and 1")
    return _root(lambda x: beta_cdf(x, a, b) - probability, 0.0, 1.0)


def t_two_sided(t: float, df: float) -> float:
    """Two-sided p-value P(|T| ≥ |t|) of Student's t; never 0.

    Args:
        t: The statistic; may be infinite.
        df: Degrees of freedom, above 0, not necessarily an integer.
    """
    if not df > 0:
        raise ValueError(f"t_two_sided({t}, {df}): needs df > 0")
    if df >= LARGEST_DF:
        return max(LEAST_P, math.erfc(abs(t) / math.sqrt(2.0)))
    square = t * t
    if math.isinf(square):
        return LEAST_P
    x = df / (df + square)
    if x > (df + 2) / (df + 5):  # |t| below about 1.7: the p-value is not small, so there is no cancellation
        return 1.0 - beta_cdf(square / (df + square), 0.5, df / 2)
    return max(LEAST_P, _beta_tail(x, df / 2, 0.5))


@lru_cache(maxsize=1024)
def t_quantile_real(probability: float, df: float) -> float:
    """Quantile of Student's t for degrees of freedom that need not be integers (Welch's, Satterthwaite's).

    Raises:
        ValueError: an argument is out of range.
    """
    if not df > 0 or not 0.0 < probability < 1.0:
        raise ValueError(f"t_quantile_real({probability}, {df}): needs df > 0 and a probability between 0 and 1")
    if probability < 0.5:
        return -t_quantile_real(1.0 - probability, df)
    if df >= LARGEST_DF:
        return normal_quantile(probability)
    if df >= 1 and df == int(df):
        return t_quantile(probability, int(df))
    tail = 2.0 * (1.0 - probability)
    high = 1.0
    while t_two_sided(high, df) > tail:
        high *= 2.0
        if math.isinf(high):
            return high
    return _root(lambda t: tail - t_two_sided(t, df), 0.0, high)


def _beta_tail(x: float, a: float, b: float) -> float:
    """The continued fraction, for arguments with fast convergence."""
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    value = d
    for m in range(1, 100_000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + factor * d
            c = 1.0 + factor / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1.0) < PRECISION:
            break
    return min(1.0, front * value / a)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Root of an increasing function, by bisection: reliable, and a hundred steps take a millisecond."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high) or high - low <= PRECISION * abs(middle):
            break
        if rising(middle) < 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
