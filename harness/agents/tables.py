"""Tables in the report of `bench eval`: their cells, column widths, and names of eval functions. The module `screen`
arranges the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.text import Text

from harness.agents.results import EvalEvalSummary, EvalResult
from harness.report import layout, numerals
from harness.report.layout import Column
from harness.report.text import clean
from harness.stats.paired import Paired

LEAST_NAME = 16
"""Minimum width in cells of a shortened name."""

MOST_FIXED = 1e6
"""Scores of at least this size are written as powers of ten, since full digits would make the columns too wide."""

Table: TypeAlias = list[list[str]]
"""Rows of cells. The first row has the headings."""

Names: TypeAlias = Mapping[str, str]
"""Names of eval functions in the tables, by the functions' full names."""


@dataclass(frozen=True, slots=True)
class ScoreTables:
    """Tables of the eval functions' scores. Each has a row of headings, then one row per function and model, so that
    tables can be joined side by side."""

    labels: Table
    statistics: Table
    rates: Table
    """The pass@k rates."""
    certainty: Table
    """Mean of the scored runs with its interval, and the number of scored runs."""
    differences: Table
    """Score differences, primary model minus baseline. Without a baseline, the table has only headings."""

    @property
    def is_empty(self) -> bool:
        """Whether the tables are empty, because there are no runs."""
        return len(self.labels) < 2

    def documented(self, width: int) -> list[Table]:
        """Return the documented statistics and pass@k, as one table if it fits into `width` cells, else as two."""
        whole = joined(self.labels, self.statistics, self.rates)
        if not self.rates[0] or natural_width(whole) <= width:
            return [whole]
        return [joined(self.labels, self.statistics), joined(self.labels, self.rates)]

    def with_intervals(self) -> Table:
        """Return one table with the documented statistics, pass@k and the intervals of the means."""
        return joined(self.labels, self.statistics, self.rates, [row[1:2] for row in self.certainty])

    def intervals(self, *, counted: bool) -> Table:
        """Return a table of the means with their intervals, and with the number of scored runs if `counted`."""
        return joined(self.labels, self.certainty if counted else [row[:2] for row in self.certainty])


def each_summary(result: EvalResult) -> Iterator[tuple[str, str, EvalEvalSummary]]:
    """Iterate over (function, model tag, statistics), function by function."""
    for name in result.eval_summaries:
        for model in result.models:
            yield name, model.model_tag, model.eval_summaries[name]


def score_tables(result: EvalResult, width: int) -> ScoreTables:
    """Build the tables of the eval functions.

    Functions are named `module:function`. The short names without the module are used if they are unique and the full
    names would have to be cut or would split a table.

    Args:
        result: The evaluation.
        width: Available width in cells.
    """
    if not result.total_runs or not result.eval_summaries:
        return ScoreTables([], [], [], [], [])
    full = {name: clean(name, 200) for name in result.eval_summaries}
    short = {name: clean(name.rpartition(":")[2], 200) or full[name] for name in result.eval_summaries}
    choices = [_score_tables(result, full)]
    if len(set(short.values())) == len(short):
        choices.append(_score_tables(result, short))
    for most in (1, 2):  # number of tables for statistics and pass@k
        for made in choices:
            documented = made.documented(width)
            wanted = [*documented, made.intervals(counted=True), made.differences]
            if len(documented) <= most and all(natural_width(table) <= width for table in wanted):
                return made
    return choices[-1]


def _score_tables(result: EvalResult, names: Names) -> ScoreTables:
    each, has_baseline = list(each_summary(result)), result.model_summaries is not None
    ks = list(each[0][2].pass_at_k)
    labels = [["Eval Function", "Model"] if has_baseline else ["Eval Function"]]
    labels += [[names[name], model] if has_baseline else [names[name]] for name, model, _ in each]
    statistics = [["Mean", "Min", "Max", "Std"]]
    statistics += [[score_cell(value) for value in (one.mean, one.min, one.max, one.std)] for _, _, one in each]
    rates = [[f"pass@{k}" for k in ks]]
    certainty = [["Mean", "95 % interval", "Scored runs"]]
    made = {model.model_tag: model.total_runs for model in result.models}
    for _, model, one in each:
        percents = [100 * one.pass_at_k[k] for k in ks]
        rates.append([f"{percent:.1f}%" if math.isfinite(percent) else numerals.NONE for percent in percents])
        estimate, count = one.scored.estimate, f"{one.scored.count} of {made[model]}"
        certainty.append([score_cell(estimate.mean), numerals.interval(estimate), count])
    differences = [["Eval Function", "Diff", "95 % interval", "p", "Win", "Loss", "Tie"]]
    for name, pair in result.paired.items():
        differences.append([names[name], *_difference(pair.counted)])
        if pair.scored != pair.counted and pair.scored.pairs:
            differences.append(["  scored runs", *_difference(pair.scored)])
    return ScoreTables(labels, statistics, rates, certainty, differences)


def is_whole(result: EvalResult) -> bool:
    """Return whether the intervals also apply to the documented means. They do if all runs have a score, and all rows
    have the same number of runs."""
    made = {model.model_tag: model.total_runs for model in result.models}
    return all(
        one.scored.count == made[model]
        and (one.scored.estimate.mean is None or math.isclose(one.scored.estimate.mean, one.mean, abs_tol=1e-9))
        for _, model, one in each_summary(result)
    )


def _difference(pair: Paired) -> list[str]:
    estimate = pair.estimate
    interval, p_value = numerals.signed_interval(estimate), numerals.p_value(pair.p_value)
    return [numerals.signed(estimate.mean), interval, p_value, str(pair.wins), str(pair.losses), str(pair.ties)]


def score_cell(value: float | None) -> str:
    """Format a score with the documented three decimals, or as a power of ten if it is very large."""
    if value is None or not math.isfinite(value):
        return numerals.NONE
    if abs(value) >= MOST_FIXED:
        return numerals.score(value)
    return f"{value + 0.0:.3f}"


def table_lines(rows: Table, width: int, names: int) -> Iterator[Text]:
    """Render a table as lines. The first column is shortened if necessary; numbers are never cut.

    Args:
        rows: Cells of the table.
        width: Available width in cells.
        names: Number of columns from the left that contain text; the others contain numbers.
    """
    first, *others = zip(*rows, strict=True)
    columns = [Column(first[0], first[1:], True, "middle", LEAST_NAME)]
    columns += [Column(head, cells, is_text=number < names) for number, (head, *cells) in enumerate(others, 1)]
    return layout.table_lines(columns, width)


def joined(*groups: Table) -> Table:
    """Join tables that have the same rows side by side."""
    return [[cell for row in rows for cell in row] for rows in zip(*groups, strict=True)]


def natural_width(rows: Table) -> int:
    """Return the width in cells of a table in which nothing is cut."""
    return sum(max(map(cell_len, cells)) for cells in zip(*rows, strict=True)) + layout.GAP * (len(rows[0]) - 1)
