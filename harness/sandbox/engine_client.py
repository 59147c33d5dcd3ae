"""The command line of docker and podman: calls, and the start and the end of containers, with limits for an engine that
is overloaded or out of order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import secrets
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal
from weakref import WeakKeyDictionary

from harness.core.errors import SandboxError
from harness.sandbox.leftovers import MACHINE, OWNER, RUN, Leftover, client_environment, is_over, labels, machine, watch
from harness.sandbox.pipes import Pipes
from harness.usercode.deadline import waiting
from harness.usercode.threads import cores, offload

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""Timeout for starting a container of an image that is on this machine."""

CALL_SECONDS = 60.0
"""Timeout of the engine's other calls."""

REST_SECONDS = 1.0
"""How long output is read after the end of a process if another one keeps its pipes open."""

FAILURES = 3
"""Number of failed starts in a row after which no container is started for a while."""

PAUSE_SECONDS = 30.0
"""How long no container is started then."""

_SECRET = re.compile(r"(?!DOCKER_|CONTAINER|PODMAN_)\w*(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)\w*", re.IGNORECASE)
"""Names of environment variables whose values may be secret."""

_DOCKER_STORAGE = "{{.Driver}} {{.DriverStatus}}"

Gate = Literal["builds", "starts", "execs"]

AT_ONCE: dict[Gate, int] = {"builds": 2, "starts": max(2, 2 * cores()), "execs": 16 * cores()}
"""Maximum numbers of concurrent builds, starts and programs in containers. Waiting counts towards no timeout."""

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Gate, asyncio.Semaphore]] = WeakKeyDictionary()


@asynccontextmanager
async def turn(gate: Gate) -> AsyncGenerator[None, None]:
    """Wait for a turn. The time does not count towards the timeout of the rollout."""
    loop = asyncio.get_running_loop()
    gates = _gates.setdefault(loop, {name: asyncio.Semaphore(count) for name, count in AT_ONCE.items()})
    with waiting():
        await gates[gate].acquire()
    try:
        yield
    finally:
        gates[gate].release()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an engine's client program: its exit code, its stdout and the last line of its stderr."""

    code: int
    output: bytes
    error: str


