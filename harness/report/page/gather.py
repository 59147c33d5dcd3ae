"""Data of a report page, gathered from run folders: environments, runs, labels, order, differences, methods. Statistics
are computed in `stats` and `store.score_table`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

from harness.core.errors import StoreError, UsageError
from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.final_table import RunReport, remarks_of, threshold_text
from harness.report.labels import corrected_mean
from harness.report.page.columns import CostBin, RolloutColumns, relations_of
from harness.report.run_digest import Digest, digest_of
from harness.report.text import clean
from harness.stats.averages import macro_mean
from harness.stats.difference import Difference, adjust, difference_of
from harness.stats.intervals import Estimate
from harness.stats.labels import Corrected
from harness.stats.methods import INTERVALS, SUMMARY, describe
from harness.stats.paired import METHODS as PAIRED
from harness.stats.ranks import RankedRuns, rank_runs
from harness.stats.summary import Summary
from harness.stats.target import finite_limits
from harness.store.catalogue import ListedRun, read_entry
from harness.store.clusters import clusters_of, shared_key
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.outcomes import read_journal
from harness.store.score_table import pass_k_of

LABEL = 80
"""Maximum characters of a run's label."""

ALL_PAIRS = 5
"""Maximum number of runs for which all pairs are compared; if there are more, each is compared with the best."""

LEAST_RANKED = 3
"""Minimum number of runs for places: of two, the difference says it."""


@dataclass(slots=True)
class RunPart:
    """One run on a report page."""

    entry: ListedRun
    manifest: Manifest
    model: str
    found: Digest
    summary: Summary
    recorded: Recorded
    columns: RolloutColumns
    relations: dict[str, list[CostBin]]
    remarks: list[str]
    """Remarks on facts that the numbers do not show."""
    corrected: Corrected | None = None
    """Mean reward corrected by labels of people; None if there are too few, or if they are no random part."""
    measure: str = ""
    """Name of the evaluation function, for an agent evaluation with several; otherwise ""."""
    shown_k: Sequence[int] = ()
    """Numbers of attempts of pass@k that were chosen; empty if none were."""
    label: str = ""
    """Label that distinguishes the run from other runs of its environment."""
    colour: int = 0
    """Colour index of the run's model."""

    @property
    def environment(self) -> str:
        """Name of the run's group on the page: the environment, with the evaluation function if there are several."""
        name = clean(self.entry.env_id, LABEL)
        return f"{name} · {clean(self.measure, LABEL)}" if self.measure else name

    @property
    def estimate(self) -> Estimate:
        """Mean reward of the run, with its interval."""
        return self.summary.reward.estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside(Difference):
    """Comparison of two runs of an environment, computed as in `bench compare`."""

    first: int
    """Position of the first run in its environment."""
    second: int

    @property
    def words(self) -> str:
        """Verdict on the first of two runs: `better`, `worse`, or the reason why it is undecided."""
        if self.is_found:
            return self.verdict
        if self.adjusted is None:
            return "no evidence"
        return "too few examples" if self.is_too_small else "not told apart"

    @property
    def outlook(self) -> str:
        """Verdict on the first of two runs, with the number of examples needed for a decision."""
        if self.unpaired is not None and self.adjusted is not None:
            return f"{self.words}, as two samples: too few examples in common"
        needed = self.settling
        if self.is_too_small:
            return f"{self.words} to tell; it takes {numerals.count(needed or self.least)} or more"
        if needed is None:
            return self.words
        if needed <= self.paired.pairs:
            return f"{self.words}; a few more examples would settle it"
        return f"{self.words}; about {numerals.count(needed)} examples would settle it"

    @property
    def figures(self) -> list[str]:
        """Difference, interval, p-value, and wins/ties/losses, as the text of table cells."""
        outcomes = (self.paired.wins, self.paired.ties, self.paired.losses)
        return [
            numerals.difference(self.estimate),
            numerals.signed_interval(self.estimate),
            numerals.p_value(self.adjusted),
            " / ".join(map(numerals.count, outcomes)),
        ]

    def to_json(self, names: Sequence[str]) -> JsonDict:
        """The comparison of two runs as JSON.

        Args:
            names: Name of each run.
        """
        return {
            "first": names[self.first],
            "second": names[self.second],
            **self.paired.to_json(),
            "unpaired": None if self.unpaired is None else self.unpaired.to_json(),
            "p_adjusted": self.adjusted,
            "verdict": self.verdict,
            "settled_by": self.settling,
        }


@dataclass(slots=True)
class EnvPart:
    """Runs of one environment on the page, best mean first."""

    name: str
    runs: list[RunPart]
    limits: tuple[float, float]
    """Ends of the reward axis: minimum and maximum."""
    differences: list[Beside]
    ranked: RankedRuns | None = None
    """Places of the runs; None if there are fewer than three, or if they share too few examples."""


