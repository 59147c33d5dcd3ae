"""The summary of a run against slow obvious arithmetic, and its JSON."""

from __future__ import annotations

import math
import statistics
from itertools import combinations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.types import JsonDict, Usage
from harness.stats.intervals import share_interval
from harness.stats.summary import ScoreTable, Summary, summarize

ISSUE_KEYS = {
    "num_examples", "num_rollouts", "scored", "unscored", "reward", "metrics",
    "pass_at_k", "pass_hat_k", "usage", "wall_s",
}  # fmt: skip


def table_of(rows: list[list[float | None]], usage: Usage = Usage(10, 20, requests=1)) -> ScoreTable:  # noqa: B008
    table = ScoreTable()
    for example, rewards in enumerate(rows):
        for rollout, reward in enumerate(rewards):
            table.add(example, rollout, reward, {"m": reward}, None if reward is not None else "timeout", usage=usage)
    return table


def summary_of(rows: list[list[float | None]], *, rollouts: int, threshold: float = 1.0, planned: int = -1) -> Summary:
    return summarize(
        table_of(rows),
        pass_threshold=threshold,
        rollouts_per_example=rollouts,
        planned=sum(map(len, rows)) if planned < 0 else planned,
        reward_range=(0.0, 1.0),
        wall_s=4.0,
    )


def strict_json(summary: Summary) -> JsonDict:
    """Through JSON and back, with every number finite: orjson writes NaN as null, so look before."""

    def check(value: object) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                assert isinstance(key, str)
                check(item)
        elif isinstance(value, list):
            for item in value:
                check(item)
        else:
            assert value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))

    document = summary.to_json()
    check(document)
    return orjson.loads(orjson.dumps(document))


def test_a_run_by_hand() -> None:
    summary = summary_of([[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, None, 0.0, 1.0]], rollouts=4)
    document = strict_json(summary)
    assert set(document) >= ISSUE_KEYS
    assert (document["num_examples"], document["num_rollouts"], document["scored"]) == (3, 12, 11)
    assert document["unscored"] == {"timeout": 1}
    assert document["coverage"] == pytest.approx(11 / 12)
    means = [0.75, 0.0, 2 / 3]
    reward = document["reward"]
    assert reward["mean"] == pytest.approx(statistics.fmean(means))
    assert reward["stderr"] == pytest.approx(statistics.stdev(means) / math.sqrt(3))
    # Neither the t interval, [-0.55, 1.49], nor that with one example more at 0 and at 1 excludes anything.
    assert reward["ci95"] == [0.0, 1.0]
    assert reward["std"] == pytest.approx(statistics.stdev([1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1]))
    assert (reward["min"], reward["max"], reward["count"], reward["examples"]) == (0.0, 1.0, 11, 3)
    assert reward["method"] == "adjusted_t"
    assert document["metrics"] == {"m": reward}
    assert document["bounds"] == pytest.approx([(0.75 + 0 + 0.5) / 3, (0.75 + 0 + 0.75) / 3])
    # pass@4 knows nothing of the example with three scored rollouts.
    assert document["pass_at_k"] == {
        "1": pytest.approx(statistics.fmean(means)),
        "2": pytest.approx((1.0 + 0.0 + 1.0) / 3),
        "4": pytest.approx(0.5),
    }
    assert document["pass_hat_k"]["2"] == pytest.approx((0.5 + 0.0 + 1 / 3) / 3)
    assert document["pass_excluded"] == {"1": 0, "2": 0, "4": 1}
    assert document["usage"]["input_tokens"] == 120
    assert document["usage"]["output_tokens"] == 240
    assert document["rollouts_per_s"] == pytest.approx(3.0)


ROWS = st.lists(
    st.lists(st.one_of(st.none(), st.sampled_from([0.0, 0.25, 1.0])), min_size=4, max_size=4), min_size=1, max_size=8
)


