"""Places of models with simultaneous intervals, and groups that cannot be told apart."""

from __future__ import annotations

import itertools
import math
import os
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.stats.difference import Scores, scores_of
from harness.stats.paired import paired_difference
from harness.stats.ranks import MOST_GROUPS, rank_runs, ranking

TIMES = int(os.environ.get("BENCH_ROUNDS", "1"))
GENERATOR = np.random.default_rng(12)
HARD = GENERATOR.random(200)
FAR = [(GENERATOR.random(200) < np.clip(HARD + shift, 0, 1)).astype(float) for shift in (-0.3, 0.4, 0.02, 0.0)]


def test_clear_differences_are_clear_places() -> None:
    found = ranking(FAR)
    assert [(each.place, each.span) for each in (found.places[0], found.places[1])] == [(4, "4"), (1, "1")]
    assert {found.places[2].place, found.places[3].place} == {2, 3}
    assert all(each.span == "2–3" for each in found.places[2:])
    assert [each.letters for each in found.places] == ["c", "a", "b", "b"]
    assert found.groups is not None and [sorted(group) for group in found.groups] == [[1], [2, 3], [0]]


def test_equal_models_share_the_better_place_and_all_of_their_places() -> None:
    found = ranking([FAR[0], FAR[0], FAR[1]])
    assert [(each.place, each.low, each.high) for each in found.places] == [(2, 2, 3), (2, 2, 3), (1, 1, 1)]
    [one] = ranking([[0.5]]).places
    assert (one.place, one.span, one.letters) == (1, "1", "a")


def test_too_few_examples_tell_nobody_apart() -> None:
    found = ranking([[1.0] * 5, [0.0] * 5, [1.0] * 5])
    assert [each.span for each in found.places] == ["1–3"] * 3
    assert found.groups is not None and sorted(found.groups[0]) == [0, 1, 2]


@pytest.mark.parametrize("units", [None, 9, 1])
@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e200])
def test_a_pair_has_the_p_value_of_the_paired_comparison(units: int | None, scale: float) -> None:
    generator = np.random.default_rng(3)
    for draw in range(20):
        shift = draw / 40
        rows = [generator.random(40).round(1) * scale for _ in range(2)]
        rows[0] = rows[0] + shift * scale
        clusters = None if units is None else generator.integers(0, units, 40).tolist()
        expected = paired_difference(rows[0].tolist(), rows[1].tolist(), clusters=clusters).p_value
        [(first, second, p)] = ranking(rows, clusters).adjusted
        assert (first, second) == (0, 1)
        assert expected is not None and math.isclose(p, expected, rel_tol=1e-9)


def test_groups_are_the_maximal_sets_without_a_difference() -> None:
    """Against all subsets."""
    generator = np.random.default_rng(5)
    for _ in range(30):
        hard = generator.random(60)
        rows = [(generator.random(60) < np.clip(hard + s, 0, 1)).astype(float) for s in generator.uniform(-0.5, 0.5, 7)]
        found = ranking(rows)
        apart = {frozenset(pair) for *pair, p in found.adjusted if p < 0.05}
        sets = [
            set(each)
            for size in range(1, 8)
            for each in itertools.combinations(range(7), size)
            if not any(frozenset(pair) in apart for pair in itertools.combinations(each, 2))
        ]
        maximal = [each for each in sets if not any(each < other for other in sets)]
        assert found.groups is not None
        assert sorted(map(sorted, found.groups)) == sorted(map(sorted, maximal))
        for place in found.places:
            assert place.low <= place.place <= place.high and len(place.letters) == len(place.groups) > 0


def test_many_models_without_ties_have_no_letters() -> None:
    rows = [[level * (1 + 1e-3 * (n % 2)) for n in range(50)] for level in range(MOST_GROUPS + 1)]
    found = ranking(rows)
    assert found.groups is None and {each.letters for each in found.places} == {""}
    assert [each.span for each in found.places] == [str(MOST_GROUPS + 1 - level) for level in range(MOST_GROUPS + 1)]


