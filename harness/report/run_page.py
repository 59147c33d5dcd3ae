"""Page of one run (`bench runs show`): settings, scores, failures, examples, next steps. `report.run_facts` gathers the
data, `report.final_table` prints the scores."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from harness.report import numerals
from harness.report.changes import change_lines
from harness.report.final_table import RunReport, result_lines, unfinished_words
from harness.report.layout import head, labelled, prose
from harness.report.run_digest import Digest, Ranked, Trouble
from harness.report.run_facts import RunFacts, commit_of, settings_of, size_text, steps_of
from harness.report.runs import function_means, origin_text, recorded_coverage, recorded_estimate
from harness.report.text import clean, clean_block
from harness.report.transcript import last_text
from harness.store.catalogue import ListedRun
from harness.store.manifest import Manifest

WIDEST = 120
"""Maximum width of paragraphs on a run's page, in cells."""

MOST_IDS = 8
"""Maximum number of examples named per failure; `--json` has all."""

MOST_RELATIVES = 8

MOST_METRICS = 4
"""Maximum number of metrics shown for a rollout; its transcript has all."""

_KINDS = {"eval": "an agent over rows", "multi": "a list of tasks"}

MESSAGE_LINES = 16
_MESSAGE = 4000
"""Maximum lines and characters of an error message, which can be a whole HTML page. The transcript shows all of it."""

SNIPPET_LINES = 2
_SNIPPET = 400
"""Maximum lines and characters of an example's text."""

_TAIL = 90
"""Number of characters to show from the end of a completion model's prompt."""

DIED = "its process ended without a reason: it was killed, or the machine stopped"


def page_lines(page: RunFacts, width: int) -> Iterator[Text]:
    """Format the page of a run as lines.

    Args:
        page: Data of the page.
        width: Width of a line in cells.
    """
    width = min(width, WIDEST)
    entry, manifest = page.entry, page.entry.manifest
    title = [clean(entry.title, 200), clean(entry.model, 100), entry.state]
    yield head(" · ".join(word for word in title if word))
    for name, value in _facts(page):
        # Commands and paths are not wrapped, so that they can be copied.
        room = 10_000 if name in ("command", "folder") else width
        yield from labelled(f"  {name:<13} ", clean(value, 4000), room, break_words=False)
    for problem in (*entry.problems, *page.problems):
        yield from prose(clean(problem, 1000), width, break_words=False)
    yield Text()
    yield from _scores(page, width)
    if page.digest is not None:
        yield from _troubles(page.digest.troubles, width)
        yield from _examples(page.digest, width)
    if manifest is not None:
        yield from _settings_in_short(manifest, width)
    yield from _section("Next", [Text(f"  {clean(step, 2000)}") for step in steps_of(page)])


def _section(title: str, lines: Sequence[Text]) -> Iterator[Text]:
    if lines:
        yield from (Text(), head(title), *lines)


def settings_lines(manifest: Manifest, width: int) -> Iterator[str]:
    """List all settings of a run with value and origin: first those that differ from the default."""
    chosen, rest = settings_of(manifest)
    yield from _aligned(chosen, width)
    if chosen and rest:
        yield ""
    yield from _aligned(rest, width)


def _facts(page: RunFacts) -> Iterator[tuple[str, str]]:
    entry, manifest = page.entry, page.entry.manifest
    yield "run", entry.id
    yield "folder", str(entry.run.path)
    if entry.created is not None:
        yield "started", f"{entry.created:%Y-%m-%dT%H:%M:%SZ}"
    if manifest is not None:
        if manifest.kind != "run":
            yield "kind", _KINDS.get(manifest.kind, manifest.kind)
        examples, rollouts = (manifest.planned.get(name, "?") for name in ("num_examples", "rollouts_per_example"))
        if manifest.planned:
            yield "planned", f"{examples} examples" + ("" if rollouts == 1 else f" × {rollouts} rollouts")
        if manifest.command:
            yield "command", manifest.command
        if commit := commit_of(manifest):
            yield "commit", commit
        if manifest.derived:
            there = "which no longer exists" if page.parent is None else _relative(page.parent)
            yield "made", origin_text(manifest.derived, manifest.parent) + (f", {there}" if manifest.parent else "")
        if page.children:
            yield "derived runs", _relatives(page.children)
        if page.siblings:
            yield "sibling runs", _relatives(page.siblings)
        yield "versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    if page.sizes:
        yield "files", ", ".join(f"{name} {size_text(size)}" for name, size in page.sizes.items())


