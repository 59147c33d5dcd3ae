"""The normal distribution, the beta distribution and Student's t distribution, and quantiles of measured values.

The distributions are computed here instead of by scipy, since importing scipy takes more than half a second, as much as
hundreds of rollouts, and every run and live display needs one quantile. The tests compare them with scipy."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import NormalDist

PRECISION = 1e-15
"""Relative precision of continued fractions and of quantiles."""

LEAST_P = sys.float_info.min
"""Smallest p-value that is returned; no p-value is 0."""

LARGEST_DF = 1e8
"""Degrees of freedom above which Student's t equals the normal distribution to eight digits."""

EXPANSION_FROM = 400
"""Degrees of freedom above which the expansion of t quantiles in 1/df is exact to 1e-13."""


@lru_cache(maxsize=64)
def normal_quantile(probability: float) -> float:
    """The z with P(Z ≤ z) = `probability`, which must be strictly between 0 and 1."""
    return NormalDist().inv_cdf(probability)


def normal_cdf(z: float) -> float:
    """P(Z ≤ z) of the standard normal distribution."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


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


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """The t with P(T ≤ t) = `probability` for Student's t with `df` degrees of freedom.

    Args:
        probability: Strictly between 0 and 1.
        df: Above 0, not necessarily an integer (Welch's, Satterthwaite's).

    Raises:
        ValueError: an argument is out of range.

    Source: Abramowitz & Stegun 26.7.5 (expansion for large df); Newton's method for small df.
    """
    if not df > 0 or not 0.0 < probability < 1.0:
        raise ValueError(f"t_quantile({probability}, {df}): needs df > 0 and a probability between 0 and 1")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    t = z = normal_quantile(probability)
    if df > EXPANSION_FROM:
        g1 = (z**3 + z) / 4
        g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
        return z + g1 / df + g2 / df**2 + g3 / df**3 + g4 / df**4
    log_scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    # z is left of the root, where the distribution function is concave, so every step stays left and gets closer.
    for _ in range(200):
        density = math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))
        step = (t_two_sided(t, df) / 2 - (1.0 - probability)) / density
        t += step
        if abs(step) <= 1e-14 * max(1.0, t):
            break
    return t


def nearest_rank(ordered: Sequence[float], part: float) -> float:
    """Nearest-rank quantile: the smallest value that at least the share `part` of the values does not exceed.

    Args:
        ordered: Values in ascending order; at least one.
        part: Above 0, at most 1.
    """
    return ordered[math.ceil(part * len(ordered)) - 1]


def _beta_tail(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function, for arguments where it converges fast."""
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
    """Find the root of an increasing function by bisection, which is reliable; a hundred steps take a millisecond."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high) or high - low <= PRECISION * abs(middle):
            break
        if rising(middle) < 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
