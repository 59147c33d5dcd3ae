"""A table of models × environments as Markdown and as CSV."""

from __future__ import annotations

import csv
import io

from harness.core.redact import redactor
from harness.report.paper_tables.cells import ResultCell, ResultTable, RowAverage
from harness.report.paper_tables.footnotes import cell_notes, footnotes
from harness.report.paper_tables.layout import Shown, layout_of
from harness.report.text import clean
from harness.stats.intervals import Estimate
from harness.stats.ranks import ModelPlace
from harness.store.card_text import escape
from harness.store.export_plain import defused

SENTENCE = 2000
"""Maximum characters of a footnote."""

COLUMNS = (
    "kind", "model", "row", "environment", "measure", "run", "state", "n", "rollouts_per_example", "scored", "planned",
    "mean", "stderr", "low", "high", "level", "method", "mark", "best_minus_this", "best_minus_this_low",
    "best_minus_this_high", "p_adjusted", "note", "corrected", "corrected_low", "corrected_high", "corrected_method",
    "labels", "equality", "place", "place_low", "place_high", "groups",
)  # fmt: skip
"""Columns of the CSV file, documented in docs/reference/comparing.md."""


def markdown_table(table: ResultTable) -> str:
    """The table with its footnotes as Markdown."""
    layout = layout_of(table)
    lines = [f"| {' | '.join(map(_text, [layout.corner, *layout.columns]))} |"]
    lines.append(f"| {' | '.join([':---', *(['---:'] * len(layout.columns))])} |")
    for name, cells in layout.rows:
        lines.append(f"| {' | '.join([_text(name), *map(_markdown_cell, cells)])} |")
    notes = [f"- <sup>{letter}</sup> {_text(words, SENTENCE)}" for letter, words in cell_notes(table).values()]
    return "\n".join([*lines, "", *notes, *(f"- {_text(each, SENTENCE)}" for each in footnotes(table))]) + "\n"


def _markdown_cell(shown: Shown) -> str:
    mean = f"**{shown.mean}**" if shown.is_best else shown.mean
    letter = f"<sup>{shown.letter}</sup>" if shown.letter else ""
    return f"{mean}{shown.sign}{letter} {escape(shown.interval)} {escape(shown.places)}".rstrip()


def _text(value: str, limit: int = 200) -> str:
    return escape(redactor.text(clean(value, limit), patterns=False))


def csv_table(table: ResultTable) -> str:
    """The table as CSV: a line for each run, followed by one for each of its pass rates, then one for each model's
    average, with all digits. Text that a spreadsheet could take for a formula is escaped as in `bench export`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    notes = cell_notes(table)
    for cell in table.ordered:
        _, note = notes.get((cell.row, cell.environment), ("", ""))
        writer.writerow(_csv_cells(_run_values(cell, note)))
        for name, rate in cell.attempts.items():
            writer.writerow(_csv_cells(_attempts_values(cell, name, rate)))
    for row, average in table.averages.items():
        writer.writerow(_csv_cells(_average_values(table, row, average)))
    return stream.getvalue()


def _csv_cells(values: dict[str, object]) -> list[str]:
    cells = (values.get(name) for name in COLUMNS)
    return ["" if cell is None else _safe(cell) if isinstance(cell, str) else repr(cell) for cell in cells]


def _safe(value: str) -> str:
    return defused(redactor.text(clean(value, SENTENCE), patterns=False))


def _run_values(cell: ResultCell, note: str) -> dict[str, object]:
    against, corrected = cell.against, cell.corrected
    by_labels = Estimate() if corrected is None else corrected.estimate
    return {
        "kind": "run", "model": cell.manifest.model, "row": cell.row, "environment": cell.environment,
        "measure": cell.measure or "reward", "run": cell.entry.id, "state": cell.entry.state,
        "n": cell.estimate.examples, "rollouts_per_example": cell.manifest.planned.get("rollouts_per_example", 1),
        "scored": cell.scored, "planned": cell.planned, "mark": cell.mark, "note": note,
        **_estimate_values(cell.estimate),
        **_difference_values(against.estimate if against else None),
        "p_adjusted": None if against is None else against.adjusted, "equality": cell.equality,
        "corrected": by_labels.mean, "corrected_low": by_labels.low, "corrected_high": by_labels.high,
        "corrected_method": by_labels.method, "labels": None if corrected is None else corrected.labels,
        **({} if cell.place is None else _place_values(cell.place)),
    }  # fmt: skip


def _attempts_values(cell: ResultCell, name: str, rate: Estimate) -> dict[str, object]:
    return {
        "kind": "attempts", "model": cell.manifest.model, "row": cell.row, "environment": cell.environment,
        "measure": name, "run": cell.entry.id, "state": cell.entry.state, "n": rate.examples,
        "rollouts_per_example": cell.manifest.planned.get("rollouts_per_example", 1), "scored": cell.scored,
        "planned": cell.planned, **_estimate_values(rate),
    }  # fmt: skip


def _place_values(place: ModelPlace) -> dict[str, object]:
    return {"place": place.place, "place_low": place.low, "place_high": place.high, "groups": place.letters}


def _average_values(table: ResultTable, row: str, average: RowAverage) -> dict[str, object]:
    cells = [table.cells[row, environment] for environment in table.environments]
    return {
        "kind": "average", "model": cells[0].manifest.model, "row": row, "measure": table.measure,
        "n": sum(cell.estimate.examples for cell in cells), "scored": sum(cell.scored for cell in cells),
        "planned": sum(cell.planned for cell in cells), "mark": average.mark,
        **_estimate_values(average.estimate), **_difference_values(average.difference),
        "p_adjusted": average.p_value,
    }  # fmt: skip


def _estimate_values(estimate: Estimate) -> dict[str, object]:
    return {
        "mean": estimate.mean, "stderr": estimate.stderr, "low": estimate.low, "high": estimate.high,
        "level": estimate.level, "method": estimate.method,
    }  # fmt: skip


def _difference_values(estimate: Estimate | None) -> dict[str, object]:
    if estimate is None:
        return {}
    return {
        "best_minus_this": estimate.mean,
        "best_minus_this_low": estimate.low,
        "best_minus_this_high": estimate.high,
    }
