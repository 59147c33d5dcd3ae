"""Folds a journal into the table that statistics are made of. Owns what counts as a rollout's outcome; computes
nothing."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from harness.records import Failed, Generated, Scored
from harness.stats.scores import Details, ScoreTable
from harness.store.journal import JournalReader, as_record
from harness.store.recorded import Recorded

NOT_SCORED = "not scored"
"""Reason of a rollout that was generated and has no score yet."""

WAITING = 4096
"""Generated rollouts that are remembered until their score comes. Enough for what is in flight; what scores later than
that is read back instead, so that memory does not grow with the run."""


def tally(journal: Path) -> ScoreTable:
    """The outcome of every rollout in a journal, the newest line of each deciding.

    A rollout that was generated but has no score is unscored (`not scored`); one that failed is, with its reason.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    table = ScoreTable()
    recorded = Recorded(journal)
    waiting: dict[int, Details] = {}
    with JournalReader(journal) as reader:
        for number, offset, document in recorded.advance():
            record = as_record(journal, offset, document)
            if isinstance(record, Generated):
                waiting.pop(number, None)
                waiting[number] = _details(record)
                if len(waiting) > WAITING:
                    oldest = next(iter(waiting))
                    table.add(*recorded.place(oldest), None, {}, NOT_SCORED, **waiting.pop(oldest))
            elif isinstance(record, Scored):
                details = waiting.pop(number, None)
                if details is None:
                    details = _details(cast("Generated | Failed", reader.record(recorded.lines(number).base)))
                place = recorded.place(number)
                table.add(*place, record.reward, record.metrics, record.reason or None, **details)
            elif isinstance(record, Failed):
                waiting.pop(number, None)
                table.add(*recorded.place(number), None, {}, record.reason, **_details(record))
    for number, details in waiting.items():
        table.add(*recorded.place(number), None, {}, NOT_SCORED, **details)
    return table


def _details(record: Generated | Failed) -> Details:
    details: Details = {"usage": record.usage, "seconds": record.timing.generation}
    if isinstance(record, Generated):
        details["truncated"] = record.is_truncated
        details["empty"] = record.is_empty
        details["refused"] = record.is_refusal
    return details
