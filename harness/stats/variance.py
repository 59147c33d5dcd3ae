"""Decomposition of variance: between questions, and between re-runs of one question. Needs at least two rollouts of
some examples.

Only the sampling temperature of the model causes re-run variance. Lowering it to get narrower intervals would measure a
different model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.stats.intervals import sample_variance
from harness.stats.summary import number


@dataclass(frozen=True, slots=True)
class Noise:
    """The two sources of a mean's uncertainty: re-runs and questions. Undefined values are None."""

    examples: int
    rollouts: int
    """Number of values of all examples together."""
    repeated: int
    """Number of examples with at least two values, from which the re-run variance is estimated."""
    question_std: float | None
    """Standard deviation between the true means of examples (over infinitely many rollouts): how different the
    questions are."""
    rerun_std: float | None
    """Standard deviation of single answers around their example's mean (root of the mean variance)."""
    stderr: float | None
    """Standard error of the mean for new questions from the same source, with both components. Used in the main
    results."""
    rerun_stderr: float | None
    """Standard error of the mean if the same questions were asked again; None if an example has only one value."""


def noise(groups: Iterable[Sequence[float]]) -> Noise:
    """Estimate the two sources of variance of scores: re-runs and questions.

    With s²ᵢ the variance of the Kᵢ scores of example i: re-run variance σ² = mean of s²ᵢ; question variance = max(0,
    variance of s̄ᵢ − mean of σ²ᵢ/Kᵢ), where σ² is used for examples with a single score.

    Args:
        groups: The scores of each example; examples without scores are ignored.

    Source: Miller 2024, arXiv 2411.00640, § 3.
    """
    kept = [group for group in groups if group]
    n = len(kept)
    variances = [sample_variance(group) for group in kept]  # NaN for a single score
    repeated = [variance for variance in variances if variance == variance]
    between = sample_variance([math.fsum(group) / len(group) for group in kept])
    within = math.fsum(repeated) / len(repeated) if repeated else math.nan
    # Squared standard error of each example's mean.
    own = [(v if v == v else within) / len(group) for v, group in zip(variances, kept, strict=True)]
    return Noise(
        examples=n,
        rollouts=sum(map(len, kept)),
        repeated=len(repeated),
        question_std=number(math.sqrt(max(0.0, between - math.fsum(own) / n)) if n > 1 and repeated else math.nan),
        rerun_std=number(math.sqrt(within)),
        stderr=number(math.sqrt(between / n) if between > 0 else math.nan),
        rerun_stderr=number(math.sqrt(math.fsum(own)) / n if n and len(repeated) == n else math.nan),
    )


def stderr_with(parts: Noise, examples: int, rollouts: int) -> float | None:
    """Standard error of the mean over `examples` examples with `rollouts` rollouts each; None if unknown.

    Source: Miller 2024, arXiv 2411.00640, § 3: Var(μ̂) = (question variance + re-run variance / K) / n."""
    if parts.question_std is None or parts.rerun_std is None or examples < 1 or rollouts < 1:
        return None
    return math.sqrt((parts.question_std**2 + parts.rerun_std**2 / rollouts) / examples)
