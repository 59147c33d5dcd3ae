"""What is logged: above the display while runs go on, on stderr where no command shows logs in its own way; harmless as
all else. Owns these two handlers."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from harness.core.redact import redactor

if TYPE_CHECKING:
    from harness.report.live import Display


class _Harmless(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from harness.report.text import clean_block  # slow to import, and mostly nothing is logged

        try:
            sys.stderr.write(clean_block(redactor.text(self.format(record))) + "\n")
        except (OSError, ValueError):  # nobody reads stderr any more
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing: there is nowhere to say it."""


@contextlib.contextmanager
def harmless_logs() -> Generator[None]:
    """Python's own last resort writes warnings of environments and libraries to the terminal as they are."""
    before, logging.lastResort = logging.lastResort, _Harmless(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = before


class _ToDisplay(logging.Handler):
    """Log lines stand above the live table, redacted."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        if not _prints_itself(record.name):
            self._display.say(redactor.text(self.format(record)))


def _prints_itself(name: str) -> bool:
    """Whether a handler of a library's own is on the way to the root, as huggingface_hub's: by now it was said."""
    logger = logging.getLogger(name)
    while logger.parent is not None:
        if any(isinstance(handler, logging.StreamHandler) for handler in logger.handlers):
            return True
        logger = logger.parent
    return False


@contextlib.contextmanager
def logging_to(display: Display, *, verbose: bool) -> Generator[None]:
    """Meanwhile a display says what is logged: warnings, with `verbose` more."""
    handler = _ToDisplay(display)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
