"""Examples and transcripts of a report page as data for its script, and all data of the page as JSON. Chooses the
examples to show with transcripts, and limits rows and bytes; notes on the page say what was omitted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from harness.core.records import Example
from harness.core.redact import redactor
from harness.core.types import JsonDict, Prompt
from harness.report import numerals
from harness.report.compare.ranking import place_json
from harness.report.final_table import writable
from harness.report.labels import corrected_json
from harness.report.page.columns import MEASURES, TOKENS, RolloutColumns
from harness.report.page.gather import EnvPart, Page, RunPart, methods_of
from harness.report.page.markup import script_json
from harness.report.page.plots import symbol
from harness.report.run_facts import settings_json
from harness.report.text import clean, clean_block
from harness.report.transcript import figures, judgements, message_parts, shown_error, verdict
from harness.stats.summary import number
from harness.store.codec import to_text
from harness.store.outcomes import Outcome, outcomes

ROWS = 60_000
"""Maximum number of examples in the table, over all runs."""

BYTES = 6_000_000
"""Maximum size of all transcripts in the file, in bytes."""

TEXT = 16_000
"""Maximum characters of one piece of text; if it is longer, only its beginning and end are shown."""

ROLLOUTS = 8
"""Maximum number of rollouts shown per example."""

MESSAGES = 60
"""Maximum number of messages shown per rollout: the first and the last ones."""

A_REASON = 3
"""Number of examples to choose first for each reason why rollouts have no score."""

KINDS = {
    "unscored": "without a score, of every reason",
    "flips": "on which the runs of the environment differ most",
    "worst": "with the lowest mean",
    "best": "with the highest mean",
    "mixed": "whose rollouts disagree most",
    "longest": "with the most tokens written",
    "others": "evenly from the rest",
}
"""Kinds of examples to show, with their descriptions. Examples are chosen from each kind in turn, in this order."""

Sample: TypeAlias = dict[int, str]
"""Chosen examples of a run: position in the run → the kind for which the example was chosen, in order of choice."""


@dataclass(slots=True)
class PageData:
    """Examples and transcripts for the script of the report page."""

    rows: list[JsonDict] = field(default_factory=list[JsonDict])
    """One object per run: its name and the columns of its examples."""
    transcripts: list[JsonDict] = field(default_factory=list[JsonDict])
    notes: list[str] = field(default_factory=list[str])
    """Notes on which examples are shown and omitted."""


def content_of(page: Page, most: int) -> PageData:
    """Choose examples for the report page, and read their transcripts.

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
        # Examples with a transcript, then those without a score, then the first others.
        rows = list(range(len(run.columns.examples)))
        if share < len(rows):
            rows.sort(key=lambda n, run=run, places=places: (n not in places, not run.columns.examples[n].reason, n))
            rows = sorted(rows[: max(share, len(places))])
        shown_rows += len(rows)
        content.rows.append(_run_data(run, rows, places, sample))
    content.notes = _notes(len(content.transcripts), kinds, total_rows, shown_rows, left)
    return content


def _add_transcripts(content: PageData, run: RunPart, sample: Sample, budget: int) -> dict[int, int]:
    """Read the chosen examples within a byte budget; return the index of each transcript."""
    places: dict[int, int] = {}
    for position, kind in sample.items():
        row = run.columns.examples[position]
        found = list(outcomes(run.recorded, run.columns.numbers[row.begin : row.end]))
        data = {**transcript_data(found[0].example, found), "kind": kind}
        size = len(script_json(data).encode())
        if size > budget:
            continue
        budget -= size
        places[position] = len(content.transcripts)
        content.transcripts.append(data)
    return places


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
    """Round a figure to five significant digits (the page shows fewer); None if it is not finite."""
    if not math.isfinite(value):
        return None
    short = float(f"{value:.5g}")
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
    included = f"{numerals.count(transcripts)} of {numerals.count(total)} examples are here with their transcripts"
    more = ""
    if left:
        them = "One more was" if left == 1 else f"{numerals.count(left)} more were"
        more = f" {them} chosen and left out, because the page would have become too large."
    notes.append(f"{included}{': ' + words if words else ''}.{more}")
    notes.append("The others are in the runs' journals and datasets: bench runs show RUN --example ID prints one.")
    return notes


