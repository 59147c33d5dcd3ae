"""Folds a journal into the table that statistics are made of. Owns what counts as a rollout's outcome, and which of a
run's settings statistics are about; computes nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from harness.core.records import JUDGEMENTS, Failed, Generated, Scored
from harness.core.types import Usage
from harness.stats.scores import Details, ScoreTable
from harness.stats.summary import Summary, summarize
from harness.stats.target import Aim, finite_limits
from harness.store.journal import JournalReader
from harness.store.manifest import Manifest
from harness.store.recorded import NOWHERE, Recorded

OF_EXAMPLES = "of_examples"
"""In `Manifest.derived`: the examples that were planned for the run, of which its `until_ci` made a part only."""

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
            score = None if lines.score == NOWHERE else cast(Scored, reader.record(lines.score))
            enter(table, recorded.place(number), base, score)
    return table


def enter(table: ScoreTable, place: tuple[int, int], base: Generated | Failed, score: Scored | None) -> None:
    """Add one rollout, for whoever reads the journal for something else as well.

    Args:
        table: What `tally` would make of the whole journal.
        place: From `Recorded.place`.
        base: Its newest `generated` or `failed` line.
        score: Its newest score, if it has one.
    """
    details = _details(base)
    if isinstance(base, Failed):
        table.add(*place, None, {}, base.reason, **details)
    elif score is None:
        table.add(*place, None, {}, NOT_SCORED, **details)
    else:
        _judge(details, score.extra.get(JUDGEMENTS, _said_before(base)))
        table.add(*place, score.reward, score.metrics, score.reason or None, **details)


def summary_of(
    manifest: Manifest,
    recorded: Recorded,
    final: Mapping[str, object] | None = None,
    table: ScoreTable | None = None,
) -> Summary:
    """A run's numbers by its journal as it is now: `summary.json` may be older, or not there yet.

    Args:
        manifest: Its manifest.
        recorded: Its journal, read to its end.
        final: Its `summary.json`, which alone knows how long the run took, if it is of everything that the journal
            holds. Files can be edited, and damaged: what is no number is unknown.
        table: What `tally` makes of the journal, if that is known.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    before = final or {}
    examples, rollouts = (_number(manifest.planned.get(name)) for name in ("num_examples", "rollouts_per_example"))
    threshold = _number(manifest.settings.get("env.pass_threshold"))
    return summarize(
        tally(recorded) if table is None else table,
        pass_threshold=1.0 if threshold is None else threshold,
        rollouts_per_example=int(rollouts or 1),
        planned=max(int((examples or 0) * (rollouts or 1)), len(recorded)),
        reward_range=manifest.reward_range,
        wall_s=_number(before.get("wall_s")),
        resumed=int(_number(before.get("resumed")) or 0),
        aim=aim_of(manifest),
    )


def aim_of(manifest: Manifest) -> Aim | None:
    """When a run was to end, if not with its plan; of one that is made from another run, what ended that early."""
    half_width = _number(manifest.settings.get("env.until_ci"))
    examples, rollouts = (_number(manifest.planned.get(name)) for name in ("num_examples", "rollouts_per_example"))
    if manifest.derived:
        examples = _number(manifest.derived.get(OF_EXAMPLES))
    if not half_width or half_width <= 0 or not examples or not rollouts:
        return None
    limits = finite_limits(manifest.reward_range)
    return Aim(half_width, int(examples), int(rollouts), limits, has_stopped=bool(manifest.derived))


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


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
