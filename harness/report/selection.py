"""Search for rollouts of recorded runs by a query: iterate over the matches, choose the worst, or group by a column.
Journals are streamed; memory holds their indexes and one rollout at a time."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.rollout_columns import RunRollout, failed, rollout_columns
from harness.report.transcript import example_fields, rollout_json
from harness.settings.wording import nearest
from harness.stats.intervals import Estimate
from harness.stats.summary import spread
from harness.stats.target import finite_limits
from harness.store.clusters import ClusterLabels
from harness.store.codec import to_text
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.notes import Notes, read_notes
from harness.store.outcomes import in_order, outcomes, read_journal
from harness.store.query import shown_name
from harness.store.query_match import Query, QueryColumn, QueryColumns, compile_query, fold, is_missing
from harness.store.rundir import RunDir

NO_VALUE = "(none)"
"""Label of the group of rollouts without a value."""

MOST_SEEN = 500
"""Maximum number of values of a column to remember for suggestions."""

LONGEST_VALUE = 200
"""Maximum number of characters of a value that is remembered or used as the name of a group."""

OVER_ALL_RUNS = frozenset({"run", "env", "model", "name"})
"""Columns whose value is the same in all rollouts of a run. Grouping by such a column puts all runs into one table."""


@dataclass
class SourceRun:
    """One of the runs whose rollouts are searched."""

    folder: RunDir
    manifest: Manifest

    @cached_property
    def recorded(self) -> Recorded:
        """Index of the journal, read once."""
        return read_journal(self.folder)

    @cached_property
    def notes(self) -> Notes:
        """The notes of people about the rollouts, read once."""
        return read_notes(self.folder)

    def rollouts(self, numbers: Iterable[int] | None = None) -> Iterator[RunRollout]:
        """The run's rollouts in table order, or those at the given positions in the journal."""
        for outcome in outcomes(self.recorded, numbers):
            yield RunRollout(self.folder.id, self.manifest, outcome, self.notes.of(outcome.base.key))


@dataclass
class Search:
    """Rollouts of some runs that match a query.

    Args:
        runs: The runs.
        query: The query, checked against `columns`.
        columns: Columns of the runs.
    """

    runs: Sequence[SourceRun]
    query: Query[RunRollout]
    columns: QueryColumns[RunRollout]
    total: int = 0
    """Number of rollouts read so far."""
    found: int = 0
    """Number of rollouts that match the query."""
    seen: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])
    """Values seen in the columns that the query names, for suggestions."""
    missing: dict[str, int] = field(default_factory=dict[str, int])
    """Number of rollouts without a value, for each column that the query names."""
    info_names: dict[str, None] = field(default_factory=dict[str, None])
    """Names of info columns, if the query names one that a rollout does not have."""
    group_by: QueryColumn[RunRollout] | None = None
    """Column by which the matching rollouts are to be grouped; noted if no rollout has it."""

    @property
    def counts(self) -> str:
        """Numbers of matching and of all rollouts, as text."""
        return f"{numerals.count(self.found)} of {numerals.counted(self.total, 'rollout')}"

    def _named(self) -> dict[str, QueryColumn[RunRollout]]:
        extra = () if self.group_by is None else (self.group_by,)
        return {column.name: column for column in (*self.query.columns, *extra)}

    def matches(self) -> Iterator[tuple[SourceRun, int, RunRollout]]:
        """The matching rollouts in table order, run by run, each with its run and its position in the journal."""
        watched = [column for name, column in self._named().items() if name not in _TEXTS]
        for run in self.runs:
            numbers = in_order(run.recorded)
            for number, rollout in zip(numbers, run.rollouts(numbers), strict=True):
                self.total += 1
                self._watch(rollout, watched)
                if self.query.matches(rollout):
                    self.found += 1
                    yield run, number, rollout

    def worst(self, count: int) -> list[tuple[SourceRun, int]]:
        """Runs and journal positions of the matching rollouts with the lowest rewards, lowest first. Rollouts without a
        reward are left out.

        Args:
            count: Maximum number of rollouts.
        """
        places = {id(run): place for place, run in enumerate(self.runs)}
        rewards = (
            (reward, places[id(run)], order, number)
            for order, (run, number, rollout) in enumerate(self.matches())
            if (reward := rollout.outcome.reward) is not None
        )
        return [(self.runs[place], number) for _, place, _, number in heapq.nsmallest(count, rewards)]

    def notes(self) -> Iterator[str]:
        """Explain why a query cannot match: it names columns without any value, or words that occur in no value."""
        if not self.total:
            return
        for whole in self._named():
            if self.missing.get(whole) == self.total:
                prefix, _, name = whole.partition(".")
                near = nearest(name, list(self.info_names)) if prefix == "info" else None
                yield f"no rollout has {whole}" + (f": did you mean {shown_name(f'info.{near}')}?" if near else "")
        for column, word in () if self.found else self.query.words:
            values = self.seen.get(column.name, {})
            near = nearest(word, list(values))
            if near and column.kind != "choice" and not any(fold(word) in fold(value) for value in values):
                yield f'no rollout has {column.name} "{word}": did you mean "{near}"?'

    def _watch(self, rollout: RunRollout, columns: Sequence[QueryColumn[RunRollout]]) -> None:
        for column in columns:
            value = column.read(rollout)
            if is_missing(value):
                self.missing[column.name] = self.missing.get(column.name, 0) + 1
                if column.name.startswith("info.") and len(self.info_names) < MOST_SEEN:
                    self.info_names.update(dict.fromkeys(rollout.outcome.example.info))
            elif column.kind != "number" and len(values := self.seen.setdefault(column.name, {})) < MOST_SEEN:
                values[value_text(value)[:LONGEST_VALUE]] = None


