"""Statistics of rollouts of which some have labels of people: the mean of all corrected by the labels
(prediction-powered inference), means over the labelled ones, and kappa with an interval. Labels may have been drawn
with unequal, known probabilities, and count by their inverse. Rollouts of one example are one unit.

Where few examples determine the spread, examples with extreme labels are added, as `intervals` does for other means:
few labels, among which the judge happens to make no error, would promise certainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.stats.arrays import column, number_groups, sums_of
from harness.stats.distributions import t_quantile
from harness.stats.intervals import INFORMATIVE, LEVEL, Estimate, informative
from harness.stats.methods import Method

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.stats.arrays import Floats, Integers, Labels, Numbers

_ROUNDING = 1e-12
"""Error of a mean, relative to the width of the scores, below which it is a rounding error."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """The mean of human labels over all rollouts, estimated from the scores of all and the labels of some."""

    estimate: Estimate
    """The corrected mean; `examples` counts the examples with a label."""
    weight: float = 0.0
    """How far the scores are trusted: 0 if only the labels count, 1 if the labels only correct a bias of the scores."""
    labels: int = 0
    """Number of rollouts with a label."""
    p_random: float | None = None
    """p-value of the test that labelled rollouts have the same mean score as all; below 0.001 they are hardly a random
    part. None if there is nothing to test."""


def prediction_powered(
    scores: Numbers,
    labels: Sequence[float | None],
    *,
    clusters: Labels | None = None,
    groups: Labels | None = None,
    probabilities: Numbers | None = None,
    limits: tuple[float, float] | None = None,
    level: float = LEVEL,
) -> Corrected:
    """Estimate the mean of human labels from few labels and many scores of a judge (prediction-powered inference).

    λ·mean(all scores) + mean over labelled rollouts(label − λ·score), where λ minimizes the variance. Unbiased for any
    judge, up to a term of order 1/n from λ, if labels are of a random part, or of one with the given probabilities.

    With `limits`, two labelled examples are added if fewer than 15 examples determine the spread of the labels or of
    the judge's errors, or if the interval would leave the limits: one to which the judge gives the highest score and
    people the lowest, and the reverse (`ppi_added`). For λ = 0 these are Agresti and Coull's, for λ = 1 Bonett and
    Price's.

    Args:
        scores: The judge's score of every rollout.
        labels: The label of every rollout; None or NaN if it has none.
        clusters: Name of each rollout's example; None if each is an example of its own. The mean is over examples, each
            the mean over its rollouts.
        groups: Name of each rollout's group of similar examples, the unit of errors; None if examples are independent.
        probabilities: Of each rollout, the probability that it was drawn for labelling, above 0 if it has a label; None
            if it was the same for all.
        limits: Lowest and highest possible score and label; extended to the given ones. None if unknown.
        level: Confidence level.

    Returns:
        The estimate; empty if there are no labels, and without an interval if fewer than two examples have one.

    Raises:
        ValueError: the lengths differ, a score is not finite, or a label was drawn with a probability of 0 or less.

    Source: Angelopoulos, Duchi & Zrnic 2023 (PPI++), arXiv 2311.01453, § 6 (choice of λ); Zrnic & Candès 2024, arXiv
    2403.03208 (probabilities); Särndal, Swensson & Wretman 1992, § 6.6 (linearised variance).
    """
    import numpy as np

    judged, what = column(scores, "prediction_powered"), "prediction_powered"
    truth = np.array([math.nan if label is None else label for label in labels], np.float64)
    if len(truth) != len(judged):
        raise ValueError(f"{what}: needs a label or None for each score, not {len(truth)} for {len(judged)}")
    codes, count = number_groups(np.arange(len(judged)) if clusters is None else clusters, len(judged), what)
    has = ~np.isnan(truth)
    drawn = np.ones(len(judged)) if probabilities is None else column(probabilities, what)
    if (drawn[has] <= 0).any():
        raise ValueError(f"{what}: a label was drawn with a probability of 0 or less")
    if not has.any():
        return Corrected(Estimate(level=level))
    share = 1 / (count * np.bincount(codes, minlength=count)[codes])  # of each rollout in the mean of all
    own = _Sample(codes[has], count, (share / np.where(has, drawn, 1))[has], truth[has], judged[has])
    units = (codes, count) if groups is None else number_groups(groups, len(judged), what)
    found, weight = _by_units(own, has, judged, share, units, limits, level)
    if groups is not None:
        found = replace(found, examples=own.examples, clusters=found.examples)
    return Corrected(found, weight, int(has.sum()), _p_random(own, judged, share))


def _by_units(
    own: _Sample,
    has: NDArray[np.bool_],
    judged: Floats,
    share: Floats,
    units: tuple[Integers, int],
    limits: tuple[float, float] | None,
    level: float,
) -> tuple[Estimate, float]:
    """The corrected mean, and the weight of the scores. `own` are the labelled rollouts by example; `has` says which
    ones these are, `share` is each one's in the mean of all, `units` are independent units and their count."""
    codes, count = units
    whole = float((share * judged).sum())
    drift = sums_of(share * (judged - whole), codes, count) * math.sqrt(count / max(1, count - 1))
    sample = replace(own, codes=codes[has], count=count)
    ends = _extended(limits, judged, own.labels)
    return _corrected(sample, whole, drift, ends, level=level, is_whole=bool(has.all()))


