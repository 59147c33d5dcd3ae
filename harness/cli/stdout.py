"""Keeps stdout for what a command itself says, while environments print what they like, and known secrets off both
streams; prints notices on stderr. Owns the file descriptor; what is written past Python's streams it leads to stderr as
it is."""

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
    """Give a process that was started without stdin, stdout or stderr the null device in its place: the next file that
    is opened would take the free number, and what is printed would land in it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the life of the process


class _Screen(io.TextIOWrapper):
    """A stream that says no known secret."""

    def write(self, s: str, /) -> int:
        # What is no text is refused as ever.
        super().write(redactor.text(s, patterns=False) if isinstance(s, str) else s)  # pyright: ignore[reportUnnecessaryIsInstance]
        return len(s)


class _Standard(_Screen):
    """A standard stream, which whoever is led to it may not close: everybody else is, too."""

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # whoever reads went away, or it was taken apart
            self.flush()


def unsay_secrets() -> Callable[[], None]:
    """Take known secrets out of whatever Python prints on stdout and stderr, be it a tool, a warning or a traceback.

    Returns:
        What undoes it.
    """
    before = sys.stdout, sys.stderr
    screens = sys.stdout, sys.stderr = _screen(sys.stdout), _screen(sys.stderr)

    def undo() -> None:
        sys.stdout, sys.stderr = before
        for screen, stream in zip(screens, before, strict=True):
            if isinstance(screen, _Screen) and screen is not stream:
                with contextlib.suppress(OSError, ValueError):  # whoever reads went away, or closed it
                    screen.detach()

    return undo


def _screen(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or isinstance(stream, _Screen):
        return stream  # a buffer of somebody who called us, or one of ours
    stream.flush()
    return _Standard(
        _buffer(cast(TextIO, stream), 0 if stream.write_through else -1), stream.encoding, stream.errors,
        line_buffering=stream.line_buffering, write_through=stream.write_through,
    )  # fmt: skip


def _buffer(stream: TextIO, size: int) -> BinaryIO:
    """A buffer of its own: that of a stream whose descriptor was led elsewhere may be wrong about where it is."""
    try:
        return open(stream.fileno(), "wb", buffering=size, closefd=False)
    except (OSError, ValueError):  # there is no descriptor behind it
        return stream.buffer


@contextlib.contextmanager
def kept_stdout() -> Generator[IO[str]]:
    """The stdout that there is now, for the length of the block, wherever stdout is led meanwhile."""
    sys.stdout.flush()
    if not _is_stdout(sys.stdout):
        yield sys.stdout
        return
    copy = os.dup(_STDOUT)
    stream = _line_by_line(copy, sys.stdout.encoding)
    try:
        yield stream
    finally:
        # What could not be written was missed when it was printed; that the reader went away is no fault.
        with contextlib.suppress(OSError):
            stream.close()


@contextlib.contextmanager
def own_stdout() -> Generator[IO[str]]:
    """Lead to stderr what environments print, by Python, by a C library or by a child process; and tell the user's
    Ctrl-C from a KeyboardInterrupt that they raise.

    Yields:
        The stdout that there was, for what the command itself says meanwhile.
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
            stack.enter_context(contextlib.redirect_stderr(sys.stderr))  # or what an environment puts there would stay
            yield ours
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _line_by_line(fd: int, encoding: str, *, closes: bool = True) -> TextIO:
    return _Screen(open(fd, "wb", closefd=closes), encoding, "replace", line_buffering=True)


def _is_stdout(stream: TextIO) -> bool:
    """Whether a stream writes to the process's stdout, and not to somebody's buffer."""
    try:
        return stream.fileno() == _STDOUT
    except (OSError, ValueError):
        return False


NOTICE_CHARACTERS = 5000
"""Characters of one notice."""


def print_notices(notices: Iterable[str]) -> None:
    """Print each as a line. It may repeat what a file of somebody else says."""
    for notice in notices:
        from harness.report.text import clean  # slow to import, and mostly there is nothing to say

        typer.echo(f"note: {clean(notice, NOTICE_CHARACTERS)}", err=True)
