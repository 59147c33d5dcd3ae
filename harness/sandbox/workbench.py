"""A rollout's persistent workspace in a sandbox: shell commands and Python code, run one at a time in the same folder.
It is opened on first use, and reopened after it was lost. `session_program` and `repl` run in the sandbox."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

from harness.core.errors import SandboxError
from harness.sandbox.api import Limits, Result
from harness.sandbox.backend import Sandbox, Session
from harness.sandbox.session_program import BOOT

START_SECONDS = 120.0
"""Timeout for starting the session program."""

FILE_SECONDS = 60.0
"""Timeout for reading or writing a file."""

OUTPUT_BYTES = 50_000
"""Default maximum bytes of each output stream of a command that are returned."""

GRACE_SECONDS = 90.0
"""Seconds added to the timeout of a request, since the interpreter may have to start first."""

LIMITS = Limits(
    wall_seconds=86_400, cpu_seconds=600, memory_mb=1024, processes=64, file_mb=64, disk_mb=256, output_bytes=4_000_000
)
"""Default limits of a whole rollout. The wall time is limited per request instead, since the model thinks in
between."""

NEW_INTERPRETER = "The interpreter starts afresh with the next call: all variables, functions and imports are gone."
NEW_PLACE = "It starts afresh with the next call: all files, variables, functions and imports are gone."


@dataclass(frozen=True, slots=True)
class Ran:
    """Result of a command.

    Args:
        stdout: The command's output; if too long, without its middle.
        stderr: As `stdout`.
        exit_code: As in a shell: 128 plus the signal number if a signal ended it.
        timed_out: Whether it was killed by its timeout.
        is_cut: Whether stdout, and whether stderr, was too long.
    """

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    is_cut: tuple[bool, ...] = (False, False)


@dataclass(frozen=True, slots=True)
class CodeResult:
    """Result of a piece of code.

    Args:
        output: All output of the code, or only its stdout if separate parts were requested.
        errors: The code's stderr.
        value: The value of its last expression.
        error: The traceback of its exception.
    """

    output: str
    errors: str = ""
    value: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The model's code ended the interpreter, or the whole workspace.

    Args:
        reason: A sentence without its full stop.
        timed_out: Whether the code exceeded its timeout.
        everything: Whether the files are lost as well.
    """

    reason: str
    timed_out: bool = False
    everything: bool = False

    def __str__(self) -> str:
        return f"{self.reason}. {NEW_PLACE if self.everything else NEW_INTERPRETER}"


