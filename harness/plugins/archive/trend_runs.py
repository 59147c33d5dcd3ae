"""Dated runs of one environment with one model, in segments within which nothing but the model may have changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.plugins.archive.scores import RunScores, Skipped, entries_of, measure_of, pooled_spread, read_scores
from harness.report.text import clean
from harness.stats.difference import Difference, adjust, difference_of, scores_of
from harness.stats.drift import Drift, drift_of
from harness.stats.intervals import Estimate
from harness.stats.target import finite_limits
from harness.store.catalogue import Filter, ListedRun
from harness.store.find_runs import all_runs
from harness.store.resume import differences
from harness.store.score_table import aim_of

LEAST_COMMON = 0.5
"""Minimum share of examples that a run has in common with its segment: of its own, or of the segment's."""


@dataclass
class Segment:
    """Successive runs that can be compared."""

    reason: str
    """What changed before its first run; "" for the first segment."""
    measure: str
    runs: list[RunScores] = field(default_factory=list[RunScores])
    keys: set[str] = field(default_factory=set[str])
    """Keys of the examples that a run of it has scored."""

    @cached_property
    def drift(self) -> Drift:
        """The test for drift."""
        return drift_of([run.values for run in self.runs])

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest score: as the runs declare, extended to the observed ones."""
        ends = [value for run in self.runs for each in run.values.values() for value in each]
        for run in self.runs:
            ends += finite_limits(run.manifest.range_of(self.measure)) or ()
        return min(ends), max(ends)

    def estimate(self, place: int) -> Estimate:
        """Mean of a run, with its interval."""
        return pooled_spread(self.runs[place].values, self.limits, [self.runs[place]])

    @cached_property
    def size(self) -> Difference | None:
        """Difference between the runs from the change on and those before it, by example; None without a change."""
        change = self.drift.change
        if change is None:
            return None
        before, after = _pooled(self.runs[:change]), _pooled(self.runs[change:])
        clusters = {key: name for run in self.runs for key, name in run.clusters.items()} or None
        [found] = adjust([difference_of(*(scores_of(each, self.limits, clusters) for each in (after, before)))])
        return found


def _pooled(runs: Sequence[RunScores]) -> dict[str, list[float]]:
    pooled: dict[str, list[float]] = {}
    for run in runs:
        for key, values in run.values.items():
            pooled.setdefault(key, []).extend(values)
    return pooled


def dated_runs(env: str, wanted: Filter, output_dir: Path, skipped: Skipped) -> list[ListedRun]:
    """The runs of one environment with one model, oldest first.

    Args:
        env: The environment as the user named it.
        wanted: Filter of the runs, by environment, model and time.
        output_dir: The output folder.
        skipped: Receives notes about runs that are left out.

    Raises:
        UsageError: no run matches, or the runs are of several environments or models.
    """
    kept = entries_of(all_runs(output_dir), wanted, skipped)
    kept = [each for each in kept if each.env_id == env] or kept
    kept = [each for each in kept if each.model in wanted.models] or kept
    for what, names in (
        ("environments", sorted({each.env_id for each in kept})), ("models", sorted({each.model for each in kept})),
    ):  # fmt: skip
        if len(names) > 1:
            remedy = "give its whole name" if what == "environments" or wanted.models else "choose one with --model"
            listed = ", ".join(clean(name, 100) for name in names[:8])
            raise UsageError(f"the runs of {env!r} are of {len(names)} {what}; {remedy}: {listed}")
    unfit: dict[str, list[ListedRun]] = {
        "in progress": [each for each in kept if each.state == "running"],
        "made from the replies of another run": [each for each in kept if each.manifest and each.manifest.derived],
        "ended early when its interval was narrow (--until-ci), so its length depends on its scores": [
            each for each in kept if each.manifest and aim_of(each.manifest) is not None
        ],
    }
    for reason, entries in unfit.items():
        skipped.add(entries, reason)
    bad = [each for entries in unfit.values() for each in entries]
    kept = [each for each in kept if each not in bad]
    if not kept:
        raise UsageError(
            f"no runs of {env!r} that can be compared in {output_dir}"
            + (f" ({'; '.join(skipped.notes)})" if skipped.notes else "; list them with bench runs")
        )
    return sorted(kept, key=lambda each: (each.created.timestamp() if each.created else 0.0, each.id))


def segments_of(entries: Sequence[ListedRun], metric: str | None, skipped: Skipped) -> list[Segment]:
    """Read the runs, and divide them where something other than the model changed.

    Raises:
        UsageError: a run has no such metric, or none has a score.
        StoreError: a journal cannot be read.
    """
    measure = measure_of(entries, metric)
    segments: list[Segment] = []
    for entry in entries:
        run = read_scores(entry, measure)
        if not run.values:
            skipped.add([entry], "it has no score")
            continue
        reason = _change(segments[-1], run) if segments else ""
        if reason or not segments:
            segments.append(Segment(reason, measure))
        segments[-1].runs.append(run)
        segments[-1].keys.update(run.values)
    if not segments:
        raise UsageError("none of these runs has a score; try bench runs show on one of them")
    return segments


def _change(segment: Segment, new: RunScores) -> str:
    """What changed before a new run, other than the model; "" if nothing did."""
    ours, theirs = (_settings(run.manifest.identity) for run in (segment.runs[-1], new))
    if changed := differences(ours, theirs):
        return "; ".join(map(str, changed))
    common = len(segment.keys & new.values.keys())
    if common < LEAST_COMMON * min(len(segment.keys), len(new.values)):
        return f"the examples are others: {common} of {len(new.values)} were there before"
    return ""


def _settings(identity: Mapping[str, object]) -> JsonDict:
    """A run's identity without the order and choice of examples, which do not change an example's score."""
    return {name: value for name, value in identity.items() if name != "order"}


def other_versions(segment: Segment) -> list[str]:
    """Sentences about versions of bench that changed within a segment."""
    found: list[str] = []
    for before, after in zip(segment.runs, segment.runs[1:], strict=False):
        old, new = (run.manifest.versions.get("bench-harness") for run in (before, after))
        if old != new:
            found.append(f"bench {clean(str(old), 40)} became {clean(str(new), 40)} before run {after.entry.id}")
    return found


def is_possible(segment: Segment) -> bool:
    """Whether the runs could have found a drift that is not larger than the range of the scores."""
    low, high = segment.limits
    reach = segment.drift.detectable
    return reach is not None and math.isfinite(reach) and reach < high - low
