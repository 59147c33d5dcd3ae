"""A sandboxed process: its start, the monitoring of limits for the whole process tree, killing it, and its result.
Common to all backends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Sequence

from harness.core.errors import SandboxError
from harness.core.types import JsonDict
from harness.sandbox import tree
from harness.sandbox.api import Files, Limits, Outcome, Result
from harness.sandbox.launch_data import Launch, encode_request
from harness.sandbox.pipes import Pipes

LOOK_SECONDS = 0.05
"""Interval between two checks of the process tree's resource usage."""

GRACE_SECONDS = 2.0
"""Seconds after the time limit at which the harness kills a program that the launcher in the sandbox has not ended."""

MAX_INODES = 100_000
"""Maximum number of files in the private folder. Empty files use kernel memory that the folder's size limit does not
count."""


class SandboxedProcess:
    """One process in its sandbox. All methods run on the event loop; none blocks it.

    Args:
        name: Name of the backend, for messages.
        launch: How to start the process.
        limits: Resource limits.
        pauses_when_full: See `Pipes`.
    """

    def __init__(self, name: str, launch: Launch, limits: Limits, pauses_when_full: bool = False) -> None:
        self._name = name
        self._launch = launch
        self._limits = limits
        self._nonce = secrets.token_hex(16)
        self.pipes = Pipes(self._nonce, limits.output_bytes, pauses_when_full, self._notify)
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._reason: Outcome | None = None
        self._began = self._ended = 0.0
        self._cpu: float | None = None
        self._init: int | None = None
        """A pidfd of the sandbox's init process, if there is one."""

    @property
    def is_running(self) -> bool:
        """Whether the program is running, according to the reports received so far."""
        return self.pipes.exit_code is None and "wall" not in self._report

    @property
    def _report(self) -> JsonDict:
        """All fields that the launcher has reported so far, such as `started`, `failed` and the exit status."""
        return {name: value for report in self.pipes.reports.seen for name, value in report.items()}

    async def start(self, files: Files, argv: Sequence[str]) -> None:
        """Start the program; returns when it is running.

        Raises:
            SandboxError: the program could not be started.
        """
        request = encode_request(self._launch, files, argv, self._limits, self._nonce)
        # A sandbox program that is killed too early leaves its child behind, so the start is not interrupted.
        starting = asyncio.ensure_future(self._start(request))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(GRACE_SECONDS):
                    await starting
            raise

    async def _start(self, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        try:
            await loop.subprocess_exec(
                lambda: self.pipes,
                *self._launch.command,
                env=dict(self._launch.outer_env),
                pass_fds=self._launch.pass_fds,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxError(f"{self._name}: {self._launch.command[0]} cannot be started: {error}") from error
        try:
            async with asyncio.timeout(self._launch.start_seconds):
                await self._hold_init()
                self.pipes.write(request)
                while not self._report and not self.pipes.is_over:
                    await self.changed()
        except TimeoutError:
            raise SandboxError(f"{self._name} did not start within {self._launch.start_seconds:g} s") from None
        self._began = time.monotonic()
        self._look()
        while not self._report.keys() & {"started", "failed"} and not self.pipes.is_over:
            await self._changed_or_closed()  # ends at the time limit, even if the program stops the launcher at once
        if "failed" in self._report:
            raise SandboxError(f"{self._name}: the program cannot be started: {self._report['failed']}")
        if not self._report and self._reason is None:  # output above its limit may arrive before the first report
            errors = " ".join(self.pipes.stderr.text.split())[-500:] or "no error message"
            raise SandboxError(f"{self._name} failed with exit code {self.pipes.exit_code}: {errors}")

    async def _hold_init(self) -> None:
        """Open a pidfd of the sandbox's init process, which still exists, since it is waiting for its request."""
        transport = self.pipes.transport
        while self._launch.has_init and self.pipes.exit_code is None and transport is not None:
            used = tree.usage(transport.get_pid())
            if used is not None and len(used.pids) > 1:
                with contextlib.suppress(OSError):  # it has just failed
                    self._init = os.pidfd_open(used.pids[1])
                return
            await asyncio.sleep(0.001)

    async def finish(self) -> Result:
        """Wait until the program has ended, and return its result."""
        while not self.pipes.is_over:
            await self._changed_or_closed()
        return self.result()

    async def _changed_or_closed(self) -> None:
        """Wait for the next event, or for the end of the output if the process has ended."""
        await (self.changed() if self.pipes.exit_code is None else self._close())

    async def wait_for_final_report(self) -> None:
        """Wait briefly for the program's final report if its output is closed, since it is then probably ending."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while self.pipes.stdout_ended and self.is_running:
                    await self.changed()

    async def changed(self) -> None:
        """Wait for the next event of the process: output, a report or its end."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def kill(self, reason: Outcome | None = None) -> None:
        """Kill the whole process tree.

        Args:
            reason: The exceeded limit, if any.
        """
        if self._reason is None and "wall" not in self._report:
            self._reason = reason
        if self._launch.lifeline is not None:
            self._launch.lifeline.cut()
        transport = self.pipes.transport
        if transport is None or self.pipes.exit_code is not None:
            return
        used = tree.usage(transport.get_pid()) if self._launch.own_threads is not None else None
        for pid in used.pids[1:] if used is not None else ():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue  # gone, or of another user: it ends with the sandbox's own process
        with contextlib.suppress(ProcessLookupError):
            transport.kill()

    async def end(self) -> None:
        """Clean up in all cases: kill what is running, wait until it has ended, and free resources."""
        if self._timer is not None:
            self._timer.cancel()
        transport = self.pipes.transport
        if transport is None:
            return
        if self.pipes.exit_code is None:
            self.kill()
        try:
            async with asyncio.timeout(10.0):
                while self.pipes.exit_code is None:
                    await self.changed()
        except TimeoutError:
            raise SandboxError(f"{self._name}: process {transport.get_pid()} is still running after SIGKILL") from None
        finally:
            if self.pipes.exit_code is None:
                transport.close()
        await self._close()
        await self._end_init()

    async def _end_init(self) -> None:
        """Wait until the init process has ended; the sandbox program does not wait for it."""
        handle, self._init = self._init, None
        if handle is None:
            return
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(handle, gone.set)
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            async with asyncio.timeout(10.0):
                await gone.wait()
        except TimeoutError:
            raise SandboxError(f"{self._name}: its processes are still running after SIGKILL") from None
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    async def _close(self) -> None:
        """Read the remaining output of the ended process, even if other processes still have its pipes open."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while not self.pipes.is_over:
                    await self.changed()
        if self.pipes.transport is not None:
            self.pipes.transport.close()
        while not self.pipes.is_over:
            await self.changed()

    def _notify(self) -> None:
        """Record the end of the process, kill it if it writes too much, and wake all waiters."""
        if self.pipes.exit_code is not None and not self._ended:
            self._ended = time.monotonic()
        if (
            (self.pipes.stdout.is_above_kill_limit or self.pipes.stderr.is_above_kill_limit)
            and self.is_running
            and self._reason is None
        ):
            self.kill("output")
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def _look(self) -> None:
        """Kill the process tree if it exceeds a limit, and schedule the next check."""
        if self.pipes.exit_code is not None:
            return
        reason = self._overrun()
        if reason is not None:
            self.kill(reason)
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _overrun(self) -> Outcome | None:
        """Name of the resource limit that the process tree exceeds; None if it exceeds none."""
        if time.monotonic() - self._began > self._limits.wall_seconds + GRACE_SECONDS:
            return "timeout"
        transport, own = self.pipes.transport, self._launch.own_threads
        used = tree.usage(transport.get_pid()) if transport is not None and own is not None else None
        if used is None or own is None:
            return None
        self._cpu = used.cpu_seconds
        bound = self._limits.memory_mb << 20
        if used.memory > bound and transport is not None and tree.holds_more(transport.get_pid(), bound):
            return "memory"
        if used.threads - own > self._limits.processes:
            return "processes"
        if used.cpu_seconds > self._limits.cpu_seconds + 0.5:  # includes the start of the sandbox
            return "cpu"
        if self._launch.has_init and (tree.files_in(used.pids[-1], self._launch.base) or 0) > MAX_INODES:
            return "disk"
        return None

    def result(self) -> Result:
        """The result of the program, which must have ended."""
        report, pipes = self._report, self.pipes
        outcome: Outcome = self._reason or _outcome(report, self._limits)
        return Result(
            exit_code=report.get("code") if outcome == "exited" else None,
            stdout=pipes.stdout.text,
            stderr=pipes.stderr.text,
            outcome=outcome,
            wall_seconds=report.get("wall", (self._ended or time.monotonic()) - self._began),
            cpu_seconds=report.get("cpu", self._cpu),
            stdout_truncated=pipes.stdout.is_truncated,
            stderr_truncated=pipes.stderr.is_truncated,
            signal=report.get("signal"),
        )


def _outcome(final: JsonDict, limits: Limits) -> Outcome:
    """Outcome of a program that was not killed from outside, according to the launcher's final report. The report is
    missing if the program killed the launcher or the sandbox."""
    if final.get("timeout"):
        return "timeout"
    if final.get("memory"):
        return "memory"
    if "code" in final:
        return "exited"
    number = final.get("signal")
    if number == signal.SIGXCPU or (number == signal.SIGKILL and final["cpu"] >= limits.cpu_seconds):
        return "cpu"
    return "disk" if number == signal.SIGXFSZ else "signalled"
