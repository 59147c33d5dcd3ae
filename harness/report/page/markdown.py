"""Report page as Markdown, for a README or a pull request. Untrusted text is escaped."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from harness.core.redact import redactor
from harness.report import numerals
from harness.report.compare.ranking import explained_places
from harness.report.page.gather import EnvPart, Page, methods_of, passing
from harness.report.page.sections import board_of, cautions
from harness.report.paper_tables.cells import table_of_page
from harness.report.paper_tables.plain import markdown_table
from harness.report.runs import has_rows
from harness.report.text import clean
from harness.store.card_text import escape

CELL = 200
"""Maximum characters of a name in a table cell."""


def markdown(page: Page) -> str:
    """The report page as Markdown, without plots and transcripts."""
    counted = numerals.counted(len(page.folders), "run")
    scored = numerals.coverage(*(run.summary for run in page.folders))
    head = f"{counted}, {scored} rollouts scored. Mean reward over examples, with 95 % intervals."
    lines = [f"# {_text(page.title)}", "", head, ""]
    if page.missing:
        lines += ["Not in this report:", "", *(f"- {_text(each)}" for each in page.missing), ""]
    if len(page.environments) > 1:
        result = table_of_page(page)
        result.missing = []  # named above
        lines += ["## Models and environments", "", markdown_table(result)]
    for environment in page.environments:
        # Escaped: brackets could become a link, and two dollar signs in a line a formula.
        board = {name: [escape(cell) for cell in cells] for name, cells in board_of(environment).items()}
        labels = [_text(run.label) for run in environment.runs]
        body = _table(["model", *board], [*zip(labels, *board.values(), strict=True)])
        lines += [f"## {_text(environment.name)}", "", *body, ""]
        for part in (_remarks, _differences, _unscored):
            lines += [*part(environment)]
    lines += ["## How to reproduce", "", *_reproduce(page), "", "## Methods", "", *_methods(page)]
    return "\n".join(lines) + "\n"


def _text(value: object, limit: int = CELL) -> str:
    return escape(redactor.text(clean(value, limit), patterns=False))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int] = (0,)) -> list[str]:
    rule = [":---" if number in words else "---:" for number in range(len(head))]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def _remarks(environment: EnvPart) -> Iterator[str]:
    lines = [(run, remark) for run in environment.runs for remark in run.remarks]
    for run, remark in lines:
        name = "" if len(environment.runs) == 1 else f"{_text(run.label)}: "
        yield f"- {name}{_text(remark, 1000)}"
    if lines:
        yield ""


def _differences(environment: EnvPart) -> Iterator[str]:
    if not environment.differences:
        return
    head = ["first", "second", "verdict", "difference", "95 % interval", "p (Holm)", "wins / ties / losses"]
    rows: list[list[str]] = []
    for each in environment.differences:
        runs = (_text(environment.runs[position].label) for position in (each.first, each.second))
        verdict = f"**{each.outlook}**" if each.is_found else each.outlook
        rows.append([*runs, verdict, *map(escape, each.figures)])
    yield from _table(head, rows, words=(0, 1, 2))
    yield ""


def _unscored(environment: EnvPart) -> Iterator[str]:
    rows = [
        [_text(run.label), _text(trouble.reason), numerals.count(trouble.count), _text(trouble.message, 160)]
        for run in environment.runs
        for trouble in run.found.troubles
        if not trouble.is_scored
    ]
    if rows:
        head = ["model", "without a score because", "rollouts", "first error message"]
        yield from _table(head, rows, words=(0, 1, 3))
        yield ""


def _reproduce(page: Page) -> Iterator[str]:
    for run in page.folders:
        manifest = run.manifest
        versions = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
        commit = manifest.git.get("commit")
        where = f", commit {commit}{' with local changes' if manifest.git.get('dirty') else ''}" if commit else ""
        name = f"{_text(run.entry.id)} ({_text(run.entry.title)} · {_text(run.label)})"
        yield f"- {name}: {_text(versions + where, 1000)}"
        if manifest.command and has_rows(manifest):
            # Markdown for inline code, fenced with more backticks than the code contains.
            words = redactor.text(clean(manifest.command, 2000), patterns=False)
            fence = "`" * (max(map(len, re.findall("`+", words)), default=0) + 1)
            yield f"  {fence} {words} {fence}" if "`" in words else f"  {fence}{words}{fence}"


def _methods(page: Page) -> Iterator[str]:
    yield f"- {_text(passing(page), 1000)}"
    yield "- pass@k: at least one of k rollouts passes; pass^k: all of them do."
    if page.differences:
        yield "- p (Holm): of the test of the interval, adjusted for all pairs above; each interval is for itself."
    if rankings := [environment.ranked for environment in page.environments if environment.ranked is not None]:
        yield f"- Places and groups: {explained_places(rankings)}"
    yield from (f"- {words}" for words in cautions(page))
    for name, words in methods_of(page, in_short=True):
        if name.startswith("interval: "):
            yield f"- {_text(name.capitalize())}: {_text(words, 400)}."
