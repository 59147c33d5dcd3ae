"""Page of one run (`bench runs show`): settings, scores, failures, examples, next steps. `report.run_facts` gathers the
data, `report.table` prints the scores."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.core.types import Prompt
from harness.report import numerals
from harness.report.changes import show_changes
from harness.report.run_digest import Digest, Ranked, Trouble
from harness.report.run_facts import BUILT_IN, RunFacts, inherited, settings_of, size_words, steps_of
from harness.report.runs import function_words, origin_words, recorded_coverage, recorded_estimate
from harness.report.table import RunReport, final_table
from harness.report.text import clean, clean_block
from harness.report.transcript import message_text
from harness.store.catalogue import ListedRun
from harness.store.manifest import Manifest

WIDEST = 120
"""Maximum width of prose in cells."""

MOST_IDS = 8
"""Maximum number of examples named per failure; `--json` has all."""

MOST_RELATIVES = 8

MOST_METRICS = 4
"""Maximum number of metrics shown for a rollout; its transcript has all."""

_KINDS = {"eval": "an agent over rows", "multi": "a list of tasks"}

MESSAGE_LINES = 16
_MESSAGE = 4000
"""Maximum lines and characters of an error message, some of which are whole HTML pages. The transcript has all of
it."""

SNIPPET_LINES = 2
_SNIPPET = 400
"""Maximum lines and characters of an example's text."""

_TAIL = 90
"""Number of characters shown from the end of a completion model's prompt."""

DIED = "its process is gone and did not say why: it was killed, or the machine went down"


def page_lines(page: RunFacts, console: Console, width: int) -> None:
    """Print the page.

    Args:
        page: Data of the page.
        console: From `report.text.make_console`.
        width: Width of a line in cells.
    """
    width = min(width, WIDEST)
    entry, manifest = page.entry, page.entry.manifest
    title = [clean(entry.title, 200), clean(entry.model, 100), entry.state]
    _say(console, " · ".join(word for word in title if word), "bold")
    _table(console, _facts(page), width)
    for problem in (*entry.problems, *page.problems):
        _prose(console, clean(problem, 1000), width)
    _say(console, "")
    _scores(page, console, width)
    if page.digest is not None:
        _troubles(console, page.digest.troubles, page, width)
        _examples(console, page.digest, width)
    if manifest is not None:
        _settings_in_short(console, manifest, width)
    _steps(console, page)


def settings_lines(manifest: Manifest, width: int) -> Iterator[str]:
    """All settings with value and origin: first those that differ from the default."""
    rows = settings_of(manifest)
    chosen = [row for row in rows if row[2] != BUILT_IN]
    yield from _aligned([(path, value, source) for path, value, _, source in chosen], width)
    rest = [(path, value, source) for path, value, layer, source in rows if layer == BUILT_IN]
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
        yield from _origin(manifest)
        yield from _family(page, manifest)
        yield "versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    if page.sizes:
        yield "files", ", ".join(f"{name} {size_words(size)}" for name, size in page.sizes.items())


