"""Comparison of runs by example. The scores come from the indexes, so no journal is read; verdicts, intervals, p-values
and sentences are those of `bench compare`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.plugins.view.run_index import Array, RunIndex
from harness.plugins.view.tables import RowWriter, clusters_by_place
from harness.report.compare.comparison_json import match_json
from harness.report.compare.pairing import measures_of
from harness.report.compare.screen import explained, labels, missing
from harness.report.compare.sides import REWARD, ComparedRun, ExampleScores, Match, match
from harness.report.runs import recorded_estimate
from harness.report.text import clean
from harness.stats.difference import adjust
from harness.stats.intervals import Estimate
from harness.stats.scores import LARGEST_SCORE
from harness.stats.summary import Spread
from harness.store.journal_index import Recorded
from harness.store.values import number, table


@dataclass(frozen=True, slots=True, eq=False)
class Board:
    """Comparison of several runs with the first one. Arrays have one row for each example that the first run and
    another one have, in the order of the first run."""

    sides: tuple[ComparedRun, ...]
    """The runs, with their scores of the measure by which the examples are sorted."""
    labels: tuple[str, ...]
    comparisons: tuple[JsonDict, ...]
    notes: tuple[str, ...]
    """Sentences about missing scores."""
    measure: str
    keys: tuple[str, ...]
    places: tuple[Array, ...]
    """For each run the position of each example in its tables; -1 if it does not have the example."""
    differences: Array
    """The largest difference of a run from the first one, with its sign; 0 if none differs, NaN without scores."""
    widest: Array
    """Number of the run with that difference."""
    ranks: Array
    """Place of each example if the largest difference is first."""


def board_of(indexes: Sequence[RunIndex], asked: str) -> Board:
    """Compare runs with the first one, or return the comparison that was made for the same state of the indexes.

    Args:
        indexes: The indexes of the runs.
        asked: Value to compare: `reward`, or a metric; "" for those that `bench compare` chooses.

    Raises:
        StoreError: a run cannot be read.
    """
    measures: list[list[str]] = [[] for _ in indexes]
    problems: dict[int, str] = {}
    for candidate, index in enumerate(indexes[1:], 1):
        try:
            measures[candidate] = [asked] if asked else measures_of(index.entry.run, indexes[0].entry.run)
        except UsageError as error:
            problems[candidate] = str(error)
    main = next((each[0] for each in measures if each), REWARD)
    wanted = list(dict.fromkeys([main, *(name for each in measures for name in each)]))
    found: list[dict[str, ComparedRun | str]] = []
    declared = [index.manifest.cluster_key for index in indexes]
    cluster = next(filter(None, declared), "")
    for candidate, each in enumerate(declared):
        if candidate and each and each != cluster:
            problems[candidate] = f"The runs declare different clusters: {clean(each, 200)} and {clean(cluster, 200)}."
            measures[candidate] = []
    for index in indexes:
        with index.reading():
            found.append({name: _side(index, name, cluster) for name in wanted})
    key = ("compare", tuple(index.entry.id for index in indexes), asked)
    with indexes[0].reading():
        held = cast("tuple[object, Board] | None", indexes[0].derived.get(key))
        if held is None or held[0] != found:
            held = found, _Comparing(indexes, found, measures, problems, main).board()
            indexes[0].derived[key] = held
        return held[1]


def _side(index: RunIndex, measure: str, cluster: str) -> ComparedRun | str:
    """Scores of a run from its index, the same as `sides.read_side` reads from the journal; or the reason why it has
    none. Must be called while the index is being read."""
    key = ("side", measure, cluster)
    if key not in index.derived:
        index.derived[key] = _read_side(index, measure, cluster)
    return index.derived[key]


def _read_side(index: RunIndex, measure: str, cluster: str) -> ComparedRun | str:
    manifest, run = index.manifest, index.entry.run
    column = REWARD if measure == REWARD else f"metric.{measure}"
    if measure != REWARD and measure not in manifest.metric_names:
        return f"{run.id} has no metric {clean(measure, 200)}."
    if index.storage(column) != "number":
        return f"Values of {clean(measure, 200)} in {run.id} are too large to be compared here."
    side, labels = _empty_side(index, measure), clusters_by_place(index, cluster)
    side.cluster_key, side.alone = cluster, sum(label.startswith("\0") for label in labels.values())
    order, rewards = index.order, index.numbers(REWARD)
    values = np.where(np.abs(index.numbers(column)) <= LARGEST_SCORE, index.numbers(column), np.nan)
    side.is_reward = bool(np.array_equal(values, rewards, equal_nan=True))
    seconds = index.numbers("seconds") - np.nan_to_num(index.numbers("waiting_seconds"))
    side.seconds = np.nan_to_num(np.maximum(seconds, 0.0))[order].tolist()
    held, places = values[order].tolist(), index.array("place")[order].tolist()
    starts, keys = index.starts.tolist(), index.keys
    for start, end in zip(starts, [*starts[1:], index.count], strict=True) if starts else ():
        if (known := keys.get(places[start])) is not None:
            scored = [value for value in held[start:end] if not math.isnan(value)]
            own = labels.get(places[start])
            cell = ExampleScores(cast("int | str", known[1]), places[start], own, scored, end - start - len(scored))
            side.cells[known[0]] = cell
    row = RowWriter(index)
    for place in np.flatnonzero(np.isnan(values)).tolist():
        side.unscored[row.word("reason", place) or f"{measure} has no value"] += 1
    final = index.entry.final or {}
    if final.get("until_ci"):
        mean = number(table(table(final.get("metrics")).get(measure)).get("mean"))
        side.ended_early = Spread(recorded_estimate(final) if measure == REWARD else Estimate(mean))
    return side


def _empty_side(index: RunIndex, measure: str) -> ComparedRun:
    run = index.entry.run
    return ComparedRun(run, index.manifest, Recorded(run.journal_path), measure, unscored=Counter())


@dataclass(frozen=True, slots=True)
class _Comparing:
    """The comparison of some runs."""

    indexes: Sequence[RunIndex]
    found: list[dict[str, ComparedRun | str]]
    """Of each run its scores, or the reason why it has none, by measure."""
    measures: list[list[str]]
    """Measures to compare, for each run."""
    problems: dict[int, str]
    """Why a run cannot be compared at all."""
    main: str

    def board(self) -> Board:
        """Compare the runs."""
        sides = [self._shown(each, index) for each, index in zip(self.found, self.indexes, strict=True)]
        named = labels(sides)
        matches, problems = self._matches()
        comparisons = [
            {
                **match_json(each, 0), "run": candidate, "label": named[candidate], "problem": "",
                "estimate": {"mean": each.estimate.mean, "low": each.estimate.low, "high": each.estimate.high},
                "sentences": list(explained(named[candidate], named[0], each)),
            }
            for candidate, each in matches
        ]  # fmt: skip
        failed = [
            {"run": candidate, "label": named[candidate], "candidate": sides[candidate].run.id, "problem": problem}
            for candidate, problem in problems
        ]
        notes = [words for label, side in zip(named, sides, strict=True) for words in missing(label, side)]
        main = [(candidate, each) for candidate, each in matches if each.candidate.measure == self.main]
        return _arranged(sides, named, main, [*comparisons, *failed], notes, self.main)

    def _shown(self, held: dict[str, ComparedRun | str], index: RunIndex) -> ComparedRun:
        side = held[self.main]
        return _empty_side(index, self.main) if isinstance(side, str) else side

    def _matches(self) -> tuple[list[tuple[int, Match]], list[tuple[int, str]]]:
        """The comparisons with the number of their run, and why others are not possible."""
        numbers: list[int] = []
        made: list[Match] = []
        problems = list(self.problems.items())
        name = self.indexes[0].manifest.name or self.indexes[0].manifest.env_id
        for candidate, measures in enumerate(self.measures):
            for measure in measures:
                first, second = self.found[candidate][measure], self.found[0][measure]
                if isinstance(first, str) or isinstance(second, str):
                    problems.append((candidate, first if isinstance(first, str) else cast(str, second)))
                    continue
                ours, theirs = first.manifest.env_id, second.manifest.env_id
                try:
                    made.append(match(name, first, second, first.label))
                    numbers.append(candidate)
                except UsageError:
                    why = f"are of different environments ({clean(ours, 200)}, {clean(theirs, 200)})"
                    problems.append((candidate, f"The runs have no example in common, and {why}."))
        return list(zip(numbers, adjust(made), strict=True)), sorted(problems)


def _arranged(
    sides: Sequence[ComparedRun],
    named: Sequence[str],
    matches: Sequence[tuple[int, Match]],
    comparisons: Sequence[JsonDict],
    notes: Sequence[str],
    measure: str,
) -> Board:
    """Find the examples that the first run shares with others, and their largest differences."""
    flips: dict[str, tuple[float, int, int]] = {}
    for candidate, each in matches:
        for flip in each.flips:
            if abs(flip.difference) > abs(flips.get(flip.key, (0.0,))[0]):
                flips[flip.key] = flip.difference, candidate, flip.first.index
    keys = [key for key in sides[0].cells if any(key in side.cells for side in sides[1:])]
    means = [side.means for side in sides]
    tied = {key for key in keys if key in means[0] and any(key in each for each in means[1:])}
    differences = np.array([flips[key][0] if key in flips else 0.0 if key in tied else math.nan for key in keys])
    widest = np.array([flips[key][1] if key in flips else 0 for key in keys], "i8")
    places = [np.array([side.cells[key].index if key in side.cells else -1 for key in keys], "i8") for side in sides]
    # Equal differences have the order of `bench compare`: that of the run that differs.
    second = np.array([flips[key][2] if key in flips else sides[0].cells[key].index for key in keys], "f8")
    ranks = np.zeros(len(keys), "i8")
    ranks[np.lexsort((second, -np.nan_to_num(np.abs(differences), nan=-1.0)))] = np.arange(len(keys))
    return Board(
        tuple(sides), tuple(named), tuple(comparisons), tuple(notes), measure, tuple(keys), tuple(places),
        differences, widest, ranks,
    )  # fmt: skip
