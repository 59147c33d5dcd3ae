"""The boundary around code of environments: which exceptions stop there, and how one is told, with the line of the
author's that it comes from. Owns no record and no decision what a failure costs."""

from __future__ import annotations

import asyncio
import signal
import threading
import traceback
from pathlib import Path
from types import FrameType
from typing import cast

from harness.core.errors import EnvironmentFault, HarnessError
from harness.usercode.deadline import was_cancelled

USER_EXCEPTIONS: tuple[type[BaseException], ...] = (BaseException,)
"""What an environment's code may raise: catch these around it, and let through what `should_propagate`."""

_PACKAGE = str(Path(__file__).resolve().parents[1]) + "/"
_STANDARD_LIBRARY = str(Path(traceback.__file__).parent) + "/"
_RUNNERS = asyncio.runners.__file__

_interrupted = False


def should_propagate(error: BaseException) -> bool:
    """Whether an exception out of an environment's code is no fault of it: the task was cancelled from outside, the
    user pressed Ctrl-C, or nobody waits for the code any more and Python closes it."""
    if isinstance(error, asyncio.CancelledError):
        return was_cancelled()
    if isinstance(error, GeneratorExit):
        return _is_no_task()
    if isinstance(error, BaseExceptionGroup):
        return any(map(should_propagate, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, KeyboardInterrupt) and _is_users(error)


def _is_users(error: KeyboardInterrupt) -> bool:
    if threading.current_thread() is not threading.main_thread():
        return False  # signals interrupt the main thread alone
    if _interrupted or signal.getsignal(signal.SIGINT) in (signal.default_int_handler, None):
        return True
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_code.co_filename == _RUNNERS


def _is_no_task() -> bool:
    try:
        return asyncio.current_task() is None
    except RuntimeError:  # there is no loop
        return threading.current_thread() is threading.main_thread()


def on_interrupt(_number: int, _frame: FrameType | None) -> None:
    """A handler of SIGINT that does what Python's does, and tells the user's from one that code raises of itself."""
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def forget_interrupt() -> None:
    """Take it that the user has not pressed Ctrl-C so far."""
    global _interrupted
    _interrupted = False


def describe(error: BaseException) -> str:
    """One line for an exception out of an environment: its type, its words, and the author's line that raised it."""
    words = _words(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, EnvironmentFault):
        text = words
    at = place(error)
    return f"{text} ({at})" if at and f"({at})" not in text else text


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as fault:  # the author's `__str__`
        return f"its __str__ raised {type(fault).__name__}"


def place(error: BaseException) -> str:
    """`in FUNCTION, FILE:LINE` of the author's line that raised; "" if there is none. An exception that we have raised
    on account of another is where that one is."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if (
        error.__cause__ is not None
        and (not frames or is_ours(frames[-1][0].co_filename))
        and (at := place(error.__cause__))
    ):
        return at
    frames = [each for each in frames if not is_ours(each[0].co_filename)]
    theirs = [each for each in frames if not is_standard_library(each[0].co_filename)] or frames
    if not theirs:
        return ""
    code, line = theirs[-1]
    return f"in {code.co_name}, {Path(code.co_filename).name}:{line}"


def where(frame: FrameType) -> str:
    """`FUNCTION (FILE:LINE)` of what a frame carries out."""
    return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


def is_ours(file: str) -> bool:
    """Whether a source file is of this package."""
    return file.startswith(_PACKAGE)


def is_standard_library(file: str) -> bool:
    """Whether a source file comes with Python, or is none."""
    return file.startswith("<frozen ") or (file.startswith(_STANDARD_LIBRARY) and "site-packages" not in file)


def as_exception(error: object) -> BaseException:
    """What an author says went wrong, be it an exception or words, as something to raise."""
    if isinstance(error, HarnessError):
        return error
    if not isinstance(error, BaseException):
        return EnvironmentFault(str(error))
    fault = EnvironmentFault(f"{type(error).__name__}: {_words(error)}")
    fault.__cause__ = error
    return fault
