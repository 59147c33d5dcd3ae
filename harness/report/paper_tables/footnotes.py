"""Footnotes of a table of models × environments: intervals, numbers of examples and rollouts, marks, averages,
incomplete runs, and settings in which runs of one environment differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from harness.report import numerals
from harness.report.compare.ranking import explained_places
from harness.report.labels import corrected_text
from harness.report.page.sections import WATCHED
from harness.report.paper_tables.cells import Mark, ResultCell, ResultTable
from harness.report.text import clean
from harness.stats.equality import EqualityVerdict
from harness.stats.intervals import ALPHA
from harness.stats.methods import describe
from harness.store.codec import to_text
from harness.store.manifest import Manifest

SIGNS: dict[Mark, str] = {"tied": "†", "unknown": "?", "better": "‡"}
"""Sign to print after a mean, by mark. The best mean is printed in bold instead; a worse one has no sign."""

EQUALITY: dict[EqualityVerdict | None, str] = {"equal": "=", "different": "≠"}
"""Sign after a mean by the verdict on its equality with the best one."""

LIMITS = (
    "env.timeout", "env.scoring_timeout", "env.message_limit", "env.token_limit", "env.cost_limit", "env.max_retries",
)  # fmt: skip
"""Settings that can change scores without being part of a run's identity."""

VALUE = 40
"""Maximum characters of a setting's value in a footnote."""

SECRET = ("extra_headers", "extra_env_kwargs")
"""Tables of settings whose values are not printed."""

COMPLETE = ("done", "")
"""States of runs that need no footnote."""


def cell_notes(table: ResultTable) -> dict[tuple[str, str], tuple[str, str]]:
    """Letter and text of a footnote for each incomplete or partly unscored run, by (row, environment)."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for cell in table.ordered:
        if words := _incomplete(cell):
            found[cell.row, cell.environment] = _letter(len(found)), f"{cell.row}, {cell.environment}: {words}."
    return found


def footnotes(table: ResultTable) -> list[str]:
    """All sentences below the table, except notes on single cells."""
    parts = (
        _figures(table), _sizes(table), _marks(table), _equality(table), _places(table), _watched(table),
        _corrected(table), _average(table), _holes(table), _numbered(table), _settings(table),
    )  # fmt: skip
    return [*(words for part in parts for words in part), *(f"Not in the table: {each}." for each in table.missing)]


def _figures(table: ResultTable) -> Iterator[str]:
    estimates = [cell.estimate for cell in table.ordered] + [each.estimate for each in table.averages.values()]
    methods = dict.fromkeys(describe(each.method) for each in estimates if each.method is not None)
    how = f": {'; '.join(methods)}" if methods else ""
    yield (
        f"Mean {clean(table.measure, 80)} over examples, each the mean over its scored rollouts, with 95 % "
        f"intervals{how}."
    )


def _sizes(table: ResultTable) -> Iterator[str]:
    """Numbers of examples (n) and of rollouts per example (r): one sentence if all environments agree."""
    sizes = {environment: _size(table.column(environment)) for environment in table.environments}
    clusters = [cell.estimate.clusters for cell in table.ordered if cell.estimate.clusters is not None]
    if clusters:
        yield f"Examples of one cluster are treated as dependent; a run has {_range(clusters)} clusters."
    rates = dict.fromkeys(name for cell in table.ordered for name in cell.attempts)
    if any(name != "pass@1" for name in rates):
        excluded = " An example with fewer than k scored rollouts has no part in them."
        yield f"pass@k: at least one of k rollouts passes; pass^k: all of them do, with 95 % intervals.{excluded}"
    if len(set(sizes.values())) == 1:
        yield f"{next(iter(sizes.values()))} (n examples with a score, r rollouts of each)."
    else:
        each = "; ".join(f"{environment}: {size}" for environment, size in sizes.items())
        yield f"n examples with a score, r rollouts of each. {each}."


def _size(column: Sequence[ResultCell]) -> str:
    examples = [cell.estimate.examples for cell in column]
    rollouts = [cell.manifest.planned.get("rollouts_per_example", 1) for cell in column]
    return f"n = {_range(examples)}, r = {_range(rollouts)}"


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return numerals.count(low) if low == high else f"{numerals.count(low)} to {numerals.count(high)}"


def _marks(table: ResultTable) -> Iterator[str]:
    marks = {cell.mark for cell in table.ordered} | {each.mark for each in table.averages.values()}
    if "best" not in marks:
        return
    yield f"Bold: the highest mean of an environment{', and the highest average' if table.averages else ''}."
    if table.comparisons > 1:
        adjusted = f"adjusted for {numerals.count(table.comparisons)} comparisons (Holm)"
    else:
        adjusted = "of a single comparison"
    tests = {cell.against.unpaired is None for cell in table.ordered if cell.against is not None}
    named = [
        words for is_paired, words in ((True, "Student's t on the pairs"), (False, "Welch's t")) if is_paired in tests
    ]
    test = f"{' or '.join(named)}, {adjusted}" if named else adjusted
    if marks & {"tied", "worse", "better"}:
        yield (
            f"{SIGNS['tied']}: tied with the best: on the examples that both scored, the difference is not significant "
            f"(p of at least {ALPHA:g}; {test}). No sign: worse than the best (p below {ALPHA:g})."
        )
    if "unknown" in marks:
        yield f"{SIGNS['unknown']}: too few examples or clusters with a score to tell it from the best."
    if "better" in marks:
        yield f"{SIGNS['better']}: better than the best on the examples that both scored (p below {ALPHA:g})."


def _equality(table: ResultTable) -> Iterator[str]:
    if table.margin is not None:
        made = sum(cell.equality is not None for cell in table.ordered)
        how = f", allowing for {numerals.count(made)} comparisons (Bonferroni)" if made > 1 else ""
        yield (
            f"{EQUALITY['equal']}: equal to the best within {table.margin:g}: the whole interval of the difference "
            f"lies within this margin, and enough examples were seen to exclude rare losses{how}. "
            f"{EQUALITY['different']}: different: the interval lies beyond the margin. Neither sign: cannot tell."
        )


def _places(table: ResultTable) -> Iterator[str]:
    if not table.rankings:
        return
    words = explained_places(table.rankings)
    yield f"After an interval: # and the plausible places in the environment, and letters of groups. {words}"
    for found in table.rankings:
        if len(found.keys) < found.most or None in found.places:
            yield (
                f"Places are from the {numerals.count(len(found.keys))} of {numerals.count(found.most)} examples that "
                "all ranked runs scored."
            )


def _watched(table: ResultTable) -> Iterator[str]:
    if any(cell.ended_early for cell in table.ordered):
        yield WATCHED


def _corrected(table: ResultTable) -> Iterator[str]:
    """Means corrected by labels of people."""
    found = [(cell, cell.corrected) for cell in table.ordered if cell.corrected is not None]
    if found:
        each = "; ".join(f"{cell.row}, {cell.environment}: {corrected_text(corrected)}" for cell, corrected in found)
        methods = dict.fromkeys(describe(corrected.estimate.method) for _, corrected in found)
        yield f"Corrected by labels of people ({'; '.join(methods)}): {each}."


def _average(table: ResultTable) -> Iterator[str]:
    if not table.averages:
        return
    how = ""
    if len(table.averages) > 1:
        compared = len(table.averages) - 1
        adjusted = f", adjusted for {compared} comparisons (Holm)" if compared > 1 else ""
        how = f" It is compared with the highest average by the mean of the paired differences{adjusted}."
    yield (
        f"Average: the mean over all {len(table.environments)} environments with equal weights, meaningful only if "
        f"their scores have the same scale.{how}"
    )


def _holes(table: ResultTable) -> Iterator[str]:
    if len(table.cells) < len(table.rows) * len(table.environments):
        yield f"{numerals.NONE}: no run."


def _numbered(table: ResultTable) -> Iterator[str]:
    """Sentences with the ids of a model's runs, if only numbers distinguish these runs in the table."""
    for row in table.rows:
        if " · run " in row:
            ids = [cell.entry.id for cell in table.ordered if cell.row == row]
            yield f"{row}: {', '.join(ids)}."


