"""Conversion of the records of a run to the results of an agent evaluation: success, scores, time, tokens and error of
each rollout. Computes no statistics. Only numbers and short texts of a record are kept: the transcripts of 100,000 runs
stay on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from harness.agents.results import EvalRunResult
from harness.core.records import Example, Failed, Generated, Scored
from harness.stats.scores import LARGEST_SCORE
from harness.store.journal import JournalReader
from harness.store.journal_index import NOWHERE, Recorded
from harness.store.score_table import NOT_SCORED

ANY_FUNCTION = "*"
"""Key in a score's reasons for a failure that belongs to no single function."""


def collect(recorded: Recorded, eval_fns: Sequence[str], model_tag: str | None) -> list[tuple[int, EvalRunResult]]:
    """Read the runs of a journal, each from its newest line: (row index, run), sorted by row, then by run.

    Args:
        recorded: The journal's content, read to its end.
        eval_fns: Names of the eval functions.
        model_tag: `primary`, `baseline`, or None if there is one model.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    rows: dict[int, int] = {}
    runs: list[tuple[int, EvalRunResult]] = []
    with JournalReader(recorded.path) as reader:
        for number in range(len(recorded)):
            lines = recorded.lines(number)
            if lines.example not in rows:
                rows[lines.example] = _row_index(cast(Example, reader.record(lines.example)), recorded.place(number)[0])
            base = cast("Generated | Failed", reader.record(lines.base))
            scored = None if lines.score == NOWHERE else cast(Scored, reader.record(lines.score))
            runs.append((rows[lines.example], to_run(base, scored, eval_fns, model_tag)))
    runs.sort(key=lambda pair: (pair[0], pair[1].run_index))
    return runs


def to_run(
    record: Generated | Failed, scored: Scored | None, eval_fns: Sequence[str], model_tag: str | None
) -> EvalRunResult:
    """Convert one recorded outcome to an `EvalRunResult`.

    Args:
        record: The outcome of the rollout.
        scored: Its score; None if it failed or the evaluation ended before it was scored.
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
        if value is not None and abs(value) <= LARGEST_SCORE:
            run.scores[name] = float(value)
        else:
            run.score_errors[name] = _why(name, value, scored)
    return run


def _row_index(example: Example, index: int) -> int:
    """Index of the row in the dataset file (the example's id), else its position in the plan."""
    return example.example_id if isinstance(example.example_id, int) else index


def _why(name: str, value: float | None, scored: Scored | None) -> str:
    if scored is None:
        return NOT_SCORED
    if value is not None:
        return f"returned {value}, which is no usable number"
    return scored.reasons.get(name) or scored.reasons.get(ANY_FUNCTION) or "gave no score"
