"""Pool of processes that compare mathematical answers: starting and ending them, and repeating a check whose process
died. The processes run `math_worker`.

All rubrics share the pool. A check may wait arbitrarily long for a free process; only its own CPU time is limited, so a
busy machine delays verdicts but never changes them. One thread per process communicates with it, so the pool belongs to
no event loop, and starting a process does not block."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, cast

from harness.core.errors import VerificationError
from harness.core.safe_text import clean

PROGRAM = Path(__file__).with_name("math_worker.py")

IDLE_SECONDS = 30.0
"""Idle time after which a process ends; each uses about 90 MB."""

WALL_SECONDS = 600.0
"""Wall-time limit of one request, for processes that were stopped or machines that swap. It is generous, since no
verdict depends on it."""

CRASHES = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL))
"""Signals of crashes that a process causes itself, for example by deep recursion in native code."""

RESOURCES = ("MemoryError", "RecursionError", "OverflowError", "ValueError")
"""Errors of computations that are too large. Python raises `ValueError` for integers with too many digits."""

ATTEMPTS = 2
"""Number of attempts. If a process was killed from outside once, the answer is hardly the cause; the second time it may
be."""

_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
"""Environment variables that the processes inherit; none of them holds a key."""


@dataclass(slots=True)
class _MathCheck:
    answer: str
    gold: str
    cpu_seconds: float
    future: Future[bool] = field(default_factory=Future[bool])

    def __str__(self) -> str:
        return f"comparing {clean(repr(self.answer), 80)} with {clean(repr(self.gold), 80)}"


class Exhausted(VerificationError):
    """The comparison itself exceeded its time or memory limit, or crashed; the machine is not the cause."""


class _WorkerGone(Exception):
    """The worker process is unreachable."""


class _Lost(Exception):
    """The check was lost, but the worker process can take further ones."""


class _Process:
    """One worker process with its pipes."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._popen = subprocess.Popen(
            # -P: the program's folder contains modules whose names conflict with the standard library
            [sys.executable, "-P", str(PROGRAM), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**environment, "PYTHONHASHSEED": "0"},
            start_new_session=True,  # so that Ctrl-C does not reach it, and the whole process group can be killed
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self.pid = self._popen.pid
        self._stdin, self._stdout = self._popen.stdin.fileno(), self._popen.stdout.fileno()
        os.set_blocking(self._stdin, False)
        self._rest = b""
        self._number = 0

    def wait_until_ready(self) -> None:
        """Wait until the library is loaded.

        Raises:
            VerificationError: it cannot be loaded.
            _WorkerGone: the process ended without a message.
        """
        reply = self._reply(time.monotonic() + WALL_SECONDS)
        if not reply.get("ready"):
            raise VerificationError(
                f"math-verify cannot be used ({reply.get('error')}); pip install -U 'bench-harness[math]'"
            )

    def check(self, check: _MathCheck) -> bool:
        """Run one check.

        Raises:
            VerificationError: the answers could not be compared, and a retry would not help; `Exhausted` if they are
                too complex.
            _Lost: the child process of the check was killed.
            _WorkerGone: the worker process was killed.
        """
        self._number += 1
        request: dict[str, object] = {
            "id": self._number, "answer": check.answer, "gold": check.gold, "cpu_seconds": check.cpu_seconds,
        }  # fmt: skip
        until = time.monotonic() + WALL_SECONDS
        self._send(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") + b"\n", until)
        while True:
            reply = self._reply(until)
            died = reply.get("died")
            if died == signal.SIGPROF:
                raise Exhausted(f"{check} was cut after {check.cpu_seconds:g} s of CPU time; raise timeout_seconds")
            if died in CRASHES:
                raise Exhausted(f"{check} crashed (signal {died})")
            if died is not None:
                raise _Lost(f"signal {died}")
            if reply.get("id") == self._number:
                break
        if "error" in reply:
            kind = Exhausted if str(reply["error"]).startswith(RESOURCES) else VerificationError
            raise kind(f"{check}: {reply['error']}")
        return bool(reply["right"])

    def kill(self) -> None:
        """Kill the process and its child."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._popen.kill()
        self._popen.wait()

    def close_pipes(self) -> None:
        """Close the pipes. Only for the thread that uses them."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()

    def disown(self) -> None:
        """Close the pipes in a forked child of the harness; open ends would keep the process alive."""
        self._popen.returncode = 0
        self.close_pipes()

    def _send(self, data: bytes, until: float) -> None:
        while data:
            _wait(self._stdin, select.POLLOUT, until)
            try:
                data = data[os.write(self._stdin, data) :]
            except OSError as error:
                raise _WorkerGone(str(error)) from error

    def _reply(self, until: float) -> Mapping[str, Any]:
        while b"\n" not in self._rest:
            _wait(self._stdout, select.POLLIN, until)
            part = os.read(self._stdout, 1 << 16)
            if not part:
                raise _WorkerGone("its pipe closed")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return cast("dict[str, Any]", json.loads(line))


def _wait(fd: int, event: int, until: float) -> None:
    """Wait until a pipe can be read or written."""
    poll = select.poll()
    poll.register(fd, event)
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        raise _WorkerGone(f"no reply within {WALL_SECONDS:g} s")


class MathPool:
    """Pool of processes that compare mathematical answers.

    Args:
        max_workers: Maximum number of concurrent processes; never more than CPU cores.
        idle_seconds: Idle time after which a process ends.
    """

    def __init__(self, max_workers: int = 1, idle_seconds: float = IDLE_SECONDS) -> None:
        self.max_workers = max_workers
        self.idle_seconds = idle_seconds
        self._forget()

    def _forget(self) -> None:
        """Reset to no processes; a forked child must not use its parent's."""
        for process in getattr(self, "_processes", set[_Process]()):
            process.disown()
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_MathCheck] = SimpleQueue()
        self._processes: set[_Process] = set()
        self._threads = 0
        self._demand = 0
        self._closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the running processes."""
        with self._lock:
            return tuple(sorted(process.pid for process in self._processes))

    def reserve(self, max_workers: int) -> None:
        """Raise the number of concurrent processes to at least `max_workers`, but not above the number of CPU cores."""
        self.max_workers = max(self.max_workers, min(max_workers, cores()))

    async def check(self, answer: str, gold: str, cpu_seconds: float) -> bool:
        """Whether `answer` equals `gold`.

        Args:
            answer: The content of a box.
            gold: The expected answer.
            cpu_seconds: CPU seconds for the comparison.

        Raises:
            VerificationError: the answers could not be compared; says why. `Exhausted` if they are too complex.
        """
        check = _MathCheck(answer, gold, cpu_seconds)
        with self._lock:
            self._demand += 1
            grow = self._demand > self._threads and self._threads < self.max_workers
            self._threads += grow
            self._queue.put(check)
        if grow:
            threading.Thread(target=self._work, name="bench-math", daemon=True).start()
        return await asyncio.wrap_future(check.future)

    def close(self) -> None:
        """Kill all processes. Pending checks fail."""
        with self._lock:
            self._closed = True
            processes = list(self._processes)
        for process in processes:
            process.kill()  # its thread reads the end of the pipe

    def _work(self) -> None:
        """Thread function: run checks with one process until the queue stays empty."""
        process: _Process | None = None
        while True:
            try:
                check = self._queue.get(timeout=self.idle_seconds)
            except Empty:
                with self._lock:
                    if not self._queue.empty():
                        continue
                    self._threads -= 1
                if process is not None:
                    self._end(process)
                return
            if check.future.set_running_or_notify_cancel():
                process = self._answer(check, process)
            with self._lock:
                self._demand -= 1
            del check  # an idle thread must not keep an answer alive

    def _answer(self, check: _MathCheck, process: _Process | None) -> _Process | None:
        """Compute the verdict of a check, with a retry if the process dies; return the process for the next check."""
        causes: list[str] = []
        try:
            while len(causes) < ATTEMPTS:
                try:
                    process = process or self._start()
                    check.future.set_result(process.check(check))
                    return process
                except _Lost as lost:
                    causes.append(str(lost))
                except _WorkerGone as gone:
                    causes.append(str(gone))
                    if process is not None:
                        self._end(process)
                    process = None
            check.future.set_exception(
                VerificationError(f"{check}: the process died {len(causes)} times ({'; '.join(causes)})")
            )
        except Exception as error:  # passed on to the task that awaits the check
            check.future.set_exception(error)
        return process

    def _start(self) -> _Process:
        if self._closed:
            raise VerificationError("bench is shutting down")
        try:
            process = _Process()
        except OSError as error:
            raise VerificationError(f"a process for comparing answers cannot be started: {error}") from error
        with self._lock:
            self._processes.add(process)
        try:
            process.wait_until_ready()
        except (VerificationError, _WorkerGone):
            self._end(process)
            raise
        return process

    def _end(self, process: _Process) -> None:
        process.kill()
        process.close_pipes()
        with self._lock:
            self._processes.discard(process)


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


math_pool = MathPool()
"""The pool of this process."""

atexit.register(math_pool.close)
os.register_at_fork(after_in_child=math_pool._forget)  # pyright: ignore[reportPrivateUsage]
