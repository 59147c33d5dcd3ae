"""Plans: Miller's reference values, and that a planned comparison finds what it was planned for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.stats.hypotheses import is_above, non_inferiority
from harness.stats.paired import Paired, paired_difference
from harness.stats.power import (
    Components,
    components,
    components_of_one,
    detectable,
    miller_examples,
    passing_examples,
    required_examples,
    settling_examples,
    splits,
)
from harness.stats.variance import noise

MILLER = Components(1 / 9, 1 / 6, 1 / 6)


def test_the_reference_values() -> None:
    assert miller_examples(MILLER, 0.03) == 3876
    assert miller_examples(MILLER, 0.03, rollouts=10) == 1260
    assert (miller_examples(MILLER, 0.13275), miller_examples(MILLER, 0.13265)) == (198, 199)
    assert (miller_examples(MILLER, 0.08355), miller_examples(MILLER, 0.08345)) == (500, 501)


def test_the_test_that_decides_takes_a_few_more_than_miller() -> None:
    """Student's t with two pairs more instead of the normal distribution with none."""
    assert required_examples(MILLER, 0.03) == 3880
    assert required_examples(MILLER, 0.03, rollouts=10) == 1263
    few = Components(0.25, 0.0, 0.0)
    assert [required_examples(few, delta) for delta in (0.1, 0.3, 0.6)] == [200, 26, 10]
    assert [miller_examples(few, delta) for delta in (0.1, 0.3, 0.6)] == [197, 22, 6]
    assert [required_examples(few, 0.3, power=power) for power in (0.9, 0.99)] == [33, 54]
    assert required_examples(few, 0.3, alpha=0.05 / 7) == 40
    assert detectable(MILLER, 198) == pytest.approx(0.133835, abs=5e-7)


def test_ten_examples_find_what_they_were_planned_to_find() -> None:
    """By Miller's formula ten of them find it in less than 74 % of cases instead of 80."""
    generator, size = np.random.default_rng(3), 0.9
    planned, known = (plan(Components(1.0, 0.0, 0.0), size) for plan in (required_examples, miller_examples))

    def found(n: int) -> float:
        values = generator.normal(size, 1.0, (2_000, n)).tolist()
        return sum((paired_difference(row, [0.0] * n).p_value or 1) < 0.05 for row in values) / 2_000

    assert (planned, known) == (14, 10)
    assert 0.78 < found(planned) < 0.87 and found(known) < 0.6


def test_a_plan_and_its_detectable_difference_agree() -> None:
    for rollouts, second in ((1, None), (4, None), (3, 1)):
        n = required_examples(MILLER, -0.05, rollouts=rollouts, second_rollouts=second)
        assert detectable(MILLER, n, rollouts=rollouts, second_rollouts=second) <= 0.05
        assert detectable(MILLER, n - 1, rollouts=rollouts, second_rollouts=second) > 0.05
    assert math.isnan(detectable(MILLER, 1))
    assert required_examples(Components(0.0, 0.0, 0.0), 0.5) == 6


def test_a_pilot_finds_the_components_again() -> None:
    generator = np.random.default_rng(2)
    first, second = (np.clip(generator.beta(4, 2, 20_000) + shift, 0, 1) for shift in (0.0, -0.02))
    scores = [(generator.random((20_000, 3)) < side[:, None]).astype(float) for side in (first, second)]
    found = components(scores[0].tolist(), scores[1].tolist())
    assert found is not None
    assert found.omega2 == pytest.approx(float((first - second).var()), rel=0.05)
    assert found.first2 == pytest.approx(float((first * (1 - first)).mean()), rel=0.02)
    assert found.second2 == pytest.approx(float((second * (1 - second)).mean()), rel=0.02)
    assert (found.pairs, found.assumed) == (20_000, "")


def test_one_rollout_leaves_rerun_noise_in_omega() -> None:
    found = components([[1.0], [0.0], [1.0], []], [[0.0], [0.0], [1.0], [1.0]])
    assert found is not None
    assert (found.omega2, found.first2, found.second2, found.pairs) == (pytest.approx(1 / 3), 0.0, 0.0, 3)
    assert found.assumed == "the re-run noise of the first and the second run is unknown (one rollout per example)"
    assert components([[1.0]], [[0.0]]) is None
    with pytest.raises(ValueError, match="but got 2 and 1"):
        components([[1.0], [0.0]], [[1.0]])


