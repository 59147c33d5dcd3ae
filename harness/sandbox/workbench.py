"""One rollout's place to work in a sandbox: shell commands and Python code, one after the other, over one folder that
stays. Opened with the first of them, replaced when it is lost. Owns the session and the words about its end; what runs
inside is `attendant` and `repl`."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, cast

from harness.core.errors import SandboxError
from harness.sandbox.api import Limits, Result, Sandbox, Session
from harness.sandbox.attendant import BOOT

START_SECONDS = 120.0
"""An attendant that has not started by then never will."""

GRACE_SECONDS = 90.0
"""How much longer than it may take a request is waited for: the interpreter may have to start first."""

LIMITS = Limits(
    wall_seconds=86_400, cpu_seconds=600, memory_mb=1024, processes=64, file_mb=64, disk_mb=256, output_bytes=4_000_000
)
"""Of a whole rollout. Real time is bounded for each request; between them the model thinks."""

NEW_INTERPRETER = "The interpreter starts afresh with the next call: all variables, functions and imports are gone."
NEW_PLACE = "It starts afresh with the next call: all files, variables, functions and imports are gone."


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command led to.

    Args:
        stdout: Its output; a long one without its middle.
        stderr: As `stdout`.
        exit_code: As a shell has it: 128 and the signal if one ended it.
        timed_out: Whether it was ended because its time was over.
    """

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What a piece of code led to.

    Args:
        output: What it printed; all that there is to tell, unless the parts were asked for.
        errors: What it wrote to stderr.
        value: The value of its last expression.
        error: Its traceback.
    """

    output: str
    errors: str = ""
    value: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The interpreter, or the whole place, is gone by what the model's code did.

    Args:
        reason: A sentence without its point.
        timed_out: Whether the code ran out of time.
        everything: Whether files are gone, too.
    """

    reason: str
    timed_out: bool = False
    everything: bool = False

    def __str__(self) -> str:
        return f"{self.reason}. {NEW_PLACE if self.everything else NEW_INTERPRETER}"


class _ProgramGone(Exception):
    def __init__(self, lost: Lost) -> None:
        super().__init__(str(lost))
        self.lost = lost


