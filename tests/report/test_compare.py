"""Two runs example by example: what is paired, every number against a slow computation, and what stays unknown."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import Scores, scored_run
from late import Late
from store_samples import example, generated, key, scored, write

from harness.core.errors import StoreError, UsageError
from harness.core.types import Usage
from harness.report.changes import compare as changes_between
from harness.report.changes import marks_of
from harness.report.compare.comparison_json import match_json, side_json
from harness.report.compare.sides import ComparedRun, Match, match, read_side, rollouts_of
from harness.stats.difference import adjust, limits_of
from harness.store.outcomes import read_journal
from harness.store.score_table import summary_of

scipy_stats = Late("scipy.stats")

GRADED: Scores = {0: [0.25, 0.75], 1: [1.0, 0.5], 2: [0.0, 0.25], 3: [0.9, 0.8], 4: [0.4, 0.1], 5: [0.6, 0.6]}
OTHER: Scores = {5: [0.7], 4: [0.5], 3: [0.5], 2: [0.5], 1: [0.8], 0: [1.0]}
"""The same examples in another order, once each."""


def side(folder: Path, scores: Scores, minute: int, measure: str = "reward", **changes: Any) -> ComparedRun:
    cluster = changes.pop("cluster", None)
    run = scored_run(folder, scores, minute, model=f"lab/m-{minute}", **changes)
    return read_side(run, measure=measure, cluster=cluster)


def both(folder: Path, first: Scores, second: Scores, **changes: Any) -> Match:
    """The first against the second."""
    return match("sums", side(folder, first, 1, **changes), side(folder, second, 0, **changes))


def only(matched: Match) -> Match:
    [adjusted] = adjust([matched])
    return adjusted


def mean_of(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known)


def slow_plan(spread: float, size: float, alpha: float) -> int:
    """The fewest examples with which Student's t finds a difference of that size four times in five."""
    n = 2
    while scipy_stats.nct.sf(scipy_stats.t.ppf(1 - alpha / 2, n - 1), n - 1, size * math.sqrt(n) / spread) < 0.8:
        n += 1
    return n


def one_more_of_each(differences: list[float]) -> tuple[float, float, float]:
    """Both ends of the 95 % interval, and the p-value, with one pair more won and one more lost."""
    typical = sum(d * d for d in differences) / sum(map(abs, differences))
    every = [*differences, typical, -typical]
    middle, df = sum(every) / len(every), len(differences) - 1
    stderr = math.sqrt(sum((d - middle) ** 2 for d in every)) / len(every)
    half = float(scipy_stats.t.ppf(0.975, df)) * stderr
    return middle - half, middle + half, 2 * float(scipy_stats.t.sf(abs(middle) / stderr, df))


def slow_sign_flip(differences: list[float]) -> float:
    """All sign patterns counted."""
    seen = abs(sum(differences))
    sums = [abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(differences))]  # fmt: skip
    return sum(value >= seen - 1e-12 for value in sums) / len(sums)


def test_every_number_is_that_of_a_slow_computation(tmp_path: Path) -> None:
    found = only(both(tmp_path, GRADED, OTHER))
    differences = [mean_of(GRADED[n]) - mean_of(OTHER[n]) for n in range(6)]

    mean = sum(differences) / 6
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / 5)
    low, high, p_value = one_more_of_each(differences)
    estimate = found.estimate
    assert estimate.mean == pytest.approx(mean, abs=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=1e-9)
    assert found.adjusted == pytest.approx(p_value, abs=1e-12)
    assert (found.paired.flips or (0,))[0] == pytest.approx(slow_sign_flip(differences), abs=1e-12)
    assert (found.paired.wins, found.paired.losses, found.paired.ties) == (1, 5, 0)
    assert found.paired.t_p_value == pytest.approx(scipy_stats.ttest_1samp(differences, 0)[1], abs=1e-9)
    assert 0 <= (found.settling or 0) - slow_plan(spread, abs(mean), 0.05) <= 4
    assert [flip.difference for flip in found.flips] == sorted(
        differences, key=lambda d: (-abs(d), differences.index(d))
    )


