"""Means corrected by labels: their formula, what they become in simple cases, and kappa of weighted labels."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.stats.agreement import cohen_kappa
from harness.stats.clusters import clustered_mean
from harness.stats.intervals import mean_interval
from harness.stats.labels import labelled_mean, prediction_powered, weighted_kappa


def test_the_formula_of_ppi_plus_plus() -> None:
    """λ and variance of the paper's § 6: Cov(y, f) / ((1 + n/N) Var(f)) on means of unlabelled scores. Here the scores'
    mean is over all, so that its weight is larger by 1 + n/N; both are the same estimator."""
    generator, n, more = np.random.default_rng(3), 2_000, 18_000
    f = generator.random(n + more)
    y = 0.7 * f + generator.normal(0, 0.3, n + more)
    labels = [*y[:n].tolist(), *[None] * more]
    found = prediction_powered(f, labels)
    covariance = float(np.cov(y[:n], f[:n])[0, 1])
    weight = covariance / ((1 + n / more) * float(np.var(f, ddof=1)))
    mean = weight * float(f[n:].mean()) + float((y[:n] - weight * f[:n]).mean())
    variance = weight**2 * float(np.var(f[n:], ddof=1)) / more + float(np.var(y[:n] - weight * f[:n], ddof=1)) / n
    estimate = found.estimate
    assert found.weight == pytest.approx(weight * (1 + n / more), rel=0.04)
    assert estimate.mean == pytest.approx(mean, abs=2e-4)
    assert estimate.stderr == pytest.approx(math.sqrt(variance), rel=0.01)
    assert (estimate.method, estimate.examples, found.labels) == ("ppi", n, n)


def test_the_variance_by_hand() -> None:
    """Two rollouts of one example are one unit, and each example counts alike."""
    scores, labels, owners = [1.0, 0.0, 1.0, 0.0, 1.0], [1.0, None, 0.0, 0.0, 1.0], ["a", "a", "b", "c", "d"]
    found = prediction_powered(scores, labels, clusters=owners)
    share = [0.125, 0.125, 0.25, 0.25, 0.25]
    whole = sum(s * f for s, f in zip(share, scores, strict=True))
    w = np.array([0.125, 0.25, 0.25, 0.25]) / 0.875
    y, f = np.array([1.0, 0.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
    effective = 1 / float((w**2).sum())
    a, b = (math.sqrt(effective / (effective - 1)) * w * (v - w @ v) for v in (y, f))
    drift = np.array([0.125 * (1 - whole) + 0.125 * (0 - whole), *(0.25 * (v - whole) for v in (1, 0, 1))])
    b = b - math.sqrt(4 / 3) * drift
    weight = min(1.0, max(0.0, float(a @ b) / float(b @ b)))
    assert found.weight == pytest.approx(weight)
    assert found.estimate.mean == pytest.approx(w @ y + weight * (whole - w @ f))
    assert found.estimate.stderr == pytest.approx(math.sqrt(float(((a - weight * b) ** 2).sum())))


def test_labels_of_all_are_their_mean() -> None:
    scores, labels = [1.0, 1.0, 0.0, 1.0] * 10, [1.0, 0.0, 0.0, 1.0] * 10
    found = prediction_powered(scores, labels, limits=(0, 1))
    assert (found.estimate.mean, found.weight) == (pytest.approx(0.5), 0.0)
    assert found.estimate.stderr == pytest.approx(mean_interval(labels, single_rollout=True).stderr)
    again = prediction_powered([*scores, *scores], [*labels, *labels], clusters=[*range(40), *range(40)])
    assert again.estimate.stderr == pytest.approx(found.estimate.stderr)


def test_a_useless_judge_does_no_harm() -> None:
    labels: list[float | None] = [1.0, 0.0, 1.0, 1.0]
    assert prediction_powered([0.5] * 104, labels + [None] * 100).estimate.mean == 0.75
    wrong = prediction_powered([0.0, 1.0, 0.0, 0.0] + [1.0] * 100, labels + [None] * 100, limits=(0, 1))
    assert (wrong.weight, wrong.estimate.mean) == (0.0, 0.75)


def test_few_labels_without_an_error_promise_no_certainty() -> None:
    scores: list[float] = [1.0, 0.0] * 100
    found = prediction_powered(scores, [1.0, 0.0] * 5 + [None] * 190, limits=(0, 1)).estimate
    assert found.method == "ppi_added" and found.mean == pytest.approx(0.5)
    assert found.low is not None and found.high is not None and 0 <= found.low < 0.35 and 0.65 < found.high <= 1
    plain = prediction_powered(scores, [1.0, 0.0] * 5 + [None] * 190).estimate
    assert plain.low is not None and plain.high is not None and plain.high - plain.low < 0.2


def test_groups_of_examples_widen_the_interval_and_change_no_mean() -> None:
    groups = [n // 5 for n in range(200)]
    labels = [float(group * 7 % 10 < 6) for group in groups]
    scores = [1 - label if n % 9 == 0 else label for n, label in enumerate(labels)]
    of_all = prediction_powered(scores, labels, groups=groups, limits=(0, 1)).estimate
    clustered = clustered_mean(labels, groups, limits=(0, 1))
    assert (of_all.mean, of_all.low, of_all.high) == pytest.approx((clustered.mean, clustered.low, clustered.high))
    assert (of_all.examples, of_all.clusters) == (200, 40)
    some = [label if n % 2 else None for n, label in enumerate(labels)]
    alone, together = (prediction_powered(scores, some, groups=each, limits=(0, 1)) for each in (None, groups))
    assert (alone.p_random, alone.labels) == (together.p_random, together.labels)
    assert together.estimate.stderr and alone.estimate.stderr and together.estimate.stderr > 1.5 * alone.estimate.stderr


def test_rounding_errors_are_no_spread() -> None:
    """Means of equal numbers such as 0.1 are off in the last digit, which is neither a spread nor a difference."""
    for value in (0.1, 0.3, 1 / 3):
        for labels in range(3, 40, 5):
            marks = [float(n % 2) if n < labels else None for n in range(40)]
            assert prediction_powered([value] * 40, marks, limits=(0, 1)).p_random is None
    scores, marks = [0.25 * (n % 3) for n in range(120)], [0.3 if n % 3 == n % 5 else None for n in range(120)]
    found = prediction_powered(scores, marks, limits=(0, 1)).estimate
    assert found.method == "ppi_added" and found.half_width and found.half_width > 0.01
    shifted = [None if mark is None else score + 0.1 for score, mark in zip(scores, marks, strict=True)]
    assert prediction_powered(scores, shifted, limits=(0, 1)).estimate.method == "ppi_added"
    alike = labelled_mean([0.1] * 30, [1 / 3] * 30, range(30), (0, 1))
    assert alike.method == "adjusted_t" and labelled_mean([0.1] * 30, [1 / 3] * 30, range(30)).low is None
    assert weighted_kappa([True] * 40, [n < 30 for n in range(40)], [1 / 40] * 40, range(40)).mean == 0.0


def test_what_is_undefined_has_no_interval() -> None:
    assert prediction_powered([0.1, 0.9], [None, None]).estimate.mean is None
    one = prediction_powered([0.1, 0.9], [1.0, math.nan], limits=(0, 1))
    assert (one.estimate.mean, one.estimate.low, one.labels) == (1.0, None, 1)
    of_one = prediction_powered([1.0, 0.0, 1.0], [1.0, 1.0, None], clusters=["a", "a", "b"], limits=(0, 1)).estimate
    assert of_one.low is None
    with pytest.raises(ValueError, match="needs a label or None for each score, not 1 for 2"):
        prediction_powered([0.1, 0.2], [1.0])
    with pytest.raises(ValueError, match="probability of 0 or less"):
        prediction_powered([0.1, 0.2], [1.0, None], probabilities=[0.0, 1.0])
    with pytest.raises(ValueError, match="not finite"):
        prediction_powered([math.nan], [1.0])
    assert labelled_mean([], [], []).mean is None
    assert weighted_kappa([], [], [], []).mean is None


def test_probabilities_make_up_for_a_lopsided_draw() -> None:
    """All of the failures are labelled and a tenth of the passes: without probabilities that looks bad."""
    scores = [0.0] * 20 + [1.0] * 200
    labels: list[float | None] = [0.0] * 20 + [1.0] * 20 + [None] * 180
    drawn = [1.0] * 20 + [0.1] * 200
    found = prediction_powered(scores, labels, probabilities=drawn, limits=(0, 1))
    assert found.estimate.mean == pytest.approx(200 / 220)
    assert found.p_random == pytest.approx(1.0)
    blind = prediction_powered(scores, labels, limits=(0, 1))
    assert blind.p_random is not None and blind.p_random < 1e-6


@pytest.mark.parametrize("limits", [None, (0.0, 1.0)])
def test_equal_weights_give_the_mean_of_clusters(limits: tuple[float, float] | None) -> None:
    generator = np.random.default_rng(1)
    for count in (5, 60):
        values, owners = generator.random(2 * count), [*range(count), *range(count)]
        found, known = (
            labelled_mean(values, [3.0] * 2 * count, owners, limits),
            clustered_mean(values, owners, limits=limits),
        )
        assert (found.method, found.mean) == (known.method, pytest.approx(known.mean))
        assert [found.stderr, found.low, found.high] == pytest.approx([known.stderr, known.low, known.high])


def test_kappa_of_equal_weights_is_cohens() -> None:
    first, second = [True] * 25 + [False] * 25, [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    found = weighted_kappa(first, second, [1.0] * 50, [*range(50)])
    assert found.mean == pytest.approx(cohen_kappa(first, second))
    assert found.low is not None and found.high is not None and -1 <= found.low < 0.4 < found.high <= 1
    # Fleiss, Cohen & Everitt 1969, eq. 13, without the four that are added.
    p = np.array([[20, 5], [10, 15]]) / 50
    rows, columns, kappa = p.sum(1), p.sum(0), 0.4
    agreed, chance = float(np.trace(p)), 0.5
    sums = sum(p[i, i] * ((1 - chance) - (columns[i] + rows[i]) * (1 - agreed)) ** 2 for i in range(2))
    sums += (1 - agreed) ** 2 * sum(p[i, j] * (columns[i] + rows[j]) ** 2 for i in range(2) for j in range(2) if i != j)
    stderr = math.sqrt((sums - (agreed * chance - 2 * chance + agreed) ** 2) / 50) / (1 - chance) ** 2
    large = weighted_kappa(first * 200, second * 200, [1.0] * 10_000, [*range(10_000)])
    assert large.stderr == pytest.approx(stderr / math.sqrt(200), rel=0.01)
    assert kappa == pytest.approx(large.mean, abs=1e-3)
    assert weighted_kappa([True] * 4, [True] * 4, [1.0] * 4, [*range(4)]).mean is None
    assert weighted_kappa([True, False] * 20, [True, False] * 20, [1.0] * 40, [*range(40)]).low != 1.0