class Workbench:
    """A place to work that remembers. Requests are done one after the other.

    Args:
        sandbox: Where it is.
        limits: Of all that is done in it.
        environment: Further environment variables of what runs there.
        modules: What the interpreter must be able to import; checked when it opens.
        start: A command that runs in the background from the opening on.
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
        """How long it took to open, the last time."""
        self.ready_seconds = 0.0
        """How long the interpreter took to start, the last time."""

    @property
    def is_open(self) -> bool:
        """Whether there is something to lose."""
        return self._session is not None

    async def command(
        self, command: str, seconds: float, folder: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Ran | Lost:
        """Run a command in a shell of its own.

        Args:
            command: For bash, or sh where there is no bash.
            seconds: How long it may take.
            folder: Where, if not in the work folder.
            environment: Further environment variables.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        asked = {"command": command, "seconds": seconds, "folder": folder, "environment": dict(environment or {})}
        try:
            reply = await self._ask(asked, seconds)
            return Ran(reply["stdout"], reply["stderr"], reply["exit_code"], reply["timed_out"])
        except _ProgramGone as gone:
            return gone.lost

    async def python(self, code: str, seconds: float, apart: bool = False) -> CodeResult | Lost:
        """Run a piece of code in the interpreter.

        Args:
            code: Statements; the value of an expression at the end is told.
            seconds: How long it may take.
            apart: Whether errors, value and traceback are wanted apart from the output.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        try:
            reply = await self._ask({"code": code, "seconds": seconds, "apart": apart}, seconds)
        except _ProgramGone as gone:
            return gone.lost
        if "failed" in reply:
            raise SandboxError(str(reply["failed"]))
        self.ready_seconds = max(self.ready_seconds, float(reply["ready_seconds"]))
        if "lost" in reply:
            return _lost(reply["lost"], reply["code"], seconds)
        return CodeResult(reply["output"], reply.get("errors", ""), reply.get("value"), reply.get("error"))

    async def close(self) -> None:
        """End all that runs there; what it held is gone."""
        self._abandoned.clear()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, request: Mapping[str, object], seconds: float) -> dict[str, Any]:
        async with self._lock:
            session = await self._open()
            waiting = seconds + GRACE_SECONDS + sum(self._abandoned.values())
            return await self._exchange(session, request, waiting, seconds)

    async def _exchange(
        self, session: Session, request: Mapping[str, object], waiting: float, seconds: float
    ) -> dict[str, Any]:
        """The reply to a request.

        Raises:
            _Gone: there is none, and the session is closed.
        """
        mark = secrets.token_hex(16)
        end = time.monotonic() + waiting
        try:
            async with asyncio.timeout(waiting):
                await session.send(json.dumps({**request, "mark": mark}).encode() + b"\n")
            while True:
                reply = _read(await session.read_line(max(0.001, end - time.monotonic())))
                if reply is not None and self._abandoned.pop(str(reply.get("mark")), None) is not None:
                    continue  # of a request that nobody waits for any more
                if reply is not None and reply.get("mark") == mark:
                    return reply
                is_running = session.is_running
                result = await self._give_up()
                words = (
                    "Its replies were written over" if is_running and reply is not None else _end(result, self._limits)
                )
                raise _ProgramGone(Lost(words, everything=True))
        except TimeoutError:
            await self._give_up()
            raise _ProgramGone(Lost("It no longer answered", timed_out=True, everything=True)) from None
        except asyncio.CancelledError:
            self._abandoned[mark] = seconds
            raise

    async def _give_up(self) -> Result:
        session, self._session = self._session, None
        self._abandoned.clear()
        assert session is not None
        return await session.close()

    async def _open(self) -> Session:
        if self._session is not None:
            return self._session
        started = time.monotonic()
        attendant, repl = (files("harness.sandbox").joinpath(f"{name}.py").read_text("utf-8") for name in _PROGRAMS)
        self._session = session = await self._sandbox.open_session({}, ["python", "-c", BOOT], self._limits)
        try:
            await session.send(json.dumps(attendant).encode() + b"\n")
            hello = {"program": repl, "environment": self._environment, "modules": self._modules, "start": self._start}
            reply = await self._exchange(session, hello, START_SECONDS, 0)
        except _ProgramGone as gone:
            raise SandboxError(f"the sandbox does not start: {gone.lost.reason}") from None
        except asyncio.CancelledError:
            await self._give_up()
            raise
        problem = _problem(self._sandbox.name, reply)
        if problem:
            await self._give_up()
            raise SandboxError(problem)
        self.open_seconds, self.ready_seconds = time.monotonic() - started, 0.0
        return session


_PROGRAMS = ("attendant", "repl")


def _problem(name: str, hello: Mapping[str, Any]) -> str:
    if hello["missing"]:
        missing = ", ".join(hello["missing"])
        return f"the sandbox ({name}) has no {missing}: its image must hold what programs inside are to import"
    return "" if hello["shell"] else f"the sandbox ({name}) has no shell: its image must hold bash or sh"


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        reply = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return {}
    return cast("dict[str, Any]", reply) if isinstance(reply, dict) else None


def _lost(why: str, code: int | None, seconds: float) -> Lost:
    """Why an interpreter is gone, and its place is not."""
    if why == "timeout":
        return Lost(f"The code ran for more than {seconds:g} s and was stopped", timed_out=True)
    if why == "garbled":
        return Lost("The code wrote over the interpreter's replies")
    if code is None:
        return Lost("The interpreter was ended")
    if code < 0:
        return Lost(f"The interpreter was ended by signal {-code}")
    return Lost(f"The code ended the interpreter (exit code {code})")


def _end(result: Result, limits: Limits) -> str:
    """Why a place is gone."""
    ends = {
        "memory": f"It used more than {limits.memory_mb} MB of memory",
        "cpu": f"It used more than {limits.cpu_seconds:g} s of CPU time in all",
        "processes": f"It started more than {limits.processes} processes",
        "disk": f"It wrote more than {limits.disk_mb} MB to disk",
        "output": "It wrote too much",
        "timeout": f"It was open for more than {limits.wall_seconds:g} s",
    }
    if result.outcome in ends:
        return ends[result.outcome]
    return f"It was ended by signal {result.signal}" if result.signal else "It was ended from inside"