@given(ROWS)
def test_everything_agrees_with_brute_force(rows: list[list[float | None]]) -> None:
    summary = summary_of(rows, rollouts=4)
    groups = [[r for r in row if r is not None] for row in rows]
    scored = [group for group in groups if group]
    flat = [r for group in groups for r in group]
    assert summary.scored == len(flat)
    assert summary.num_rollouts == 4 * len(rows) == summary.scored + sum(summary.unscored.values())
    strict_json(summary)
    if not scored:
        assert summary.reward.estimate.mean is None
        assert summary.pass_at_k[1].value is None
        return
    assert summary.reward.estimate.mean == pytest.approx(statistics.fmean(statistics.fmean(g) for g in scored))
    assert summary.reward.std == (pytest.approx(statistics.stdev(flat), abs=1e-12) if len(flat) > 1 else None)
    for k in (1, 2, 4):
        long = [g for g in groups if len(g) >= k]
        subsets = [list(combinations([r >= 1.0 for r in g], k)) for g in long]
        at_k = [sum(map(any, s)) / len(s) for s in subsets]
        hat_k = [sum(map(all, s)) / len(s) for s in subsets]
        assert summary.pass_at_k[k].value == (pytest.approx(statistics.fmean(at_k)) if long else None)
        assert summary.pass_hat_k[k].value == (pytest.approx(statistics.fmean(hat_k)) if long else None)
        assert summary.pass_at_k[k].excluded == len(groups) - len(long)
    assert summary.bounds is not None
    low, high = summary.bounds
    worst = statistics.fmean(statistics.fmean([0.0 if r is None else r for r in row]) for row in rows)
    assert low == pytest.approx(worst)
    assert low - 1e-12 <= (summary.reward.estimate.mean or 0.0) <= high + 1e-12


def test_unscored_rollouts_are_not_failures() -> None:
    summary = summary_of([[1.0, 1.0], [None, None], [1.0, None]], rollouts=2)
    assert summary.reward.estimate.mean == 1.0
    assert summary.pass_at_k[1].value == 1.0
    assert (summary.pass_at_k[2].value, summary.pass_at_k[2].examples, summary.pass_at_k[2].excluded) == (1.0, 1, 2)
    assert summary.bounds == pytest.approx(((1.0 + 0.0 + 0.5) / 3, 1.0))


def test_a_run_without_a_score_has_no_numbers() -> None:
    document = strict_json(summary_of([[None], [None]], rollouts=1))
    reward = document["reward"]
    assert [reward[key] for key in ("mean", "stderr", "ci95", "std", "min", "max", "method")] == [None] * 7
    assert document["pass_at_k"] == {"1": None}
    assert document["bounds"] == [0.0, 1.0]
    assert document["coverage"] == 0.0


def test_a_run_without_a_rollout() -> None:
    summary = summary_of([], rollouts=3, planned=30)
    document = strict_json(summary)
    assert (document["num_rollouts"], document["not_run"], document["bounds"]) == (0, 30, None)
    assert strict_json(summary_of([], rollouts=3, planned=0))["coverage"] is None


def test_one_example_has_no_error() -> None:
    reward = strict_json(summary_of([[1.0, 0.0, 1.0]], rollouts=3))["reward"]
    assert reward["mean"] == pytest.approx(2 / 3)
    assert reward["stderr"] is None
    assert reward["ci95"] is None
    assert reward["std"] == pytest.approx(statistics.stdev([1, 0, 1]))


def test_one_rollout_has_no_std() -> None:
    assert strict_json(summary_of([[1.0]], rollouts=1))["reward"]["std"] is None


def test_perfect_and_hopeless_runs_are_exact_with_an_honest_interval() -> None:
    for value, end in ((1.0, 1), (0.0, 0)):
        reward = strict_json(summary_of([[value]] * 1319, rollouts=1))["reward"]
        assert reward["mean"] == value
        assert reward["ci95"][end] == value
        assert reward["ci95"][0] < reward["ci95"][1]
        assert (reward["std"], reward["stderr"], reward["method"]) == (0.0, None, "wilson")


def test_single_binary_rollouts_use_wilson_and_say_so() -> None:
    rows: list[list[float | None]] = [[1.0 if index < 8 else 0.0] for index in range(10)]
    document = strict_json(summary_of(rows, rollouts=1))
    assert document["reward"]["ci95"] == pytest.approx(share_interval(8, 10))
    assert document["reward"]["method"] == "wilson"
    assert "Wilson" in document["methods"]["wilson"]


