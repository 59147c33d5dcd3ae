"""Data of a report page, gathered from run folders: environments, runs, labels, order. Statistics are computed in
`stats` and `store.score_table`."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.core.errors import StoreError, UsageError
from harness.report.page.columns import RolloutColumns
from harness.report.page.differences import Beside, differences_of
from harness.report.page.relations import CostBin, relations_of
from harness.report.run_digest import Digest, digest_of
from harness.report.table import RunReport, remarks_of
from harness.report.text import clean
from harness.stats.averages import macro_mean
from harness.stats.intervals import Estimate
from harness.stats.summary import Summary
from harness.stats.target import finite_limits
from harness.store.catalogue import ListedRun, read_entry
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.outcomes import read_journal

LABEL = 80
"""Maximum characters of a run's label."""


@dataclass(frozen=True, slots=True)
class RunPart:
    """One run on the page."""

    entry: ListedRun
    manifest: Manifest
    label: str
    """Label that distinguishes it from other runs of its environment."""
    model: str
    colour: int
    """Number of the colour of the run's model."""
    found: Digest
    summary: Summary
    recorded: Recorded
    columns: RolloutColumns
    relations: dict[str, list[CostBin]]
    remarks: list[str]
    """Remarks on facts that the figures do not show."""
    measure: str = ""
    """Evaluation function of the figures, for an agent evaluation with several; otherwise ""."""

    @property
    def environment(self) -> str:
        """Group on the page: its environment, with the evaluation function."""
        name = clean(self.entry.env_id, LABEL)
        return f"{name} · {clean(self.measure, LABEL)}" if self.measure else name

    @property
    def estimate(self) -> Estimate:
        """Mean reward of the run, with its interval."""
        return self.summary.reward.estimate


@dataclass(frozen=True, slots=True)
class EnvPart:
    """Runs of one environment, best mean first."""

    name: str
    runs: list[RunPart]
    differences: list[Beside]
    limits: tuple[float, float]
    """Axis of the rewards: minimum and maximum."""


@dataclass(frozen=True, slots=True)
class Overall:
    """A model's mean over environments, equally weighted."""

    model: str
    colour: int
    estimate: Estimate


@dataclass(slots=True)
class Page:
    """Content of the page."""

    title: str
    environments: list[EnvPart]
    overall: list[Overall] = field(default_factory=list[Overall])
    """Models by mean, best first; only those with exactly one run in every environment."""
    missing: list[str] = field(default_factory=list[str])
    """Sentences about requested runs that are not on the page."""

    @property
    def runs(self) -> list[RunPart]:
        """All runs in page order; an agent evaluation with several functions appears once per function."""
        return [run for environment in self.environments for run in environment.runs]

    @property
    def folders(self) -> list[RunPart]:
        """All runs, each once, by the function that scored the most rollouts."""
        most = sorted(self.runs, key=lambda run: run.summary.scored)
        best = {run.entry.id: run for run in most}
        return [best[name] for name in dict.fromkeys(run.entry.id for run in self.runs)]


def page_of(paths: Sequence[Path], *, title: str = "", missing: Sequence[str] = ()) -> Page:
    """Read runs for a page.

    Args:
        paths: Folders of the runs.
        title: Title of the page; "" to derive one.
        missing: Sentences about runs already known to be missing.

    Raises:
        UsageError: no run can be shown.
        StoreError: the only run cannot be read.
    """
    parts: list[RunPart] = []
    said = list(missing)
    for path in paths:
        try:
            entry = read_entry(path)
            if entry.manifest is None:
                raise StoreError("; ".join(entry.problems) or f"cannot read {entry.run.manifest_path}")
            recorded = read_journal(entry.run)  # read once, so that all figures of a running run agree
            # An agent evaluation with several functions has one part per function.
            measures = entry.manifest.functions or [""]
            parts += [_run_part(entry, entry.manifest, recorded, measure) for measure in measures]
        except StoreError as error:
            if len(paths) == 1:
                raise
            said.append(f"{path.name}: {error}")
        except UsageError as error:
            said.append(str(error))
    if not parts:
        raise UsageError(f"nothing to report: {'; '.join(said) or 'no run was named'}")
    parts = _labelled(parts)
    environments = _environments(parts)
    return Page(title or _title(environments), environments, _overall(environments), said)