def samples_of(environment: EnvPart, most: int) -> list[Sample]:
    """Choose the examples shown with transcripts, for each run of an environment.

    Examples are chosen from each kind in turn, so that every kind is shown even if there are few. Deterministic.

    Args:
        environment: Its runs.
        most: Maximum examples per run.
    """
    means: dict[str, list[float]] = {}
    for run in environment.runs:
        for key, mean in run.columns.means().items():
            means.setdefault(key, []).append(mean)
    spreads = {key: max(each) - min(each) for key, each in means.items()}
    samples: list[Sample] = []
    for run in environment.runs:
        sample, queues = Sample(), _orders(run.columns, spreads)
        while queues and len(sample) < most:
            for kind in list(queues):
                position = next((each for each in queues[kind] if each not in sample), None)
                if position is None:
                    del queues[kind]
                elif len(sample) < most:
                    sample[position] = kind
        samples.append(sample)
    return samples


def _orders(columns: RolloutColumns, spreads: Mapping[str, float]) -> dict[str, Iterator[int]]:
    """For each kind of example to show (lowest mean, highest mean, …), order a run's examples, most typical first.

    Args:
        columns: A run's examples.
        spreads: Example key → difference between the highest and lowest mean of the runs.
    """
    rows = columns.examples
    scored = [n for n, row in enumerate(rows) if row.scored]
    by_mean = sorted(scored, key=lambda n: rows[n].mean)
    from_best = sorted(scored, key=lambda n: -rows[n].mean)  # not reversed: equal means keep their order
    level = bool(by_mean) and rows[by_mean[0]].mean == rows[by_mean[-1]].mean
    mixed = [n for n in scored if rows[n].high > rows[n].low]
    tokens = {n: mean for n, row in enumerate(rows) if (mean := columns.mean_of(TOKENS, row)) == mean}
    flips = [n for n, row in enumerate(rows) if spreads.get(row.key, 0.0) > 0]
    reasons: dict[str, list[int]] = {}
    for n, row in enumerate(rows):
        if row.reason:
            reasons.setdefault(row.reason, []).append(n)
    early = [n for numbers in reasons.values() for n in numbers[:A_REASON]]
    late = [n for numbers in reasons.values() for n in numbers[A_REASON:]]
    # All positions, in an order in which any first few are spread evenly.
    steps = [1 << power for power in reversed(range(len(rows).bit_length() + 1))]
    evenly = dict.fromkeys(n for step in steps for n in range(0, len(rows), step))
    return {
        "unscored": iter([*early, *late]),
        "flips": iter(sorted(flips, key=lambda n: -spreads[rows[n].key])),
        "worst": iter([] if level else by_mean),
        "best": iter([] if level else from_best),
        "mixed": iter(sorted(mixed, key=lambda n: rows[n].low - rows[n].high)),
        "longest": iter(sorted(tokens, key=lambda n: -tokens[n])),
        "others": iter(evenly),
    }


def shown_text(value: object) -> str:
    """Clean untrusted text for the page, and shorten it if it is too long; other values become JSON."""
    text = redactor.text(value if isinstance(value, str) else to_text(value), patterns=False)
    if len(text) > TEXT:
        half = TEXT // 2
        left = numerals.count(len(text) - 2 * half)
        text = f"{text[:half]}\n\n[… {left} characters left out …]\n\n{text[-half:]}"
    # Redact before cutting, which could leave half a secret, and after cleaning, which could join two halves.
    return redactor.text(clean_block(text), patterns=False)


def transcript_data(example: Example, rollouts: Sequence[Outcome]) -> JsonDict:
    """An example with its rollouts, as JSON for the script of the report page."""
    shown = rollouts[:ROLLOUTS]
    return {
        "key": example.key,
        "name": shown_text(clean(example.example_id, 200)),
        "task": shown_text(clean(example.task, 200)),
        "prompt": _messages(example.prompt, "user"),
        "expected": shown_text(example.answer) if example.answer not in (None, "") else "",
        "rollouts": [_rollout(outcome) for outcome in shown],
        "more": len(rollouts) - len(shown),
    }


