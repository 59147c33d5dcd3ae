"""Cells, marks and averages of a table of models × environments. Scores come from a report page or from the runs of a
comparison, statistics from `stats`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from harness.report.compare.equal import equality_of
from harness.report.text import clean
from harness.stats.averages import macro_mean
from harness.stats.difference import Difference, Scores, adjust, difference_of
from harness.stats.equality import EqualityVerdict
from harness.stats.hypotheses import holm, p_of_interval
from harness.stats.intervals import ALPHA, Estimate, same
from harness.stats.labels import Corrected
from harness.stats.ranks import ModelPlace, RankedRuns, rank_runs
from harness.store.catalogue import ListedRun
from harness.store.manifest import Manifest

if TYPE_CHECKING:
    from harness.report.compare.sides import ComparedRun
    from harness.report.page.gather import Page, RunPart

LABEL = 80
"""Maximum characters of the name of a model, an environment or a run."""

Mark: TypeAlias = Literal["best", "tied", "worse", "better", "unknown", ""]
"""How a run compares with the run that has the highest mean of the column. It can be `better` if the two runs share
only some examples; "" if there is nothing to compare."""

FROM_BEST: dict[str, Mark] = {"better": "worse", "worse": "better", "tied": "tied", "unknown": "unknown"}
"""Mark of a run, given the verdict on the best run in comparison with it."""


@dataclass(slots=True, kw_only=True)
class ResultCell:
    """One run in the table."""

    environment: str
    """Column of the table: the environment, with the evaluation function if there are several."""
    model: str
    entry: ListedRun
    manifest: Manifest
    estimate: Estimate
    """Mean with its interval."""
    scores: Scores
    scored: int
    """Number of rollouts with a score."""
    planned: int
    """Number of planned rollouts."""
    unscored: Mapping[str, int]
    """Number of unscored rollouts by reason."""
    measure: str = ""
    """Evaluation function or metric that gave the scores; "" for the reward."""
    attempts: Mapping[str, Estimate] = field(default_factory=dict[str, Estimate])
    """Pass rates with their intervals, by name such as `pass@3`; empty if they are not in the table."""
    corrected: Corrected | None = None
    """Mean corrected by labels of people, in reports."""
    ended_early: bool = False
    """Whether the run ended as soon as its interval was narrow enough."""
    origin: str = ""
    """Suite or run as the user named it."""
    row: str = ""
    """Label of the row: the model, followed by a distinguishing name if the model has several runs."""
    mark: Mark = ""
    against: Difference | None = None
    """Comparison of the column's best run with this run; None for the best one."""
    equality: EqualityVerdict | None = None
    """Whether the run is equal to the best one within the margin of the table; None for the best one."""
    place: ModelPlace | None = None
    """ModelPlace among the runs of the environment; None if these are not ranked."""

    @property
    def suffix(self) -> str:
        """Name that was given to the run; for a run in a sweep, the varied setting."""
        name, env = clean(self.entry.name, LABEL), clean(self.entry.env_id, LABEL)
        if name.startswith(f"{env}[") and name.endswith("]"):
            name = name[len(env) + 1 : -1].removesuffix(f", {self.model}").removeprefix(f"{self.model}, ")
        return "" if name in (env, self.model) else name


@dataclass(slots=True)
class RowAverage:
    """Mean of a table row over all environments, equally weighted."""

    estimate: Estimate
    mark: Mark = ""
    difference: Estimate | None = None
    """Average of the best row minus the average of this row; None for the best row."""
    p_value: float | None = None
    """p-value of the difference, adjusted for all comparisons of averages (Holm)."""


@dataclass(slots=True)
class ResultTable:
    """Means of models on environments, with marks for the best ones."""

    title: str
    measure: str
    """Measured value: `reward`, or the name of a metric."""
    environments: list[str]
    rows: list[str]
    """Labels of the rows, highest average first."""
    cells: dict[tuple[str, str], ResultCell]
    """Runs by (row, environment)."""
    averages: dict[str, RowAverage] = field(default_factory=dict[str, RowAverage])
    """Average of each row that has a mean in every environment; empty if there is only one environment."""
    comparisons: int = 1
    """Number of comparisons for which the p-values of the cells are adjusted (Holm)."""
    missing: list[str] = field(default_factory=list[str])
    """Sentences about requested runs that are not in the table."""
    margin: float | None = None
    """Margin of the verdicts on equality; None without them."""
    rankings: list[RankedRuns] = field(default_factory=list[RankedRuns])
    """Rankings of the environments; empty if runs are not ranked."""

    def column(self, environment: str) -> list[ResultCell]:
        """Runs of an environment, in the order of the rows."""
        return [self.cells[row, environment] for row in self.rows if (row, environment) in self.cells]

    @property
    def ordered(self) -> list[ResultCell]:
        """All runs of the table, row by row."""
        places = [(row, environment) for row in self.rows for environment in self.environments]
        return [self.cells[place] for place in places if place in self.cells]