class Workbench:
    """A persistent workspace. Requests are run one at a time.

    Args:
        sandbox: The sandbox to open it in.
        limits: Limits of all requests together.
        environment: Additional environment variables of the programs.
        modules: Modules that the interpreter must be able to import; checked on opening.
        start: Command that is started in the background on opening.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        limits: Limits = LIMITS,
        environment: Mapping[str, str] | None = None,
        modules: Sequence[str] = (),
        start: str | None = None,
    ) -> None:
        self._sandbox, self._limits = sandbox, limits
        self._environment, self._modules = dict(environment or {}), list(modules)
        self._start = start
        self._session: Session | None = None
        self._lock = asyncio.Lock()
        self._abandoned: dict[str, float] = {}
        self.open_seconds = 0.0
        """Seconds that the last opening took."""
        self.ready_seconds = 0.0
        """Seconds that the last start of the interpreter took."""

    @property
    def is_open(self) -> bool:
        """Whether the workspace is open."""
        return self._session is not None

    async def command(
        self,
        command: str,
        seconds: float,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        output_bytes: int = OUTPUT_BYTES,
    ) -> Ran | Lost:
        """Run a command in a new shell.

        Args:
            command: A command for bash, or for sh if there is no bash.
            seconds: Timeout.
            folder: Working directory; defaults to the work folder.
            environment: Additional environment variables.
            stdin: The command's whole input.
            output_bytes: Maximum bytes of each output stream that are returned, from its start and its end.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        request = {"command": command, "seconds": seconds, "folder": folder, "environment": dict(environment or {})}
        given = {"stdin": base64.b64encode(stdin).decode(), "output_bytes": output_bytes}
        reply = await self._request(request | given, seconds)
        if isinstance(reply, Lost):
            return reply
        is_cut = tuple(reply["cut"])
        return Ran(reply["stdout"], reply["stderr"], reply["exit_code"], reply["timed_out"], is_cut)

    async def file(self, path: str, **request: object) -> dict[str, Any] | Lost:
        """Read a file, or write it if there is `data`.

        Args:
            path: Its path; `~` and relative paths start at the work folder.
            **request: `limit`, the maximum size in bytes; or `data` in base64 and `mode`.

        Returns:
            `data` in base64; or the reason as `missing` or `error`; or the `size` of a file that is too large.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        return await self._request({"file": path, **request}, FILE_SECONDS)

    async def python(self, code: str, seconds: float, apart: bool = False) -> CodeResult | Lost:
        """Run code in the interpreter.

        Args:
            code: Statements. The value of a final expression is part of the result.
            seconds: Timeout.
            apart: Whether to return errors, value and traceback separately from the output.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        reply = await self._request({"code": code, "seconds": seconds, "apart": apart}, seconds)
        if isinstance(reply, Lost):
            return reply
        if "failed" in reply:
            raise SandboxError(str(reply["failed"]))
        self.ready_seconds = max(self.ready_seconds, float(reply["ready_seconds"]))
        if "failure" in reply:
            return _lost_interpreter(reply["failure"], reply["code"], seconds)
        return CodeResult(reply["output"], reply["errors"], reply["value"], reply["error"])

    async def close(self) -> Result | None:
        """Kill all programs in the workspace and delete its contents. May be called repeatedly.

        Returns:
            How the workspace ended; None if it was not open.
        """
        self._abandoned.clear()
        session, self._session = self._session, None
        return None if session is None else await session.close()

    async def _request(self, request: Mapping[str, object], seconds: float) -> dict[str, Any] | Lost:
        async with self._lock:
            session = await self._open()
            waiting = seconds + GRACE_SECONDS + sum(self._abandoned.values())
            return await self._exchange(session, request, waiting, seconds)

    async def _exchange(
        self, session: Session, request: Mapping[str, object], waiting: float, seconds: float
    ) -> dict[str, Any] | Lost:
        """Send a request and return the reply. If there is none, close the session and return the reason."""
        mark = secrets.token_hex(16)
        end = time.monotonic() + waiting
        try:
            async with asyncio.timeout(waiting):
                await session.send(json.dumps({**request, "mark": mark}).encode() + b"\n")
            while True:
                reply = _parse(await session.read_line(max(0.001, end - time.monotonic())))
                if reply is not None and self._abandoned.pop(str(reply.get("mark")), None) is not None:
                    continue  # reply to a request that was cancelled
                if reply is not None and reply.get("mark") == mark:
                    return reply
                is_overwritten = session.is_running and reply is not None
                reason = _end_reason(await self.close(), self._limits)
                return Lost("Its replies were overwritten" if is_overwritten else reason, everything=True)
        except TimeoutError:
            await self.close()
            return Lost("It no longer answered", timed_out=True, everything=True)
        except asyncio.CancelledError:
            self._abandoned[mark] = seconds
            raise

    async def _open(self) -> Session:
        if self._session is not None:
            return self._session
        started = time.monotonic()
        program, repl = (files("harness.sandbox").joinpath(name).read_text("utf-8") for name in _PROGRAMS)
        self._session = session = await self._sandbox.open_session({}, ["python", "-c", BOOT], self._limits)
        try:
            await session.send(json.dumps(program).encode() + b"\n")
            setup = {"program": repl, "environment": self._environment, "modules": self._modules, "start": self._start}
            isolated = {"is_isolated": self._sandbox.name != "unsafe-local"}
            reply = await self._exchange(session, setup | isolated, START_SECONDS, 0)
        except asyncio.CancelledError:
            await self.close()
            raise
        problem = ""
        if isinstance(reply, Lost):
            problem = f"the sandbox does not start: {reply.reason}"
        elif reply["missing"]:
            missing = ", ".join(reply["missing"])
            problem = f"the sandbox ({self._sandbox.name}) does not contain {missing}: use an image that does"
        elif not reply["shell"]:
            problem = f"the sandbox ({self._sandbox.name}) does not contain a shell: use an image with bash or sh"
        if problem:
            await self.close()
            raise SandboxError(problem)
        self.open_seconds, self.ready_seconds = time.monotonic() - started, 0.0
        return session


_PROGRAMS = ("session_program.py", "repl.py")


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        reply = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return {}
    return cast("dict[str, Any]", reply) if isinstance(reply, dict) else None


def _lost_interpreter(why: str, code: int | None, seconds: float) -> Lost:
    """Describe why the Python interpreter ended although the workspace still exists."""
    if why == "timeout":
        return Lost(f"The code ran for more than {seconds:g} s and was stopped", timed_out=True)
    if why == "malformed":
        return Lost("The code wrote over the interpreter's replies")
    if code is None or code < 0:
        return Lost("The interpreter was ended" + (f" by signal {-code}" if code else ""))
    return Lost(f"The code ended the interpreter (exit code {code})")


def _end_reason(result: Result | None, limits: Limits) -> str:
    """Describe why the workspace ended: the exceeded limit, a signal, or the model's code."""
    reasons = {
        "memory": f"It used more than {limits.memory_mb} MB of memory",
        "cpu": f"It used more than {limits.cpu_seconds:g} s of CPU time in all",
        "processes": f"It started more than {limits.processes} processes",
        "disk": f"It wrote more than {limits.disk_mb} MB to disk",
        "output": "It wrote too much output",
        "timeout": f"It was open for more than {limits.wall_seconds:g} s",
    }
    if result is not None and result.outcome in reasons:
        return reasons[result.outcome]
    return f"It was ended by signal {result.signal}" if result and result.signal else "It was ended by a program in it"
