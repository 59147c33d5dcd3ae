"""Where `bench eval` and `bench test` say how they get on: lines on stdout, as documented, or above the live table
where there is one, or nowhere. Owns that choice; the words are the commands' own."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.live import Display
from harness.report.text import PlainConsole


class Progress:
    """One command's.

    Args:
        console: For lines, and for the report at the end.
        first: The first lines: what is run.
        is_live: Whether the display has a live table.
        quiet: Whether nothing is said but the report.
    """

    def __init__(self, console: PlainConsole, first: Sequence[str], *, is_live: bool, quiet: bool) -> None:
        self.console = console
        self.has_lines = not (is_live or quiet)
        """Whether there is a line for each run that ends."""
        self._quiet = quiet
        self._first = first
        if is_live:  # before the table is there; else only when it is sure that anything will be run
            self.begin()

    def begin(self) -> None:
        """Print the first lines, if they have not been."""
        first, self._first = self._first, ()
        for line in first:
            self._print(line)

    def say(self, words: str, display: Display) -> None:
        """What happens now."""
        if self.has_lines:
            self._print(words)
        elif not self._quiet:
            display.say(words)

    def line(self, words: str) -> None:
        """What has happened to one run."""
        if self.has_lines:
            self._print(words)

    def _print(self, line: str) -> None:
        """Never raises: the runs are worth more than a line about them. The report at the end will raise."""
        try:
            self.console.print(line, soft_wrap=True)
        except OSError:  # the disk behind it is full, say
            self.has_lines = False
