"""The live table: one line per run, fitted into the terminal's width and height. Lines are built directly, since a rich
table is many times slower and this runs four times per second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len
from rich.text import Text

from harness.core.types import Usage
from harness.report import numerals
from harness.report.live_lines import RunWatch, all_tokens, done_of, title, token_words
from harness.report.text import clean, fit, in_ascii

MOST_NOTES = 3
"""Maximum number of notes below the runs; they usually repeat."""

LEAST_NAME, WHOLE_NAME, MOST_NAME = 10, 16, 44
"""Cells of the name column: minimum; minimum while other columns can be dropped; maximum."""

LEAST_BAR, MOST_BAR = 6, 30

GAP = 2

SO_FAR = "mean so far"
"""Column header of means over the rollouts that finished first."""

BEFORE_BAR = ("tokens", "busy")
"""Columns dropped first, in this order, to make room for a bar."""

AFTER_BAR = ("rate", "left", "unscored")
"""Columns dropped next, when even without a bar the width is too small."""

STYLES = {"done": "green", "failed": "red", "stopped": "yellow", "interrupted": "yellow"}


@dataclass(frozen=True, slots=True)
class Frame:
    """Size of the terminal, and the text about the budget."""

    width: int
    height: int
    ascii_only: bool = False
    budget: str = ""
    """Amount spent of the invocation's budget; "" without one."""

    def shown(self, words: str) -> str:
        """Our own text with the characters that the terminal supports."""
        return in_ascii(words) if self.ascii_only else words


@dataclass(frozen=True, slots=True)
class _Row:
    watch: RunWatch
    name: str
    cells: dict[str, str]


def draw(watches: Sequence[RunWatch], frame: Frame, now: float, elapsed: float) -> Text:
    """Render the display.

    Args:
        watches: The runs, in the order of the suite.
        frame: Size of the terminal.
        now: Monotonic seconds.
        elapsed: Seconds since the display was opened.
    """
    models = {watch.progress.model for watch in watches}
    notes = _notes(watches, frame)
    room = max(1, frame.height - 4 - len(notes))
    shown, folded = _choose(watches, room)
    rows = [_row(watch, frame, now, with_model=len(models) > 1) for watch in shown]
    lines = [_headline(watches, models, frame, elapsed), *_table(rows, frame)]
    if folded:
        lines.append(Text(f"and {len(folded)} more: {_states(folded)}", style="dim"))
    lines += [Text(fit(note, frame.width).rstrip(), style="yellow") for note in notes]
    text = Text("\n").join(lines)
    text.no_wrap, text.overflow = True, "crop"
    return text


def _choose(watches: Sequence[RunWatch], room: int) -> tuple[list[RunWatch], list[RunWatch]]:
    """Choose the runs to show: all if they fit, otherwise active ones first; kept in the order of the suite."""
    if len(watches) <= room:
        return list(watches), []
    first = ("running", "scoring", "failed", "stopped", "interrupted", "loading", "waiting", "done")
    order = sorted(range(len(watches)), key=lambda i: (first.index(watches[i].progress.state), i))
    chosen = set(order[: max(1, room - 1)])
    shown = [watch for i, watch in enumerate(watches) if i in chosen]
    return shown, [watch for i, watch in enumerate(watches) if i not in chosen]


def _states(watches: Sequence[RunWatch]) -> str:
    states = Counter("waiting" if watch.progress.state == "loading" else watch.progress.state for watch in watches)
    return ", ".join(f"{number} {state}" for state, number in states.most_common())


def _headline(watches: Sequence[RunWatch], models: set[str], frame: Frame, elapsed: float) -> Text:
    usage = sum((watch.progress.usage for watch in watches), Usage())
    running = sum(watch.progress.state in {"running", "scoring"} for watch in watches)
    parts = [
        *([f"{running} of {len(watches)} running"] if len(watches) > 1 else []),
        numerals.duration(elapsed),
        token_words(usage),
    ]
    if frame.budget:
        parts.append(frame.budget)
    elif usage.cost is not None:
        parts.append(f"${usage.cost:,.2f}")
    dot = frame.shown("·")
    words = f" {dot} ".join(parts)
    if len(models) == 1:
        room = frame.width - cell_len(words) - 3
        model = clean(next(iter(models)), 80)
        if room >= min(LEAST_NAME, cell_len(model)):
            words = f"{fit(model, min(room, cell_len(model)))} {dot} {words}"
    return Text(fit(words, frame.width).rstrip(), style="bold")