def _p_random(own: _Sample, judged: Floats, share: Floats) -> float | None:
    """`Corrected.p_random`; None if all scores are equal or have a label."""
    whole = float((share * judged).sum())
    unlabelled = 1 - len(own.labels) / len(judged)
    spread = float((share * (judged - whole) ** 2).sum()) * unlabelled / own.effective
    if spread <= (_ROUNDING * float(abs(judged).max())) ** 2:
        return None
    return math.erfc(abs(_fit(own).score - whole) / math.sqrt(2 * spread))


def _corrected(
    sample: _Sample,
    whole: float,
    drift: Floats,
    ends: tuple[float, float] | None,
    *,
    level: float,
    is_whole: bool,
) -> tuple[Estimate, float]:
    """The corrected mean, and the weight of the scores.

    Args:
        sample: The labelled rollouts.
        whole: Mean of all scores.
        drift: Part of each example in the error of that mean.
        ends: Lowest and highest score and label; None if unknown.
        level: Confidence level.
        is_whole: Whether all rollouts have a label.
    """
    plain = extreme = _fit(sample)
    if ends is not None:
        extreme = _fit(sample.with_added([ends, (ends[1], ends[0])]), has_added=True)
    weight = 0.0 if is_whole else _weight(extreme, drift)
    mean = plain.label + weight * (whole - plain.score)
    made = Estimate(mean, examples=sample.examples, level=level, df=sample.effective - 1)
    errors = plain.errors(weight, drift)
    found = _interval(made, mean, errors, "ppi")
    of_judge = _exact(plain.of_labels - plain.of_scores, float((abs(plain.of_labels) + abs(plain.of_scores)).max()))
    seen = informative(errors.tolist()), informative(of_judge.tolist())
    if ends is not None and (min(seen) < INFORMATIVE or not _is_within(found, ends)):
        middle = extreme.label + weight * (whole - extreme.score)
        found = _interval(found, middle, extreme.errors(weight, drift), "ppi_added", ends)
    return found, weight


def labelled_mean(
    values: Numbers,
    weights: Numbers,
    clusters: Labels,
    limits: tuple[float, float] | None = None,
    level: float = LEVEL,
) -> Estimate:
    """Weighted mean with a standard error that allows for correlation within clusters.

    Two values are added at the limits if fewer than 15 clusters determine the spread, or if the interval would leave
    the limits (`adjusted_t`), as in `clusters.clustered_mean`.

    Args:
        values: One value per labelled rollout.
        weights: Above 0: the inverse of the probability that the rollout was drawn.
        clusters: Name of each rollout's example.
        limits: Lowest and highest possible value; None if unknown.
        level: Confidence level.

    Returns:
        The estimate; without an interval for fewer than two clusters. Degrees of freedom are those of the effective
        number of clusters, (Σw)²/Σw² (Kish 1965).
    """
    import numpy as np

    listed = column(values, "labelled_mean")
    codes, count = number_groups(clusters, len(listed), "labelled_mean")
    if not len(listed):
        return Estimate(level=level)
    sample = _Sample(codes, count, column(weights, "labelled_mean"), listed, np.zeros(len(listed)))
    ends, plain = _extended(limits, listed, listed), _fit(sample)
    made = Estimate(plain.label, examples=count, level=level, clusters=count, df=sample.effective - 1)
    found = _interval(made, plain.label, plain.of_labels, "cluster_t")
    if ends is None or (informative(plain.of_labels.tolist()) >= INFORMATIVE and _is_within(found, ends)):
        return found
    extreme = _fit(sample.with_added([(ends[0], 0.0), (ends[1], 0.0)]), has_added=True)
    return _interval(found, extreme.label, extreme.of_labels, "adjusted_t", ends)


