"""What all code of a process shares, kept from environments: that the process goes on, its working directory, standard
streams and signal handlers, its clock and its JSON. Owns the functions of `os` and `signal` that stand in for Python's
while the block of `guarded` lasts; a child that an environment forks has Python's own.

This finds mistakes. Code that means harm has other ways: that is what a process of its own is for."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NoReturn

from harness.core.errors import EnvironmentFault
from harness.usercode import exceptions

logger = logging.getLogger(__name__)

leave = os._exit
"""Python's own: ends this process, now."""

_WATCHED: tuple[tuple[Any, str], ...] = (
    (json, "dumps"), (json, "loads"), (time, "time"), (time, "monotonic"), (time, "perf_counter"), (builtins, "open"),
    (os, "open"), (os, "write"), (os, "fsync"), (os, "replace"),
)  # fmt: skip
"""What runs, journals and time limits rest on."""

_ENDING = (signal.SIGINT, signal.SIGTERM)

_COPY = (
    b"note: os.fork() in code of an environment made a copy of this process that did not end; it was ended. "
    b"Use subprocess, or end the copy with os._exit\n"
)

_pid = 0
"""Whose functions are replaced; 0 while none are."""
_originals: dict[tuple[str, str], Any] = {}
_culprits: dict[str, str] = {}
_moved = ""


@contextlib.contextmanager
def guarded() -> Generator[None]:
    """Refuse, for the length of the block, what an environment must not do to the process that it shares.

    Ending the process raises SystemExit instead. Closing a standard stream is refused; so are, once anything runs,
    changing the working directory and the handlers of SIGINT and SIGTERM. A KeyboardInterrupt that code raises of
    itself is told from the user's."""
    global _moved, _pid
    if _pid == os.getpid():
        yield  # a block inside another
        return
    _pid = os.getpid()
    exceptions.forget_interrupt()
    _originals.update({(owner.__name__, name): getattr(owner, name) for owner, name in _WATCHED})
    functions = [(owner, name, getattr(owner, name)) for owner, name, _ in _stand_ins()]
    for owner, name, stand_in in _stand_ins():
        setattr(owner, name, stand_in)
    handler = _listen()
    try:
        yield
    finally:
        for owner, name, function in functions:
            setattr(owner, name, function)
        if handler is not None and signal.getsignal(signal.SIGINT) is exceptions.on_interrupt:
            signal.signal(signal.SIGINT, handler)
        _originals.clear()
        _culprits.clear()
        _pid = 0
        _moved = ""


def put_back() -> str:
    """Undo what has taken the place of a function that everything rests on.

    Returns:
        What was replaced by what; "" if nothing was, or nothing is guarded.
    """
    words = ""
    for owner, name in _WATCHED if _pid == os.getpid() else ():
        now = getattr(owner, name)
        if now is not _originals[owner.__name__, name]:
            setattr(owner, name, _originals[owner.__name__, name])
            what = f"{owner.__name__}.{name} by {getattr(now, '__name__', type(now).__name__)}"
            code = getattr(now, "__code__", None)
            if code is not None:
                what = f"{what} ({Path(code.co_filename).name}:{code.co_firstlineno})"
                _culprits.setdefault(code.co_filename, what)
            words = f"{words}, {what}" if words else what
    return words


def replaced_by(files: Iterable[Path]) -> str:
    """What code in these files has put in the place of such a function, since it began; "" if nothing."""
    return next((_culprits[file] for file in map(str, files) if file in _culprits), "") if _culprits else ""


def end_copy() -> None:
    """End this process if it is a copy that code of an environment has forked off, and that has come back into ours:
    what goes on here goes on in the process itself, with the same files and connections."""
    if _pid in (0, os.getpid()):
        return
    with contextlib.suppress(OSError):
        os.write(2, _COPY)
    leave(1)


def moved_by() -> str:
    """`FILE:LINE` of what last changed the working directory; "" if that is not known."""
    return _moved


def _listen() -> Any:
    """Tell the user's Ctrl-C from others', if nobody else handles it; returns the handler that was there."""
    if threading.current_thread() is not threading.main_thread():
        return None
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        return None
    return signal.signal(signal.SIGINT, exceptions.on_interrupt)


def _stand_ins() -> list[tuple[Any, str, Callable[..., Any]]]:
    return [
        (os, "_exit", _exit), (os, "abort", _abort), (os, "chdir", _chdir), (os, "fchdir", _fchdir),
        (os, "close", _close), (os, "closerange", _closerange), (signal, "signal", _signal),
        (os, "execv", _execv), (os, "execve", _execve), (os, "kill", _kill), (os, "killpg", _killpg),
        (signal, "raise_signal", _raise_signal), (signal, "alarm", _alarm), (signal, "setitimer", _setitimer),
    ]  # fmt: skip


_real_abort, _real_chdir, _real_fchdir = os.abort, os.chdir, os.fchdir
_real_close, _real_closerange, _real_signal = os.close, os.closerange, signal.signal
_real_execv, _real_execve, _real_kill, _real_killpg = os.execv, os.execve, os.kill, os.killpg
_real_raise_signal, _real_alarm, _real_setitimer = signal.raise_signal, signal.alarm, signal.setitimer