class Breaker:
    """Refuses starts for a while after several have failed in a row, so that thousands of rollouts do not wait for an
    engine that is out of order."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0
        self._reason = ""

    def check(self, engine: str) -> None:
        """Raise `SandboxError` if starts are refused now."""
        left = self._until - time.monotonic()
        if left > 0:
            raise SandboxError(
                f"{engine} is out of order: {self._failures} starts in a row failed, so no container is started for "
                f"{left:.0f} s. The last error was: {self._reason}"
            )

    def record(self, error: str = "") -> None:
        """Count a failed start; without an error, a successful one."""
        self._failures, self._reason = (self._failures + 1, error) if error else (0, "")
        if self._failures >= FAILURES:
            self._until = time.monotonic() + PAUSE_SECONDS


class Engine:
    """An installed container engine.

    Args:
        name: `docker` or `podman`.
        program: Path of its client program.
    """

    def __init__(self, name: str, program: str) -> None:
        self.name, self.program = name, program
        self.breaker = Breaker()
        self.live: set[str] = set()
        """Names of the containers that this process has started and not removed."""
        self._is_swept = False

    # Calls

    async def call(
        self, *arguments: str, stdin: bytes = b"", seconds: float = CALL_SECONDS, bound: int = 1 << 24
    ) -> Answer:
        """Run the client program to its end. Cancelling kills it.

        Raises:
            SandboxError: it cannot be started, or does not end in time.
        """
        pipes, changed = await self.spawn(arguments, bound)
        try:
            pipes.write(stdin)
            pipes.close_stdin()
            async with asyncio.timeout(seconds):
                await ended(pipes, changed)
        except TimeoutError:
            raise SandboxError(f"{self.name} {arguments[0]} took longer than {seconds:g} s") from None
        finally:
            end(pipes)
        code = pipes.exit_code if pipes.exit_code is not None else -1
        return Answer(code, bytes(pipes.stdout.data), last_line(pipes.stderr.data))

    async def spawn(
        self,
        arguments: Sequence[str],
        bound: int,
        make: Callable[..., Pipes] = Pipes,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[Pipes, asyncio.Event]:
        """Start the client program, in a session of its own, so that Ctrl-C does not end it.

        Args:
            arguments: Its arguments.
            bound: Maximum number of bytes kept of each stream.
            make: Makes the pipes.
            env: Additional environment variables of the client.

        Returns:
            Its pipes, and an event that is set whenever something happens on them.

        Raises:
            SandboxError: it cannot be started.
        """
        changed = asyncio.Event()
        pipes = make(secrets.token_hex(16), bound, False, changed.set)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: pipes, self.program, *arguments, env=client_environment(env), cwd="/", start_new_session=True
            )
        except OSError as error:
            raise SandboxError(f"{self.name}: {self.program} cannot be started: {error}") from error
        return pipes, changed

    def call_now(
        self, *arguments: str, seconds: float = CALL_SECONDS, env: Mapping[str, str] = MappingProxyType({})
    ) -> Answer:
        """Run the client program to its end; blocks. An error is an answer with the code −1."""
        try:
            done = subprocess.run(
                [self.program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, env=client_environment(env),
                start_new_session=True, timeout=seconds, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return Answer(-1, b"", str(error))
        return Answer(done.returncode, done.stdout, last_line(done.stderr))

    def problem(self, seconds: float) -> str:
        """Why the engine does not work; "" if it does. Blocks."""
        answer = self.call_now("info", seconds=seconds)
        if answer.code < 0:
            return f"{self.name} does not answer: {answer.error}"
        return f"{self.name} does not work: {answer.error}" if answer.code else ""

    # Containers

    async def start(self, name: str, arguments: Sequence[str], env: Mapping[str, str]) -> Answer:
        """Start a container in the background. If it cannot be started or the call is cancelled, it is removed.

        Args:
            name: Its name.
            arguments: Options of the engine, the image and its command.
            env: Environment variables of the client that the options name.

        Returns:
            An answer whose code is 0, or 126 or 127 if the image does not have the program.

        Raises:
            SandboxError: the engine does not start it, or starts are refused now.
        """
        async with turn("starts"):
            self.breaker.check(self.name)
            await self.remove_leftovers()
            watch(self.program, self.live)
            self.live.add(name)
            options = ("run", "--detach", "--name", name, *labels())
            # A client that is killed while it creates a container may leave one, so the start is not interrupted.
            # It runs in a thread, since the container keeps the sockets of uvloop open, which uses no pipes.
            starting = asyncio.ensure_future(
                offload.run(self.call_now, *options, *arguments, seconds=START_SECONDS, env=env)
            )
            try:
                answer = await asyncio.shield(starting)
                if answer.code not in (0, 126, 127):
                    raise SandboxError(f"{self.name} does not start a container: {answer.error}")
            except SandboxError as error:
                self.breaker.record(str(error))
                await offload.run(self.remove, name)
                raise
            except asyncio.CancelledError:
                starting.add_done_callback(lambda done: done.cancelled() or done.exception())
                with contextlib.suppress(Exception):
                    await asyncio.wait({starting}, timeout=CALL_SECONDS)
                await offload.run(self.remove, name)
                raise
        self.breaker.record()
        if answer.code:
            await offload.run(self.remove, name)
        return answer

    def remove(self, *names: str) -> None:
        """Remove containers and all of their processes; those that do not exist are ignored. Blocks."""
        self.call_now("rm", "--force", *names)
        self.live.difference_update(names)

    async def is_running(self, name: str) -> bool:
        """Return whether a container is running.

        Raises:
            SandboxError: the container does not exist, or the engine does not answer.
        """
        answer = await self.call("inspect", "--type", "container", "--format", "{{.State.Running}}", name)
        if answer.code:
            raise SandboxError(f"{self.name}: the container of this rollout is gone: {answer.error}")
        return answer.output.strip() == b"true"

    async def refuses_disk_limit(self) -> str:
        """Why the engine cannot limit the disk space of containers; "" if it may be able to."""
        form = "{{.Store.GraphDriverName}} {{.Store.GraphStatus}}" if self.name == "podman" else _DOCKER_STORAGE
        answer = await self.call("info", "--format", form)
        driver, _, status = answer.output.decode("utf-8", "replace").strip().partition(" ")
        if driver in ("btrfs", "zfs") or (driver.startswith("overlay") and "xfs" in status):
            return ""
        return f"its storage is {driver or 'unknown'}: {status}" if status else answer.error

    # Leftovers

    async def remove_leftovers(self) -> None:
        """Remove the containers of processes that have ended. Does so once in this process."""
        if self._is_swept:
            return
        self._is_swept = True
        if found := await offload.run(self.leftovers):
            await offload.run(self.remove, *(each.container for each in found))
            logger.warning("removed %d containers of a process that was killed", len(found))

    def leftovers(self) -> list[Leftover]:
        """Containers on this machine that were started by processes which have ended. Blocks."""
        ids = self._own()
        if not ids:
            return []
        # A container that was removed meanwhile is missing from the output, and the exit code is 1.
        form = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER}"}}}} {{{{index .Config.Labels "{RUN}"}}}}'
        answer = self.call_now("inspect", "--type", "container", "--format", form, *ids)
        rows = [line.split(" ") for line in answer.output.decode("utf-8", "replace").splitlines()]
        return [Leftover(row[0], row[2]) for row in rows if len(row) == 3 and is_over(row[1])]

    def count(self) -> int:
        """Number of containers that were started on this machine, also by other processes. Blocks."""
        return len(self._own())

    def _own(self) -> list[str]:
        listed = self.call_now("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={MACHINE}={machine()}")
        return [] if listed.code else listed.output.decode().split()


def variables(values: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return options that set environment variables in a container, and those that its client needs for that.

    Values that may be secret are among the latter, since every user of this computer can read command lines. Others are
    not, since some names would change the client itself."""
    secret = {name: value for name, value in values.items() if _SECRET.fullmatch(name)}
    texts = (name if name in secret else f"{name}={value}" for name, value in values.items())
    return [part for text in texts for part in ("--env", text)], secret


async def ended(pipes: Pipes, changed: asyncio.Event) -> None:
    """Wait for the end of a process, and briefly for the rest of its output, whose pipes others may keep open."""
    while pipes.exit_code is None:
        changed.clear()
        await changed.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            while not pipes.is_over:
                changed.clear()
                await changed.wait()


def end(pipes: Pipes) -> None:
    """Kill the process of these pipes if it is running, and close them."""
    if pipes.transport is not None:
        if pipes.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                pipes.transport.kill()
        pipes.transport.close()


def last_line(output: bytes | bytearray) -> str:
    """The last line of an error output, shortened; or the last one that mentions an error, since advice may follow."""
    lines = output.decode("utf-8", "replace").strip().splitlines()
    if not lines:
        return f"no error message (as user {os.geteuid()})"
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])[:500]
