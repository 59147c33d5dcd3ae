"""The output of `bench trend`: a chart with the verdict for a terminal, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from rich.text import Text

from harness.core.types import JsonDict
from harness.plugins.archive.scores import RunScores
from harness.plugins.archive.trend_runs import Segment, is_possible
from harness.report import numerals
from harness.report.layout import GAP, Column, prose, table_lines, table_width
from harness.report.text import clean
from harness.stats.drift import ENOUGH
from harness.stats.intervals import Estimate

SHOWN = 40
"""Number of runs in the chart, the newest ones."""

_LEAST_CHART, _MOST_CHART = 12, 60


def trend_lines(segments: Sequence[Segment], notes: Sequence[str], width: int) -> Iterator[Text]:
    """Format the runs as a chart, with the verdict on each segment."""
    first = segments[0].runs[0].manifest
    count = numerals.counted(sum(len(each.runs) for each in segments), "run")
    title = f"{clean(first.env_id, 200)} · {clean(first.model, 200)} · {segments[0].measure}: {count}"
    yield from prose(title, width, "bold")
    hidden = max(0, sum(len(each.runs) for each in segments) - SHOWN)
    if hidden:
        yield from prose(f"The chart has the newest {SHOWN}; --json has all.", width)
    for segment in segments:
        shown = range(min(hidden, len(segment.runs)), len(segment.runs))
        hidden -= len(segment.runs) - len(shown)
        if segment.reason:
            begins = f"New segment from {_day(segment.runs[0])}: {clean(segment.reason, 1000)}."
            yield from (Text(), *prose(begins, width))
        yield Text()
        if shown:
            yield from _chart(segment, shown, width)
        yield from prose(verdict(segment), width)
    if notes:
        yield Text()
    for note in notes:
        yield from prose(f"note: {note}", width)


def _chart(segment: Segment, shown: range, width: int) -> Iterator[Text]:
    estimates = [segment.estimate(place) for place in shown]
    columns = [
        Column("begun (UTC)", [_moment(segment.runs[place]) for place in shown], True),
        Column("scored", [numerals.count(segment.runs[place].scored) for place in shown]),
        Column("mean", [numerals.score(each.mean) for each in estimates]),
        Column("95 % interval", [numerals.interval(each) for each in estimates]),
        Column("e", [_e_text(segment.drift.e_values[place]) for place in shown]),
    ]
    space = min(_MOST_CHART, width - table_width(columns) - GAP)
    ends = [end for each in estimates for end in (each.low, each.high, each.mean) if end is not None]
    if space >= _LEAST_CHART and ends:
        low, high = min(ends), max(ends)
        left, right = numerals.score(low, 2), numerals.score(high, 2)
        scale = left + right.rjust(space - len(left))
        columns.insert(4, Column(scale, [_bar(each, low, high, space) for each in estimates], True))
    yield from table_lines(columns, width)


def _bar(estimate: Estimate, low: float, high: float, space: int) -> str:
    """A mean with its interval on an axis."""

    def place(value: float) -> int:
        return round((space - 1) * (value - low) / (high - low)) if high > low else 0

    cells = [" "] * space
    if estimate.low is not None and estimate.high is not None:
        start, end = place(estimate.low), place(estimate.high)
        cells[start : end + 1] = "─" * (end + 1 - start)
    if estimate.mean is not None:
        cells[place(estimate.mean)] = "o"
    return "".join(cells)


def _e_text(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}" if value < 1e6 else f"{value:.0e}"


def verdict(segment: Segment) -> str:
    """The result for a segment, in sentences."""
    drift, runs = segment.drift, segment.runs
    if len(runs) < 2:
        return "One run: it takes two to compare."
    change, size = drift.change, segment.size
    if not drift.is_found or change is None or size is None:
        return f"No drift seen: e is {_e_text(drift.e_values[-1])}, and {ENOUGH:g} would show one. {_reach(segment)}"
    assert drift.found_at is not None and drift.change_from is not None and drift.change_to is not None
    between = [_day(runs[place]) for place in (drift.change_from, drift.change_to)]
    estimate = size.estimate
    words = f"Drift since about {_day(runs[change])}"
    if between[0] != between[1]:
        words += f" (between {between[0]} and {between[1]})"
    words += (
        f": {numerals.difference(estimate)} {numerals.signed_interval(estimate)}. e reached {ENOUGH:g} on "
        f"{_day(runs[drift.found_at])}; its highest was {_e_text(drift.e_values[drift.highest])}. Without a change it "
        f"reaches {ENOUGH:g} in at most 5 % of cases, however often one looks."
    )
    if drift.e_values[-1] < 1:
        words += " The newest runs are as before again."
    return words


def _reach(segment: Segment) -> str:
    if not is_possible(segment):
        return "So few runs could not have shown any drift yet."
    reach = numerals.score(segment.drift.detectable)
    return f"A drift of {reach} that began half way would have been found by now in 80 % of cases."


def _moment(run: RunScores) -> str:
    created = run.entry.created
    return "unknown" if created is None else created.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _day(run: RunScores) -> str:
    return _moment(run)[:10]


def trend_json(segments: Sequence[Segment], notes: Sequence[str]) -> JsonDict:
    """The runs and verdicts as JSON, for `--json`."""
    first = segments[0].runs[0].manifest
    return {
        "schema_version": 1,
        "env_id": first.env_id,
        "model": first.model,
        "measure": segments[0].measure,
        "drift": segments[-1].drift.is_found,
        "segments": [_segment_json(segment) for segment in segments],
        "notes": list(notes),
    }


def _segment_json(segment: Segment) -> JsonDict:
    drift = segment.drift
    found = drift.is_found

    def name(place: int | None) -> str | None:
        return None if place is None or not found else segment.runs[place].entry.id

    size = segment.size if found else None
    return {
        "reason": segment.reason or None,
        "drift": found,
        "found_at": name(drift.found_at),
        "change": name(drift.change),
        "change_from": name(drift.change_from),
        "change_to": name(drift.change_to),
        "difference": None if size is None else size.estimate.mean,
        "difference_ci95": None if size is None else size.estimate.ends,
        "detectable": drift.detectable if is_possible(segment) else None,
        "words": verdict(segment),
        "runs": [
            {
                "run": run.entry.id, "created": run.manifest.created or None, "scored": run.scored,
                "unscored": run.unscored, "examples": len(run.values), "mean": each.mean, "ci95": each.ends,
                "method": each.method, "z": drift.z_values[place], "e": drift.e_values[place],
            }
            for place, (run, each) in enumerate(
                (run, segment.estimate(place)) for place, run in enumerate(segment.runs)
            )
        ],
    }  # fmt: skip