@dataclass(frozen=True, slots=True)
class Overall:
    """A model's mean over environments, equally weighted."""

    model: str
    estimate: Estimate


@dataclass(slots=True)
class Page:
    """Data of a report page."""

    title: str
    environments: list[EnvPart]
    overall: list[Overall] = field(default_factory=list[Overall])
    """Models with exactly one run in every environment, highest mean first."""
    missing: list[str] = field(default_factory=list[str])
    """Sentences about requested runs that are not on the page."""

    @property
    def runs(self) -> list[RunPart]:
        """All runs in page order; an agent evaluation with several functions has one entry per function."""
        return [run for environment in self.environments for run in environment.runs]

    @property
    def folders(self) -> list[RunPart]:
        """All runs of the page, one entry per run folder. A run with several evaluation functions has the entry of the
        function that scored the most rollouts."""
        most = sorted(self.runs, key=lambda run: run.summary.scored)
        best = {run.entry.id: run for run in most}
        return [best[name] for name in dict.fromkeys(run.entry.id for run in self.runs)]

    @property
    def differences(self) -> list[Beside]:
        """All compared pairs of runs."""
        return [each for environment in self.environments for each in environment.differences]


def page_of(
    paths: Sequence[Path],
    *,
    title: str = "",
    missing: Sequence[str] = (),
    pass_k: Sequence[int] = (),
    cluster: str | None = None,
) -> Page:
    """Read runs and compute the data of a report page.

    Args:
        paths: Folders of the runs.
        title: Title of the page; "" to derive one.
        missing: Sentences about runs already known to be missing.
        pass_k: Numbers of attempts for pass@k; empty for those of each run's settings.
        cluster: Key of the examples' clusters; "" for no clusters, None for those that the runs declare.

    Raises:
        UsageError: no run can be shown, no example has the given cluster key, or runs declare different ones.
        StoreError: only one run is given, and it cannot be read.
    """
    parts: list[RunPart] = []
    said = list(missing)
    entries = [read_entry(path) for path in paths]
    for path, entry in zip(paths, entries, strict=True):
        same = [each.manifest for each in entries if each.manifest is not None and each.env_id == entry.env_id]
        key = shared_key(same, cluster)
        try:
            if entry.manifest is None:
                raise StoreError("; ".join(entry.problems) or f"cannot read {entry.run.manifest_path}")
            recorded = read_journal(entry.run)  # read once, so that all figures of a running run agree
            if cluster:
                clusters_of(recorded, cluster, f"--cluster {cluster}")
            manifest = replace(entry.manifest, cluster_key=key)
            # An agent evaluation with several functions has one part per function.
            measures = manifest.functions or [""]
            parts += [_run_part(entry, manifest, recorded, measure, pass_k) for measure in measures]
        except StoreError as error:
            if len(paths) == 1:
                raise
            said.append(f"{path.name}: {error}")
        except UsageError as error:
            said.append(str(error))
    if not parts:
        raise UsageError(f"nothing to report: {'; '.join(said) or 'no run was named'}")
    _label(parts)
    environments = _environments(parts)
    if not title:
        names = list(dict.fromkeys(clean(part.entry.env_id, LABEL) for part in parts))
        models = list(dict.fromkeys(part.model for part in parts))
        title = names[0] if len(names) == 1 else f"{len(names)} environments"
        title += f" · {models[0] if len(models) == 1 else f'{len(models)} models'}"
    return Page(title, environments, _overall(environments), said)


def _run_part(entry: ListedRun, manifest: Manifest, recorded: Recorded, measure: str, pass_k: Sequence[int]) -> RunPart:
    columns = RolloutColumns(cluster_key=manifest.cluster_key)
    found = digest_of(recorded, manifest, entry.final, columns.take, measure=measure, pass_k=pass_k)
    summary = found.summary
    if summary is None:
        raise UsageError(f"{entry.id} ({clean(entry.title)}, {entry.state}) has no rollouts yet")
    columns.end_example()
    limits = finite_limits(manifest.reward_range)
    relations = relations_of(columns, limits=limits, is_watched=summary.target is not None)
    remarks = remarks_of(
        RunReport(
            entry.name, entry.env_id, entry.model, None, summary, entry.state, entry.note,
            unfinished=manifest.given_up,
        )
    )  # fmt: skip
    model = clean(entry.model, LABEL)
    chosen = pass_k or pass_k_of(manifest)
    corrected, said = (None, []) if measure else corrected_mean(entry.run, recorded)
    remarks += said
    return RunPart(
        entry, manifest, model, found, summary, recorded, columns, relations, remarks, corrected, measure, chosen
    )