def weighted_kappa(
    first: Sequence[bool], second: Sequence[bool], weights: Numbers, clusters: Labels, level: float = LEVEL
) -> Estimate:
    """Cohen's kappa of two raters who pass or fail each rollout, with an interval. For its definition see
    `agreement.cohen_kappa`, which it equals for equal weights.

    The interval is linearised, with one example added in each of the four cells of the table: kappa of few labels is
    skewed, and all alike would promise certainty. It covers at least 95 % from 10 labels on, in simulations.

    Args:
        first: Whether the first rater passes each rollout.
        second: Whether the second rater does.
        weights: As in `labelled_mean`.
        clusters: As in `labelled_mean`.
        level: Confidence level.

    Returns:
        Kappa; empty if both raters give all rollouts the same label, and without an interval for fewer than two
        clusters.

    Source: Fleiss, Cohen & Everitt 1969 (variance).
    """
    codes, count = number_groups(clusters, len(first), "weighted_kappa")
    if not len(first):
        return Estimate(level=level)
    ours, theirs = (column([float(each) for each in side], "weighted_kappa") for side in (first, second))
    sample = _Sample(codes, count, column(weights, "weighted_kappa"), ours, theirs)
    kappa, own = _kappa(sample)
    made = Estimate(kappa, examples=count, level=level, clusters=count, df=sample.effective - 1)
    if kappa is None:
        return made
    found = _interval(made, kappa, own, "kappa_added")
    middle, errors = _kappa(sample.with_added([(a, b) for a in (0.0, 1.0) for b in (0.0, 1.0)]), has_added=True)
    return _interval(found, middle or 0.0, errors, "kappa_added", (-1.0, 1.0))


@dataclass(frozen=True, slots=True)
class _Sample:
    """Labelled rollouts."""

    codes: Integers
    """Number of each rollout's example."""
    count: int
    """Number of examples, also of those without a label."""
    weights: Floats
    labels: Floats
    scores: Floats

    @property
    def parts(self) -> Floats:
        """Share of each example in the weights."""
        return sums_of(self.weights, self.codes, self.count) / float(self.weights.sum())

    @property
    def examples(self) -> int:
        """Number of examples with a label."""
        return int((self.parts > 0).sum())

    @property
    def effective(self) -> float:
        """Number of examples of equal weight that would say as much, (Σw)²/Σw² (Kish 1965)."""
        return 1 / float((self.parts**2).sum())

    def with_added(self, pairs: Sequence[tuple[float, float]]) -> _Sample:
        """The sample with further examples, each of average weight.

        Args:
            pairs: Label and score of each.
        """
        import numpy as np

        size, more = float(self.weights.sum()) / self.effective, len(pairs)
        return _Sample(
            np.append(self.codes, self.count + np.arange(more)),
            self.count + more,
            np.append(self.weights, [size] * more),
            np.append(self.labels, [label for label, _ in pairs]),
            np.append(self.scores, [score for _, score in pairs]),
        )


@dataclass(frozen=True, slots=True)
class _Fit:
    """Means of labels and scores over a sample, with the part of each example in their errors."""

    label: float
    score: float
    of_labels: Floats
    of_scores: Floats

    def errors(self, weight: float, drift: Floats) -> Floats:
        """Part of each example in the error of the corrected mean.

        Args:
            weight: Weight of the scores.
            drift: Part of each example in the error of the mean of all scores; added examples have none.
        """
        return self.of_labels - weight * _less(self.of_scores, drift)