_TEXTS = frozenset({"text", "prompt", "completion", "reply", "reasoning", "parsed", "judge", "error", "note"})
"""Columns of long text, whose values are not remembered."""


def search(paths: Iterable[Path], text: str, *, only_failed: bool = False) -> Search:
    """Prepare a search in recorded runs.

    Args:
        paths: Folders of the runs.
        text: The query.
        only_failed: Whether to search only failed rollouts, as with `is:failed`.

    Raises:
        QueryError: the query is invalid.
        StoreError: a run's manifest cannot be read.
    """
    runs = [SourceRun(folder, folder.read_manifest()) for folder in map(RunDir, paths)]
    columns = rollout_columns(run.manifest for run in runs)
    query = compile_query(text, columns)
    query_matches = query.matches
    if only_failed:
        whole = f"is:failed ({text})" if text.strip() else "is:failed"

        def matches(each: RunRollout) -> bool:
            return failed(each) and query_matches(each)

        query = replace(query, text=whole, matches=matches)
    return Search(runs, query, columns)


@dataclass(slots=True)
class ValueGroup:
    """Rollouts with the same value of a column."""

    value: str
    """The value as text; `NO_VALUE` if missing."""
    example: str
    """Id of the first example."""
    rollout: int
    """Index of the first rollout."""
    run_id: str
    count: int = 0
    _rewards: list[array[float]] = field(default_factory=list["array[float]"])
    """Rewards of the scored rollouts, by example."""
    _owners: list[str] = field(default_factory=list[str])
    """Label of the cluster of each of these examples; empty if examples are independent."""
    _last: tuple[str, str] = ("", "")

    def add(self, rollout: RunRollout) -> None:
        """Count one rollout. The rollouts of an example must be added one after the other."""
        self.count += 1
        if (reward := rollout.outcome.reward) is None:
            return
        key = (rollout.run_id, rollout.outcome.example.key)
        if key != self._last:
            self._rewards.append(array("d"))
            if cluster_key := rollout.manifest.cluster_key:
                self._owners.append(ClusterLabels(cluster_key).add(rollout.outcome.example, key[1]))
            self._last = key
        self._rewards[-1].append(reward)

    @property
    def scored(self) -> int:
        """Number of rollouts with a reward."""
        return sum(map(len, self._rewards))

    def estimate(self, limits: tuple[float, float] | None) -> Estimate:
        """Mean reward over examples with its interval, as `stats.summary.spread` computes it.

        Args:
            limits: Lowest and highest possible reward; None if unknown.
        """
        owners = self._owners if len(self._owners) == len(self._rewards) else None  # some runs may declare none
        return spread([each.tolist() for each in self._rewards], limits, owners or None).estimate


