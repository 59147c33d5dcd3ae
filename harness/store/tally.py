"""Folds a journal into the table that statistics are made of. Owns what counts as a rollout's outcome, and which of a
run's settings statistics are about; computes nothing itself."""

from __future__ import annotations

from typing import Any, cast

from harness.records import JUDGEMENTS, Failed, Generated, Scored
from harness.stats.scores import Details, ScoreTable
from harness.stats.summary import Summary, summarize
from harness.store.journal import JournalReader
from harness.store.manifest import Manifest
from harness.store.recorded import NOWHERE, Recorded
from harness.store.rundir import RunDir
from harness.types import Usage

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
    if not len(recorded):
        return table  # of a run that came to nothing there may be no journal
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
                _judge(details, score.extra.get(JUDGEMENTS, _said_before(base)))
                table.add(*place, score.reward, score.metrics, score.reason or None, **details)
    return table


def summary_of(run: RunDir, manifest: Manifest, recorded: Recorded) -> Summary:
    """A run's numbers by its journal as it is now: `summary.json` may be older, or not there yet.

    Args:
        run: Its folder, for the times that only `summary.json` knows.
        manifest: Its manifest.
        recorded: Its journal, read to its end.

    Raises:
        StoreError: a file cannot be read.
    """
    before = run.read_summary() or {}
    rollouts = manifest.planned.get("rollouts_per_example", 1)
    return summarize(
        tally(recorded),
        pass_threshold=float(manifest.settings.get("env.pass_threshold", 1.0)),
        rollouts_per_example=rollouts,
        planned=manifest.planned.get("num_examples", 0) * rollouts,
        reward_range=manifest.reward_range,
        wall_s=float(before.get("wall_s") or 0.0),
        resumed=int(before.get("resumed") or 0),
    )


def judged(judgements: object) -> Usage | None:
    """What judges used, by the state value that keeps their replies; None if there is no such value.

    An environment may keep something of its own under that name: what has not the shape counts for nothing.
    """
    usages = _usages(judgements)
    return sum(usages, start=Usage()) if usages else None


def _judge(details: Details, judgements: object) -> None:
    usages = _usages(judgements)
    details["judged"] = sum(usages, start=Usage()) if usages else None
    details["judged_unpriced"] = sum(usage.requests for usage in usages if usage.cost is None)


def _usages(judgements: object) -> list[Usage]:
    usages: list[Usage] = []
    for entry in cast("list[object]", judgements) if isinstance(judgements, list) else ():
        usage = cast("dict[str, object]", entry).get("usage") if isinstance(entry, dict) else None
        if isinstance(usage, dict):
            try:
                usages.append(Usage(**cast("dict[str, Any]", usage)))
            except TypeError:
                continue
    return usages


def _said_before(record: Generated | Failed) -> object:
    """Replies of judges that were asked while the rollout was made."""
    return record.state.get(JUDGEMENTS) if isinstance(record, Generated) else None


def _details(record: Generated | Failed) -> Details:
    details: Details = {"usage": record.usage, "seconds": max(0.0, record.timing.generation - record.timing.waiting)}
    if isinstance(record, Generated):
        details["truncated"] = record.is_truncated
        _judge(details, _said_before(record))
        details["empty"] = record.is_empty and not record.is_refusal
        details["refused"] = record.is_refusal
    return details