def _exit(status: int) -> NoReturn:
    if not _is_theirs():
        leave(status)
    _end(f"os._exit({status})")


def _abort() -> NoReturn:
    if not _is_theirs():
        _real_abort()
    _end("os.abort()")


def _chdir(path: Any) -> None:
    if _is_theirs() and _has_begun():
        _refuse(
            f"os.chdir({path!r}) would change the working directory of every run of this process: "
            "use whole paths, and cwd=… for programs"
        )
    _note_move()
    _real_chdir(path)


def _fchdir(fd: int) -> None:
    if _is_theirs() and _has_begun():
        _refuse("os.fchdir would change the working directory of every run of this process: use whole paths")
    _note_move()
    _real_fchdir(fd)


def _note_move() -> None:
    global _moved
    _moved = _caller()[1] if _is_theirs() else ""


def _close(fd: int) -> None:
    if fd in (0, 1, 2) and _is_theirs():
        name = ("stdin", "stdout", "stderr")[fd]
        _refuse(
            f"os.close({fd}) would close {name} of every run of this process: what is opened next would take its place"
        )
    _real_close(fd)


def _closerange(low: int, high: int) -> None:
    if _is_theirs():
        _refuse(
            f"os.closerange({low}, {high}) would close files of every run of this process: close your own, one by one"
        )
    _real_closerange(low, high)


def _signal(number: Any, handler: Any) -> Any:
    if number in _ENDING and _is_theirs() and _has_begun():
        name = signal.Signals(number).name
        _refuse(f"signal.signal({name}, …) would take Ctrl-C from the runs of this process: leave {name} alone")
    return _real_signal(number, handler)


def _execv(path: Any, argv: Any) -> NoReturn:
    _refuse_exec(path)
    _real_execv(path, argv)


def _execve(path: Any, argv: Any, env: Any) -> NoReturn:
    _refuse_exec(path)
    _real_execve(path, argv, env)


def _refuse_exec(path: object) -> None:
    if _is_theirs():
        _refuse(f"os.exec… would put {path!r} in the place of this process and all its runs: use subprocess")


def _kill(pid: int, number: int) -> None:
    # 0, and negative numbers, are groups of processes; -1 is whatever may be ended.
    mine = (0, -1, os.getpid(), os.getppid(), -os.getpgrp())
    if number and pid in mine and _is_theirs():
        _refuse(f"os.kill({pid}, {_name(number)}) would reach this process and all its runs, or what has started it")
    _real_kill(pid, number)


def _killpg(group: int, number: int) -> None:
    if number and group in (0, os.getpgrp()) and _is_theirs():
        _refuse(
            f"os.killpg({group}, {_name(number)}) would reach this process and all its runs: start programs with "
            "start_new_session=True to end them as a group"
        )
    _real_killpg(group, number)


def _raise_signal(number: int) -> None:
    if _is_theirs():
        _refuse(f"signal.raise_signal({_name(number)}) would reach this process and all its runs")
    _real_raise_signal(number)


def _alarm(seconds: int) -> int:
    _refuse_timer("alarm", signal.SIGALRM, seconds)
    return _real_alarm(seconds)


def _setitimer(which: int, seconds: float, interval: float = 0.0) -> Any:
    ringing = {signal.ITIMER_VIRTUAL: signal.SIGVTALRM, signal.ITIMER_PROF: signal.SIGPROF}
    _refuse_timer("setitimer", ringing.get(which, signal.SIGALRM), seconds)
    return _real_setitimer(which, seconds, interval)


def _refuse_timer(name: str, number: signal.Signals, seconds: float) -> None:
    if seconds and signal.getsignal(number) is signal.SIG_DFL and _is_theirs():
        _refuse(f"signal.{name} without a handler of {number.name} would end this process and all its runs")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _refuse(words: str) -> NoReturn:
    raise EnvironmentFault(words)


def _end(words: str) -> NoReturn:
    thread = threading.current_thread()
    if thread is not threading.main_thread() and thread.name != "bench-offload":
        # Of the end of a thread nobody is told.
        logger.warning("thread %s called %s, which ended that thread (%s)", thread.name, words, _caller()[1])
    raise SystemExit(words)


def _has_begun() -> bool:
    """Whether rollouts may be under way: environments are loaded in the main thread, before there is a loop."""
    return threading.current_thread() is not threading.main_thread() or asyncio._get_running_loop() is not None  # pyright: ignore[reportPrivateUsage]


def _is_theirs() -> bool:
    """Whether code that is not ours calls, in the process that is guarded."""
    return os.getpid() == _pid and not exceptions.is_ours(_caller()[0])


def _caller() -> tuple[str, str]:
    """The file that calls a function of this module, the standard library left out; and `FILE:LINE`."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not exceptions.is_standard_library(file):
            return file, f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "", ""