def test_46_models_on_1319_examples_take_less_than_two_seconds() -> None:
    generator = np.random.default_rng(1)
    rows = [(generator.random(1319) < level).astype(float) for level in np.linspace(0.3, 0.8, 46)]
    before = time.process_time()
    ranking(rows)
    assert time.process_time() - before < 2


def test_models_need_the_same_examples() -> None:
    for scores in ([], [[1.0], [1.0, 0.0]], [[], []]):
        with pytest.raises(ValueError, match="one value of every model"):
            ranking(scores)
    with pytest.raises(ValueError, match="finite"):
        ranking([[1.0, math.nan], [1.0, 0.0]])


def of(values: dict[int, float], clusters: bool = False) -> Scores:
    owners = {str(key): str(key % 3) for key in values} if clusters else None
    return scores_of({str(key): [value] for key, value in values.items()}, (0.0, 1.0), owners)


def test_runs_are_ranked_on_the_examples_that_all_of_them_scored() -> None:
    whole = {n: 1.0 for n in range(20)}
    most = {n: 0.0 for n in range(2, 20)}
    few = {n: 0.0 for n in range(9)}
    found = rank_runs([of(whole), of(few), of(most), of({})])
    assert found is not None
    assert [None if each is None else each.place for each in found.places] == [1, None, 2, None]
    assert len(found.keys) == 18 and found.most == 20
    assert rank_runs([of(whole), of({})]) is None
    assert rank_runs([of({0: 1.0, 1: 0.0}), of({1: 1.0, 2: 0.0})]) is None
    clustered = rank_runs([of(whole, clusters=True), of(most, clusters=True)])
    assert clustered is not None and [each and each.span for each in clustered.places] == ["1–2", "1–2"]


Floats = NDArray[np.float64]


def true_places(truth: Floats) -> list[tuple[int, int]]:
    """All places that each model shares with those that are as good."""
    return [(int((truth > each).sum()) + 1, int((truth >= each).sum())) for each in truth]


def missed(generator: np.random.Generator, levels: Floats, n: int, kind: str) -> bool:
    """Whether the interval of any model lacks one of its true places, which it shares with equal models."""
    if kind == "alike":  # most examples have the same score from all models
        hard = generator.beta(0.3, 0.3, n)
        rows = [(generator.random(n) < np.clip(hard + level - 0.5, 0.0, 1.0)).astype(float) for level in levels]
    elif kind == "graded":
        hard = generator.normal(0, 1, n)
        rows = [hard + level + generator.exponential(1.0, n) for level in levels]
    else:
        rows = [(generator.random(n) < level).astype(float) for level in levels]
    pairs = zip(ranking(rows).places, true_places(levels), strict=True)
    return any(place.low > low or place.high < high for place, (low, high) in pairs)


LEVELS: dict[str, Floats] = {
    "5 equal": np.full(5, 0.5),
    "20, ten of them equal": np.concatenate([np.full(10, 0.5), np.linspace(0.55, 0.8, 10)]),
    "46 in four groups": np.repeat([0.4, 0.5, 0.6, 0.7], [12, 12, 11, 11]),
    "46 equal": np.full(46, 0.9),
}

DRAWS = {"5 equal": (300, 100), "20, ten of them equal": (120, 40), "46 in four groups": (50, 12), "46 equal": (50, 12)}
"""Of each with 50 examples, and with 1,319."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["independent", "alike", "graded"])
@pytest.mark.parametrize("name", LEVELS)
def test_all_intervals_hold_all_tied_places(name: str, kind: str) -> None:
    """The promise: with 95 %, no interval of a whole ranking lacks a place of its model."""
    for n, rounds in zip((50, 1319), DRAWS[name], strict=True):
        generator, rounds = np.random.default_rng(n), rounds * TIMES
        misses = sum(missed(generator, LEVELS[name], n, kind) for _ in range(rounds))
        chance = sum(math.comb(rounds, k) * 0.05**k * 0.95 ** (rounds - k) for k in range(misses, rounds + 1))
        assert chance > 0.001, f"{misses} of {rounds} with {n} examples, which 5 % would give in {chance:.1e} of cases"
