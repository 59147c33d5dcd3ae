"""Exceptions in environments' code: which of them to catch, and how to describe one with the author's line that raised
it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import traceback
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import cast

from harness.core.errors import EnvironmentFault, HarnessError
from harness.usercode.deadline import was_cancelled

_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
_STANDARD_LIBRARY = str(Path(traceback.__file__).parent) + "/"
_RUNNERS = asyncio.runners.__file__

_interrupted = False


def should_propagate(error: BaseException) -> bool:
    """Return whether an exception in an environment's code is not the environment's fault: the task was cancelled from
    outside, the user pressed Ctrl-C, or Python closes a coroutine that no task awaits."""
    if isinstance(error, asyncio.CancelledError):
        return was_cancelled()
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is None
        except RuntimeError:  # no running loop
            return threading.current_thread() is threading.main_thread()
    if isinstance(error, BaseExceptionGroup):
        return any(map(should_propagate, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, KeyboardInterrupt) and _is_users(error)


def _is_users(error: KeyboardInterrupt) -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False  # signals interrupt only the main thread
    if _interrupted or signal.getsignal(signal.SIGINT) in (signal.default_int_handler, None):
        return True
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_code.co_filename == _RUNNERS


def on_interrupt(_number: int, _frame: FrameType | None) -> None:
    """SIGINT handler that raises KeyboardInterrupt like Python's, and records that the interrupt came from the user and
    not from code."""
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts_recorded() -> Generator[None]:
    """Handle SIGINT by `on_interrupt` for the length of the block, unless something else handles it."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    forget_interrupt()
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is on_interrupt:
            signal.signal(signal.SIGINT, before)


def forget_interrupt() -> None:
    """Reset the record of the user's Ctrl-C."""
    global _interrupted
    _interrupted = False


def describe(error: BaseException) -> str:
    """Describe an exception in one line: its type, its message, and the author's line that raised it."""
    words = _error_text(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, EnvironmentFault):
        text = words
    at = place(error)
    return f"{text} ({at})" if at and f"({at})" not in text else text


def _error_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:  # raised by the author's `__str__`
        return f"its __str__ raised {type(fault).__name__}"


def place(error: BaseException) -> str:
    """Return `in FUNCTION, FILE:LINE` of the author's line that raised the exception; "" if there is none. For an
    exception of this package that has a cause, the line is that of the cause."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ends_here = not frames or frames[-1][0].co_filename.startswith(_PACKAGE)
    if error.__cause__ is not None and ends_here and (at := place(error.__cause__)):
        return at
    frames = [each for each in frames if not each[0].co_filename.startswith(_PACKAGE)]
    theirs = [each for each in frames if not _is_standard_library(each[0].co_filename)] or frames
    if not theirs:
        return ""
    code, line = theirs[-1]
    return f"in {code.co_name}, {Path(code.co_filename).name}:{line}"


def _is_standard_library(file: str) -> bool:
    return file.startswith("<frozen ") or (file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file)


def where(frame: FrameType) -> str:
    """Return `FUNCTION (FILE:LINE)` of a frame."""
    return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


def as_exception(error: object) -> BaseException:
    """Convert an author's error, an exception or a string, to an exception to raise."""
    if isinstance(error, HarnessError):
        return error
    if not isinstance(error, BaseException):
        return EnvironmentFault(str(error))
    fault = EnvironmentFault(f"{type(error).__name__}: {_error_text(error)}")
    fault.__cause__ = error
    return fault