def _row(watch: RunWatch, frame: Frame, now: float, *, with_model: bool) -> _Row:
    progress = watch.progress
    unscored = progress.unscored.total()
    mean = frame.shown(numerals.plus_minus(watch.estimate(now))) if progress.scored else ""
    cells = {
        "done": done_of(progress) if progress.total else "",
        "mean": mean,
        "unscored": str(unscored) if unscored else "",
        "tokens": all_tokens(progress),
        "rate": numerals.rate(watch.rate(now)) if progress.started else "",
        "left": watch.status(now),
        "busy": watch.busy(),
    }
    return _Row(watch, title(progress, with_model=with_model), cells)


def _table(rows: Sequence[_Row], frame: Frame) -> list[Text]:
    if not rows:
        return []
    heads = [head for head in rows[0].cells if head != "unscored" or any(row.cells[head] for row in rows)]
    widths = {head: max(len(head), *(cell_len(row.cells[head]) for row in rows)) for head in heads}
    longest = min(MOST_NAME, max(cell_len(row.name) for row in rows))
    least = min(longest, max(WHOLE_NAME, _telling_width(tuple(row.name for row in rows))))

    def spare() -> int:
        return frame.width - least - sum(GAP + width for width in widths.values())

    for heads, needed in ((BEFORE_BAR, GAP + LEAST_BAR), (AFTER_BAR, 0)):
        for head in heads:
            if spare() < needed:
                widths.pop(head, None)
    name_width = max(min(longest, least + spare() - GAP - LEAST_BAR), least)
    bar_width = min(MOST_BAR, spare() - (name_width - least) - GAP)
    if bar_width < LEAST_BAR:
        bar_width = 0
    line = " " * (name_width + (GAP + bar_width if bar_width else 0))
    is_early = any(row.watch.is_preliminary for row in rows) and widths["mean"] >= len(SO_FAR)
    shown = {"mean": SO_FAR if is_early else "mean"}
    line += "".join(f"{shown.get(head, head):>{GAP + width}}" for head, width in widths.items())
    head = Text(fit(line, frame.width).rstrip(), style="dim")
    return [head, *(_line(row, widths, name_width, bar_width, frame) for row in rows)]


@lru_cache(maxsize=64)
def _telling_width(names: tuple[str, ...]) -> int:
    """Narrowest column in which different names look different."""
    distinct, width = len(set(names)), LEAST_NAME
    while width < MOST_NAME and len({fit(name, width) for name in names}) < distinct:
        width += 1
    return width


def _line(row: _Row, widths: dict[str, int], name_width: int, bar_width: int, frame: Frame) -> Text:
    progress = row.watch.progress
    style = STYLES.get(progress.state, "cyan")
    filled = bar_width * min(progress.done, progress.total) // progress.total if progress.total else 0
    line = Text(no_wrap=True, overflow="crop", end="")
    line.append(fit(row.name, name_width), "red" if progress.state == "failed" else "")
    line.append(" " * GAP if bar_width else "")
    line.append(frame.shown("━") * filled, style)
    line.append(frame.shown("─") * (bar_width - filled), "dim")
    for name, width in widths.items():
        cell = row.cells[name]
        # The status column is right-aligned too, so that times align.
        line.append(" " * (GAP + width - cell_len(cell)))
        line.append(cell, "bold" if name == "mean" else "yellow" if name == "unscored" else "")
    return line


def _notes(watches: Sequence[RunWatch], frame: Frame) -> list[str]:
    """Notes on why runs wait, each once, with the runs concerned."""
    by_note: dict[str, list[str]] = {}
    for watch in watches:
        note = watch.note()
        if note:
            by_note.setdefault(note, []).append(clean(watch.progress.name, 40))
    lines = [
        f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {note}"
        for note, names in by_note.items()
    ]
    if len(lines) > MOST_NOTES and frame.height > MOST_NOTES:
        lines = [*lines[: MOST_NOTES - 1], f"and {len(lines) - MOST_NOTES + 1} more notes"]
    return lines