def groups_of(
    column: QueryColumn[RunRollout], rollouts: Iterable[RunRollout]
) -> dict[str, tuple[Manifest, list[ValueGroup]]]:
    """Group rollouts by a column.

    Args:
        column: The column.
        rollouts: The rollouts; those of the same run and example must be adjacent.

    Returns:
        By run id: the run's manifest and its groups, the largest first. For a column whose value is the same in all
        rollouts of a run, a single entry with the id "".
    """
    tables: dict[str, tuple[Manifest, dict[object, ValueGroup]]] = {}
    for rollout in rollouts:
        place = "" if column.name in OVER_ALL_RUNS else rollout.run_id
        _, groups = tables.setdefault(place, (rollout.manifest, {}))
        value = column.read(rollout)
        text = NO_VALUE if is_missing(value) else value_text(value)
        outcome = rollout.outcome
        key = (text, is_missing(value)) if len(text) <= LONGEST_VALUE else (text[:LONGEST_VALUE], hash(text))
        group = groups.get(key)
        if group is None:
            first = str(outcome.example.example_id), outcome.base.rollout_index, rollout.run_id
            group = groups[key] = ValueGroup(text[:LONGEST_VALUE], *first)
        group.add(rollout)
    return {
        run: (manifest, sorted(groups.values(), key=lambda group: -group.count))
        for run, (manifest, groups) in tables.items()
    }


def value_text(value: object) -> str:
    """A column's value as one line of text."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    if isinstance(value, tuple):
        return ", ".join(map(str, cast("tuple[object, ...]", value)))
    return " ".join((value if isinstance(value, str) else to_text(value)).split())


def limits_of(manifests: Iterable[Manifest]) -> tuple[float, float] | None:
    """Lowest and highest possible reward over several runs; None unless all are finite."""
    ranges = [manifest.reward_range for manifest in manifests]
    both = min(low for low, _ in ranges), max(high for _, high in ranges)
    return finite_limits(both) if all(map(math.isfinite, both)) else None


def selected_json(rollout: RunRollout) -> JsonDict:
    """A selected rollout as JSON, with its example; the keys are documented in docs/reference/queries.md."""
    outcome = rollout.outcome
    return {
        "run": rollout.run_id,
        "env_id": rollout.manifest.env_id,
        "model": rollout.manifest.model,
        "key": outcome.base.key,
        **example_fields(outcome.example),
        **rollout_json(outcome, rollout.notes),
    }


def group_json(run: str, group: ValueGroup, total: int, limits: tuple[float, float] | None) -> JsonDict:
    """A group as JSON.

    Args:
        run: Id of the run; "" if the group is over all runs.
        group: The group.
        total: Number of rollouts in all groups of the table.
        limits: Lowest and highest possible reward; None if unknown.
    """
    estimate = group.estimate(limits)
    return {
        "run": run or None,
        "value": None if group.value == NO_VALUE else group.value,
        "count": group.count,
        "share": group.count / total,
        "scored": group.scored,
        "mean": estimate.mean,
        "ci95": estimate.ends,
        "method": estimate.method,
        "first": {"run": group.run_id, "example_id": group.example, "rollout_index": group.rollout},
    }
