"""Scores of recorded runs by example, read in one pass over each journal, and the choice of runs that belong
together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from harness.core.errors import StoreError, UsageError
from harness.core.records import Scored
from harness.core.types import JsonDict
from harness.report.text import clean
from harness.settings.wording import suggestion
from harness.stats.intervals import Estimate
from harness.stats.scores import LARGEST_SCORE
from harness.stats.summary import spread
from harness.store.catalogue import Filter, ListedRun, read_entry
from harness.store.clusters import clusters_of
from harness.store.journal import JournalReader, as_record
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.rows import as_messages, content_text
from harness.store.values import table

REWARD = "reward"

PREVIEW = 200
"""Maximum number of characters of an example's text."""


@dataclass
class RunScores:
    """Scores of one run."""

    entry: ListedRun
    manifest: Manifest
    recorded: Recorded
    values: dict[str, list[float]]
    """Scores of each example's rollouts, by example key; examples without a score are omitted."""
    unscored: int
    """Number of rollouts without a score."""

    @property
    def scored(self) -> int:
        """Number of rollouts with a score."""
        return sum(map(len, self.values.values()))

    @cached_property
    def clusters(self) -> dict[str, str]:
        """Cluster of each example with a score, by example key; empty if the run declares no clusters."""
        found = clusters_of(self.recorded, self.manifest.cluster_key)
        places = {} if found is None else {key: self.recorded.example_index(key) or 0 for key in self.values}
        return {} if found is None else {key: found.labels[place] for key, place in places.items()}


@dataclass(slots=True)
class Skipped:
    """Sentences about runs that are left out, and other facts to tell the user."""

    notes: list[str] = field(default_factory=list[str])

    def add(self, entries: Iterable[ListedRun], reason: str) -> None:
        """Note that runs are left out."""
        ids = [clean(entry.id, 100) for entry in entries]
        if ids:
            listed = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
            self.notes.append(f"left out: {listed}: {reason}")


def entries_of(paths: Iterable[Path], wanted: Filter, skipped: Skipped) -> list[ListedRun]:
    """Read manifests. Runs that cannot be read and second copies of a run are left out.

    Args:
        paths: The run folders.
        wanted: Filter of the runs.
        skipped: Receives notes about runs that are left out.
    """
    entries = [entry for entry in map(read_entry, paths) if wanted.keeps(entry)]
    skipped.add((each for each in entries if each.manifest is None), "cannot be read")
    found: dict[str, ListedRun] = {}
    for entry in entries:
        if entry.manifest is not None:
            found.setdefault(entry.manifest.id, entry)
    copies = (each for each in entries if each.manifest is not None and found[each.manifest.id] is not each)
    skipped.add(copies, "a second copy of a run")
    return [*found.values()]


def without_parents(entries: Sequence[ListedRun], skipped: Skipped) -> list[ListedRun]:
    """Leave out runs whose replies another of the runs shares, because it is their replay or rescore."""
    parents = {
        (each.manifest.parent, each.manifest.model)
        for each in entries
        if each.manifest is not None and each.manifest.derived and not each.manifest.is_imported
    }
    shared = [each for each in entries if (each.id, each.model) in parents]
    skipped.add(shared, "its replies were replayed or scored again in another of these runs")
    return [each for each in entries if each not in shared]


def measure_of(entries: Iterable[ListedRun], metric: str | None) -> str:
    """Name of the score to use.

    Raises:
        UsageError: a run has no such metric, or it is of an agent evaluation with several functions and none is named.
    """
    for entry in entries:
        manifest = cast(Manifest, entry.manifest)
        if metric is None and manifest.functions:
            raise UsageError(
                f"{entry.run.path} has several eval functions; choose one with --metric: "
                f"{', '.join(manifest.functions)}"
            )
        if metric not in (None, REWARD, *manifest.metric_names):
            raise UsageError(f"{entry.run.path} has no metric {metric!r}; {suggestion(metric, manifest.metric_names)}")
    return metric or REWARD


def read_scores(entry: ListedRun, measure: str) -> RunScores:
    """Read the scores of a run. A rollout counts with its newest lines.

    Args:
        entry: The run; its manifest must be readable.
        measure: The reward, or a metric.

    Raises:
        StoreError: the journal cannot be read.
    """
    recorded = Recorded(entry.run.journal_path)
    keys: list[str] = []
    scores: list[float | None] = []
    try:
        for number, offset, line in recorded.advance():
            if number == len(keys):
                keys.append(line["example_key"])
                scores.append(None)
            else:
                scores[number] = None
            if line["type"] == "scored":
                scores[number] = _score(recorded.path, offset, line, measure)
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    values: dict[str, list[float]] = {}
    for key, score in zip(keys, scores, strict=True):
        if score is not None:
            values.setdefault(key, []).append(score)
    return RunScores(entry, cast(Manifest, entry.manifest), recorded, values, scores.count(None))


def _score(path: Path, offset: int, line: JsonDict, measure: str) -> float | None:
    value = line.get("reward") if measure == REWARD else table(line.get("metrics")).get(measure)
    if type(value) is not float and value is not None:  # not as usual: validate the whole line
        record = cast(Scored, as_record(path, offset, line))
        value = record.reward if measure == REWARD else record.metrics.get(measure)
        value = float(value) if isinstance(value, int | float) and abs(value) <= LARGEST_SCORE else None
    return value if value is not None and abs(value) <= LARGEST_SCORE else None


def pooled_spread(
    values: Mapping[str, list[float]], limits: tuple[float, float], runs: Sequence[RunScores]
) -> Estimate:
    """Mean over examples with its interval, which allows for the clusters that the runs declare.

    Args:
        values: Scores by example key.
        limits: Lowest and highest possible score.
        runs: The runs that the scores are from.
    """
    known = {key: name for run in runs for key, name in run.clusters.items()}
    return spread(values.values(), limits, [known.get(key, key) for key in values] if known else None).estimate


@dataclass(frozen=True, slots=True)
class ExampleText:
    """Name and text of an example."""

    example_id: int | str
    text: str
    """Beginning of the last message of the user in its prompt."""


def example_texts(runs: Sequence[RunScores], keys: Iterable[str]) -> dict[str, ExampleText]:
    """Read names and texts of examples, by key, from the last of the runs that has each.

    Raises:
        StoreError: a journal cannot be read.
    """
    wanted = set(keys)
    found: dict[str, ExampleText] = {}
    for run in reversed(runs):
        here = [key for key in run.values if key in wanted and key not in found]
        if not here:
            continue
        with JournalReader(run.recorded.path) as reader:
            for key in here:
                found[key] = _text_of(reader.document(cast(int, run.recorded.example_line(key))))
    return found


def _text_of(line: JsonDict) -> ExampleText:
    name = line.get("example_id")
    messages = [table(each) for each in as_messages(line.get("prompt"), "user")]
    asked = [each for each in messages if each.get("role") == "user"] or messages
    text = content_text(asked[-1].get("content")) if asked else None
    return ExampleText(name if isinstance(name, int | str) else str(name), clean(text or "", PREVIEW))
