"""Keeps stdout for what a command itself says, while environments print what they like. Owns the file descriptor."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from typing import IO, TextIO

_STDOUT, _STDERR = 1, 2


def open_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr the null device in its place: the next file that
    is opened would take the free number, and what is printed would land in it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for the life of the process


@contextlib.contextmanager
def kept_stdout() -> Generator[IO[str]]:
    """The stdout that there is now, for the length of the block, wherever stdout is led meanwhile."""
    sys.stdout.flush()
    if not _is_stdout(sys.stdout):
        yield sys.stdout
        return
    copy = os.dup(_STDOUT)
    stream = open(copy, "w", encoding=sys.stdout.encoding, errors="replace", buffering=1)  # noqa: SIM115 - closed below
    try:
        yield stream
    finally:
        # What could not be written was missed when it was printed; that the reader went away is no fault.
        with contextlib.suppress(OSError):
            stream.close()


@contextlib.contextmanager
def own_stdout() -> Generator[IO[str]]:
    """Lead to stderr what environments print, by Python, by a C library or by a child process.

    Yields:
        The stdout that there was, for what the command itself says meanwhile.
    """
    sys.stdout.flush()
    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    ours = sys.stdout
    try:
        with contextlib.ExitStack() as stack:
            if _is_stdout(ours):
                ours = stack.enter_context(
                    open(kept, "w", encoding=ours.encoding, errors="replace", buffering=1, closefd=False)
                )
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            yield ours
    finally:
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _is_stdout(stream: TextIO) -> bool:
    """Whether a stream writes to the process's stdout, and not to somebody's buffer."""
    try:
        return stream.fileno() == _STDOUT
    except (OSError, ValueError):
        return False
