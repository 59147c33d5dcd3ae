"""Log handlers: print log lines above the live display during runs, and otherwise on stderr; control characters are
removed."""

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
        except (OSError, ValueError):  # the reader of stderr has closed it
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore errors of the handler, since no stream is left to report them on."""


@contextlib.contextmanager
def harmless_logs() -> Generator[None]:
    """Remove control characters from log lines of environments and libraries, which Python's default handler prints
    unchanged."""
    before, logging.lastResort = logging.lastResort, _Harmless(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = before


class _ToDisplay(logging.Handler):
    """Print log lines above the live table, with secrets redacted."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        if not _prints_itself(record.name):
            self._display.say(redactor.text(self.format(record)))


def _prints_itself(name: str) -> bool:
    """Return whether a library's own handler (such as huggingface_hub's) has already printed the record."""
    logger = logging.getLogger(name)
    while logger.parent is not None:
        if any(isinstance(handler, logging.StreamHandler) for handler in logger.handlers):
            return True
        logger = logger.parent
    return False


@contextlib.contextmanager
def logging_to(display: Display, *, verbose: bool) -> Generator[None]:
    """In the `with` block, send log lines to a display: warnings and, with `verbose`, lower levels as well."""
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
