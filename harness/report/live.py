"""Live display on stderr: a table on a terminal, otherwise plain lines at intervals. Runs in its own thread, so that it
neither slows the engine nor stops when the engine is blocked. An error in the display is reported once, and the run
continues without it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live

from harness.engine.progress import RunProgress
from harness.report import numerals
from harness.report.live_table import Frame, RunWatch, done_of, draw, title
from harness.report.text import clean, in_ascii, make_console

PERIOD = 0.25
"""Seconds between updates of the display."""

STEP = 0.10
"""Share of a run's rollouts that must finish between two plain lines of progress."""

PATIENCE = 10.0
"""Seconds after which a plain line is printed for a run without progress; in long runs, a tenth of the elapsed time."""

HURRY = 1.0
"""Minimum seconds between two plain lines of a run."""


def wants_live(environ: Mapping[str, str], *, quiet: bool) -> bool:
    """Return whether to show a live table: stdout and stderr are terminals, colour is allowed, and `quiet` is false."""
    if quiet or environ.get("NO_COLOR") or environ.get("TERM") in {"dumb", "unknown"}:
        return False
    return sys.stdout.isatty() and sys.stderr.isatty()


def open_display(
    runs: Sequence[RunProgress],
    *,
    quiet: bool = False,
    plain: bool = True,
    budget: Callable[[], str] = str,
) -> Display:
    """Context manager of the live display: a table on a terminal, otherwise plain lines.

    Args:
        runs: Counters of every run, in the order of the suite. Read at every update, so the list may grow.
        quiet: Whether to print only one line per run, at its end.
        plain: Whether to print plain lines if no table is shown.
        budget: Function that returns text about the amount spent of each limit; "" if there are no limits.
    """
    live = wants_live(os.environ, quiet=quiet)
    return Display(runs, make_console(stderr=True), live=live, quiet=quiet, plain=plain, budget=budget)


class Display:
    """Context manager that shows the live display of a list of runs; see `open_display`.

    The cursor stays visible on the normal screen, so that a killed process leaves a usable terminal.

    Args:
        runs: Counters of every run; only read.
        console: Output console.
        live: Whether to show a table that is redrawn; if not, plain lines are printed.
        quiet: Whether to print only the last plain line of each run.
        plain: Whether to print plain lines; if not, the caller reports progress.
        clock: Function that returns monotonic seconds.
        budget: Function that returns text about the amount spent of each limit; "" if there are no limits.
    """

    def __init__(
        self,
        runs: Sequence[RunProgress],
        console: Console,
        *,
        live: bool,
        quiet: bool = False,
        plain: bool = True,
        clock: Callable[[], float] = time.monotonic,
        budget: Callable[[], str] = str,
    ) -> None:
        self._runs = runs
        self._budget = budget
        self._console = console
        self._clock = clock
        self._opened = clock()
        self._watches: dict[int, RunWatch] = {}
        self._is_plain, self._quiet = plain and not live, quiet
        # rich redirects stdout and stderr, so that an environment's output is printed above the table.
        self._live = (
            Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") if live else None
        )
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-display", daemon=True)

    def __enter__(self) -> Self:
        def start() -> None:
            if self._live is not None:
                self._live.start()
                self._console.show_cursor(True)
                self._show()

        self._guard(start)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._closing.set()
            self._thread.join(timeout=2.0)
        finally:
            # Also if a signal interrupts the wait: stdout must be restored.
            self._guard(lambda: self._close(keep=kind is not None))

    def say(self, text: str) -> None:
        """Print a line for the user, above the table or between plain lines."""
        self._guard(lambda: self._console.print(clean(text, 2000), soft_wrap=True))

    def tick(self) -> None:
        """Update the display. Called by the display's own thread."""
        self._guard(self._show)

    def _run(self) -> None:
        while not self._closing.wait(PERIOD):
            self.tick()

    def _show(self, *, is_last: bool = False) -> None:
        now = self._clock()
        with self._lock:
            watches = [self._watches.setdefault(id(progress), RunWatch(progress)) for progress in list(self._runs)]
            for watch in watches:
                watch.observe(now)
            if self._live is not None:
                size = self._console.size
                frame = Frame(size.width, size.height, self._console.options.ascii_only, self._budget())
                self._live.update(draw(watches, frame, now, now - self._opened), refresh=True)
            elif self._is_plain:
                self._print_due(watches, now, is_last=is_last)

    def _print_due(self, watches: Sequence[RunWatch], now: float, *, is_last: bool) -> None:
        """Print the plain lines that are due: start, progress and end of each run. The last call also prints a last
        line for runs that were interrupted."""
        with_model = len({watch.progress.model for watch in watches}) > 1
        for watch in watches:
            progress = watch.progress
            if watch.has_end_line:
                continue
            if watch.last_line is None and progress.started:
                watch.last_line = (now, progress.done)
                held = max(progress.held, progress.resumed)  # `resumed` is still being counted
                resumed = f", {numerals.count(held)} of them done before" if held else ""
                if not self._quiet:
                    name, total = title(progress, with_model=True), numerals.counted(progress.total, "rollout")
                    self._print(f"{name}: {total}{resumed}")
            if not watch.is_open or (is_last and watch.last_line is not None):
                watch.has_end_line = True
                self._print(_end_line(watch, now, with_model=with_model))
            elif not self._quiet and _is_due(watch, now):
                watch.last_line = (now, progress.done)
                spent = f", budget: {words}" if (words := self._budget()) else ""
                self._print(_progress_line(watch, now, with_model=with_model) + spent)

    def _print(self, line: str) -> None:
        # Not wrapped or coloured, since the line may go to a log.
        ascii_only = self._console.options.ascii_only
        self._console.print(in_ascii(line) if ascii_only else line, soft_wrap=True, style=None)

    def _close(self, *, keep: bool) -> None:
        self._show()
        self._show(is_last=True)  # runs that were cut off come last
        if self._live is not None:
            # The table is cleared for the final table, but kept after an error.
            self._live.transient = not keep
            self._live.stop()
            self._live = None

    def _guard(self, step: Callable[[], None]) -> None:
        """Run a step of the display. An error in it stops the display, but not the run."""
        try:
            step()
        except Exception as error:  # boundary: an error of the display must not end the run
            self._closing.set()
            live, self._live, self._is_plain = self._live, None, False
            try:
                if live is not None:
                    live.stop()
                self._console.print(clean(f"the display stopped ({type(error).__name__}: {error}); the run continues"))
            except Exception:  # boundary: stderr is broken, so nothing can be reported
                self._console.quiet = True