def _relative(entry: ListedRun) -> str:
    mean = recorded_estimate(entry.final).mean
    words = function_means(entry) or ("" if mean is None else f"mean {numerals.score(mean)}")
    return f"{entry.title} · {entry.model}, {entry.state}{f', {words}' if words else ''}"


def _relatives(entries: Sequence[ListedRun]) -> str:
    more = len(entries) - MOST_RELATIVES
    words = [f"{entry.id} ({_relative(entry)})" for entry in entries[:MOST_RELATIVES]]
    return "; ".join([*words, *([f"and {more} more"] if more > 0 else [])])


def _scores(page: RunFacts, width: int) -> Iterator[Text]:
    entry, found = page.entry, page.digest
    note = DIED if entry.state == "died" else entry.note
    words = [] if entry.manifest is None else unfinished_words(entry.manifest.given_up)
    unfinished = [line for each in words for line in prose(clean(each, 1000), width, break_words=False)]
    if found is None:
        if entry.summary is not None:
            estimate = recorded_estimate(entry.summary)
            mean = f"{numerals.score(estimate.mean)} {numerals.interval(estimate)}"
            coverage = recorded_coverage(entry.summary, entry.planned)
            yield Text(f"Its summary.json says: mean {mean}, scored {coverage}")
        return
    if found.summary is None:
        yield Text("No rollout has finished yet." if entry.state == "running" else "The run has no rollouts.")
        yield from unfinished
        if note:
            yield from prose(clean(f"{entry.state}: {note}", 1000), width, break_words=False)
        return
    if found.waiting:
        waiting = f"{numerals.counted(found.waiting, 'rollout is', 'rollouts are')} generated and not scored yet"
        note = f"{note}; {waiting}" if note else waiting
    # Only the name: model, state and folder are shown above.
    reports = [
        RunReport(name, entry.env_id, entry.model, None, summary, entry.state, note)
        for name, summary in (found.functions or {entry.name: found.summary}).items()
    ]
    yield from result_lines(reports, width, "function" if found.functions else "run")
    yield from unfinished
    if page.changes is not None and page.parent is not None:
        yield Text()
        yield from change_lines(page.parent.id, page.changes, width)


def _troubles(troubles: Sequence[Trouble], width: int) -> Iterator[Text]:
    if troubles:
        yield from (Text(), head("What went wrong"))
    for trouble in troubles:
        heal = ""
        if trouble.retryable:
            heal = (
                ", a retry may succeed"
                if trouble.retryable == trouble.count
                else f", {trouble.retryable} of them may succeed on retry"
            )
        scored = ", scored nevertheless" if trouble.is_scored else ""
        words = f"{clean(trouble.reason, 200)}: {numerals.counted(trouble.count, 'rollout')}{heal}{scored}"
        yield from prose(words, width, indent=2, break_words=False)
        yield from (Text(f"    {line}") for line in _message(trouble.message, width - 4))
        ids = list(dict.fromkeys(clean(example, 60) for example, _ in trouble.places))
        more = len(ids) - MOST_IDS
        examples = "example" if len(ids) == 1 else "examples"
        tail = f" and {numerals.count(more)} more" if more > 0 else ""
        yield from prose(f"{examples} {', '.join(ids[:MOST_IDS])}{tail}", width, indent=4, break_words=False)
        if trouble.nodes:
            yield from prose(f"on {trouble.where}", width, indent=4, break_words=False)