def _run_part(entry: ListedRun, manifest: Manifest, recorded: Recorded, measure: str) -> RunPart:
    columns = RolloutColumns()
    found = digest_of(recorded, manifest, entry.final, columns.take, measure=measure)
    if found.summary is None:
        raise UsageError(f"{entry.id} ({clean(entry.title)}, {entry.state}) has no rollouts yet")
    columns.end_example()
    report = RunReport(entry.name, entry.env_id, entry.model, None, found.summary, entry.state, entry.note)
    return RunPart(
        entry=entry,
        manifest=manifest,
        label="",
        model=clean(entry.model, LABEL),
        colour=0,
        found=found,
        summary=found.summary,
        recorded=recorded,
        columns=columns,
        relations=relations_of(
            columns, limits=finite_limits(manifest.reward_range), is_watched=found.summary.target is not None
        ),
        remarks=remarks_of(report),
        measure=measure,
    )


def _labelled(parts: Sequence[RunPart]) -> list[RunPart]:
    """Label each run by its model; if that is ambiguous, add its name, then its id. Assign each model a colour that is
    the same in every environment."""
    labels = [part.model for part in parts]
    for words in ([_own_name(part) for part in parts], [part.entry.id for part in parts]):
        used = Counter((part.environment, label) for part, label in zip(parts, labels, strict=True))
        for position, (part, word) in enumerate(zip(parts, words, strict=True)):
            is_ambiguous = used[part.environment, labels[position]] > 1
            if is_ambiguous and word not in (clean(part.entry.env_id, LABEL), part.model):
                labels[position] = f"{part.model} · {word}"
    colours = {model: number for number, model in enumerate(dict.fromkeys(part.model for part in parts))}
    return [
        dataclasses.replace(part, label=label, colour=colours[part.model])
        for part, label in zip(parts, labels, strict=True)
    ]


def _own_name(part: RunPart) -> str:
    """Name of the run; in a sweep, only the part that the page does not show elsewhere."""
    name = clean(part.entry.name, 4 * LABEL)
    env = clean(part.entry.env_id, LABEL)
    if name.startswith(f"{env}[") and name.endswith("]"):
        name = name[len(env) + 1 : -1].removesuffix(f", {part.model}").removeprefix(f"{part.model}, ")
    return clean(name, LABEL)


def _environments(parts: Sequence[RunPart]) -> list[EnvPart]:
    def by_mean(part: RunPart) -> float:
        mean = part.estimate.mean
        return math.inf if mean is None else -mean

    names = dict.fromkeys(part.environment for part in parts)
    ranked = [sorted((part for part in parts if part.environment == name), key=by_mean) for name in names]
    found = differences_of([[run.columns.scores(run.manifest.reward_range) for run in runs] for runs in ranked])
    return [EnvPart(*each, _limits(each[1])) for each in zip(names, ranked, found, strict=True)]


def _limits(runs: Sequence[RunPart]) -> tuple[float, float]:
    """Axis of the rewards: their range or, if unbounded, the observed values."""
    ends = [end for run in runs for end in run.manifest.reward_range if math.isfinite(end)]
    for run in runs:
        ends += [value for value in (run.summary.reward.min, run.summary.reward.max) if value is not None]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    return (low, high) if high > low else (low, low + 1.0)


def _overall(environments: Sequence[EnvPart]) -> list[Overall]:
    if len(environments) < 2 or any(run.measure for environment in environments for run in environment.runs):
        return []  # different functions have no common mean
    models = list(dict.fromkeys(run.model for environment in environments for run in environment.runs))
    found: list[Overall] = []
    for model in models:
        runs = [[run for run in environment.runs if run.model == model] for environment in environments]
        if all(len(each) == 1 and each[0].estimate.mean is not None for each in runs):
            estimate = macro_mean([each[0].estimate for each in runs])
            found.append(Overall(model, runs[0][0].colour, estimate))
    return sorted(found, key=lambda each: -(each.estimate.mean or 0.0))


def _title(environments: Sequence[EnvPart]) -> str:
    runs = [run for environment in environments for run in environment.runs]
    names = list(dict.fromkeys(clean(run.entry.env_id, LABEL) for run in runs))
    models = list(dict.fromkeys(run.model for run in runs))
    what = names[0] if len(names) == 1 else f"{len(names)} environments"
    who = models[0] if len(models) == 1 else f"{len(models)} models"
    return f"{what} · {who}"