def table_of_page(page: Page) -> ResultTable:
    """The table of a report page, with the page's own comparisons, so that both have the same verdicts."""
    cells: list[ResultCell] = []
    for part in page.environments:
        made = [_cell_of_part(run) for run in part.runs]
        for cell, place in zip(made, part.ranked.places if part.ranked else (), strict=part.ranked is not None):
            cell.place = place
        if part.differences:
            best = part.differences[0].first
            against = {each.second: each for each in part.differences if each.first == best}
            for position, cell in enumerate(made):
                cell.against = against.get(position)
        _mark(made)
        cells += made
    table = _table(page.title, cells, page.missing)
    table.comparisons = max(1, sum(each.p_value is not None for each in page.differences))
    table.rankings = [part.ranked for part in page.environments if part.ranked is not None]
    return table


def table_of_sides(
    sides: Sequence[tuple[ComparedRun, str]],
    missing: Sequence[str] = (),
    *,
    margin: float | None = None,
    with_places: bool = False,
) -> ResultTable:
    """The table of runs that `bench compare` reads. Each run is compared with the best one of its environment.

    Args:
        sides: The runs, each with the name by which the user chose it.
        missing: Sentences about requested runs that are not in the table.
        margin: Margin within which runs are equal to the best one; None for no verdict on that.
        with_places: Whether the runs of an environment are ranked.

    Raises:
        UsageError: the margin is as large as the range of scores, or runs have different thresholds of passing.
    """
    from harness.report.compare.sides import check_thresholds

    cells = [_cell_of_side(side, origin) for side, origin in sides]
    read = {id(cell): side for cell, (side, _) in zip(cells, sides, strict=True)}
    for environment in dict.fromkeys(cell.environment for cell in cells):
        check_thresholds([read[id(cell)] for cell in cells if cell.environment == environment])
    compared: list[tuple[ResultCell, ResultCell]] = []
    differences: list[Difference] = []
    rankings: list[RankedRuns] = []
    for environment in dict.fromkeys(cell.environment for cell in cells):
        ranked = _by_mean([cell for cell in cells if cell.environment == environment and cell.scores.means])
        for cell in ranked[1:]:
            compared.append((ranked[0], cell))
            differences.append(difference_of(ranked[0].scores, cell.scores))
        if with_places and (found := rank_runs([cell.scores for cell in ranked])) is not None:
            rankings.append(found)
            for cell, place in zip(ranked, found.places, strict=True):
                cell.place = place
    for (best, cell), difference in zip(compared, adjust(differences), strict=True):
        cell.against = difference
        if margin is not None:
            read[id(best)].check_within_range("--equal-within", margin)
            cell.equality = equality_of(read[id(cell)], read[id(best)], margin, len(compared)).verdict
    for environment in dict.fromkeys(cell.environment for cell in cells):
        _mark([cell for cell in cells if cell.environment == environment])
    names = list(dict.fromkeys(cell.environment for cell in cells))
    models = list(dict.fromkeys(cell.model for cell in cells))
    title = names[0] if len(names) == 1 else f"{len(names)} environments"
    title += f" · {models[0] if len(models) == 1 else f'{len(models)} models'}"
    table = _table(title, cells, missing)
    table.comparisons = max(1, sum(each.p_value is not None for each in differences))
    table.margin, table.rankings = margin, rankings
    return table


def _cell_of_part(run: RunPart) -> ResultCell:
    summary = run.summary
    return ResultCell(
        environment=run.environment,
        model=run.model,
        entry=run.entry,
        manifest=run.manifest,
        estimate=run.estimate,
        scores=run.columns.scores(run.manifest.reward_range),
        scored=summary.scored,
        planned=max(summary.planned, summary.num_rollouts),
        unscored=summary.unscored,
        measure=run.measure,
        attempts={name: rate.estimate for name, rate in summary.pass_rates.items()},
        corrected=run.corrected,
        ended_early=summary.target is not None,
    )


def _cell_of_side(side: ComparedRun, origin: str) -> ResultCell:
    from harness.report.compare.sides import REWARD
    from harness.store.catalogue import read_entry

    name = clean(side.manifest.env_id, LABEL)
    is_named = side.measure in side.manifest.functions or side.attempts is not None
    return ResultCell(
        environment=f"{name} · {clean(side.measure, LABEL)}" if is_named else name,
        model=clean(side.manifest.model, LABEL),
        entry=read_entry(side.run.path),
        manifest=side.manifest,
        estimate=side.spread.estimate,
        scores=side.scores,
        scored=side.scored,
        planned=side.planned,
        unscored=side.unscored,
        measure="" if side.measure == REWARD else side.measure,
        ended_early=side.ended_early is not None,
        origin=clean(origin, LABEL),
    )


def _by_mean(cells: Sequence[ResultCell]) -> list[ResultCell]:
    known = [(cell.estimate.mean, cell) for cell in cells if cell.estimate.mean is not None]
    return [cell for _, cell in sorted(known, key=lambda pair: -pair[0])]


