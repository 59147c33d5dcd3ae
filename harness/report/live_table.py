"""The live table: one line per run, fitted into the terminal's width and height. Lines are built directly, since a rich
table is many times slower and this runs four times per second."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len
from rich.text import Text

from harness.core.types import Usage
from harness.engine.progress import Pace, RunProgress
from harness.models.delays import note_of
from harness.report import numerals
from harness.report.text import clean, fit, in_ascii
from harness.stats.clusters import clustered_mean
from harness.stats.intervals import Estimate, mean_interval

SHARE = 0.01
"""Maximum share of one CPU core to spend on recomputing intervals; with 100,000 examples, every few seconds."""

MOST_NOTES = 3
"""Maximum number of notes below the runs."""

LEAST_NAME, WHOLE_NAME, MOST_NAME = 10, 16, 44
"""Width of the name column in cells: minimum; minimum as long as other columns can be dropped; maximum."""

LEAST_BAR, MOST_BAR = 6, 30

GAP = 2

SO_FAR = "mean so far"
"""Column header of means over the rollouts that finished first."""

BEFORE_BAR = ("tokens", "busy")
"""Columns to drop first, in this order, to make room for a progress bar."""

AFTER_BAR = ("rate", "left", "unscored")
"""Columns to drop next if the terminal is too narrow even without a progress bar."""

STYLES = {"done": "green", "failed": "red", "stopped": "yellow", "interrupted": "yellow"}


class RunWatch(Pace):
    """A run observed over time, with what the display has printed about it.

    Args:
        progress: The run's counters; only read.
    """

    def __init__(self, progress: RunProgress) -> None:
        super().__init__(progress)
        self.last_line: tuple[float, int] | None = None
        """Time of the run's last plain line, and the number of rollouts done at that time."""
        self.has_end_line = False
        """Whether the plain line about the run's end has been printed."""
        self._estimate = Estimate()
        self._seen = -1
        self._due = 0.0

    @property
    def is_preliminary(self) -> bool:
        """Whether the mean so far may be biased, since easy rollouts tend to finish first. False for a run that ended
        and for one with a target interval, which counts examples in a fixed order."""
        return self.is_open and self.progress.target is None and self.progress.done < self.progress.total

    def estimate(self, now: float) -> Estimate:
        """The mean so far with its interval, computed as in the final table."""
        scored = self.progress.scored
        if scored != self._seen and (now >= self._due or not self.is_open):
            started = time.perf_counter()
            rewards = self.progress.rewards
            means, single, numbers = rewards.means()
            limits = rewards.widened(self.progress.limits)
            if clusters := self.progress.clusters:
                owners = [clusters.get(index, f"\0{index}") for index, number in enumerate(numbers) if number]
                self._estimate = clustered_mean(means, owners, limits=limits)
            else:
                self._estimate = mean_interval(means, single_rollout=single, binary=rewards.binary, limits=limits)
            target = self.progress.target
            if target is not None and (self.is_open or target.ended_early):
                # An interval that remains valid when it is watched during the run.
                watched = target.estimate
                self._estimate = Estimate(self._estimate.mean) if watched.mean is None else watched
            self._seen = scored
            self._due = now + (time.perf_counter() - started) / SHARE
        return self._estimate

    def status(self, now: float) -> str:
        """Text of the status column: the remaining time, or how the run ended."""
        progress = self.progress
        if progress.state == "running" or (progress.state == "scoring" and progress.done):
            return numerals.duration(self.left(now))
        if progress.state == "done":
            return f"in {numerals.duration(self.elapsed(now))}"
        return progress.state

    def note(self) -> str:
        """Reason why the run is waiting or ended early; "" if there is no reason."""
        return clean(note_of(self.progress.delays()) if self.is_open else self.progress.note)

    def busy(self) -> str:
        """Number of rollouts in generation + in scoring, such as `8+2`. Rollouts that wait for scoring are included."""
        progress = self.progress
        is_busy = self.is_open and progress.started
        return f"{progress.generating}+{progress.backlog + progress.scoring}" if is_busy else ""


def title(progress: RunProgress, *, with_model: bool) -> str:
    """Label of a run in the live display: its name, with the model on request."""
    name, model = clean(progress.name, 80), clean(progress.model, 80)
    return f"{name} · {model}" if with_model and name != model else name


def done_of(progress: RunProgress) -> str:
    """Rollouts done of the total, such as `120/200`; without the total if it is unknown."""
    return f"{progress.done}/{progress.total}" if progress.total else str(progress.done)


@dataclass(frozen=True, slots=True)
class Frame:
    """Size of the terminal, and the text about the budget, for the live table."""

    width: int
    height: int
    ascii_only: bool = False
    budget: str = ""
    """Amount spent of the invocation's budget; "" if there is no budget."""

    def shown(self, words: str) -> str:
        """Replace characters that the terminal cannot display in text written by this program."""
        return in_ascii(words) if self.ascii_only else words


@dataclass(frozen=True, slots=True)
class _Row:
    watch: RunWatch
    name: str
    cells: dict[str, str]


def draw(watches: Sequence[RunWatch], frame: Frame, now: float, elapsed: float) -> Text:
    """Render the live table.

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
        states = Counter(watch.progress.state.replace("loading", "waiting") for watch in folded)
        words = ", ".join(f"{number} {state}" for state, number in states.most_common())
        lines.append(Text(f"and {len(folded)} more: {words}", style="dim"))
    lines += [Text(fit(note, frame.width).rstrip(), style="yellow") for note in notes]
    text = Text("\n").join(lines)
    text.no_wrap, text.overflow = True, "crop"
    return text


def _choose(watches: Sequence[RunWatch], room: int) -> tuple[list[RunWatch], list[RunWatch]]:
    """Choose the runs to show in the live table: all if they fit, otherwise preferably active ones. The order of the
    suite is kept."""
    if len(watches) <= room:
        return list(watches), []
    first = ("running", "scoring", "failed", "stopped", "interrupted", "loading", "waiting", "done")
    order = sorted(range(len(watches)), key=lambda i: (first.index(watches[i].progress.state), i))
    chosen = set(order[: max(1, room - 1)])
    shown = [watch for i, watch in enumerate(watches) if i in chosen]
    return shown, [watch for i, watch in enumerate(watches) if i not in chosen]


def _headline(watches: Sequence[RunWatch], models: set[str], frame: Frame, elapsed: float) -> Text:
    usage = sum((watch.progress.usage for watch in watches), Usage())
    running = sum(watch.progress.state in {"running", "scoring"} for watch in watches)
    parts = [
        *([f"{running} of {len(watches)} running"] if len(watches) > 1 else []),
        numerals.duration(elapsed),
        numerals.token_text(usage),
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
    progress, usage = watch.progress, watch.progress.usage
    is_unknown = usage.unreported and usage.unreported >= usage.requests
    cells = {
        "done": done_of(progress) if progress.total else "",
        "mean": frame.shown(numerals.plus_minus(watch.estimate(now))) if progress.scored else "",
        "unscored": str(progress.unscored.total() or ""),
        "tokens": "?" if is_unknown else numerals.short_count(usage.input_tokens + usage.output_tokens),
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
    """Minimum width of the name column at which different names, when cut to it, still differ."""
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
    """Notes on why runs wait; each note is shown once, after the names of the runs concerned."""
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
