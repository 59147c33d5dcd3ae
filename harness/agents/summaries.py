"""Statistics of an agent evaluation, computed with the estimators of `harness.stats`. In the documented statistics
(`mean`, `std`, `min`, `max`, `pass_at_k`) every run counts: a failed run, and a run without a score, counts as 0.0 and
does not pass. The additional statistics (`scored`, `scored_pass_at_k`, `paired`) use only scored runs, treat the row as
the sampling unit, and have intervals."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from harness.agents.results import (
    BASELINE,
    PRIMARY,
    EvalEvalSummary,
    EvalModelSummary,
    EvalPaired,
    EvalResult,
    EvalRowResult,
    EvalRunResult,
    ModelOutcomes,
)
from harness.stats.difference import paired_scores, scores_of
from harness.stats.passk import pass_at_k, pass_rate
from harness.stats.summary import THRESHOLD_SLACK, spread

PASS_KS = (1, 3, 5, 10)
"""The documented values of k for pass@k. Values above the number of runs per row are left out."""

MISSING = 0.0
"""The value of a run without a score in the documented statistics."""

SCORE_LIMITS = (0.0, 1.0)
"""Default lower and upper limit of an eval function's scores. A score beyond a limit extends it."""


def summarize_eval(
    runs: Iterable[tuple[int, EvalRunResult]], eval_fns: Sequence[str], n_runs: int, pass_threshold: float
) -> dict[str, EvalEvalSummary]:
    """Compute the statistics of each eval function over the runs of one model.

    Args:
        runs: Pairs (row index, run), in any order.
        eval_fns: Names of the eval functions, in the order of the result.
        n_runs: Requested number of runs per row. With more than 1, pass@k is computed; runs that are missing, because
            the evaluation ended early, count as not passed.
        pass_threshold: Minimum score of a run that passes.
    """
    by_row = group_by_row(runs)
    return {name: _summary(by_row, name, n_runs, pass_threshold) for name in eval_fns}


def build_result(
    models: Sequence[ModelOutcomes],
    eval_fns: Sequence[str],
    *,
    n_runs: int,
    pass_threshold: float,
    wall_ms: float,
    stop_reason: str | None = None,
    interrupted: bool = False,
) -> EvalResult:
    """Build the result of an evaluation from the runs of one model, or of the primary model and the baseline.

    Args:
        models: One model, or the primary model and the baseline, in this order.
        eval_fns: Names of the eval functions.
        n_runs: Requested number of runs per row and model.
        pass_threshold: Minimum score of a run that passes.
        wall_ms: Duration of the whole evaluation in ms.
        stop_reason: The reason, if an unusable endpoint stopped the evaluation early; else None.
        interrupted: Whether the user interrupted the evaluation.

    Raises:
        ValueError: the number of models is not 1 or 2.
    """
    if len(models) not in (1, 2):
        raise ValueError(f"build_result: pass one model, or primary and baseline, not {len(models)} models")
    summaries = [
        summarize_model(model, model.model_tag or tag, eval_fns, n_runs=n_runs, pass_threshold=pass_threshold)
        for model, tag in zip(models, (PRIMARY, BASELINE), strict=False)
    ]
    rows = merge_rows([model.runs for model in models])
    return EvalResult(
        rows=rows,
        eval_summaries=summaries[0].eval_summaries,
        total_rows=len(rows),
        total_runs=max(summary.total_runs for summary in summaries),
        total_tokens=sum(summary.total_tokens for summary in summaries),
        total_duration_ms=wall_ms,
        n_runs=n_runs,
        pass_threshold=pass_threshold,
        model_summaries=summaries if len(summaries) == 2 else None,
        stopped_early=stop_reason is not None,
        stop_reason=stop_reason,
        interrupted=interrupted,
        models=summaries,
        paired=paired_differences(models[0].runs, models[1].runs, eval_fns) if len(models) == 2 else {},
        score_errors={
            name: total for name in eval_fns if (total := sum(model.score_errors.get(name, 0) for model in summaries))
        },
        failed_runs=sum(summary.failed_runs for summary in summaries),
        resumed_runs=sum(model.resumed for model in models),
    )


def summarize_model(
    model: ModelOutcomes, tag: str, eval_fns: Sequence[str], *, n_runs: int, pass_threshold: float
) -> EvalModelSummary:
    """Compute the statistics of one model of an agent evaluation.

    Args:
        model: The model's runs.
        tag: `primary` or `baseline`.
        eval_fns: Names of the eval functions.
        n_runs: Requested number of runs per row.
        pass_threshold: Minimum score of a run that passes.
    """
    summaries = summarize_eval(model.runs, eval_fns, n_runs, pass_threshold)
    runs = [run for _, run in model.runs]
    failures = Counter(run.reason or "unknown" for run in runs if not run.success)
    return EvalModelSummary(
        model=model.model,
        model_tag=tag,
        eval_summaries=summaries,
        total_runs=len(runs),
        total_tokens=sum(run.tokens for run in runs),
        total_duration_ms=math.fsum(run.duration_ms for run in runs),
        wall_ms=model.wall_ms,
        failed_runs=failures.total(),
        failures=dict(failures.most_common()),
        score_errors={name: summary.score_errors for name, summary in summaries.items() if summary.score_errors},
        unreported=sum(run.unreported for run in runs),
    )