def _mark(column: Sequence[ResultCell]) -> None:
    """Mark the runs of an environment. Runs with the same mean as the best one are also marked as best."""
    ranked = _by_mean(column)
    if len(ranked) < 2:
        return
    top = ranked[0].estimate.mean or 0.0
    for cell in ranked:
        mean = cell.estimate.mean or 0.0
        if same(min(mean, top), max(mean, top)):
            cell.mark = "best"
        else:
            cell.mark = "unknown" if cell.against is None else FROM_BEST[cell.against.verdict]


def _table(title: str, cells: Sequence[ResultCell], missing: Sequence[str]) -> ResultTable:
    _label(cells)
    environments = list(dict.fromkeys(cell.environment for cell in cells))
    placed = {(cell.row, cell.environment): cell for cell in cells}
    rows = list(dict.fromkeys(cell.row for cell in cells))
    measures = {cell.measure for cell in cells}
    measure = next(iter(measures)) if len(measures) == 1 else ""
    has_functions = any(cell.measure in cell.manifest.functions for cell in cells if cell.measure)
    table = ResultTable(title, measure or "reward", environments, rows, placed, missing=list(missing))
    if len(environments) > 1 and not has_functions and len(measures) == 1:  # different functions have no common mean
        table.averages = _averages(table)

    def by_average(row: str) -> tuple[bool, float]:
        only = placed.get((row, environments[0])) if len(environments) == 1 else None
        found = table.averages.get(row)
        mean = only.estimate.mean if only is not None else found.estimate.mean if found is not None else None
        return mean is None, -(mean or 0.0)

    table.rows.sort(key=by_average)
    table.averages = {row: table.averages[row] for row in table.rows if row in table.averages}
    return table


def _label(cells: Sequence[ResultCell]) -> None:
    """Label each run by its model. If a model has several runs on an environment, its runs are distinguished by their
    own names, else by the names that the user gave, else by numbers in the order of their start."""
    models: dict[str, list[ResultCell]] = {}
    for cell in cells:
        models.setdefault(cell.model or "–", []).append(cell)
    for model, runs in models.items():
        used = Counter(cell.environment for cell in runs)
        words = [""] * len(runs) if max(used.values()) == 1 else _labels(runs)
        for cell, word in zip(runs, words, strict=True):
            cell.row = f"{model} · {word}" if word else model
    used_rows = Counter((cell.row, cell.environment) for cell in cells)
    for cell in cells:  # for example a model that is named like the run of another model
        if used_rows[cell.row, cell.environment] > 1:
            cell.row = f"{cell.row} · {cell.entry.id}"


def _labels(runs: Sequence[ResultCell]) -> list[str]:
    """Short labels that distinguish the runs of a model within each environment."""
    order = sorted(runs, key=lambda cell: (str(cell.manifest.created), cell.entry.id))
    suites = list(dict.fromkeys(cell.manifest.suite or cell.entry.id for cell in order))
    ways = (
        [cell.suffix for cell in runs],
        [cell.origin for cell in runs],
        [f"run {suites.index(cell.manifest.suite or cell.entry.id) + 1}" for cell in runs],
    )
    for words in ways:
        if len({(cell.environment, word) for cell, word in zip(runs, words, strict=True)}) == len(runs):
            return words
    return [cell.entry.id for cell in runs]


def _averages(table: ResultTable) -> dict[str, RowAverage]:
    """Average each row that has a mean in every environment, and compare it with the highest average: the mean of the
    differences in the environments, each computed example by example."""
    whole: dict[str, list[ResultCell]] = {}
    for row in table.rows:
        cells = [table.cells[row, each] for each in table.environments if (row, each) in table.cells]
        if len(cells) == len(table.environments) and all(cell.estimate.mean is not None for cell in cells):
            whole[row] = cells
    found = {row: RowAverage(macro_mean([cell.estimate for cell in cells])) for row, cells in whole.items()}
    if len(found) < 2:
        return found
    best = max(found, key=lambda row: found[row].estimate.mean or 0.0)
    others = [row for row in found if row != best]
    for row in others:
        pairs = zip(whole[best], whole[row], strict=True)
        found[row].difference = macro_mean([difference_of(a.scores, b.scores).estimate for a, b in pairs])
    p_values = holm([p_of_interval(found[row].difference or Estimate()) for row in others])
    top = found[best].estimate.mean or 0.0
    found[best].mark = "best"
    for row, p_value in zip(others, p_values, strict=True):
        found[row].p_value = p_value
        found[row].mark = _average_mark(found[row], top)
    return found


def _average_mark(average: RowAverage, top: float) -> Mark:
    mean = average.estimate.mean or 0.0
    if same(min(mean, top), max(mean, top)):
        return "best"
    if average.p_value is None or average.difference is None or average.difference.mean is None:
        return "unknown"
    if average.p_value >= ALPHA:
        return "tied"
    return "worse" if average.difference.mean > 0 else "better"