@pytest.mark.parametrize("scores", [GRADED, {n: [1.0] for n in range(6)}], ids=["graded", "passes"])
def test_it_is_the_difference_that_a_replay_shows(tmp_path: Path, scores: Scores) -> None:
    found = both(tmp_path, scores, {**OTHER, 0: [0.0]} if scores is GRADED else {n: [0.0, 1.0] for n in range(6)})
    marks = [marks_of(each.recorded) for each in (found.baseline, found.candidate)]
    ranges = found.baseline.manifest.reward_range, found.candidate.manifest.reward_range

    assert changes_between(*marks, paired=True, ranges=ranges).paired == found.paired


@pytest.mark.parametrize(
    ("scores", "measure"),
    [
        (GRADED, "reward"),
        ({n: [float(n % 3 > 0)] for n in range(30)}, "reward"),
        ({n: [1.0, 1.0] for n in range(5)}, "reward"),
        ({n: [float(n > 0), 1.0, 1.0] for n in range(9)}, "reward"),
        ({n: [1.0, 1.0] for n in range(5)}, "correct"),
        ({n: [float(n > 0), None] for n in range(5)}, "correct"),
        ({0: [None], 1: [None]}, "reward"),
        ({n: [-3.5 * n, 12.0] for n in range(8)}, "reward"),
    ],
)  # fmt: skip
def test_a_runs_own_interval_is_that_of_its_own_table(tmp_path: Path, scores: Scores, measure: str) -> None:
    one = side(tmp_path, scores, 0, measure)
    summary = summary_of(one.manifest, read_journal(one.run))

    own = summary.reward if measure == "reward" else summary.metrics[measure]
    assert one.spread.to_json() == own.to_json()
    assert (one.scored, one.planned) == (own.count, summary.planned)
    assert (one.usage, dict(one.unscored)) == (summary.usage, summary.unscored)
    assert summary.rollout_seconds is not None
    assert (one.latency(0.5), one.latency(0.95)) == (summary.rollout_seconds.p50, summary.rollout_seconds.p95)


def test_of_a_run_that_ended_early_it_is_the_interval_that_this_allows(tmp_path: Path) -> None:
    changes = {"settings": {"env.until_ci": 0.3}, "planned": {"num_examples": 400, "rollouts_per_example": 1}}
    one = side(tmp_path, {n: [float(n % 5 > 0)] for n in range(100)}, 0, **changes)
    summary = summary_of(one.manifest, read_journal(one.run))

    assert one.spread.estimate.method == "betting"
    assert one.spread.to_json() == summary.reward.to_json()
    assert one.planned == summary.planned == 100
    metric = read_side(one.run, measure="correct").spread
    assert metric.to_json() == summary.metrics["correct"].to_json()
    assert (metric.count, metric.estimate.mean, metric.estimate.method) == (100, 0.8, None)


def test_what_is_not_in_both_is_counted_and_left_out(tmp_path: Path) -> None:
    found = both(
        tmp_path,
        {0: [1.0], 1: [0.0], 2: [None], 3: [1.0], 7: [1.0], 8: [None]},
        {0: [0.0], 1: [0.0], 2: [1.0], 3: [None], 4: [1.0], 5: [1.0], 6: [None]},
    )

    assert found.paired.pairs == 2
    assert (found.only_candidate, found.only_baseline, found.lost) == (1, 2, 2)
    assert [flip.key for flip in found.flips] == [key("example", 0)]