def _fit(sample: _Sample, *, has_added: bool = False) -> _Fit:
    """Means of a sample, with the parts of its examples in their errors.

    Args:
        sample: The labelled rollouts.
        has_added: Whether examples were added; these take the place of the correction for few degrees of freedom, as in
            `intervals.added_interval`.
    """
    weights = sample.weights / float(sample.weights.sum())
    label, score = float(weights @ sample.labels), float(weights @ sample.scores)
    scale = 1.0 if has_added else _scale(sample.effective)
    parts = [
        scale * sums_of(weights * _exact(values - mean, float(abs(values).max())), sample.codes, sample.count)
        for values, mean in ((sample.labels, label), (sample.scores, score))
    ]
    return _Fit(label, score, *parts)


def _scale(effective: float) -> float:
    return math.sqrt(effective / (effective - 1)) if effective > 1 + _ROUNDING else 0.0


def _exact(values: Floats, size: float) -> Floats:
    """Differences, with 0 for rounding errors of numbers of this size: many of these would look like a spread."""
    return values * (abs(values) > _ROUNDING * size)


def _less(values: Floats, drift: Floats) -> Floats:
    import numpy as np

    return values - np.pad(drift, (0, len(values) - len(drift)))


def _weight(fit: _Fit, drift: Floats) -> float:
    """The λ from 0 to 1 that minimizes the variance: slope of the errors of the labels on those of the scores."""
    errors = _less(fit.of_scores, drift)
    squares, largest = float(errors @ errors), float(abs(fit.of_scores).max(initial=0.0))
    return min(1.0, max(0.0, float(fit.of_labels @ errors) / squares)) if squares > (_ROUNDING * largest) ** 2 else 0.0


def _kappa(sample: _Sample, *, has_added: bool = False) -> tuple[float | None, Floats]:
    """Kappa of labels and scores of 0 and 1, and the part of each example in its error."""
    weights = sample.weights / float(sample.weights.sum())
    same = 1.0 - abs(sample.labels - sample.scores)
    first, second, agreed = (float(weights @ values) for values in (sample.labels, sample.scores, same))
    chance = first * second + (1 - first) * (1 - second)
    if chance >= 1 - _ROUNDING:
        return None, weights * 0.0
    of_chance = (2 * second - 1) * (sample.labels - first) + (2 * first - 1) * (sample.scores - second)
    errors = ((same - agreed) * (1 - chance) + of_chance * (agreed - 1)) / (1 - chance) ** 2
    scale = 1.0 if has_added else _scale(sample.effective)
    beyond = agreed - chance if abs(agreed - chance) > _ROUNDING else 0.0
    return beyond / (1 - chance), scale * sums_of(weights * _exact(errors, 1.0), sample.codes, sample.count)


def _interval(
    made: Estimate, middle: float, errors: Floats, method: Method, limits: tuple[float, float] | None = None
) -> Estimate:
    """Add Student's t interval to an estimate; none if fewer than two examples have a label, or none of them differs. A
    standard error that it has is kept.

    Args:
        made: The mean, with level and degrees of freedom.
        middle: Middle of the interval.
        errors: Part of each example in the error.
        method: Name of the method.
        limits: Lowest and highest possible end; the mean is always within the interval.
    """
    stderr, df, mean = math.hypot(*errors.tolist()), made.df or 0.0, made.mean
    if mean is None or made.examples < 2 or df <= _ROUNDING or not stderr:
        return made
    half = t_quantile(0.5 + made.level / 2, df) * stderr
    low, high = middle - half, middle + half
    if limits is not None:
        low, high = max(limits[0], min(mean, low)), min(limits[1], max(mean, high))
    return Estimate(mean, made.stderr or stderr, low, high, method, made.examples, made.level, made.clusters, df)


def _is_within(estimate: Estimate, limits: tuple[float, float]) -> bool:
    low, high = estimate.low, estimate.high
    return low is not None and high is not None and limits[0] <= low and high <= limits[1]


def _extended(limits: tuple[float, float] | None, *values: Floats) -> tuple[float, float] | None:
    """Limits extended to the values; None if unknown, or if they are the same."""
    if limits is None:
        return None
    low = min(limits[0], *(float(each.min()) for each in values))
    high = max(limits[1], *(float(each.max()) for each in values))
    return (low, high) if low < high else None