def _settings(table: ResultTable) -> Iterator[str]:
    """Settings in which runs of one environment differ, other than the model."""
    for environment in table.environments:
        column = table.column(environment)
        known = [_settings_of(cell.manifest) for cell in column]
        names = dict.fromkeys(name for settings in known for name in settings)
        words = [_differing(name, [settings.get(name) for settings in known], column) for name in names]
        if differing := [each for each in words if each]:
            yield f"The runs of {environment} differ in more than the model: {'; '.join(differing)}."


def _differing(name: str, values: Sequence[object], column: Sequence[ResultCell]) -> str:
    texts = ["none" if value in (None, {}) else value if isinstance(value, str) else to_text(value) for value in values]
    if len(set(texts)) < 2:
        return ""
    if name.startswith(SECRET):
        return name
    by_text: dict[str, list[str]] = {}
    for text, cell in zip(texts, column, strict=True):
        by_text.setdefault(text, []).append(cell.row)
    return f"{name} " + ", ".join(f"{clean(text, VALUE)} ({', '.join(rows)})" for text, rows in by_text.items())


def _settings_of(manifest: Manifest) -> dict[str, object]:
    """Everything that a run's scores depend on, other than the model: name → value."""
    identity = manifest.identity
    found: dict[str, object] = {}
    for group, inside in identity.items():
        if not isinstance(inside, dict) or group in SECRET:
            found[group] = inside
            continue
        for name, value in cast("Mapping[str, object]", inside).items():
            if group == "model" and name in ("names", "urls"):
                continue
            path = f"{group}.{name}" if group == "order" else name
            if isinstance(value, dict) and name not in SECRET:
                found |= {f"{path}.{key}": each for key, each in cast("Mapping[str, object]", value).items()}
            else:
                found[path] = value
    if isinstance(source := found.get("source"), str):
        found["source"] = source[:12]
    found |= {name.partition(".")[2]: manifest.settings.get(name) for name in LIMITS}
    found |= {name: manifest.planned.get(name) for name in ("num_examples", "rollouts_per_example")}
    if manifest.derived:
        found["made by"] = manifest.derived.get("how")
    return found


def _incomplete(cell: ResultCell) -> str:
    words: list[str] = []
    if cell.scored < cell.planned:
        reasons = f" (without a score: {numerals.reasons(cell.unscored)})" if cell.unscored else ""
        words.append(f"{numerals.count(cell.scored)} of {numerals.count(cell.planned)} rollouts scored{reasons}")
    if cell.entry.state not in COMPLETE:
        words.append(f"state of the run: {clean(cell.entry.state)}")
    return "; ".join(words)


def _letter(number: int) -> str:
    """Letter of a note: a to z, then aa, ab, …"""
    head, tail = divmod(number, 26)
    return (_letter(head - 1) if head else "") + chr(ord("a") + tail)
