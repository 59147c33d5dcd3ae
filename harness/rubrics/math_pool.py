"""Pool of processes that compare mathematical answers. It starts and ends them, and repeats a check whose process died.
The processes run `math_worker`.

All rubrics share the pool. A check may wait arbitrarily long for a free process. Only its own CPU time is limited, so a
busy machine delays results but does not change them. A thread communicates with each process, so the pool does not
depend on an event loop, and starting a process does not block."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, cast

from harness.core.errors import VerificationError
from harness.core.safe_text import clean
from harness.usercode.threads import cores

PROGRAM = Path(__file__).with_name("math_worker.py")

IDLE_SECONDS = 30.0
"""Seconds without a check after which a process ends, since each uses about 90 MB."""

CRASHES = frozenset((signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL))
"""Signals that a process gets because of its own crash, for example after deep recursion in native code."""

RESOURCES = ("MemoryError", "RecursionError", "OverflowError", "ValueError")
"""Names of exceptions of computations that are too large. Python raises `ValueError` for integers with too many
digits."""

ATTEMPTS = 2
"""Number of attempts of a check whose process was killed from outside. The answer is probably not the cause the first
time, but it may be the second time."""

_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
"""Environment variables that the processes inherit; none of them holds a key."""


@dataclass(slots=True)
class _MathCheck:
    """A comparison of two answers, and its result."""

    answer: str
    gold: str
    cpu_seconds: float
    future: Future[bool] = field(default_factory=Future[bool])

    def __str__(self) -> str:
        return f"comparing {clean(repr(self.answer), 80)} with {clean(repr(self.gold), 80)}"


class Exhausted(VerificationError):
    """A comparison exceeded its time or memory limit, or crashed, because the answers are too complex."""


class _WorkerGone(Exception):
    """The worker process has ended or does not answer."""


class _CheckLost(Exception):
    """The process of the check was killed, but the worker process can run further checks."""


class _Process:
    """A worker process with its pipes."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._popen = subprocess.Popen(
            # -P: do not import from the program's folder, which contains a module `math`
            [sys.executable, "-P", str(PROGRAM), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={**environment, "PYTHONHASHSEED": "0"},
            start_new_session=True,  # so that Ctrl-C does not end it, and its whole process group can be killed
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._stdin, self._stdout = self._popen.stdin, self._popen.stdout
        self.pid = self._popen.pid
        self._number = 0

    def wait_until_ready(self) -> None:
        """Wait until the process has loaded math-verify.

        Raises:
            VerificationError: math-verify cannot be loaded.
            _WorkerGone: the process ended without a message.
        """
        reply = self._reply()
        if not reply.get("ready"):
            raise VerificationError(
                f"math-verify cannot be used ({reply.get('error')}); pip install -U 'bench-harness[math]'"
            )

    def check(self, check: _MathCheck) -> bool:
        """Run one check, and return whether the answers are equal.

        Raises:
            VerificationError: the answers could not be compared, and a retry would not help; `Exhausted` if they are
                too complex.
            _CheckLost: the child process of the check was killed.
            _WorkerGone: the worker process was killed.
        """
        self._number += 1
        request: dict[str, object] = {
            "id": self._number, "answer": check.answer, "gold": check.gold, "cpu_seconds": check.cpu_seconds,
        }  # fmt: skip
        try:
            self._stdin.write(json.dumps(request, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        except OSError as error:
            raise _WorkerGone(str(error)) from error
        while True:
            reply = self._reply()
            died = reply.get("died")
            if died == signal.SIGPROF:
                raise Exhausted(f"{check} was stopped after {check.cpu_seconds:g} s of CPU time; raise timeout_seconds")
            if died in CRASHES:
                raise Exhausted(f"{check} crashed the process (signal {died})")
            if died is not None:
                raise _CheckLost(f"killed by signal {died}")
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
        self._stdin.close()
        self._stdout.close()

    def disown(self) -> None:
        """Close the pipes in a forked child of the harness, since open pipes there would keep the process alive."""
        self._popen.returncode = 0
        self.close_pipes()

    def _reply(self) -> Mapping[str, Any]:
        """Read the next reply of the process."""
        line = self._stdout.readline()
        if not line.endswith(b"\n"):
            raise _WorkerGone("the process closed its pipe")
        return cast("dict[str, Any]", json.loads(line))


class MathPool:
    """Pool of processes that compare mathematical answers.

    Args:
        max_workers: Maximum number of concurrent processes.
        idle_seconds: Seconds without a check after which a process ends.
    """

    def __init__(self, max_workers: int = 1, idle_seconds: float = IDLE_SECONDS) -> None:
        self.max_workers = max_workers
        self.idle_seconds = idle_seconds
        self._forget()

    def _forget(self) -> None:
        """Forget all processes, since a forked child must not use the processes of its parent."""
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
        """Process ids of the running processes."""
        with self._lock:
            return tuple(sorted(process.pid for process in self._processes))

    def reserve(self, max_workers: int) -> None:
        """Raise the number of concurrent processes to at least `max_workers`, but not above the number of CPU cores."""
        self.max_workers = max(self.max_workers, min(max_workers, cores()))

    async def check(self, answer: str, gold: str, cpu_seconds: float) -> bool:
        """Return whether `answer` equals `gold`.

        Args:
            answer: The content of a box.
            gold: The expected answer.
            cpu_seconds: CPU seconds for the comparison.

        Raises:
            VerificationError: the answers could not be compared; the message has the reason. `Exhausted` if they are
                too complex.
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
        """Kill all processes, so that pending checks fail."""
        with self._lock:
            self._closed = True
            processes = list(self._processes)
        for process in processes:
            process.kill()  # its thread notices this by the end of the pipe

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
        """Set the result of a check, with a retry if its process dies; return the process for the next check."""
        causes: list[str] = []
        try:
            while len(causes) < ATTEMPTS:
                try:
                    process = process or self._start()
                    check.future.set_result(process.check(check))
                    return process
                except _CheckLost as lost:
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
        """Start a process, and wait until it is ready."""
        if self._closed:
            raise VerificationError("the answers are not compared, because bench is shutting down")
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
        """Kill a process and close its pipes."""
        process.kill()
        process.close_pipes()
        with self._lock:
            self._processes.discard(process)


math_pool = MathPool()
"""The pool that all math rubrics of this process share."""

atexit.register(math_pool.close)
os.register_at_fork(after_in_child=math_pool._forget)  # pyright: ignore[reportPrivateUsage]