def paired_differences(
    primary: Iterable[tuple[int, EvalRunResult]], baseline: Iterable[tuple[int, EvalRunResult]], eval_fns: Sequence[str]
) -> dict[str, EvalPaired]:
    """Compare the primary model with the baseline by each eval function. The value of a row is the mean of its runs.

    Args:
        primary: (row index, run) of the primary model.
        baseline: (row index, run) of the baseline.
        eval_fns: Names of the eval functions.
    """
    first, second = group_by_row(primary), group_by_row(baseline)
    return {name: _paired(first, second, name) for name in eval_fns}


def group_by_row(runs: Iterable[tuple[int, EvalRunResult]]) -> dict[int, list[EvalRunResult]]:
    """Group runs by row index. The result is sorted by row index."""
    by_row: defaultdict[int, list[EvalRunResult]] = defaultdict(list)
    for row, run in runs:
        by_row[row].append(run)
    return {row: by_row[row] for row in sorted(by_row)}


def merge_rows(models: Sequence[Iterable[tuple[int, EvalRunResult]]]) -> list[EvalRowResult]:
    """Merge the runs of all models into one list of rows.

    Within a row, run 0 of each model comes first, in the order of the models, then run 1 of each.

    Args:
        models: The runs of each model.
    """
    by_row = group_by_row(pair for runs in models for pair in runs)
    # The sort is stable: runs of the same index keep the order of the models.
    return [EvalRowResult(row, sorted(runs, key=lambda run: run.run_index)) for row, runs in by_row.items()]


def _summary(
    by_row: Mapping[int, Sequence[EvalRunResult]], name: str, n_runs: int, threshold: float
) -> EvalEvalSummary:
    scored_rows = [_scores(runs, name) for runs in by_row.values()]
    total = sum(map(len, by_row.values()))
    failed = sum(not run.success for runs in by_row.values() for run in runs)
    scored = spread(scored_rows, SCORE_LIMITS)
    summary = EvalEvalSummary(scored=scored, score_errors=total - failed - scored.count, failed_runs=failed)
    if scored.count:
        values = [score for row in scored_rows for score in row]
        zeros = total - len(values)
        summary.mean = math.fsum(values) / total
        summary.std = _population_std(values, zeros, summary.mean)
        summary.min = min([*values, MISSING] if zeros else values)
        summary.max = max([*values, MISSING] if zeros else values)
    if n_runs > 1:
        counts = [(len(row), sum(score >= threshold - THRESHOLD_SLACK for score in row)) for row in scored_rows]
        tried = [max(len(runs), n_runs) for runs in by_row.values()]
        documented = Counter((n, passed) for n, (_, passed) in zip(tried, counts, strict=True))
        ks = [k for k in PASS_KS if k <= n_runs]
        rates = {k: pass_rate(documented, k, pass_at_k).value or 0.0 for k in ks}
        summary.pass_at_k = rates if scored.count else dict.fromkeys(ks, math.nan)
        summary.scored_pass_at_k = {k: pass_rate(Counter(counts), k, pass_at_k) for k in ks}
    return summary


def _scores(runs: Iterable[EvalRunResult], name: str) -> list[float]:
    """Return the scores that one eval function gave to completed runs."""
    return [run.scores[name] for run in runs if run.success and name in run.scores]


def _population_std(values: Sequence[float], zeros: int, mean: float) -> float:
    """Compute the population standard deviation of the values and a number of zeros, given their mean. It is exactly 0
    if all values are equal."""
    if not values or (not zeros and min(values) == max(values)):
        return 0.0
    squares = math.fsum((value - mean) ** 2 for value in values) + zeros * (MISSING - mean) ** 2
    return math.sqrt(squares / (len(values) + zeros))


def _paired(
    first: Mapping[int, Sequence[EvalRunResult]], second: Mapping[int, Sequence[EvalRunResult]], name: str
) -> EvalPaired:
    sides = [{str(row): _scores(runs, name) for row, runs in side.items()} for side in (first, second)]
    missing = [
        {str(row): len(runs) - len(known[str(row)]) for row, runs in side.items()}
        for side, known in zip((first, second), sides, strict=True)
    ]
    scored = paired_scores(*(scores_of(side, SCORE_LIMITS) for side in sides))
    if not any(any(each.values()) for each in missing):
        return EvalPaired(scored, scored)
    filled = [
        {row: [*values, *[MISSING] * zeros[row]] for row, values in side.items()}
        for side, zeros in zip(sides, missing, strict=True)
    ]
    counted = paired_scores(*(scores_of(side, SCORE_LIMITS) for side in filled))
    zeros = sum(each[str(row)] for each in missing for row in first.keys() & second.keys())
    return EvalPaired(counted, scored, zeros)
