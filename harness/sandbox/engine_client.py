"""The command line of docker and podman: calls, and the start and the end of containers, with limits for an engine that
is overloaded or out of order."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from harness.core.errors import SandboxError
from harness.sandbox.client_pipes import ClientPipes, client_end, end_build, end_client
from harness.sandbox.engine_load import Breaker, in_background, threads, turn, uncancelled
from harness.sandbox.leftovers import (
    MACHINE,
    OWNER,
    RUN,
    Leftover,
    client_environment,
    is_over,
    labels,
    machine,
    private_folder,
    watch,
)
from harness.sandbox.pipes import Pipes, last_line

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
"""Timeout for starting a container of an image that is on this machine."""

CALL_SECONDS = 60.0
"""Timeout of the engine's other calls, and for starting a program in a container."""

RETRY_SECONDS = 60.0
"""How long a removal that has failed is not tried again."""

MAIN_FAILED = 83
"""Exit code of a container whose main process can no longer wait, since its programs were destroyed."""

NO_SHELL = re.compile(
    r"/bin/sh.*(no such file|not found|permission denied|exec format|too many (levels|symbolic))"
    r"|stat /dev/null: no such file|workdir \S+ does not exist|chdir to |cannot chdir",
    re.IGNORECASE,
)
"""Errors of engines if a container has no shell or no working folder."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an engine's client: exit code (below 0 if it failed or was killed), stdout, and last line of stderr.
    From `Engine.attempt` it also has the end of both together, in the order of arrival."""

    code: int
    output: bytes
    error: str
    end: bytes = b""


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
        self._unremoved: dict[str, None] = {}
        """Names of the containers whose removal has failed."""
        self._retry_at = 0.0
        self._is_swept = False
        self._disk_limit: str | None = None

    # Calls

    async def call(self, *arguments: str, seconds: float = CALL_SECONDS) -> Answer:
        """Run the client program to its end; see `attempt`.

        Raises:
            SandboxError: it cannot be started, does not end in time, or was killed.
        """
        answer = await self.attempt(*arguments, seconds=seconds)
        if answer.code < 0:
            raise SandboxError(answer.error)
        return answer

    async def attempt(self, *arguments: str, seconds: float = CALL_SECONDS) -> Answer:
        """Run the client program to its end. Cancelling kills it, with the programs of a build. An error is an answer
        with a negative code.

        Raises:
            SandboxError: it cannot be started.
        """
        changed = asyncio.Event()
        pipes = ClientPipes(changed.set)
        problem = ""
        try:
            await self.spawn(arguments, pipes)
            pipes.close_stdin()
            async with asyncio.timeout(seconds):
                await client_end(pipes, changed)
        except TimeoutError:
            problem = f"{self.name} {arguments[0]} took longer than {seconds:g} s"
        finally:
            try:
                if arguments[0] == "build":
                    await end_build(pipes, changed)
            finally:
                end_client(pipes)
        code = -1 if problem or pipes.exit_code is None else pipes.exit_code
        killed = f"{self.name} {arguments[0]} was killed" if code < 0 else ""
        errors = bytes(pipes.end) if pipes.stderr.is_truncated else pipes.stderr.data
        return Answer(code, bytes(pipes.stdout.data), problem or killed or last_line(errors), bytes(pipes.end))

    async def spawn(
        self, arguments: Sequence[str], pipes: Pipes, env: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start the client program, in a session of its own, so that Ctrl-C does not end it.

        Args:
            arguments: Its arguments.
            pipes: Its pipes.
            env: Additional environment variables of the client.

        Raises:
            SandboxError: it cannot be started.
            OSError: the arguments or the environment are too long.
        """
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: pipes, self.program, *arguments, env=client_environment(env), cwd=private_folder(),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise
            raise SandboxError(f"{self.name}: {self.program} cannot be started: {error}") from error

    def call_now(
        self,
        *arguments: str,
        seconds: float = CALL_SECONDS,
        env: Mapping[str, str] = MappingProxyType({}),
        stdin: bytes = b"",
    ) -> Answer:
        """Run the client program to its end; blocks. See `attempt`."""
        try:
            done = subprocess.run(
                [self.program, *arguments], input=stdin, capture_output=True, env=client_environment(env),
                cwd=private_folder(), start_new_session=True, timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Answer(-1, b"", f"{self.name} {arguments[0]} took longer than {seconds:g} s")
        except OSError as error:
            return Answer(-1, b"", str(error))
        killed = f"{self.name} {arguments[0]} was killed" if done.returncode < 0 else ""
        return Answer(done.returncode, done.stdout, killed or last_line(done.stderr))

    def problem(self, seconds: float) -> str:
        """Why the engine does not work; "" if it does. Blocks."""
        answer = self.call_now("info", seconds=seconds)
        if answer.code < 0:
            return f"{self.name} does not answer: {answer.error}"
        return f"{self.name} does not work: {answer.error}" if answer.code else ""

    # Containers

    async def start(
        self, name: str, options: Sequence[str], image: str, command: Sequence[str], env: Mapping[str, str]
    ) -> Answer:
        """Start a container in the background. If it cannot be started or the call is cancelled, it is removed.

        Args:
            name: Its name.
            options: Options of the engine.
            image: Name of its image.
            command: Its command.
            env: Environment variables of the client that the options name.

        Returns:
            An answer whose code is 0, or 126 or 127 if the image has no shell.

        Raises:
            SandboxError: the engine does not start it, or is out of order.
        """
        since = time.monotonic()
        async with turn("starts"):
            await self.remove_leftovers()
            watch(self.program, self.live)
            await self.breaker.admit(f"{self.name} is out of order: starts of containers", image, since)
            self.live.add(name)
            arguments = ["run", "--detach", "--name", name, *labels(), *self.run_options, *options, image, *command]
            starting = asyncio.ensure_future(self._start(name, image, arguments, env))
            try:
                return await asyncio.shield(starting)
            except asyncio.CancelledError:
                await uncancelled(self._remove_after(starting, name))
                raise

    async def _start(self, name: str, image: str, arguments: Sequence[str], env: Mapping[str, str]) -> Answer:
        # A client that is killed while it creates a container may leave one, so the start is not interrupted.
        # It runs in a thread, since the container keeps the sockets of uvloop open, which uses no pipes.
        answer = await threads.run(self.call_now, *arguments, seconds=START_SECONDS, env=env)
        works = answer.code == 0 or (answer.code in (126, 127) and NO_SHELL.search(answer.error) is not None)
        self.breaker.record(image, "" if works else answer.error)
        if answer.code:
            await threads.run(self.remove_now, name)
        if answer.code < 0:  # an engine that is overloaded may create it later
            self.live.add(name)
            self._unremoved[name] = None
        if not works:
            raise SandboxError(f"{self.name} does not start a container: {answer.error}")
        return answer

    async def _remove_after(self, starting: asyncio.Future[Answer], name: str) -> None:
        await asyncio.wait({starting})
        if not starting.cancelled() and starting.exception() is None:
            await threads.run(self.remove_now, name)

    @property
    def run_options(self) -> tuple[str, ...]:
        """Options of `run` that keep the client's own variables out of containers."""
        return ("--http-proxy=false",) if self.name == "podman" else ()

    async def remove(self, name: str) -> None:
        """Remove a container and all of its processes. Continues if the await is cancelled; if it fails, it is tried
        again with later ones, and by the helper process."""
        if self._unremoved and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + RETRY_SECONDS
            in_background(threads.run(self.remove_now, *self._unremoved))
        await uncancelled(threads.run(self.remove_now, name))

    def remove_now(self, *names: str) -> None:
        """Remove containers, up to the first that cannot be removed; see `remove`. Blocks."""
        for name in names:
            self._unremoved.pop(name, None)
            answer = self.call_now("rm", "--force", "--volumes", name)
            if answer.code and "no such container" not in answer.error.lower():
                self._unremoved[name] = None  # as the last, so that it does not delay the others
                return
            self.live.discard(name)

    async def is_running(self, name: str, was_restarted: bool) -> bool:
        """Return whether a container is running. False if it has ended by the doing of its own programs.

        Args:
            name: Its name.
            was_restarted: Whether bench has restarted it. Programs may have destroyed those that it starts with, so its
                exit code tells nothing then.

        Raises:
            SandboxError: the container does not exist, it was ended from outside, or the engine does not answer.
        """
        form = "{{.State.Running}} {{.State.OOMKilled}} {{.State.ExitCode}}"
        answer = await self.call("inspect", "--type", "container", "--format", form, name)
        if answer.code:
            raise SandboxError(f"{self.name}: the container of this rollout is gone: {answer.error}")
        running, no_memory, code = (*answer.output.decode("utf-8", "replace").split(), "", "", "")[:3]
        if running != "true" and not was_restarted and no_memory != "true" and code != str(MAIN_FAILED):
            raise SandboxError(f"{self.name}: the container of this rollout was ended, with exit code {code}")
        return running == "true"

    async def refuses_disk_limit(self) -> str:
        """Why the engine cannot limit the disk space of containers; "" if it can. Tries it with an empty image.

        Raises:
            SandboxError: the engine failed.
        """
        if self._disk_limit is None:
            self._disk_limit = await uncancelled(threads.run(self._try_disk_limit))
        return self._disk_limit

    def _try_disk_limit(self) -> str:
        name = f"bench-{secrets.token_hex(8)}"
        image = f"localhost/bench/{name}"
        made = self.call_now("import", "-", image, stdin=bytes(10_240))  # an empty archive
        tried = self.call_now("create", "--name", name, "--storage-opt", "size=64m", image, "sh")
        self.remove_now(name)
        self.call_now("rmi", image)
        if made.code or tried.code < 0:
            raise SandboxError(f"{self.name} does not work: {(made if made.code else tried).error}")
        return tried.error if tried.code else ""

    # Leftovers

    async def remove_leftovers(self) -> None:
        """Remove the containers of processes that have ended. Does so once in this process."""
        if not self._is_swept:
            self._is_swept = True
            await uncancelled(threads.run(self._sweep))

    def _sweep(self) -> None:
        removed, left = 0, self.leftovers()
        while left:
            answer = self.call_now("rm", "--force", "--volumes", *(each.container for each in left[:20]))
            after = self.leftovers()  # podman removes none if another process has removed one of them
            if len(after) >= len(left):
                logger.warning("%d containers of a killed process cannot be removed: %s", len(after), answer.error)
                break
            removed, left = removed + len(left) - len(after), after
        if removed:
            logger.warning("removed %d containers of a process that was killed", removed)

    def leftovers(self) -> list[Leftover]:
        """Containers on this machine that were started by processes which have ended. Blocks."""
        ids = self._own()
        if not ids:
            return []
        # A container that was removed meanwhile is missing from the output, and the exit code is 1.
        marks = " ".join(f'{{{{index .Config.Labels "{name}"}}}}' for name in (OWNER, RUN))
        form = f"{{{{.Id}}}} {{{{.State.Running}}}} {marks}"
        answer = self.call_now("inspect", "--type", "container", "--format", form, *ids)
        rows = [line.split(" ") for line in answer.output.decode("utf-8", "replace").splitlines()]
        return [Leftover(row[0], row[3]) for row in rows if len(row) == 4 and is_over(row[2], row[1] == "true")]

    def count(self) -> int:
        """Number of containers that this user has started on this machine, also by other processes. Blocks."""
        return len(self._own())

    def _own(self) -> list[str]:
        listed = self.call_now("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={MACHINE}={machine()}")
        return [] if listed.code else listed.output.decode().split()
