"""Redirection of stdout: output of environments and libraries goes to stderr, and only that of the command itself to
stdout. Known secrets are redacted on both Python streams (not in output written directly to a file descriptor); notices
go to stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator, Iterable
from typing import IO, BinaryIO, TextIO, cast

import typer

from harness.core.redact import redactor

_STDOUT, _STDERR = 1, 2


def open_streams() -> None:
    """Open the null device in place of a missing stdin, stdout or stderr; otherwise the next opened file would get the
    free descriptor, and printed text would be written to it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the life of the process


class _Screen(io.TextIOWrapper):
    """Text stream that redacts known secrets."""

    def write(self, s: str, /) -> int:
        # A non-text argument raises TypeError as usual.
        super().write(redactor.text(s, patterns=False) if isinstance(s, str) else s)  # pyright: ignore[reportUnnecessaryIsInstance]
        return len(s)


class _Standard(_Screen):
    """Redacting standard stream. Closing it only flushes the stream, since other code shares it."""

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the reader has closed the pipe, or the stream is detached
            self.flush()


def unsay_secrets() -> Callable[[], None]:
    """Redact known secrets in all that Python prints on stdout and stderr, such as warnings and tracebacks.

    Returns:
        A function that restores the streams.
    """
    before = sys.stdout, sys.stderr
    screens = sys.stdout, sys.stderr = _screen(sys.stdout), _screen(sys.stderr)

    def undo() -> None:
        sys.stdout, sys.stderr = before
        for screen, stream in zip(screens, before, strict=True):
            if isinstance(screen, _Screen) and screen is not stream:
                with contextlib.suppress(OSError, ValueError):  # a closed pipe or stream
                    screen.detach()

    return undo


def _screen(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, _Screen):
        return stream  # a caller's in-memory buffer, or a stream of ours
    stream.flush()
    return _Standard(
        _buffer(cast(TextIO, stream), 0 if stream.write_through else -1), stream.encoding, stream.errors,
        line_buffering=stream.line_buffering, write_through=stream.write_through,
    )  # fmt: skip


def _buffer(stream: TextIO, size: int) -> BinaryIO:
    """Open a separate buffer for a stream, since the position of the existing one may be wrong after a redirection."""
    try:
        return open(stream.fileno(), "wb", buffering=size, closefd=False)
    except (OSError, ValueError):  # the stream has no descriptor
        return stream.buffer


@contextlib.contextmanager
def kept_stdout() -> Generator[IO[str]]:
    """In the `with` block, provide a duplicate of stdout that redirections do not affect."""
    sys.stdout.flush()
    if not _is_stdout(sys.stdout):
        yield sys.stdout
        return
    copy = os.dup(_STDOUT)
    stream = _line_by_line(copy, sys.stdout.encoding)
    try:
        yield stream
    finally:
        # Unwritten output was reported when it was printed; a closed pipe is no error.
        with contextlib.suppress(OSError):
            stream.close()


@contextlib.contextmanager
def own_stdout() -> Generator[IO[str]]:
    """Redirect output of environments (by Python, C libraries or child processes) from stdout to stderr, and record the
    user's Ctrl-C, to distinguish it from a KeyboardInterrupt that an environment raises.

    Yields:
        The original stdout, for the output of the command itself.
    """
    from harness.usercode.exceptions import interrupts_recorded

    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    ours = sys.stdout
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(interrupts_recorded())
            if _is_stdout(ours):
                ours = stack.enter_context(_line_by_line(kept, ours.encoding, closes=False))
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            stack.enter_context(contextlib.redirect_stderr(sys.stderr))  # undoes an environment's replacement
            yield ours
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _line_by_line(fd: int, encoding: str, *, closes: bool = True) -> TextIO:
    return _Screen(open(fd, "wb", closefd=closes), encoding, "replace", line_buffering=True)


def _is_stdout(stream: TextIO) -> bool:
    """Return whether a stream writes to the process's stdout, and not to a caller's buffer."""
    try:
        return stream.fileno() == _STDOUT
    except (OSError, ValueError):
        return False


NOTICE_CHARACTERS = 5000
"""Maximum number of characters of one notice."""


def print_notices(notices: Iterable[str]) -> None:
    """Print notices to stderr, one line each, without control characters (notices may quote untrusted files)."""
    for notice in notices:
        from harness.report.text import clean  # slow to import, and mostly there are no notices

        typer.echo(f"note: {clean(notice, NOTICE_CHARACTERS)}", err=True)
