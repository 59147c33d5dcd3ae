"""The compact table: replacing, gaps, odd values, and what it costs."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.types import Usage
from harness.stats.scores import EMPTY, LARGEST, NO_REASON, REFUSED, TRUNCATED, UNUSABLE, ScoreTable

NOTHING = Usage()


def rewards(table: ScoreTable) -> list[list[float]]:
    return list(table.rewards())


def test_a_rollout_that_is_set_again_is_replaced() -> None:
    table = ScoreTable()
    table.add(0, 0, None, {"old": 1.0}, "timeout", usage=Usage(10, 20, requests=1, cost=0.5), truncated=True)
    table.add(0, 1, 0.25, {"old": 2.0}, None, usage=Usage(1, 2, requests=1))
    table.add(0, 0, 1.0, {"new": 3.0}, None, usage=Usage(5, 6, requests=2), empty=True, seconds=2.0)
    assert len(table) == 2
    assert rewards(table) == [[1.0, 0.25]]
    assert table.metric_names == ("old", "new")
    assert list(table.metric("old")) == [[2.0]]
    assert list(table.metric("new")) == [[3.0]]
    assert not table.unscored()
    assert table.usage() == Usage(6, 8, requests=3)
    assert (table.marked(TRUNCATED), table.marked(EMPTY), table.marked(REFUSED)) == (0, 1, 0)
    assert table.seconds() == [2.0]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 6),
            st.integers(0, 5),
            st.one_of(st.none(), st.floats(0, 1)),
            st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.floats(-1, 1)), max_size=3),
            st.sampled_from(["timeout", "judge KeyError"]),
        ),
        max_size=40,
    )
)
def test_the_table_is_a_dict_of_the_newest_outcomes(
    adds: list[tuple[int, int, float | None, dict[str, float | None], str]],
) -> None:
    table = ScoreTable()
    model: dict[tuple[int, int], tuple[float | None, dict[str, float | None], str, int]] = {}
    for number, (example, rollout, reward, metrics, reason) in enumerate(adds):
        table.add(example, rollout, reward, metrics, reason, usage=Usage(number, 1))
        model[example, rollout] = (reward, metrics, reason, number)
    examples = sorted({example for example, _ in model})
    expected: list[list[float]] = []
    for example in examples:
        values = [model[key][0] for key in sorted(model) if key[0] == example]
        expected.append([value for value in values if value is not None])
    assert rewards(table) == expected
    assert len(table) == len(model)
    assert table.unscored() == Counter(reason for reward, _, reason, _ in model.values() if reward is None)
    assert table.usage().input_tokens == sum(number for _, _, _, number in model.values())
    for name in table.metric_names:
        flat = [value for group in table.metric(name) for value in group]
        assert flat == [v for key in sorted(model) if (v := model[key][1].get(name)) is not None]


def test_examples_without_an_outcome_are_no_part() -> None:
    table = ScoreTable()
    table.add(7, 3, 1.0, {}, None, usage=NOTHING)
    table.add(2, 0, None, {}, "timeout", usage=NOTHING)
    assert rewards(table) == [[], [1.0]]


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e200])
def test_what_is_no_usable_number_is_no_score(reward: float) -> None:
    table = ScoreTable()
    table.add(0, 0, reward, {"m": reward}, None, usage=NOTHING)
    assert rewards(table) == [[]]
    assert table.unscored() == {UNUSABLE: 1}
    assert list(table.metric("m")) == [[]]


def test_an_unscored_rollout_always_has_a_reason() -> None:
    table = ScoreTable()
    table.add(0, 0, None, {}, None, usage=NOTHING)
    table.add(0, 1, None, {}, "", usage=NOTHING)
    assert table.unscored() == {NO_REASON: 2}


def test_shares_are_of_scored_rollouts_only() -> None:
    table = ScoreTable()
    table.add(0, 0, None, {}, "timeout", usage=NOTHING, truncated=True, empty=True, refused=True)
    table.add(0, 1, 0.0, {}, None, usage=NOTHING, truncated=True, refused=True)
    assert (table.marked(TRUNCATED), table.marked(EMPTY), table.marked(REFUSED)) == (1, 0, 1)


def test_absurd_usage_of_an_endpoint_is_no_error() -> None:
    table = ScoreTable()
    table.add(0, 0, 1.0, {}, None, usage=Usage(10**30, 1))
    table.add(0, 1, 1.0, {}, None, usage=Usage(10**30, 1, cost=0.25))
    assert table.usage() == Usage(2 * LARGEST, 2, cost=0.25)


@pytest.mark.parametrize(("example", "rollout"), [(-1, 0), (0, -1)])
def test_negative_indices_are_refused(example: int, rollout: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        ScoreTable().add(example, rollout, 1.0, {}, None, usage=NOTHING)


@pytest.mark.slow
@pytest.mark.parametrize(("examples", "rollouts"), [(20_000, 1), (4_000, 5)])
def test_twenty_thousand_rollouts_take_less_than_3_mb(examples: int, rollouts: int) -> None:
    metrics: dict[str, float | None] = {"correct": 1.0, "format": 0.5, "turns": 3.0, "length": None}
    usage = Usage(100, 200, requests=1)
    tracemalloc.start()
    try:
        table = ScoreTable()
        for example in range(examples):
            for rollout in range(rollouts):
                table.add(example, rollout, 0.5, metrics, None, usage=usage, seconds=1.5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == examples * rollouts
    assert peak < 150 * len(table)


def test_reasons_stand_in_one_order_whichever_rollout_ended_first() -> None:
    orders = [
        ["timeout", "judge error", "timeout", "environment error"],
        ["judge error", "environment error", "timeout", "timeout"],
    ]
    for reasons in orders:
        table = ScoreTable()
        for example, reason in enumerate(reasons):
            table.add(example, 0, None, {}, reason, usage=NOTHING)
        assert [*table.unscored().items()] == [("timeout", 2), ("environment error", 1), ("judge error", 1)]