def test_a_weighted_sum_that_rounds_below_the_threshold_passes() -> None:
    total = 0.7 + 0.2 + 0.1
    assert total < 1.0
    assert summary_of([[total]], rollouts=1).pass_at_k[1].value == 1.0
    assert summary_of([[1.0 - 1e-6]], rollouts=1).pass_at_k[1].value == 0.0
    assert summary_of([[0.5, 0.4]], rollouts=2, threshold=0.5).pass_at_k[2].value == 1.0


def test_pass_at_k_is_given_for_powers_of_two_up_to_r() -> None:
    assert list(summary_of([[1.0] * 5], rollouts=5).pass_at_k) == [1, 2, 4]
    assert list(summary_of([[1.0]], rollouts=1).to_json()["pass_hat_k"]) == ["1"]


def test_an_interrupted_run_says_what_was_not_run() -> None:
    summary = summary_of([[1.0, 0.0], [1.0]], rollouts=2, planned=20)
    assert summary.not_run == 17
    assert summary.coverage == pytest.approx(3 / 20)
    # What was not run is not unscored: it moves no bound.
    assert summary.bounds == pytest.approx((0.75, 0.75))


@pytest.mark.parametrize(
    ("declared", "bounds"),
    [((0.0, 1.0), (1.75, 2.5)), ((-1.0, 3.0), (1.5, 2.5)), ((0.0, math.inf), None)],
)
def test_rewards_outside_the_declared_range_widen_it(
    declared: tuple[float, float], bounds: tuple[float, float] | None
) -> None:
    summary = summarize(
        table_of([[3.0, None], [2.0, 2.0]]),
        pass_threshold=1.0,
        rollouts_per_example=2,
        planned=4,
        reward_range=declared,
        wall_s=0.0,
    )
    assert summary.bounds == (None if bounds is None else pytest.approx(bounds))
    assert summary.rollouts_per_s is None


def test_what_a_resume_found_is_no_throughput() -> None:
    table = table_of([[1.0, 0.0]] * 5)
    kwargs = {"pass_threshold": 1.0, "planned": 10, "reward_range": (0.0, 1.0)}
    again = summarize(table, rollouts_per_example=2, wall_s=2.0, resumed=6, **kwargs)
    assert again.rollouts_per_s == pytest.approx(2.0)
    assert summarize(table, rollouts_per_example=2, wall_s=0.1, resumed=10, **kwargs).rollouts_per_s is None


def test_tokens_that_nobody_reported_are_unknown() -> None:
    kwargs = {"pass_threshold": 1.0, "planned": 2, "reward_range": (0.0, 1.0), "wall_s": 1.0}
    silent = table_of([[1.0], [0.0]], Usage(requests=2, unreported=2))
    usage = strict_json(summarize(silent, rollouts_per_example=1, **kwargs))["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["unreported"]) == (None, None, 4)
    partly = table_of([[1.0], [0.0]], Usage(5, 6, requests=2, unreported=1))
    usage = strict_json(summarize(partly, rollouts_per_example=1, **kwargs))["usage"]
    assert (usage["input_tokens"], usage["unreported"]) == (10, 2)


def test_seconds_of_rollouts() -> None:
    table = ScoreTable()
    for index in range(100):
        table.add(index, 0, 1.0, {}, None, usage=Usage(), seconds=float(index + 1))
    summary = summarize(table, pass_threshold=1.0, rollouts_per_example=1, planned=100, reward_range=(0, 1), wall_s=1.0)
    assert strict_json(summary)["rollout_seconds"] == {"mean": 50.5, "p50": 50.0, "p95": 95.0, "max": 100.0}


@pytest.mark.slow
def test_a_hundred_thousand_rollouts_agree_with_the_standard_library() -> None:
    rows: list[list[float | None]] = [[((i * 7919 + k * 104729) % 1000) / 999 for k in range(2)] for i in range(50_000)]
    summary = summary_of(rows, rollouts=2)
    means = [statistics.fmean(r for r in row if r is not None) for row in rows]
    assert summary.reward.estimate.mean == pytest.approx(statistics.fmean(means), rel=1e-13)
    assert summary.reward.estimate.stderr == pytest.approx(statistics.stdev(means) / math.sqrt(50_000), rel=1e-9)
    assert summary.reward.count == 100_000