def test_one_run_assumes_a_second_like_it() -> None:
    groups = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    parts = noise(groups)
    apart, alike = components_of_one(groups), components_of_one(groups, correlation=0.5)
    assert apart is not None and alike is not None and parts.question_std is not None
    assert apart.omega2 == pytest.approx(2 * parts.question_std**2)
    assert alike.omega2 == pytest.approx(parts.question_std**2)
    assert apart.first2 == apart.second2 == pytest.approx(0.125)
    assert "a correlation of 0.5" in alike.assumed
    single = components_of_one([[1.0], [0.0]])
    assert single is not None and single.omega2 == pytest.approx(1.0) and "re-run noise is unknown" in single.assumed
    assert components_of_one([[1.0]]) is None
    with pytest.raises(ValueError, match="correlation"):
        components_of_one(groups, correlation=2.0)


def test_the_cheapest_split_is_the_cheapest() -> None:
    plans = splits(MILLER, 0.03, example_cost=5.0, rollout_cost=1.0)
    costs = [required_examples(MILLER, 0.03, rollouts=k) * (5 + k) for k in range(1, 65)]
    assert plans[0].cost == min(costs) and [p.cost for p in plans] == sorted(costs)
    assert plans[0].rollouts == costs.index(min(costs)) + 1 > 1
    assert plans[0].detectable <= 0.03
    # Where only rollouts cost, one of each of more examples is never dearer.
    assert splits(MILLER, 0.03)[0].rollouts == 1
    few = splits(MILLER, 0.03, most_examples=1262)
    assert min(plan.rollouts for plan in few) == 11
    assert splits(MILLER, 0.03, most_examples=100) == []


def test_examples_that_settle_a_tie() -> None:
    first, second = [1.0, 0.0, 1.0, 1.0] * 10, [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0] * 5
    paired = paired_difference(first, second)
    estimate = paired.estimate
    assert estimate.mean is not None and estimate.stderr is not None
    variance = estimate.stderr**2 * 40
    seen = settling_examples(paired)
    assert seen == math.ceil((1.959963984540054 + 0.8416212335729143) ** 2 * variance / estimate.mean**2) + 3
    assert settling_examples(paired, 0.01) == required_examples(Components(variance, 0, 0), 0.01)
    assert settling_examples(paired_difference(first, first)) is None
    assert settling_examples(paired_difference([1.0], [0.0])) is None


@pytest.mark.parametrize(("margin", "least"), [(0.1, 34), (0.05, 69), (0.01, 349)])
def test_sides_that_agree_everywhere_pass_from_so_many_examples_on(margin: float, least: int) -> None:
    def alike(n: int) -> Paired:
        return paired_difference([1.0] * n, [1.0] * n, limits=(0.0, 1.0))

    assert passing_examples(alike(10), margin, 1.0) == least
    assert [is_above(alike(n).cautious_low, margin) for n in (least - 1, least)] == [False, True]


@pytest.mark.parametrize("pairs", [20, 40, 400])
def test_sides_that_are_alike_pass_with_so_many_examples(pairs: int) -> None:
    """Four chances in five: with as many wins as losses the interval ends well within the margin, with half as many
    examples it does not."""

    def alike(n: int) -> Paired:
        differing = n // 10  # each way
        first = [1.0] * differing + [0.0] * (n - differing)
        return paired_difference(first, first[::-1], limits=(0.0, 1.0))

    needed = passing_examples(alike(pairs), 0.1, 1.0)
    assert needed is not None and needed >= (settling_examples(alike(pairs), 0.1) or 0)
    assert non_inferiority(alike(needed).estimate, 0.1) == "pass"
    assert non_inferiority(alike(needed // 2 - 10).estimate, 0.1) == "inconclusive"


def test_examples_that_pass_are_counted_in_examples_where_these_come_in_clusters() -> None:
    alike = paired_difference([1.0] * 20, [1.0] * 20, clusters=[n // 2 for n in range(20)], limits=(0.0, 1.0))
    assert passing_examples(alike, 0.1, 1.0) == 2 * 34
    assert passing_examples(paired_difference([1.0, 1.0], [1.0, 1.0]), 0.1, None) is None


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"power": 1.0}, {"rollouts": 0}])
def test_arguments_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        required_examples(MILLER, 0.03, **wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="delta must be finite"):
        required_examples(MILLER, 0.0)
