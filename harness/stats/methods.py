"""Descriptions of the methods of intervals (`Estimate.method`) and of the figures in a run's summary."""

from __future__ import annotations

from typing import Literal, TypeAlias

Method: TypeAlias = Literal[
    "t",
    "wilson",
    "wilson_effective",
    "adjusted_t",
    "bonett_price",
    "cluster_t",
    "welch",
    "satterthwaite",
    "mover",
    "bootstrap_percentile",
    "bootstrap_bca",
    "delta",
    "rogan_gladen",
    "ppi",
    "ppi_added",
    "kappa_added",
    "betting",
    "asymptotic",
]

STUDENTS: frozenset[Method] = frozenset({"t", "cluster_t", "welch", "satterthwaite"})
"""Methods with symmetric intervals that are a multiple of the standard error."""

INTERVALS: dict[Method, str] = {
    "t": "Student t on per-example means, n-1 degrees of freedom (Miller 2024, arXiv 2411.00640)",
    "wilson": "Wilson score interval for a proportion (Wilson 1927); an end with fewer than 20 passes or failures on "
    "its side is at least as far out as the exact one-sided 97 % limit (after Brown, Cai & DasGupta 2001)",
    "wilson_effective": "Wilson score interval with the effective sample size p(1-p)/SE^2 and Student's t (after "
    "Korn & Graubard 1998)",
    "adjusted_t": "Student t with one additional example (or cluster) at the lowest and one at the highest possible "
    "score (after Agresti & Coull 1998)",
    "bonett_price": "Student t on the differences with one additional won and one additional lost pair or cluster "
    "(after Bonett & Price 2012)",
    "cluster_t": "cluster-robust (CR1) standard error, Student t with clusters-1 degrees of freedom (Miller 2024, "
    "arXiv 2411.00640, App. A)",
    "welch": "two independent samples, Student t with Welch's degrees of freedom (Welch 1947)",
    "satterthwaite": "weighted mean of independent means, Student t with Satterthwaite's degrees of freedom (1946)",
    "mover": "weighted mean of independent means, combined from the intervals of the parts (Zou & Donner 2008)",
    "bootstrap_percentile": "percentile bootstrap over examples (or clusters), fixed seed (Efron 1979)",
    "bootstrap_bca": "bias-corrected and accelerated bootstrap over examples (or clusters), fixed seed (Efron 1987)",
    "delta": "linearised ratio, Student t (delta method)",
    "rogan_gladen": "share judged positive, corrected for the judge's errors (Rogan & Gladen 1978), interval of Lang & "
    "Reiczigel 2014",
    "ppi": "prediction-powered inference with tuned weight (Angelopoulos, Duchi & Zrnic 2023, arXiv 2311.01453)",
    "ppi_added": "prediction-powered inference (Angelopoulos, Duchi & Zrnic 2023, arXiv 2311.01453) with two "
    "additional labels, the judge's worst error in either direction (after Bonett & Price 2012)",
    "kappa_added": "linearised kappa (Fleiss, Cohen & Everitt 1969) with one additional label in each cell, Student t",
    "betting": "confidence sequence by betting, valid at any stopping time (Waudby-Smith & Ramdas 2024, arXiv "
    "2010.09686)",
    "asymptotic": "asymptotic confidence sequence, valid for late stops only (Waudby-Smith et al. 2024, arXiv "
    "2103.06476)",
}
"""One-line description of each method with its source."""


_WHEN: dict[Method, str] = {
    "t": "all scores for which no other method is listed",
    "wilson": "scores with two values and one rollout per example: fewer than 300 of them, or fewer than 20 of either "
    "value; or all scores at one end of their range",
    "adjusted_t": "scores with a known range, if fewer than 15 examples determine their spread, or if the t interval "
    "would exceed the range",
    "betting": "runs that were stopped early on request; estimates the mean of the whole run from a random part of it",
    "asymptotic": "runs that were stopped early on request, with rewards of unknown range",
}
"""The kinds of runs to which each method applies."""

SUMMARY: dict[str, str] = {
    "mean": "mean over examples of each example's mean over its scored rollouts",
    "stderr": "standard error of the per-example means (Miller 2024, arXiv 2411.00640)",
    **{name: f"95 % interval: {INTERVALS[name]}; {when}" for name, when in _WHEN.items()},
    "std": "sample standard deviation over scored rollouts (ddof 1)",
    "pass_at_k": "unbiased, 1 - C(n-c,k)/C(n,k) (Chen et al. 2021, arXiv 2107.03374), mean over examples with n >= k",
    "pass_hat_k": "unbiased, C(c,k)/C(n,k) (tau-bench, arXiv 2406.12045), mean over examples with n >= k",
    "bounds": "mean reward if all unscored rollouts had the lowest possible reward, and if all had the highest",
}
"""Descriptions of a summary's figures, which are stored with it."""


def describe(method: Method | None) -> str:
    """Description of an interval method; `no interval` for None."""
    return "no interval" if method is None else INTERVALS[method]
