"""Decomposition of variance: between questions, and between re-runs of one question. Needs at least two rollouts of
some examples.

Only the sampling temperature of the model causes re-run variance. Lowering it to get narrower intervals would measure a
different model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.core.types import JsonDict
from harness.stats.arrays import Reduced, reduce_groups
from harness.stats.summary import number


@dataclass(frozen=True, slots=True)
class Noise:
    """Sources of a mean's uncertainty. Undefined values are None."""

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
    """Standard error of the mean if the same questions were asked again; None unless every example has two values."""

    @property
    def rerun_share(self) -> float | None:
        """Share of the squared standard error that more rollouts could remove; at most 1."""
        if self.stderr is None or self.rerun_stderr is None:
            return None
        return min(1.0, (self.rerun_stderr / self.stderr) ** 2)

    def to_json(self) -> JsonDict:
        """Convert to JSON; undefined, NaN and infinite values become null."""
        return {
            "examples": self.examples,
            "rollouts": self.rollouts,
            "repeated": self.repeated,
            "question_std": number(self.question_std),
            "rerun_std": number(self.rerun_std),
            "stderr": number(self.stderr),
            "rerun_stderr": number(self.rerun_stderr),
            "rerun_share": number(self.rerun_share),
        }


def noise(groups: Iterable[Sequence[float]]) -> Noise:
    """Estimate the two sources of variance of scores: re-runs and questions.

    Args:
        groups: The scores of each example; examples without scores are ignored.

    Source: Miller 2024, arXiv 2411.00640, § 3.
    """
    return noise_of(reduce_groups(groups))


def noise_of(reduced: Reduced) -> Noise:
    """Estimate re-run variance and question variance from the result of `arrays.reduce_rollouts`.

    With s²ᵢ the variance of the Kᵢ scores of example i: re-run variance σ² = mean of s²ᵢ; question variance = max(0,
    variance of s̄ᵢ − mean of σ²ᵢ/Kᵢ), where σ² is used for examples with a single score."""
    n = len(reduced.means)
    has_many = reduced.counts > 1
    repeated = int(has_many.sum())
    between = float(reduced.means.var(ddof=1)) if n > 1 else math.nan
    within = float(reduced.variances[has_many].mean()) if repeated else math.nan
    question = math.nan
    if n > 1 and repeated:
        own = reduced.variances.copy()
        own[~has_many] = within
        question = max(0.0, between - float((own / reduced.counts).mean()))
    rerun = math.nan
    if n and repeated == n:
        rerun = math.sqrt(float((reduced.variances / reduced.counts).sum())) / n
    return Noise(
        examples=n,
        rollouts=int(reduced.counts.sum()),
        repeated=repeated,
        question_std=number(math.sqrt(question) if question == question else math.nan),
        rerun_std=number(math.sqrt(within) if within == within else math.nan),
        stderr=number(math.sqrt(between / n) if between > 0 else math.nan),
        rerun_stderr=number(rerun),
    )


def stderr_with(parts: Noise, examples: int, rollouts: int) -> float | None:
    """Standard error of `examples` examples with `rollouts` rollouts each; None if unknown.

    Source: Miller 2024, arXiv 2411.00640, § 3: Var(μ̂) = (question variance + re-run variance / K) / n."""
    if parts.question_std is None or parts.rerun_std is None or examples < 1 or rollouts < 1:
        return None
    return math.sqrt((parts.question_std**2 + parts.rerun_std**2 / rollouts) / examples)