@pytest.mark.parametrize("common", [0, 1])
def test_runs_that_share_too_few_examples_are_two_samples(tmp_path: Path, common: int) -> None:
    first = {n: [float(n % 2), 0.5] for n in range(20)}
    second = {n: [0.25 * (n % 5)] for n in range(20 - common, 45)}
    found = only(both(tmp_path, first, second))

    means = [[mean_of(values) for values in scores.values()] for scores in (first, second)]
    expected: Any = scipy_stats.ttest_ind(*means, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.unpaired is not None and found.paired.pairs == common
    assert found.adjusted == pytest.approx(expected.pvalue, abs=1e-9)
    assert (found.estimate.low, found.estimate.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
    assert found.settling is None


def test_different_environments_without_a_common_example_are_refused(tmp_path: Path) -> None:
    first = side(tmp_path, {0: [1.0]}, 0)
    second = side(tmp_path, {1: [1.0]}, 1, env_id="other")

    with pytest.raises(UsageError, match=r"no example in common, and are of different environments \(other, sums\)"):
        match("sums", second, first)


def test_the_same_examples_are_paired_whatever_the_environment_is_called(tmp_path: Path) -> None:
    found = match("sums", side(tmp_path, GRADED, 0, env_id="./sums.py"), side(tmp_path, OTHER, 1))

    assert found.paired.pairs == 6


def test_p_values_are_those_of_all_comparisons_together(tmp_path: Path) -> None:
    baseline = side(tmp_path, {n: [float(n % 2)] for n in range(12)}, 0)
    others = [{n: [float(n % 2 or n < limit)] for n in range(12)} for limit in (12, 9, 1)]
    matches = adjust([match("sums", side(tmp_path, each, 1 + n), baseline) for n, each in enumerate(others)])

    own = [one_more_of_each([1.0] * number + [0.0] * (12 - number))[2] for number in (6, 5, 1)]
    assert [each.p_value for each in matches] == pytest.approx(own)
    assert [each.adjusted for each in matches] == pytest.approx(
        [3 * own[0], 2 * own[1] if own[1] > 0.038 else 1, own[2]]
    )
    assert [each.verdict for each in matches] == ["tied", "tied", "tied"]  # alone the first is better
    assert only(matches[0]).verdict == "better"
    assert 0 <= (matches[1].settling or 0) - slow_plan(math.sqrt(5 / 12 * 7 / 12 * 12 / 11), 5 / 12, 0.05 / 3) <= 5


def test_sides_that_agree_everywhere(tmp_path: Path) -> None:
    found = only(both(tmp_path, {n: [1.0] for n in range(40)}, {n: [1.0, 1.0] for n in range(40)}))
    assert (found.verdict, found.adjusted, found.flips, found.settling) == ("tied", 1.0, (), None)
    assert found.estimate.low is not None and found.estimate.low < 0  # the range is known

    unbounded = only(both(tmp_path / "b", {n: [7.0] for n in range(40)}, {n: [7.0] for n in range(40)},
                          reward_range=(-math.inf, math.inf)))  # fmt: skip
    assert (unbounded.verdict, unbounded.estimate.low) == ("tied", None)


def test_rewards_outside_the_range_that_was_promised_widen_it(tmp_path: Path) -> None:
    found = both(tmp_path, {0: [-2.0], 1: [1.0], 2: [0.5]}, {0: [3.5], 1: [1.0], 2: [0.5]})

    assert limits_of(found.candidate.scores) == (-2.0, 1.0)
    assert found.estimate.low == -5.5  # the t interval would reach further


def test_nothing_scored_is_no_comparison(tmp_path: Path) -> None:
    found = only(both(tmp_path, {0: [None], 1: [None]}, {0: [1.0], 1: [0.0]}))

    assert (found.verdict, found.paired.pairs, found.unpaired, found.lost) == ("unknown", 0, None, 2)
    assert found.detectable is None


def test_too_few_pairs_for_a_correction_reveal_no_difference(tmp_path: Path) -> None:
    one = both(tmp_path, {n: [float(n < 3)] for n in range(6)}, {n: [1.0] for n in range(6)})
    assert only(one).detectable is not None
    assert [each.detectable for each in adjust([one, one])] == [None, None]


def test_clusters_are_the_unit(tmp_path: Path) -> None:
    dice = random.Random(1)
    infos = {n: {"book": n // 4} for n in range(20)}
    first = {n: [dice.random()] for n in range(20)}
    second = {n: [min(1.0, first[n][0] * 0.5 + 0.1 * (n // 4))] for n in range(20)}
    found = only(both(tmp_path, first, second, infos=infos, cluster="book"))

    differences = [first[n][0] - second[n][0] for n in range(20)]
    mean = sum(differences) / 20
    sums = [sum(d - mean for d in differences[4 * g : 4 * g + 4]) for g in range(5)]
    stderr = math.sqrt(5 / 4 * sum(value**2 for value in sums)) / 20
    assert (found.estimate.method, found.estimate.clusters) == ("bonett_price", 5)
    assert found.estimate.stderr == pytest.approx(stderr, abs=1e-12)
    totals = [sum(differences[4 * g : 4 * g + 4]) for g in range(5)]
    assert found.adjusted == pytest.approx(one_more_of_each([total / 4 for total in totals])[2])
    assert (found.paired.flips or (0,))[0] == pytest.approx(slow_sign_flip(totals))


def test_two_samples_keep_their_clusters(tmp_path: Path) -> None:
    first, second = ({n: [float(n // 5 % 2)] for n in range(start, start + 40)} for start in (0, 40))
    infos = {n: {"book": n // 5} for n in range(80)}
    changes = {"infos": infos, "cluster": "book"}
    found = match("sums", side(tmp_path, first, 1, **changes), side(tmp_path, second, 0, **changes))

    assert found.unpaired is not None
    assert (found.estimate.method, found.estimate.clusters) == ("welch", 16)
    assert found.estimate.df == pytest.approx(14.0)


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = scored_run(tmp_path, {0: [1.0]}, infos={0: {"book": 1}})

    with pytest.raises(
        UsageError, match=r"no example of .* has 'bok' in its info; did you mean 'book'\? its examples have task, book$"
    ):
        read_side(run, cluster="bok")
    assert read_side(run, cluster="task").cells[key("example", 0)].cluster == "sums"


def test_a_metric_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = scored_run(tmp_path, {0: [1.0]})

    with pytest.raises(UsageError, match=r"has no metric 'corect'; did you mean 'correct'\? it has correct$"):
        read_side(run, measure="corect")


def test_a_rollout_without_the_metric_is_unscored_by_it(tmp_path: Path) -> None:
    run = scored_run(tmp_path, {0: [1.0], 1: [1.0]})
    write(run.journal_path, [scored(1, 0, 0.5, metrics={"correct": None})])
    one = read_side(run, measure="correct")

    assert (one.scored, dict(one.unscored)) == (1, {"correct has no value": 1})


def test_an_example_that_a_new_dataset_pushed_aside_keeps_its_transcript(tmp_path: Path) -> None:
    run = scored_run(tmp_path, {0: [1.0], 1: [0.0]})
    write(run.journal_path, [replace(example(9), index=0), generated(9), scored(9, 0, 0.5)])  # index 0 once more
    one = read_side(run)

    assert one.cells[key("example", 9)].index == 2
    [outcome] = rollouts_of(one, key("example", 9))
    assert (outcome.example.example_id, outcome.reward) == (9, 0.5)
    [first] = rollouts_of(one, key("example", 0))
    assert first.example.example_id == 0


def test_a_run_without_a_journal_or_a_plan_has_nothing(tmp_path: Path) -> None:
    run = scored_run(tmp_path, {})
    run.journal_path.unlink(missing_ok=True)
    manifest = json.loads(run.manifest_path.read_text())
    run.manifest_path.write_text(json.dumps({**manifest, "planned": {}}))
    one = read_side(run)

    assert (one.scored, one.planned, one.coverage, one.examples) == (0, 0, 0.0, 0)
    assert one.latency(0.5) is None and limits_of(one.scores) == (0.0, 1.0)


@pytest.mark.parametrize("ends", [["a", 1], [0], [0, True], [0, 1, 2], [[0], 1]])
def test_a_range_of_rewards_that_is_none_is_refused(tmp_path: Path, ends: list[object]) -> None:
    run = scored_run(tmp_path, {0: [1.0]})
    manifest = json.loads(run.manifest_path.read_text())
    run.manifest_path.write_text(json.dumps({**manifest, "reward_range": ends}))

    with pytest.raises(StoreError, match="reward_range is not a pair of numbers"):
        read_side(run)


def test_the_json_says_it_all_and_no_nan(tmp_path: Path) -> None:
    whole = match_json(only(both(tmp_path, GRADED, OTHER)))

    json.dumps(whole, allow_nan=False)
    assert (whole["verdict"], whole["flipped"], len(whole["flips"])) == ("tied", 6, 6)
    assert whole["flips"][0] == {
        "example_id": 0, "example_key": key("example", 0), "candidate": 0.5, "baseline": 1.0, "difference": -0.5,
    }  # fmt: skip
    assert match_json(only(both(tmp_path / "b", GRADED, OTHER)), 0)["flips"] == []


def test_tokens_that_nobody_reported_are_unknown(tmp_path: Path) -> None:
    whole = side(tmp_path, GRADED, 0)
    assert side_json(whole)["tokens"] == [1200, 240]
    whole.usage = Usage(requests=12, unreported=12)
    assert side_json(whole)["tokens"] is None