def _message(message: str, width: int) -> Iterator[str]:
    """An error message as lines, cut if it is too long."""
    whole = clean_block(message[:_MESSAGE]).expandtabs(4).strip().split("\n")
    lines = [part for line in whole for part in textwrap.wrap(line, max(20, width), break_on_hyphens=False) or [""]]
    yield from lines[:MESSAGE_LINES]
    if len(lines) > MESSAGE_LINES or len(message) > _MESSAGE:
        yield f"… {numerals.count(len(message))} characters in total; a transcript shows all of them"


def _examples(found: Digest, width: int) -> Iterator[Text]:
    title = "Worst examples"
    if found.is_level and found.worst:
        few = len(found.worst) == 1 and (found.summary is None or found.summary.num_examples == 1)
        score = numerals.score(found.worst[0].mean)
        title = "The example" if few else f"Some examples (all have a mean of {score})"
    for words, ranking in ((title, found.worst), ("Best examples", found.best)):
        yield from _section(words, [line for ranked in ranking for line in _ranked(ranked, width)])


def _ranked(ranked: Ranked, width: int) -> Iterator[Text]:
    outcome = ranked.shown
    words = f"{clean(outcome.example.example_id, 80)}: mean {numerals.score(ranked.mean)}"
    if ranked.made > 1:
        missing = "" if ranked.scored == ranked.made else f" ({ranked.scored} scored)"
        words += f" over {ranked.made} rollouts{missing}; rollout {outcome.base.rollout_index}"
    words += _metrics(outcome.score.metrics if outcome.score is not None else {})
    yield from prose(words, width, indent=2, break_words=False)
    texts = {
        "asked": last_text(outcome.example.prompt, "user", _TAIL),
        "answered": last_text(outcome.base.completion, "assistant", _TAIL) or outcome.no_text,
        "expected": str(outcome.example.answer or ""),
    }
    for label, text in texts.items():
        yield from labelled(f"    {label:<9} ", clean(text, _SNIPPET), width, max_lines=SNIPPET_LINES)


def _metrics(metrics: Mapping[str, float | None]) -> str:
    """Metrics of a rollout as text; "" if there is only one. Metrics without a value are omitted."""
    words = [f"{clean(name, 40)} {numerals.score(value)}" for name, value in metrics.items() if value is not None]
    if not words or len(metrics) < 2:
        return ""
    more = [f"{len(words) - MOST_METRICS} more"] if len(words) > MOST_METRICS else []
    return f": {', '.join([*words[:MOST_METRICS], *more])}"


def _settings_in_short(manifest: Manifest, width: int) -> Iterator[Text]:
    rows = settings_of(manifest)
    # Without those inherited from the run's parent.
    chosen, default = (
        [row for row in each if not manifest.parent or f"{manifest.parent}/config.toml: " not in row[2]]
        for each in rows
    )
    lines = [Text(line) for line in _aligned(chosen, width, "  ")]
    rest = (
        (sum(map(len, rows)) - len(chosen) - len(default), "more as in its parent run"),
        (len(default), "more with their default"),
    )
    if words := ", ".join(f"{count} {what}" for count, what in rest if count):
        lines.append(Text(f"  {words}; --settings shows them"))
    yield from _section("Settings", lines)


def _aligned(rows: Sequence[tuple[str, str, str]], width: int, indent: str = "") -> Iterator[str]:
    """Format path, value and source of each setting in columns. A long value shifts its source instead of being cut."""
    clear = [(clean(path, 1000), clean(value, 1000), clean(source, 1000)) for path, value, source in rows]
    first = max((cell_len(row[0]) for row in clear), default=0)
    second = min(max((cell_len(row[1]) for row in clear), default=0), max(8, (width - first) // 2))
    for path, value, source in clear:
        gaps = " " * (first - cell_len(path)), " " * max(0, second - cell_len(value))
        yield f"{indent}{path}{gaps[0]}  {value}{gaps[1]}  {source}".rstrip()
