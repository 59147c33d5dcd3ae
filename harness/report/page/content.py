"""Examples and transcripts of a page, as data for its script. Limits rows and bytes, with notes on omissions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.page.columns import MEASURES, RolloutColumns
from harness.report.page.gather import Page, RunPart
from harness.report.page.markup import script_json
from harness.report.page.plots import symbol
from harness.report.page.sample import KINDS, Sample, samples_of
from harness.report.page.transcripts import transcript_data
from harness.store.outcomes import outcomes

ROWS = 60_000
"""Maximum number of examples in the table, over all runs."""

BYTES = 6_000_000
"""Maximum size of all transcripts in the file, in bytes."""

_DIGITS = 5


@dataclass(slots=True)
class PageData:
    """Data for the page's script."""

    rows: list[JsonDict] = field(default_factory=list[JsonDict])
    """One object per run: its name and the columns of its examples."""
    transcripts: list[JsonDict] = field(default_factory=list[JsonDict])
    notes: list[str] = field(default_factory=list[str])
    """Notes on which examples are shown and omitted."""


def content_of(page: Page, most: int) -> PageData:
    """Choose and read the data to show.

    Args:
        page: The runs.
        most: Maximum examples per run with transcripts.

    Raises:
        JournalDamaged: a line cannot be read.
        StoreError: a journal cannot be read.
    """
    content = PageData()
    samples = [sample for environment in page.environments for sample in samples_of(environment, most)]
    counts = [len(run.columns.examples) for run in page.runs]
    total_rows = sum(counts)
    # All examples if they fit, otherwise a share for each run.
    shares = counts if total_rows <= ROWS else [max(1, count * ROWS // total_rows) for count in counts]
    left, kinds = 0, dict.fromkeys(KINDS, 0)
    shown_rows = 0
    for run, sample, share in zip(page.runs, samples, shares, strict=True):
        places = _add_transcripts(content, run, sample, BYTES // len(page.runs))
        for position in places:
            kinds[sample[position]] += 1
        left += len(sample) - len(places)
        rows = _rows(run.columns, places, share)
        shown_rows += len(rows)
        content.rows.append(_run_data(run, rows, places, sample))
    content.notes = _notes(len(content.transcripts), kinds, total_rows, shown_rows, left)
    return content


def _add_transcripts(content: PageData, run: RunPart, sample: Sample, budget: int) -> dict[int, int]:
    """Read the chosen examples within a byte budget; return the index of each transcript."""
    places: dict[int, int] = {}
    for position, kind in sample.items():
        row = run.columns.examples[position]
        numbers = run.columns.numbers[row.begin : row.end]
        found = list(outcomes(run.recorded, numbers))
        data = {**transcript_data(found[0].example, found), "kind": kind}
        size = len(script_json(data).encode())
        if size > budget:
            continue
        budget -= size
        places[position] = len(content.transcripts)
        content.transcripts.append(data)
    return places


def _rows(columns: RolloutColumns, places: dict[int, int], share: int) -> list[int]:
    """Examples in the table: those with a transcript, then those without a score, then the first others."""
    every = range(len(columns.examples))
    if share >= len(every):
        return list(every)
    order = sorted(every, key=lambda n: (n not in places, not columns.examples[n].reason, n))
    return sorted(order[: max(share, len(places))])


def _run_data(run: RunPart, rows: Sequence[int], places: dict[int, int], sample: Sample) -> JsonDict:
    columns = run.columns
    examples = [columns.examples[n] for n in rows]
    reasons = list(dict.fromkeys(row.reason for row in examples if row.reason))
    codes = {reason: code for code, reason in enumerate(reasons)}
    measures = {
        measure: [_number(columns.mean_of(measure, row)) for row in examples]
        for measure in MEASURES
        if any(value == value for value in columns.measures[measure])
    }
    return {
        "environment": _plain(run.environment),
        "label": _plain(run.label),
        "colour": run.colour % 8,
        "symbol": symbol(run.colour),
        "threshold": run.summary.pass_threshold,
        "total": len(columns.examples),
        "reasons": [_plain(reason) for reason in reasons],
        "example": [_plain(row.name) for row in examples],
        "asked": [_plain(row.asked) for row in examples],
        "mean": [_number(row.mean) for row in examples],
        "low": [_number(row.low) for row in examples],
        "high": [_number(row.high) for row in examples],
        "scored": [row.scored for row in examples],
        "made": [row.made for row in examples],
        "reason": [codes.get(row.reason, -1) for row in examples],
        "transcript": [places.get(n, -1) for n in rows],
        "kind": [sample[n] if n in places else "" for n in rows],
        "measures": measures,
    }


def _plain(value: str) -> str:
    return redactor.text(value, patterns=False)


def _number(value: float) -> float | int | None:
    """A figure rounded to five digits, more than are shown; None if not finite."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _notes(transcripts: int, kinds: dict[str, int], total: int, shown: int, left: int) -> list[str]:
    notes: list[str] = []
    if shown < total:
        notes.append(
            f"The table has {numerals.count(shown)} of {numerals.count(total)} examples: all with a transcript here, "
            "then those without a score, then the first of each run. Every figure above is made from all of them."
        )
    if not total:
        return notes
    if transcripts == total:
        every = "The only example is here with its transcript."
        many = f"All {numerals.count(total)} examples are here with their transcripts."
        return [*notes, every if total == 1 else many]
    words = ", ".join(f"{numerals.count(number)} {KINDS[kind]}" for kind, number in kinds.items() if number)
    told = f"{numerals.count(transcripts)} of {numerals.count(total)} examples are here with their transcripts"
    more = ""
    if left:
        them = "One more was" if left == 1 else f"{numerals.count(left)} more were"
        more = f" {them} chosen and left out, because the page would have become too large."
    notes.append(f"{told}{': ' + words if words else ''}.{more}")
    notes.append("The others are in the runs' journals and datasets: bench runs show RUN --example ID prints one.")
    return notes