def _origin(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Facts about the request: kind, plan, command, commit."""
    if manifest.kind != "run":
        yield "kind", _KINDS.get(manifest.kind, manifest.kind)
    examples, rollouts = (manifest.planned.get(name, "?") for name in ("num_examples", "rollouts_per_example"))
    if manifest.planned:
        yield "planned", f"{examples} examples" + ("" if rollouts == 1 else f" × {rollouts} rollouts")
    if manifest.command:
        yield "command", manifest.command
    if commit := manifest.git.get("commit"):
        yield "commit", f"{commit}{', with local changes' if manifest.git.get('dirty') else ''}"


def _family(page: RunFacts, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Facts about related runs."""
    if manifest.parent:
        there = "which is not here any more" if page.parent is None else _relative(page.parent)
        yield "made", f"{origin_words(manifest.derived, manifest.parent)}, {there}"
    if page.children:
        yield "made from it", _relatives(page.children)
    if page.siblings:
        yield "made with it", _relatives(page.siblings)


def _relative(entry: ListedRun) -> str:
    mean = recorded_estimate(entry.final).mean
    words = function_words(entry) or ("" if mean is None else f"mean {numerals.score(mean)}")
    return f"{entry.title} · {entry.model}, {entry.state}{f', {words}' if words else ''}"


def _relatives(entries: Sequence[ListedRun]) -> str:
    words = [f"{entry.id} ({_relative(entry)})" for entry in entries[:MOST_RELATIVES]]
    more = len(entries) - len(words)
    return "; ".join([*words, *([f"and {more} more"] if more else [])])


def _scores(page: RunFacts, console: Console, width: int) -> None:
    entry, found = page.entry, page.digest
    note = DIED if entry.state == "died" else entry.note
    if found is not None and found.summary is None:
        _say(console, "No rollout has come to its end yet." if entry.state == "running" else "It holds no rollout.")
        if note:
            _prose(console, clean(f"{entry.state}: {note}", 1000), width)
        return
    if found is None:
        if entry.summary is not None:
            estimate = recorded_estimate(entry.summary)
            mean = f"{numerals.score(estimate.mean)} {numerals.interval(estimate)}"
            coverage = recorded_coverage(entry.summary, entry.planned)
            _say(console, f"Its summary.json says: mean {mean}, scored {coverage}")
        return
    if found.waiting:
        them = "rollout is" if found.waiting == 1 else "rollouts are"
        waiting = f"{numerals.count(found.waiting)} {them} generated and not scored yet"
        note = f"{note}; {waiting}" if note else waiting
    # Only the name: model, state and folder are shown above.
    summaries = found.functions or {entry.name: found.summary}
    final_table(
        [
            RunReport(name, entry.env_id, entry.model, None, summary, entry.state, note)
            for name, summary in summaries.items()
        ],
        console,
        what="function" if found.functions else "run",
    )
    if page.changes is not None and page.parent is not None:
        _say(console, "")
        show_changes(page.parent.id, page.changes, console)


def _troubles(console: Console, troubles: Sequence[Trouble], page: RunFacts, width: int) -> None:
    if not troubles:
        return
    _head(console, "What went wrong")
    for trouble in troubles:
        heal = ""
        if trouble.retryable:
            heal = ", may heal" if trouble.retryable == trouble.count else f", {trouble.retryable} of them may heal"
        rollouts = "rollout" if trouble.count == 1 else "rollouts"
        scored = ", scored all the same" if trouble.is_scored else ""
        _prose(
            console,
            f"{clean(trouble.reason, 200)}: {numerals.count(trouble.count)} {rollouts}{heal}{scored}",
            width,
            "  ",
        )
        for line in _message(trouble.message, width - 4):
            _say(console, f"    {line}")
        ids = list(dict.fromkeys(clean(example, 60) for example, _ in trouble.places))
        more = len(ids) - MOST_IDS
        examples = "example" if len(ids) == 1 else "examples"
        tail = f" and {numerals.count(more)} more" if more > 0 else ""
        _prose(console, f"{examples} {', '.join(ids[:MOST_IDS])}{tail}", width, "    ")


def _message(message: str, width: int) -> Iterator[str]:
    """A message as lines, cut if it is too long."""
    whole = clean_block(message[:_MESSAGE]).expandtabs(4).strip().split("\n")
    lines = [part for line in whole for part in textwrap.wrap(line, max(20, width), break_on_hyphens=False) or [""]]
    yield from lines[:MESSAGE_LINES]
    if len(lines) > MESSAGE_LINES or len(message) > _MESSAGE:
        yield f"… {numerals.count(len(message))} characters in all; a transcript shows them"


def _examples(console: Console, found: Digest, width: int) -> None:
    if not found.worst:
        return
    if found.is_level:
        score = numerals.score(found.worst[0].mean)
        few = len(found.worst) == 1 and (found.summary is None or found.summary.num_examples == 1)
        _head(console, "The example" if few else f"Some examples (all have a mean of {score})")
    else:
        _head(console, "Worst examples")
    _ranking(console, found.worst, width)
    if found.best:
        _head(console, "Best examples")
        _ranking(console, found.best, width)


def _ranking(console: Console, ranking: Sequence[Ranked], width: int) -> None:
    for ranked in ranking:
        outcome = ranked.shown
        words = f"{clean(outcome.example.example_id, 80)}: mean {numerals.score(ranked.mean)}"
        if ranked.made > 1:
            missing = "" if ranked.scored == ranked.made else f" ({ranked.scored} scored)"
            words += f" over {ranked.made} rollouts{missing}; rollout {outcome.base.rollout_index}"
        words += _metrics(outcome.score.metrics if outcome.score is not None else {})
        _prose(console, words, width, "  ")
        answered = _snippet(_last(outcome.base.completion, "assistant"))
        rows = [("asked", _snippet(_last(outcome.example.prompt, "user"))), ("answered", answered or "(empty)")]
        if outcome.example.answer:
            rows.append(("expected", _snippet(str(outcome.example.answer))))
        for label, text in rows:
            lead = f"    {label:<9} "
            lines = textwrap.wrap(text, max(20, width - len(lead)), max_lines=SNIPPET_LINES, placeholder=" …")
            for number, line in enumerate(lines):
                _say(console, (lead if number == 0 else " " * len(lead)) + line)


def _metrics(metrics: Mapping[str, float | None]) -> str:
    """Metrics of a rollout, unless there is only one. Metrics without a value are omitted."""
    words = [f"{clean(name, 40)} {numerals.score(value)}" for name, value in metrics.items() if value is not None]
    if not words or len(metrics) < 2:
        return ""
    more = [f"{len(words) - MOST_METRICS} more"] if len(words) > MOST_METRICS else []
    return f": {', '.join([*words[:MOST_METRICS], *more])}"


def _last(messages: Prompt, role: str) -> str:
    """Text of the last message of a role; for a completion model's prompt its end, where the question is."""
    if isinstance(messages, str):
        return f"…{messages[-_TAIL:]}" if role == "user" and len(messages) > _TAIL else messages
    said = [message for message in cast("list[object]", messages) if _role(message) in (role, None)]
    return message_text(said[-1]) if said else ""


def _role(message: object) -> object:
    return cast("dict[str, object]", message).get("role") if isinstance(message, dict) else None


def _snippet(text: str) -> str:
    return clean(text, _SNIPPET)


def _settings_in_short(console: Console, manifest: Manifest, width: int) -> None:
    rows = settings_of(manifest)
    ours = [row for row in rows if not inherited(manifest, row[3])]
    chosen = [(path, value, source) for path, value, layer, source in ours if layer != BUILT_IN]
    if not rows:
        return
    _head(console, "Settings")
    for line in _aligned(chosen, width, "  "):
        _say(console, line)
    rest = (
        (len(rows) - len(ours), "more as in the run that it was made from"),
        (len(ours) - len(chosen), "more as built in"),
    )
    if words := ", ".join(f"{count} {what}" for count, what in rest if count):
        _say(console, f"  {words}; --settings shows them")


def _steps(console: Console, page: RunFacts) -> None:
    steps = steps_of(page)
    if steps:
        _head(console, "Next")
    for step in steps:
        _say(console, f"  {clean(step, 2000)}")


def _aligned(rows: Sequence[tuple[str, str, str]], width: int, indent: str = "") -> Iterator[str]:
    """Rows of path, value and source. A long value shifts its source instead of being cut."""
    clear = [tuple(clean(cell, 1000) for cell in row) for row in rows]
    first = max((cell_len(row[0]) for row in clear), default=0)
    second = min(max((cell_len(row[1]) for row in clear), default=0), max(8, (width - first) // 2))
    for path, value, source in clear:
        gaps = " " * (first - cell_len(path)), " " * max(0, second - cell_len(value))
        yield f"{indent}{path}{gaps[0]}  {value}{gaps[1]}  {source}".rstrip()


def _table(console: Console, rows: Iterator[tuple[str, str]], width: int) -> None:
    for name, value in rows:
        # Commands and paths are not wrapped, so that they can be copied.
        whole = clean(value, 4000)
        lead = f"  {name:<13} "
        if name in ("command", "folder"):
            _say(console, lead + whole)
            continue
        lines = textwrap.wrap(whole, max(30, width - len(lead)), break_long_words=False, break_on_hyphens=False)
        for number, line in enumerate(lines):
            _say(console, (lead if number == 0 else " " * len(lead)) + line)


def _head(console: Console, text: str) -> None:
    _say(console, "")
    _say(console, text, "bold")


def _prose(console: Console, text: str, width: int, indent: str = "") -> None:
    # Wrap text without breaking paths, so that they can be copied.
    wrapped = textwrap.wrap(
        text, max(30, width), initial_indent=indent, subsequent_indent=indent + "  ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    for line in wrapped:
        _say(console, line)


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(Text(line), style=style or None, soft_wrap=True)
