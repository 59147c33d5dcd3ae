"""Live display on stderr: a table on a terminal, otherwise a line now and then. Runs in its own thread, so that it
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
from harness.report import live_lines as lines
from harness.report.live_lines import RunWatch
from harness.report.live_table import Frame, draw
from harness.report.text import clean, in_ascii, make_console

PERIOD = 0.25
"""Seconds between updates of the display."""

STEP = 0.10
"""Share of a run's rollouts after which a plain line is printed."""

PATIENCE = 10.0
"""Maximum seconds between plain lines, without progress. Later a tenth of the elapsed time, to keep logs short."""

HURRY = 1.0
"""Minimum seconds between two plain lines of a run."""


def wants_live(environ: Mapping[str, str], *, quiet: bool) -> bool:
    """Whether a live table can be shown: both streams are terminals, colour is allowed, and no `--quiet`."""
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
    """The display that suits the terminal, as a context manager.

    Args:
        runs: Counters of every run, in the order of the suite. Read at every update, so the list may grow.
        quiet: Print only one line per run, at its end.
        plain: Whether to print plain lines if no table is shown.
        budget: Function that returns the amounts spent of each limit, or "".
    """
    live = wants_live(os.environ, quiet=quiet)
    return Display(runs, make_console(stderr=True), live=live, quiet=quiet, plain=plain, budget=budget)


class Display:
    """Displays `runs` between `__enter__` and `__exit__`; see `open_display`.

    The cursor stays visible on the normal screen, so that a killed process leaves a usable terminal.

    Args:
        runs: Counters of every run; only read.
        console: Output console.
        live: A table that is redrawn, otherwise plain lines.
        quiet: Print only the last plain line of each run.
        plain: Whether to print plain lines; if not, the caller reports progress.
        clock: Monotonic seconds.
        budget: Function that returns the amounts spent of each limit, or "".
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
        self._plain = None if live or not plain else _PlainLines(console, quiet, budget)
        # rich redirects stdout and stderr, so that an environment's output is printed above the table.
        self._live = (
            Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") if live else None
        )
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="bench-display", daemon=True)

    def __enter__(self) -> Self:
        self._guard(self._open)
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

    def _loop(self) -> None:
        while not self._closing.wait(PERIOD):
            self.tick()

    def _open(self) -> None:
        if self._live is not None:
            self._live.start()
            self._console.show_cursor(True)
            self._show()

    def _show(self, *, is_last: bool = False) -> None:
        now = self._clock()
        with self._lock:
            watches = self._observe(now)
            if self._live is not None:
                size = self._console.size
                frame = Frame(size.width, size.height, self._console.options.ascii_only, self._budget())
                self._live.update(draw(watches, frame, now, now - self._opened), refresh=True)
            elif self._plain is not None:
                self._plain.show(watches, now, is_last=is_last)

    def _close(self, *, keep: bool) -> None:
        self._show()
        self._show(is_last=True)  # runs that were cut off come last
        if self._live is not None:
            # The table is cleared for the final table, but kept after an error.
            self._live.transient = not keep
            self._live.stop()
            self._live = None

    def _observe(self, now: float) -> list[RunWatch]:
        watches = [self._watches.setdefault(id(progress), RunWatch(progress)) for progress in list(self._runs)]
        for watch in watches:
            watch.observe(now)
        return watches

    def _guard(self, step: Callable[[], None]) -> None:
        """Run `step`; an error ends the display, not the run."""
        try:
            step()
        except Exception as error:  # boundary: an error of the display must not end the run
            self._closing.set()
            live, self._live, self._plain = self._live, None, None
            try:
                if live is not None:
                    live.stop()
                self._console.print(clean(f"the display stopped ({type(error).__name__}: {error}); the run continues"))
            except Exception:  # boundary: stderr is broken, so nothing can be reported
                self._console.quiet = True


class _PlainLines:
    """Prints plain lines: start, progress and end of each run."""

    def __init__(self, console: Console, quiet: bool, budget: Callable[[], str]) -> None:
        self._console = console
        self._budget = budget
        self._quiet = quiet
        self._said: dict[int, tuple[float, int]] = {}
        """Run → time of its last line, and rollouts done then."""
        self._ended: set[int] = set()

    def show(self, watches: Sequence[RunWatch], now: float, *, is_last: bool = False) -> None:
        """Print the lines that are due; at last, also the ends of runs that were cut off."""
        with_model = len({watch.progress.model for watch in watches}) > 1
        for watch in watches:
            progress, key = watch.progress, id(watch.progress)
            if key in self._ended:
                continue
            if key not in self._said and progress.started:
                self._said[key] = (now, progress.done)
                if not self._quiet:
                    self._print(lines.start_line(progress))
            if not watch.is_open or (is_last and key in self._said):
                self._ended.add(key)
                self._print(lines.end_line(watch, now, with_model=with_model))
            elif not self._quiet and self._is_due(watch, now):
                self._said[key] = (now, progress.done)
                spent = f", budget: {words}" if (words := self._budget()) else ""
                self._print(lines.progress_line(watch, now, with_model=with_model) + spent)

    def _is_due(self, watch: RunWatch, now: float) -> bool:
        progress = watch.progress
        if id(progress) not in self._said or not progress.total:
            return False
        when, done = self._said[id(progress)]
        quiet_for = now - when
        if progress.done < progress.total and progress.done - done >= STEP * progress.total:
            return quiet_for >= HURRY
        return quiet_for >= max(PATIENCE, watch.elapsed(now) / 10)

    def _print(self, line: str) -> None:
        # Print a line without wrapping or colour, for logs.
        ascii_only = self._console.options.ascii_only
        self._console.print(in_ascii(line) if ascii_only else line, soft_wrap=True, style=None)
