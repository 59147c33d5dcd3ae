"""Rows and columns of a printed table of models × environments, independent of the output format."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.report import numerals
from harness.report.paper_tables.cells import Mark, ResultTable
from harness.report.paper_tables.footnotes import EQUALITY, SIGNS, cell_notes
from harness.stats.intervals import Estimate

MOST_COLUMNS = 5
"""Maximum number of columns, including the average; with more, the table may be transposed: models become columns."""

AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Shown:
    """Text of one cell."""

    mean: str
    interval: str = ""
    is_best: bool = False
    sign: str = ""
    """Sign that shows how the run compares with the best one; "" for no sign."""
    letter: str = ""
    """Letter that refers to the cell's footnote; "" if there is none."""
    places: str = ""
    """Plausible places and letters of groups; "" without a ranking."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table whose cells are text: header and rows."""

    corner: str
    columns: list[str]
    rows: list[tuple[str, list[Shown]]]


def layout_of(table: ResultTable) -> Layout:
    """Arrange a table: models as rows, or as columns if there are many environments and fewer models."""
    notes = cell_notes(table)
    environments = [*table.environments, *([AVERAGE] if table.averages else [])]
    grid: dict[tuple[str, str], Shown] = {}
    for (row, environment), cell in table.cells.items():
        letter = notes.get((row, environment), ("", ""))[0]
        shown = _shown(cell.estimate, cell.mark, letter)
        place = "" if cell.place is None else f"#{cell.place.span} {cell.place.letters}".rstrip()
        grid[row, environment] = replace(shown, sign=shown.sign + EQUALITY.get(cell.equality, ""), places=place)
    columns = list(enumerate(environments))
    last = len(environments) - 1
    whole = {row: _shown(each.estimate, each.mark) for row, each in table.averages.items()}
    rows: list[tuple[str, list[Shown]]] = []
    for row in table.rows:
        cells = [
            whole.get(row, Shown(numerals.NONE)) if table.averages and number == last
            else grid.get((row, name), Shown(numerals.NONE))
            for number, name in columns
        ]  # fmt: skip
        rows.append((row, cells))
    if len(environments) > max(MOST_COLUMNS, len(rows)):
        turned = [(name, [cells[number] for _, cells in rows]) for number, name in columns]
        return Layout("environment", [row for row, _ in rows], turned)
    return Layout("model", environments, rows)


def shown_rate(rate: Estimate) -> Shown:
    """Text of a pass rate with its interval."""
    return _shown(rate, "")


def _shown(estimate: Estimate, mark: Mark, letter: str = "") -> Shown:
    interval = numerals.interval(estimate)
    return Shown(
        numerals.score(estimate.mean),
        "" if interval == numerals.NONE else interval,
        mark == "best",
        SIGNS.get(mark, ""),
        letter,
    )