def _label(parts: Sequence[RunPart]) -> None:
    """Label each run by its model; if that is ambiguous, add the run's name, then its id. Give each model the same
    colour in every environment."""
    colours = {model: number for number, model in enumerate(dict.fromkeys(part.model for part in parts))}
    for part in parts:
        part.label, part.colour = part.model, colours[part.model]
    for words in ([_own_name(part) for part in parts], [part.entry.id for part in parts]):
        used = Counter((part.environment, part.label) for part in parts)
        ambiguous = [used[part.environment, part.label] > 1 for part in parts]
        for part, word, is_ambiguous in zip(parts, words, ambiguous, strict=True):
            if is_ambiguous and word not in (clean(part.entry.env_id, LABEL), part.model):
                part.label = f"{part.model} · {word}"


def _own_name(part: RunPart) -> str:
    """Name of a run; in a sweep, without the environment and model, which the page shows anyway."""
    name = clean(part.entry.name, 4 * LABEL)
    env = clean(part.entry.env_id, LABEL)
    if name.startswith(f"{env}[") and name.endswith("]"):
        name = name[len(env) + 1 : -1].removesuffix(f", {part.model}").removeprefix(f"{part.model}, ")
    return clean(name, LABEL)


def _environments(parts: Sequence[RunPart]) -> list[EnvPart]:
    """Group runs by environment, best mean first, and compare all pairs, or each run with the best. Runs without a
    score are not compared. P-values are adjusted for all comparisons of the page."""

    def by_mean(part: RunPart) -> float:
        mean = part.estimate.mean
        return math.inf if mean is None else -mean

    found: list[EnvPart] = []
    for name in dict.fromkeys(part.environment for part in parts):
        runs = sorted((part for part in parts if part.environment == name), key=by_mean)
        ends = [end for run in runs for end in run.manifest.reward_range if math.isfinite(end)]
        ends += [end for run in runs for end in (run.summary.reward.min, run.summary.reward.max) if end is not None]
        low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
        scores = [run.columns.scores(run.manifest.reward_range) for run in runs]
        ranked = [position for position, each in enumerate(scores) if each.means]
        few = len(ranked) <= ALL_PAIRS
        pairs = list(combinations(ranked, 2)) if few else [(ranked[0], other) for other in ranked[1:]]
        made = [(first, second, difference_of(scores[first], scores[second])) for first, second in pairs]
        compared = [Beside(first=a, second=b, paired=each.paired, unpaired=each.unpaired) for a, b, each in made]
        places = rank_runs(scores) if len(runs) >= LEAST_RANKED else None
        found.append(EnvPart(name, runs, (low, high if high > low else low + 1.0), compared, places))
    adjusted = iter(adjust([each for environment in found for each in environment.differences]))
    for environment in found:
        environment.differences = [next(adjusted) for _ in environment.differences]
    return found


def _overall(environments: Sequence[EnvPart]) -> list[Overall]:
    if len(environments) < 2 or any(run.measure for environment in environments for run in environment.runs):
        return []  # different functions have no common mean
    found: list[Overall] = []
    for model in dict.fromkeys(run.model for environment in environments for run in environment.runs):
        runs = [[run for run in environment.runs if run.model == model] for environment in environments]
        if all(len(each) == 1 and each[0].estimate.mean is not None for each in runs):
            found.append(Overall(model, macro_mean([each[0].estimate for each in runs])))
    return sorted(found, key=lambda each: -(each.estimate.mean or 0.0))


def passing(page: Page) -> str:
    """Sentence that states the minimum reward with which a rollout passes."""
    named = [(part.environment, part.summary.pass_threshold) for part in page.runs]
    return f"A rollout passes with a reward of at least {threshold_text(named)}."


def methods_of(page: Page, *, in_short: bool = False) -> list[tuple[str, str]]:
    """Describe the statistical methods of the page, as a list of (name, description): first the page's numbers, then
    each kind of interval on it.

    Args:
        page: The page.
        in_short: Whether the output has neither metrics nor plots.
    """
    lines = [(name, words) for name, words in SUMMARY.items() if name not in INTERVALS]
    differences = page.differences
    if differences:
        tests = {each.paired.test for each in differences if each.unpaired is None and each.paired.test is not None}
        lines.append(("difference", PAIRED["difference"]))
        lines += [(name, PAIRED[name]) for name in ("p_value", *sorted(tests)) if tests]
        if any(each.unpaired is not None for each in differences):
            lines.append(("two samples", "runs with fewer than two examples in common: two-sided t test of the means"))
        lines.append(("adjusted", "Holm 1979, over all pairs of the page"))
    used = {part.estimate.method for part in (*page.overall, *differences, *page.runs)}
    used |= {run.corrected.estimate.method for run in page.runs if run.corrected is not None}
    for run in page.runs if not in_short else ():
        summary = run.summary
        used.update(metric.estimate.method for metric in summary.metrics.values())
        used.update(rate.estimate.method for k in (summary.pass_at_k, summary.pass_hat_k) for rate in k.values())
        used.update(group.reward.method for groups in run.relations.values() for group in groups)
    return [*lines, *((f"interval: {method}", describe(method)) for method in INTERVALS if method in used)]
