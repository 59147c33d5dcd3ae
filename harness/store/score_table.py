"""Convert a journal to the table of scores from which statistics are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from harness.core.records import JUDGEMENTS, Failed, Generated, Scored
from harness.core.safe_text import clean
from harness.core.types import Usage
from harness.stats.paired_target import PairedAim
from harness.stats.scores import LARGEST_SCORE, Details, ScoreTable
from harness.stats.summary import Summary, summarize
from harness.stats.target import Aim, finite_limits
from harness.store.clusters import clusters_of
from harness.store.journal import JournalReader
from harness.store.journal_index import LARGEST_ROLLOUT, Recorded, read_rollout
from harness.store.manifest import Manifest
from harness.store.outcome_kinds import missing_reason
from harness.store.outcomes import in_order
from harness.store.values import ends, number

MOST_KS = 64
"""Maximum number of values of k that are read from a manifest, which can be edited or damaged."""

OF_EXAMPLES = "of_examples"
"""Key in `Manifest.derived` with the number of examples that were planned before the parent ended early."""


def tally(recorded: Recorded) -> ScoreTable:
    """Tabulate the outcome of every rollout in a journal, by its newest line.

    A rollout without a score is unscored (`not scored`); a failed one is unscored with its reason.

    Args:
        recorded: The journal's content, read to its end.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    table = ScoreTable()
    if not len(recorded):
        return table  # a run without rollouts may have no journal
    with JournalReader(recorded.path) as reader:
        for each in in_order(recorded):
            enter(table, recorded.place(each), *read_rollout(reader, recorded.lines(each)))
    return table


def enter(table: ScoreTable, place: tuple[int, int], base: Generated | Failed, score: Scored | None) -> None:
    """Add one rollout to a table, for callers that read the journal themselves.

    Args:
        table: The table to extend.
        place: Position from `Recorded.place`.
        base: The rollout's newest `generated` or `failed` record.
        score: The rollout's newest score; None if it has no score.
    """
    details: Details = {"usage": base.usage, "seconds": max(0.0, base.timing.generation - base.timing.waiting)}
    reason = missing_reason(base, score)
    if isinstance(base, Failed):
        table.add(*place, None, {}, reason, **details)
        return
    details["truncated"] = base.is_truncated
    details["refused"] = base.is_refusal
    details["empty"] = base.is_empty and not base.is_refusal
    judgements = base.state.get(JUDGEMENTS)  # of judges that were called during the rollout
    if score is not None:
        judgements = score.extra.get(JUDGEMENTS, judgements)
    usages = _usages(judgements)
    details["judged"] = sum(usages, start=Usage()) if usages else None
    details["judged_unpriced"] = sum(usage.requests for usage in usages if usage.cost is None)
    reward, metrics = (None, {}) if score is None else (score.reward, score.metrics)
    table.add(*place, reward, metrics, reason, **details)


def summary_of(
    manifest: Manifest,
    recorded: Recorded,
    final: Mapping[str, object] | None = None,
    table: ScoreTable | None = None,
    *,
    pass_k: Sequence[int] = (),
) -> Summary:
    """Compute a run's summary from its current journal: `summary.json` may be older, or missing.

    Args:
        manifest: The run's manifest.
        recorded: Index of the run's journal, read to its end.
        final: Content of the run's `summary.json`, the only source of its duration; used if it covers the whole
            journal. Values that are not numbers are ignored, since files can be edited or damaged.
        table: Result of `tally`, if known.
        pass_k: Numbers of attempts for pass@k; empty for those of the run's settings.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: the file cannot be read.
    """
    before = final or {}
    examples, rollouts = (number(manifest.planned.get(name)) for name in ("num_examples", "rollouts_per_example"))
    threshold = number(manifest.settings.get("env.pass_threshold"))
    summary = summarize(
        tally(recorded) if table is None else table,
        pass_threshold=1.0 if threshold is None else threshold,
        rollouts_per_example=int(rollouts or 1),
        planned=max(int((examples or 0) * (rollouts or 1)), len(recorded)),
        reward_range=manifest.reward_range,
        wall_s=number(before.get("wall_s")),
        resumed=int(number(before.get("resumed")) or 0),
        aim=aim_of(manifest),
        pass_k=pass_k or pass_k_of(manifest),
        clusters=clusters_of(recorded, manifest.cluster_key),
    )
    figures = before.get("figures")
    found = cast("dict[str, object]", figures) if isinstance(figures, dict) else {}
    return replace(
        summary, figures={name: value for name, each in found.items() if (value := number(each)) is not None}
    )


def pass_k_of(manifest: Manifest) -> tuple[int, ...]:
    """Numbers of attempts for pass@k in a run's settings; empty for the default."""
    found = manifest.settings.get("env.pass_k")
    values = cast("list[object]", found) if isinstance(found, list | tuple) else []
    return tuple(dict.fromkeys(k for k in values[:MOST_KS] if type(k) is int and 0 < k <= LARGEST_ROLLOUT))


def aim_of(manifest: Manifest) -> Aim | None:
    """Condition on which a run with `until_ci` or `gate` ends early; for a derived run, that of its parent. None if
    there is no condition, or an invalid one in an edited manifest."""
    examples, rollouts = (number(manifest.planned.get(name)) for name in ("num_examples", "rollouts_per_example"))
    if manifest.derived:
        examples = number(manifest.derived.get(OF_EXAMPLES))
    if not examples or not rollouts:
        return None
    limits, is_derived = finite_limits(manifest.reward_range), bool(manifest.derived)
    if manifest.gate:
        margin, scores = number(manifest.gate.get("margin")), _baseline_scores(manifest.gate.get("scores"))
        if limits is None or margin is None or margin < 0 or len(scores) != examples:
            return None
        if not -LARGEST_SCORE <= limits[0] < limits[1] <= LARGEST_SCORE:
            return None
        baseline = clean(manifest.gate.get("baseline"), 100)
        return PairedAim(math.inf, len(scores), int(rollouts), limits, is_derived, margin, scores, baseline)
    half_width = number(manifest.settings.get("env.until_ci"))
    if not half_width or half_width <= 0:
        return None
    return Aim(half_width, int(examples), int(rollouts), limits, has_stopped=is_derived)


def _baseline_scores(values: object) -> tuple[tuple[float, float], ...]:
    """Parse the baseline's scores in a manifest: numbers, or pairs where scores are missing. Empty if any is
    invalid."""
    found: list[tuple[float, float]] = []
    for value in cast("list[object]", values) if isinstance(values, list) else ():
        low, high = ends(value) or (number(value), number(value))
        if low is None or high is None or not -LARGEST_SCORE <= low <= high <= LARGEST_SCORE:
            return ()
        found.append((low, high))
    return tuple(found)


def judged(judgements: object) -> Usage | None:
    """Usage of judges, from the state value with their replies; None if there is no such value. Entries without the
    expected fields are ignored, since an environment may use the same name for something else."""
    usages = _usages(judgements)
    return sum(usages, start=Usage()) if usages else None


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