def _rollout(outcome: Outcome) -> JsonDict:
    error = shown_error(outcome)
    more = [(name, value) for name, value in figures(outcome) if name != "reward"]
    return {
        "index": outcome.base.rollout_index,
        "verdict": shown_text(verdict(outcome)),
        "scored": outcome.is_scored,
        "reward": outcome.reward,
        "figures": [[shown_text(clean(name, 60)), shown_text(clean(value, 400))] for name, value in more],
        "messages": _messages(outcome.base.completion, "assistant"),
        "error": redactor.text(shown_text(error)) if error else "",
        "judges": [{"name": shown_text(title), "text": shown_text(text)} for title, text in judgements(outcome)],
    }


def _messages(said: Prompt | object, role: str) -> list[JsonDict]:
    if isinstance(said, str):
        return [{"role": role, "texts": [shown_text(said)]}] if said else []
    every = cast("list[object]", said) if isinstance(said, list) else [said]
    left = len(every) - MESSAGES
    if left <= 0:
        return [_message(each, role) for each in every]
    head, tail = every[: MESSAGES // 2], every[-(MESSAGES // 2) :]
    note: JsonDict = {"role": "", "note": f"{numerals.count(left)} messages left out"}
    return [*(_message(m, role) for m in head), note, *(_message(m, role) for m in tail)]


def _message(said: object, role: str) -> JsonDict:
    parts = message_parts(said, role)
    data: JsonDict = {
        "role": shown_text(parts.title),
        "texts": [shown_text(text) for text in parts.texts if text.strip()],
        "calls": [shown_text(call) for call in parts.calls],
        "thoughts": [shown_text(thought) for thought in parts.thoughts],
        "others": [[shown_text(clean(name, 60)), shown_text(value)] for name, value in parts.others.items()],
    }
    return {name: value for name, value in data.items() if value or name in ("role", "texts")}


def page_json(page: Page, content: PageData) -> JsonDict:
    """All data of the report page as JSON; the keys are documented in docs/reference/runs.md.

    Args:
        page: The runs.
        content: Their examples and transcripts.
    """
    environments = [
        {
            "env_id": clean(environment.runs[0].entry.env_id),
            "name": environment.name,
            "function": environment.runs[0].measure or None,
            "runs": [
                {**_run_json(run), **place_json(environment.ranked.places[number] if environment.ranked else None)}
                for number, run in enumerate(environment.runs)
            ],
            "differences": [
                each.to_json([run.entry.id for run in environment.runs]) for each in environment.differences
            ],
        }
        for environment in page.environments
    ]
    overall = [
        {
            "model": each.model,
            "mean": number(each.estimate.mean),
            "stderr": number(each.estimate.stderr),
            "ci95": each.estimate.ends,
            "method": each.estimate.method,
        }
        for each in page.overall
    ]
    whole: JsonDict = {
        "schema_version": 1,
        "title": page.title,
        "missing": list(page.missing),
        "overall": overall,
        "environments": environments,
        "methods": dict(methods_of(page)),
        "notes": list(content.notes),
        "examples": content.rows,
        "transcripts": content.transcripts,
    }
    return cast(JsonDict, writable(whole))


def _run_json(run: RunPart) -> JsonDict:
    entry, manifest = run.entry, run.manifest
    return {
        "id": entry.id,
        "label": run.label,
        "model": manifest.model,
        "name": manifest.name,
        "state": entry.state,
        "note": entry.note or None,
        "created": manifest.created,
        "command": manifest.command,
        "versions": manifest.versions,
        "git": manifest.git,
        "summary": run.summary.to_json(),
        "corrected": None if run.corrected is None else corrected_json(run.corrected),
        "remarks": list(run.remarks),
        "troubles": [trouble.to_json() for trouble in run.found.troubles],
        "relations": {measure: [group.to_json() for group in groups] for measure, groups in run.relations.items()},
        "settings": settings_json(manifest),
    }
