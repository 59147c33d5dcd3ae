"""Folds a journal into the table that statistics are made of. Owns what counts as a rollout's outcome; computes
nothing."""

from __future__ import annotations

from typing import cast

from harness.records import Failed, Generated, Scored
from harness.stats.scores import Details, ScoreTable
from harness.store.journal import JournalReader
from harness.store.recorded import NOWHERE, Recorded

NOT_SCORED = "not scored"
"""Reason of a rollout that was generated and has no score yet."""


def tally(recorded: Recorded) -> ScoreTable:
    """The outcome of every rollout that a journal holds, the newest line of each deciding.

    A rollout that was generated but has no score is unscored (`not scored`); one that failed is, with its reason.

    Args:
        recorded: The journal's content, read to its end.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    table = ScoreTable()
    with JournalReader(recorded.path) as reader:
        for number in range(len(recorded)):
            lines = recorded.lines(number)
            base = cast("Generated | Failed", reader.record(lines.base))
            place, details = recorded.place(number), _details(base)
            if isinstance(base, Failed):
                table.add(*place, None, {}, base.reason, **details)
            elif lines.score == NOWHERE:
                table.add(*place, None, {}, NOT_SCORED, **details)
            else:
                score = cast(Scored, reader.record(lines.score))
                table.add(*place, score.reward, score.metrics, score.reason or None, **details)
    return table


def _details(record: Generated | Failed) -> Details:
    details: Details = {"usage": record.usage, "seconds": max(0.0, record.timing.generation - record.timing.waiting)}
    if isinstance(record, Generated):
        details["truncated"] = record.is_truncated
        details["empty"] = record.is_empty and not record.is_refusal
        details["refused"] = record.is_refusal
    return details