def _is_due(watch: RunWatch, now: float) -> bool:
    """Return whether it is time to print a line about the progress of a run."""
    progress = watch.progress
    if watch.last_line is None or not progress.total:
        return False
    when, done = watch.last_line
    if progress.done < progress.total and progress.done - done >= STEP * progress.total:
        return now - when >= HURRY
    return now - when >= max(PATIENCE, watch.elapsed(now) / 10)


def _progress_line(watch: RunWatch, now: float, *, with_model: bool) -> str:
    """Text of the plain line about the progress of a run."""
    progress = watch.progress
    share = f" ({numerals.percent(progress.done / progress.total)})" if progress.total else ""
    parts = [
        f"{done_of(progress)}{share}",
        *_score_parts(watch, now),
        numerals.rate(watch.rate(now)),
        f"{numerals.duration(watch.left(now))} left",
        f"{progress.generating} generating, {progress.backlog + progress.scoring} in scoring",
        numerals.token_text(progress.usage),
    ]
    return _line(watch, parts, with_model=with_model)


def _line(watch: RunWatch, parts: Sequence[str], *, with_model: bool) -> str:
    note = watch.note()
    return f"{title(watch.progress, with_model=with_model)}: {', '.join(parts)}" + (f"; {note}" if note else "")


def _end_line(watch: RunWatch, now: float, *, with_model: bool) -> str:
    """Text of the plain line about the end of a run."""
    progress = watch.progress
    words = [progress.state if not watch.is_open else "interrupted"]
    if progress.total:
        words += [done_of(progress), *_score_parts(watch, now), numerals.token_text(progress.usage)]
        words.append(f"in {numerals.duration(watch.elapsed(now))} ({numerals.rate(watch.rate(now))})")
    return _line(watch, words, with_model=with_model)


def _score_parts(watch: RunWatch, now: float) -> list[str]:
    progress = watch.progress
    parts: list[str] = []
    if progress.scored:
        mean = numerals.plus_minus(watch.estimate(now))
        parts.append(f"mean so far {mean} (quick rollouts end first)" if watch.is_preliminary else f"mean {mean}")
    if progress.unscored:
        unscored = dict(progress.unscored)
        parts.append(f"{numerals.count(sum(unscored.values()))} unscored ({numerals.reasons(unscored)})")
    return parts
