"""Conversion of a run's journal to the results of an agent evaluation: success, scores, time, tokens and error of each
rollout. Transcripts stay on disk, since a run may have 100,000 of them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.agents.results import EvalRunResult
from harness.core.records import Failed, Generated, Scored
from harness.stats.scores import LARGEST_SCORE
from harness.store.journal_index import Recorded
from harness.store.outcome_kinds import missing_reason
from harness.store.outcomes import outcomes

ANY_FUNCTION = "*"
"""Key of a reason that applies to all eval functions, in a dict of reasons why scores are missing."""


def collect(recorded: Recorded, eval_fns: Sequence[str], model_tag: str | None) -> list[tuple[int, EvalRunResult]]:
    """Read the results of an agent evaluation from a journal, as pairs (row index, run) sorted by row index and run
    index. The row index is the row's number in its dataset file, if the example's id is that number.

    Args:
        recorded: The complete content of the journal.
        eval_fns: Names of the eval functions.
        model_tag: `primary`, `baseline`, or None if there is one model.

    Raises:
        JournalDamaged: a line of the journal cannot be parsed.
        StoreError: the journal file cannot be read.
    """
    runs: list[tuple[int, EvalRunResult]] = []
    for outcome in outcomes(recorded):
        example = outcome.example
        row = example.example_id if isinstance(example.example_id, int) else example.index
        runs.append((row, to_run(outcome.base, outcome.score, eval_fns, model_tag)))
    runs.sort(key=lambda pair: (pair[0], pair[1].run_index))
    return runs


def to_run(
    record: Generated | Failed, scored: Scored | None, eval_fns: Sequence[str], model_tag: str | None
) -> EvalRunResult:
    """Convert one recorded rollout to an `EvalRunResult`.

    Args:
        record: The outcome of the rollout.
        scored: The score; None if the rollout failed, or the evaluation ended before it was scored.
        eval_fns: Names of the eval functions.
        model_tag: `primary`, `baseline`, or None if there is one model.
    """
    timing, usage = record.timing, record.usage
    run = EvalRunResult(
        run_index=record.rollout_index,
        success=isinstance(record, Generated),
        duration_ms=max(0.0, timing.generation - timing.waiting) * 1000,
        tokens=usage.input_tokens + usage.output_tokens,
        model_tag=model_tag,
        unreported=usage.unreported,
    )
    if isinstance(record, Failed):
        run.error, run.reason = record.error or record.reason, record.reason
        return run
    run.finish_reason = record.stop_condition
    for name in eval_fns:
        value = None if scored is None else scored.metrics.get(name)
        if scored is None:
            run.score_errors[name] = missing_reason(record, scored)
        elif value is None:
            run.score_errors[name] = scored.reasons.get(name) or scored.reasons.get(ANY_FUNCTION) or "no score returned"
        elif abs(value) <= LARGEST_SCORE:
            run.scores[name] = float(value)
        else:
            run.score_errors[name] = f"the function returned {value}, which is not finite or too large for a score"
    return run
