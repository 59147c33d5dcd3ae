"""The documented statistics by hand and by obvious implementations, and the honest ones beside them."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import pytest
from eval_samples import EXACT, PARTIAL, evaluation, failed, many, rows, run
from hypothesis import assume, given
from hypothesis import strategies as st
from tables import for_each_row

from harness.agents.results import EvalEvalSummary, EvalResult, EvalRunResult, ModelOutcomes
from harness.agents.summaries import build_result, paired_differences, summarize_eval
from harness.stats.passk import PassRate

SCORES = st.one_of(st.floats(-2, 2).map(lambda x: round(x, 3)), st.none(), st.just("failed"))
"""A score, a scorer that failed, a failed run."""


def summary_of(*scores: Any, n_runs: int = 1, threshold: float = 1.0) -> EvalEvalSummary:
    return summarize_eval(rows(*scores), [EXACT], n_runs, threshold)[EXACT]


def result_of(*models: list[tuple[int, EvalRunResult]], n_runs: int = 1, **changes: Any) -> EvalResult:
    runs = [ModelOutcomes(f"model-{i}", None, each, 1000.0) for i, each in enumerate(models)]
    return build_result(runs, [EXACT], n_runs=n_runs, pass_threshold=1.0, **{"wall_ms": 500.0, **changes})


def as_counted(scores: list[list[Any]]) -> list[float]:
    return [score if isinstance(score, float) else 0.0 for row in scores for score in row]


def test_every_run_counts_and_what_has_no_score_counts_zero() -> None:
    summary = summary_of([1.0], [0.5], ["failed"], [None])
    assert summary.mean == 0.375
    assert summary.std == pytest.approx(statistics.pstdev([1.0, 0.5, 0.0, 0.0]))
    assert (summary.min, summary.max) == (0.0, 1.0)
    assert (summary.failed_runs, summary.score_errors) == (1, 1)
    assert summary.pass_at_k == {}


@given(st.lists(st.lists(SCORES, min_size=1, max_size=4), min_size=1, max_size=8))
def test_mean_std_min_and_max_are_those_of_all_runs_pooled(scores: list[list[Any]]) -> None:
    summary, values = summary_of(*scores), as_counted(scores)
    assume(summary.scored.count)
    assert summary.mean == pytest.approx(statistics.fmean(values), abs=1e-12)
    assert summary.std == pytest.approx(statistics.pstdev(values), abs=1e-9)
    assert (summary.min, summary.max) == (min(values), max(values))


@pytest.mark.slow
@given(
    st.integers(2, 10).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.lists(SCORES, min_size=n, max_size=n), min_size=1, max_size=5))
    ),
    st.sampled_from([-0.5, 0.0, 0.5, 1.0]),
)
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(case: tuple[int, list[list[Any]]], threshold: float) -> None:
    n, scores = case
    summary = summary_of(*scores, n_runs=n, threshold=threshold)
    assume(summary.scored.count)
    assert list(summary.pass_at_k) == [k for k in (1, 3, 5, 10) if k <= n]
    for k, value in summary.pass_at_k.items():
        shares: list[float] = []
        for row in scores:
            passed = [isinstance(score, float) and score >= threshold for score in row]
            subsets = [any(subset) for subset in itertools.combinations(passed, k)]
            shares.append(sum(subsets) / len(subsets))
        assert value == pytest.approx(statistics.fmean(shares), abs=1e-12)


def test_seven_of_ten_passes_follow_the_formula_and_not_the_documents_number() -> None:
    summary = summary_of([1.0] * 7 + [0.0] * 3, n_runs=10, threshold=0.5)
    assert summary.pass_at_k[1] == pytest.approx(0.7)
    assert summary.pass_at_k[3] == pytest.approx(1 - 1 / 120)  # 0.9917; the documents say 0.97
    assert (summary.pass_at_k[5], summary.pass_at_k[10]) == (1.0, 1.0)


@for_each_row(("n", "ks"), [(1, []), (2, [1]), (4, [1, 3]), (5, [1, 3, 5]), (9, [1, 3, 5]), (12, [1, 3, 5, 10])])
def test_which_k_there_are(n: int, ks: list[int]) -> None:
    assert list(summary_of([1.0] * n, n_runs=n).pass_at_k) == ks
    assert list(summary_of([1.0] * n, n_runs=n).scored_pass_at_k) == ks


def test_runs_that_were_not_made_have_not_passed() -> None:
    # Row 0 has 1 of 4 runs, a pass: pass@1 = 1/4. Row 1 has all four, half of them passes.
    summary = summary_of([1.0], [1.0, 1.0, 0.0, 0.0], n_runs=4)
    assert summary.pass_at_k[1] == pytest.approx((1 / 4 + 2 / 4) / 2)
    assert summary.scored_pass_at_k[1] == PassRate(0.75, examples=2, excluded=0)
    assert summary.scored_pass_at_k[3].excluded == 1


def test_more_runs_than_asked_for_are_all_used() -> None:
    assert summary_of([1.0, 0.0, 0.0, 0.0], n_runs=2).pass_at_k == {1: 0.25}


@for_each_row("threshold", [0.0, -1.0])
def test_a_failed_run_never_passes(threshold: float) -> None:
    summary = summary_of(["failed", None], [0.0, 0.0], n_runs=2, threshold=threshold)
    assert summary.pass_at_k == {1: 0.5}


def test_scores_of_a_failed_run_are_none() -> None:
    runs = [(0, failed(scores={EXACT: 1.0}))]
    summary = summarize_eval(runs, [EXACT], 1, 1.0)[EXACT]
    assert math.isnan(summary.mean) and (summary.scored.count, summary.failed_runs) == (0, 1)


def test_a_sum_that_rounding_left_below_the_threshold_passes() -> None:
    assert summary_of([0.7 + 0.2 + 0.1, 0.999], n_runs=2).pass_at_k == {1: 0.5}


def test_without_runs_nothing_was_measured() -> None:
    summary = summarize_eval([], [EXACT], 5, 1.0)[EXACT]
    values = [summary.mean, summary.std, summary.min, summary.max, *summary.pass_at_k.values()]
    assert len(values) == 7 and all(map(math.isnan, values))
    assert summary.scored.estimate.mean is None


def test_equal_scores_have_no_spread_whatever_their_mean_rounds_to() -> None:
    assert summary_of([0.1], [0.1], [0.1]).std == 0.0


def test_scored_runs_alone_are_reduced_to_rows_first() -> None:
    summary = summary_of([1.0, "failed"], [0.0, 0.5], [None, "failed"])
    # Row means 1.0 and 0.25; the third row has none.
    assert summary.scored.estimate.mean == 0.625
    assert summary.scored.estimate.examples == 2
    assert (summary.scored.count, summary.failed_runs, summary.score_errors) == (3, 2, 1)
    assert (summary.scored.estimate.low, summary.scored.estimate.high) == (0.0, 1.0)
    assert summary.mean == 1.5 / 6


def test_every_function_has_its_own_statistics_in_the_given_order() -> None:
    runs = [
        (0, run(0, scores={EXACT: 1.0, PARTIAL: 0.5})),
        (1, run(0, scores={EXACT: 0.0}, score_errors={PARTIAL: "x"})),
    ]
    summaries = summarize_eval(runs, [PARTIAL, EXACT], 1, 1.0)
    assert list(summaries) == [PARTIAL, EXACT]
    assert (summaries[PARTIAL].mean, summaries[PARTIAL].score_errors) == (0.25, 1)
    assert (summaries[EXACT].mean, summaries[EXACT].score_errors) == (0.5, 0)


def test_a_result_of_one_model() -> None:
    result = result_of(rows([1.0, "failed"], [None, 0.5]), n_runs=2)
    assert (result.total_rows, result.total_runs, result.total_tokens) == (2, 4, 30 + 15 + 30 + 30)
    assert (result.total_duration_ms, result.n_runs, result.pass_threshold) == (500.0, 2, 1.0)
    assert (result.failed_runs, result.score_errors) == (1, {EXACT: 1})
    assert result.model_summaries is None
    assert result.paired == {}
    [model] = result.models
    assert (model.model, model.model_tag, model.total_runs) == ("model-0", "primary", 4)
    assert (model.total_duration_ms, model.wall_ms, model.mean_duration_ms) == (350.0, 1000.0, 87.5)
    assert model.failures == {"agent_error": 1}
    assert model.eval_summaries is result.eval_summaries
    assert [[r.run_index for r in row.runs] for row in result.rows] == [[0, 1], [0, 1]]


def test_a_result_of_two_models() -> None:
    result = result_of(rows([1.0, 1.0], [0.5, 0.5]), rows([0.0, 0.0], [0.5, "failed"]), n_runs=2)
    assert result.total_runs == 4  # rows x runs, as the documents count; each model has made as many
    assert result.total_tokens == 4 * 30 + 3 * 30 + 15
    assert result.model_summaries == result.models
    assert [(m.model, m.model_tag, m.total_runs) for m in result.models] == [
        ("model-0", "primary", 4),
        ("model-1", "baseline", 4),
    ]
    assert result.eval_summaries[EXACT].mean == 0.75  # of the primary model
    assert result.models[1].eval_summaries[EXACT].mean == 0.125


def test_runs_of_a_row_alternate_between_the_models() -> None:
    result = evaluation(3, 2, fail=0.0)
    for index, row in enumerate(result.rows):
        assert row.row_index == index
        assert [(r.run_index, r.model_tag) for r in row.runs] == [
            (0, "primary"), (0, "baseline"), (1, "primary"), (1, "baseline"),
        ]  # fmt: skip


def test_how_it_ended_is_kept() -> None:
    assert not result_of(rows([1.0])).stopped_early
    stopped = result_of(rows([1.0]), stop_reason="no such model")
    assert (stopped.stopped_early, stopped.stop_reason) == (True, "no such model")
    assert result_of(rows([1.0]), interrupted=True).interrupted


@for_each_row("number", [0, 3])
def test_only_one_or_two_models_make_a_result(number: int) -> None:
    with pytest.raises(ValueError, match="pass one model, or primary and baseline"):
        result_of(*[rows([1.0])] * number)


def test_differences_are_of_row_means() -> None:
    pair = result_of(rows([1.0, 0.0], [1.0, 1.0], [0.0, 0.0]), rows([0.0, 0.0], [1.0, 1.0], [0.5, 0.5])).paired[EXACT]
    assert pair.counted is pair.scored
    assert pair.zeros == 0
    assert (pair.counted.wins, pair.counted.losses, pair.counted.ties) == (1, 1, 1)
    assert pair.counted.estimate.mean == 0.0
    assert (pair.counted.first, pair.counted.second) == (0.5, 0.5)


def test_what_has_no_score_counts_zero_in_one_comparison_and_is_left_out_of_the_other() -> None:
    primary = rows([1.0, "failed"], [0.5, 0.5], ["failed", "failed"])
    baseline = rows([0.5, 0.5], [0.5, None], [0.25, 0.25])
    pair = result_of(primary, baseline, n_runs=2).paired[EXACT]
    assert pair.zeros == 4
    # Row means with zeros: .5 .5 0 against .5 .25 .25; without: 1 .5 - against .5 .5 .25
    assert pair.counted.estimate.mean == 0.0
    assert (pair.counted.wins, pair.counted.losses, pair.counted.ties, pair.counted.pairs) == (1, 1, 1, 3)
    assert pair.scored.estimate.mean == 0.25
    assert (pair.scored.pairs, pair.scored.only_first, pair.scored.only_second) == (2, 0, 1)


def test_rows_that_one_model_has_not_run_are_left_out() -> None:
    primary = [*rows([1.0], [1.0]), (7, run(0, 0.0))]
    pair = paired_differences(primary, [*rows([0.0]), (9, failed())], [EXACT])[EXACT]
    assert (pair.counted.pairs, pair.counted.only_first, pair.counted.only_second) == (1, 2, 1)
    assert (pair.scored.pairs, pair.scored.only_first, pair.scored.only_second) == (1, 2, 0)
    assert pair.zeros == 0  # the failed run is on none of the rows that are compared


def test_models_without_a_row_in_common_cannot_be_compared() -> None:
    pair = paired_differences([(0, run())], [(1, run())], [EXACT])[EXACT]
    assert (pair.counted.pairs, pair.counted.p_value, pair.counted.estimate.mean) == (0, None, None)


@given(st.integers(0, 1000))
def test_the_counted_difference_is_the_difference_of_the_means_in_the_table(seed: int) -> None:
    models = [many(None, 6, 3, right=0.6, seed=2 * seed + i, fail=0.3, err=0.3) for i in (0, 1)]
    result = build_result(
        [ModelOutcomes("a", "primary", models[0]), ModelOutcomes("b", "baseline", models[1])],
        [EXACT, PARTIAL],
        n_runs=3,
        pass_threshold=1.0,
        wall_ms=0.0,
    )
    for name in (EXACT, PARTIAL):
        primary, baseline = (model.eval_summaries[name].mean for model in result.models)
        difference = result.paired[name].counted.estimate.mean
        assert difference == pytest.approx(primary - baseline, abs=1e-12)
        assert math.isfinite(result.paired[name].counted.p_value or math.nan)
