"""Tables in the report of `bench eval`: cells, the names of eval functions, widths, the format of numbers, and the
rendering as lines. `screen` arranges the tables."""

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
"""Scores from here on are written as powers of ten, since full digits would make the columns too wide."""

Table: TypeAlias = list[list[str]]
"""Rows of cells, the headings first."""

Names: TypeAlias = Mapping[str, str]
"""Eval function → its name in the tables."""


@dataclass(frozen=True, slots=True)
class ScoreTables:
    """Groups of columns for the eval functions, ready to be joined: each has a row of headings, then one row per
    function and model."""

    labels: Table
    statistics: Table
    rates: Table
    """pass@k."""
    certainty: Table
    """Mean, interval and number of the scored runs."""
    differences: Table
    """Primary minus baseline, as a table of its own. Without a baseline, only the headings."""

    @property
    def is_plain(self) -> bool:
        """Whether the tables are empty, because no run was made."""
        return len(self.labels) < 2

    def documented(self, width: int) -> list[Table]:
        """Statistics and pass@k, in one table if it fits, else in two."""
        whole = joined(self.labels, self.statistics, self.rates)
        if not self.rates[0] or natural_width(whole) <= width:
            return [whole]
        return [joined(self.labels, self.statistics), joined(self.labels, self.rates)]

    def with_intervals(self) -> Table:
        """The documented table with the intervals of its means."""
        return joined(self.labels, self.statistics, self.rates, [row[1:2] for row in self.certainty])

    def intervals(self, *, counted: bool) -> Table:
        """Means with their intervals, with the number of scored runs if `counted`."""
        return joined(self.labels, self.certainty if counted else [row[:2] for row in self.certainty])


def each_summary(result: EvalResult) -> Iterator[tuple[str, str, EvalEvalSummary]]:
    """(function, model tag, statistics), the models of a function together."""
    for name in result.eval_summaries:
        for model in result.models:
            yield name, model.model_tag, model.eval_summaries[name]


def score_tables(result: EvalResult, width: int) -> ScoreTables:
    """The tables of the eval functions. A function's name is `module:function`, or the short name alone if these are

    unique and the full names would be cut or split a table.

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
    return ScoreTables(
        _labels(result, names), _statistics(result), _rates(result), _certainty(result), _differences(result, names)
    )


def _labels(result: EvalResult, names: Names) -> Table:
    rows = [
        [names[name], model] if result.model_summaries else [names[name]] for name, model, _ in each_summary(result)
    ]
    return [["Eval Function", "Model"] if result.model_summaries else ["Eval Function"], *rows]


def _statistics(result: EvalResult) -> Table:
    rows = [
        [score_cell(value) for value in (one.mean, one.min, one.max, one.std)] for _, _, one in each_summary(result)
    ]
    return [["Mean", "Min", "Max", "Std"], *rows]


def _rates(result: EvalResult) -> Table:
    ks = list(next(iter(result.eval_summaries.values())).pass_at_k)
    rows = [[_percent(one.pass_at_k[k]) for k in ks] for _, _, one in each_summary(result)]
    return [[f"pass@{k}" for k in ks], *rows]


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f}%" if math.isfinite(rate) else numerals.NONE


def _certainty(result: EvalResult) -> Table:
    """The mean, interval and number of the scored runs."""
    made = {model.model_tag: model.total_runs for model in result.models}
    table = [["Mean", "95 % interval", "Scored runs"]]
    for _, model, one in each_summary(result):
        estimate = one.scored.estimate
        table.append([score_cell(estimate.mean), numerals.interval(estimate), f"{one.scored.count} of {made[model]}"])
    return table


def is_whole(result: EvalResult) -> bool:
    """Whether the intervals also apply to the documented means: all runs are scored, and all rows have as many runs."""
    made = {model.model_tag: model.total_runs for model in result.models}
    return all(
        one.scored.count == made[model]
        and (one.scored.estimate.mean is None or math.isclose(one.scored.estimate.mean, one.mean, abs_tol=1e-9))
        for _, model, one in each_summary(result)
    )


def _differences(result: EvalResult, names: Names) -> Table:
    table = [["Eval Function", "Diff", "95 % interval", "p", "Win", "Loss", "Tie"]]
    for name, pair in result.paired.items():
        table.append([names[name], *_difference(pair.counted)])
        if pair.scored != pair.counted and pair.scored.pairs:
            table.append(["  scored runs", *_difference(pair.scored)])
    return table


def _difference(pair: Paired) -> list[str]:
    outcomes = [str(number) for number in (pair.wins, pair.losses, pair.ties)]
    estimate = pair.estimate
    words = [numerals.signed(estimate.mean), numerals.signed_interval(estimate), numerals.p_value(pair.p_value)]
    return [*words, *outcomes]


def score_cell(value: float | None) -> str:
    """A score with the documented three decimals, or in powers of ten if it is very large."""
    if value is None or not math.isfinite(value):
        return numerals.NONE
    if abs(value) >= MOST_FIXED:
        return numerals.score(value)
    return f"{value + 0.0:.3f}"


def table_lines(rows: Table, width: int, names: int) -> Iterator[Text]:
    """Render a table as lines. The first column is shortened if necessary; numbers are never cut.

    Args:
        rows: Its cells.
        width: Available width in cells.
        names: Number of columns from the left that hold text; the others hold numbers.
    """
    yield from layout.table_lines(_columns(rows, names), width)


def _columns(rows: Table, names: int) -> list[Column]:
    first, *others = zip(*rows, strict=True)
    columns = [Column(head, cells, is_text=number < names) for number, (head, *cells) in enumerate(others, 1)]
    return [Column(first[0], first[1:], True, "middle", LEAST_NAME), *columns]


def joined(*groups: Table) -> Table:
    """Join tables of the same rows side by side."""
    return [[cell for row in rows for cell in row] for rows in zip(*groups, strict=True)]


def natural_width(rows: Table) -> int:
    """Width in cells of a table with nothing cut."""
    return sum(max(map(cell_len, cells)) for cells in zip(*rows, strict=True)) + layout.GAP * (len(rows[0]) - 1)
