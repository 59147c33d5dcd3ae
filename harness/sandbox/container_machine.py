"""A machine in a container of docker or podman. The image needs `sh` and `sleep`, and no Python.

The main process of the container only waits. A program that exceeds its timeout is killed by a script in the container,
since killing the engine's client does not end it. If even this script cannot be started, for example because the
program has used up all processes, the container is restarted, which keeps its files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import posixpath
import secrets
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar, cast

from harness.core.errors import ConfigError, SandboxError
from harness.sandbox.api import Outcome, Result
from harness.sandbox.archives import NoArchive, pack, read_regular, unpack, write_regular
from harness.sandbox.engine_client import (
    CALL_SECONDS,
    NO_SHELL,
    Answer,
    Engine,
    end,
    ended,
    last_line,
    variables,
)
from harness.sandbox.engine_load import kept, threads, turn
from harness.sandbox.exec_pipes import ALIVE, BEGIN, KILL, MARK, ExecPipes, result_of
from harness.sandbox.leftovers import client_environment, private_folder
from harness.sandbox.machine import FILE_BYTES, FOLDER_BYTES, Exec, Machine
from harness.usercode.deadline import waiting

COPY_SECONDS = 600.0
"""Timeout for copying files into or out of a container."""

T = TypeVar("T")

_DOUBTFUL = (125, 137, 255)
"""Exit codes of programs that are also those of an engine's client that has lost its program."""

SHELL = "/bin/sh"
"""The shell of containers. An absolute path, since programs may write to folders of PATH."""


class ContainerMachine(Machine):
    """A machine in a running container.

    Args:
        engine: The engine that has it.
        container: Its name.
    """

    def __init__(self, engine: Engine, container: str) -> None:
        self.name = engine.name
        self.container = container
        self._engine = engine
        self._folder: str | None = None
        self.restarts = 0
        """How often the container was restarted, which also ends the services in it."""
        self._restarting = asyncio.Lock()
        self._is_destroyed = False
        """Whether its programs have made it impossible to start others."""
        self._entering = asyncio.Lock()
        self._busy = 0
        self._turn = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncGenerator[None]:
        """Take a turn, which all concurrent calls of this machine share, since one may wait for another."""
        with self.working():
            with waiting():
                async with self._entering:
                    if not self._busy:
                        await self._turn.enter_async_context(turn("execs"))
                    self._busy += 1
            try:
                yield
            finally:
                self._busy -= 1
                if not self._busy:
                    await self._turn.aclose()

    # Programs

    async def run(self, call: Exec) -> Result:
        """Run a program; see `Machine.exec`."""
        try:
            async with self._working():
                pipes, result = await self._run_or_recover(call)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            return Result(126, "", f"{call.argv[0]}: {error.strerror}", "exited", 0.0)
        if pipes.fault is not None:
            raise pipes.fault
        return result

    async def _run_or_recover(self, call: Exec) -> tuple[ExecPipes, Result]:
        seen = self.restarts
        pipes, result = await self._run_once(call, call.cwd or ".")
        if pipes.pid is not None or result.outcome != "exited":
            return pipes, result
        if not await self._accepts_programs():
            await self._recover(seen)
        # The working folder may be gone. Then the shell says so, while the engine would not start it.
        pipes, result = await self._run_once(call, await self._absolute(call.cwd or "."))
        if pipes.pid is not None or result.outcome != "exited":
            return pipes, result
        words = last_line(pipes.head)
        if await self._accepts_programs():
            raise ConfigError(f"{self.name} does not accept the arguments of exec: {words}")
        if not self._is_destroyed:
            raise SandboxError(f"{self.name} does not start programs in the container: {words}")
        return pipes, result

    async def _run_once(self, call: Exec, folder: str) -> tuple[ExecPipes, Result]:
        mark, seen = secrets.token_hex(16), self.restarts
        options, secret = variables({**call.env, MARK: mark})
        if call.user is not None:
            options += ["--user", call.user]
        if folder.startswith("/"):
            options += ["--workdir", "/"]
        if call.stdin:
            options.append("--interactive")
        pipes, changed = await self._spawn(options, [folder, *call.argv], call.output_bytes, secret)
        pipes.on_output = call.on_output
        feeding = asyncio.ensure_future(pipes.feed(call.input))
        try:
            outcome, wall = await self._wait(pipes, changed, call.timeout, mark)
        finally:
            feeding.cancel()
            end(pipes)
        if outcome == "exited" and pipes.pid is not None:
            if self.restarts != seen:
                outcome = "signalled"
            else:
                await self._check_end(pipes, mark)
        return pipes, result_of(pipes, outcome, wall)

    async def _check_end(self, pipes: ExecPipes, mark: str) -> None:
        """Check that the program has ended, and not only the engine's client.

        Raises:
            SandboxError: only the client has ended, or how the program ended is unknown.
        """
        code = -1 if pipes.exit_code is None else pipes.exit_code
        if code in _DOUBTFUL or code < 0:
            done = await self._call(ALIVE, str(pipes.pid))
            if done.code == 0:
                await self._kill(mark, pipes)
            elif done.code != 3:
                await self._check()
            if code < 0 or done.code == 0:
                raise SandboxError(f"{self.name} exec ended before its program, with exit code {code}")

    async def _spawn(
        self, options: Sequence[str], program: Sequence[str], bound: int, env: Mapping[str, str]
    ) -> tuple[ExecPipes, asyncio.Event]:
        nonce = secrets.token_hex(16)

        def make(_: str, bound: int, pauses: bool, notify: Callable[[], None]) -> ExecPipes:
            return ExecPipes(nonce, bound, pauses, notify)

        arguments = ["exec", *options, self.container, SHELL, "-c", BEGIN, "sh", nonce, *program]
        pipes, changed = await self._engine.spawn(arguments, bound, make, env)
        assert isinstance(pipes, ExecPipes)
        return pipes, changed

    async def _wait(self, pipes: ExecPipes, changed: asyncio.Event, timeout: float, mark: str) -> tuple[Outcome, float]:
        """Wait for the end of a program, and kill it if it takes too long or writes too much."""
        started = time.monotonic()
        outcome: Outcome = "exited"
        ending = asyncio.ensure_future(ended(pipes, changed))
        flood = asyncio.ensure_future(pipes.flood.wait())
        try:
            done, _ = await asyncio.wait({ending, flood}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if ending not in done:
                outcome = "output" if flood in done else "timeout"
                await kept(self._stop(mark, pipes, ending))
        except asyncio.CancelledError:
            if outcome == "exited" and self.failure is None:
                try:
                    await kept(self._stop(mark, pipes, ending))
                except SandboxError as error:
                    self.failure = self.failure or error
            raise
        finally:
            ending.cancel()
            flood.cancel()
        return outcome, time.monotonic() - started

    async def _stop(self, mark: str, pipes: ExecPipes, ending: asyncio.Future[None]) -> None:
        """Kill a program and wait for its end. If it continues, restart the container.

        The script that kills programs runs with their rights only, since they may have replaced the shell."""
        seen = self.restarts
        is_killed = await self._kill(mark, pipes)
        if is_killed:
            await asyncio.wait({ending}, timeout=5.0)
        if not is_killed or not ending.done():
            await self._recover(seen)

    async def _kill(self, mark: str, pipes: ExecPipes) -> bool:
        """Kill all processes of a call. Returns whether the script in the container has done it."""
        with contextlib.suppress(TimeoutError):  # its start may not have been reported yet
            async with asyncio.timeout(2.0):
                await pipes.begun.wait()
        for _ in range(2):
            try:
                done = await self._call(KILL, mark, str(pipes.pid or "unknown"))
            except SandboxError:  # no answer in time
                return False
            if done.code == 0:
                return True
        return False

    async def _call(self, script: str, *arguments: str) -> Answer:
        """Run a script in the container as root."""
        command = [self.container, SHELL, "-c", script, "sh", *arguments]
        return await self._engine.call("exec", "--user", "0", "--workdir", "/", *command)

    async def _accepts_programs(self) -> bool:
        """Return whether the container starts a program.

        Raises:
            SandboxError: the container is gone, or the engine does not answer.
        """
        done = await self._call(":")
        if done.code:
            await self._check()
            self._is_destroyed = self._is_destroyed or NO_SHELL.search(done.error) is not None
        return done.code == 0

    async def _check(self) -> None:
        """Check that the engine works and that it has not ended the container; see `Engine.is_running`."""
        if not self._is_destroyed:
            await self._engine.is_running(self.container)

    async def _recover(self, seen: int) -> None:
        """Restart the container after its programs have made it unusable, unless this was done since `seen` restarts.

        Raises:
            SandboxError: the engine does not restart it.
        """
        async with self._restarting:
            if self.restarts != seen:
                return
            self.restarts += 1  # before, since programs end meanwhile
            done = await self._engine.call("restart", "-t", "0", self.container, seconds=CALL_SECONDS)
            if done.code:
                if not NO_SHELL.search(done.error):
                    raise SandboxError(f"{self.name} does not restart the container: {done.error}")
                self._is_destroyed = True

    async def restart(self) -> None:
        """End all processes; see `Machine.restart`. If the programs in the container have destroyed its shell, it does
        not start again, and `exec` then returns exit code 127."""
        with self.working():
            await self._recover(self.restarts)

    # Files

    async def read_file(self, path: str, limit: int = FILE_BYTES) -> bytes:
        """Read a file; see `Machine.read_file`."""
        return await self._receive(path, lambda stream: read_regular(stream, path, limit))

    async def write_file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file; see `Machine.write_file`."""
        content = data.encode() if isinstance(data, str) else data
        await self._send(path, lambda stream, name: write_regular(stream, name, content, mode))

    async def copy_in(self, source: Path, target: str) -> None:
        """Copy a folder into the machine; see `Machine.copy_in`."""
        await self._send(target, lambda stream, name: pack(stream, source, name))

    async def copy_out(self, source: str, target: Path, limit: int = FOLDER_BYTES) -> None:
        """Copy a folder out of the machine; see `Machine.copy_out`."""
        await self._receive(source, lambda stream: unpack(stream, source, target, limit))

    async def _absolute(self, path: str) -> str:
        if "\0" in path or not path:
            raise ConfigError(f"{path!r} is not a path")
        if not path.startswith("/"):
            if self._folder is None:
                answer = await self._engine.call(
                    "inspect", "--type", "container", "--format", "{{.Config.WorkingDir}}", self.container
                )
                if answer.code:
                    raise SandboxError(f"{self.name}: the container of this rollout is gone: {answer.error}")
                self._folder = answer.output.decode().strip() or "/"
            path = f"{self._folder}/{path}"
        return posixpath.normpath(path)

    async def _receive(self, path: str, read: Callable[[IO[bytes]], T]) -> T:
        """Call `read` in a thread with the archive of a path in the container."""

        def work(process: subprocess.Popen[bytes]) -> tuple[T | None, str]:
            stream, found, is_whole = _pipe(process.stdout), None, False
            with contextlib.suppress(NoArchive):
                found, is_whole = read(stream), True
                while stream.read(1 << 16):
                    pass
            errors = process.communicate()[1]
            return found, last_line(errors) if process.returncode or not is_whole else ""

        async with self._working():
            place = await self._absolute(path)
            links = ["-L"] if self.name == "docker" else []  # podman follows them
            found, error = await self._transfer(work, *links, f"{self.container}:{place}", "-")
            if error:
                await self._check()
                done = await self._call('[ -e "$1" ] || exit 3', place)
                kind = FileNotFoundError if done.code == 3 else OSError
                raise kind(f"{path} cannot be read in the machine: {error}")
        return cast(T, found)

    async def _send(self, path: str, write: Callable[[IO[bytes], str], None]) -> None:
        """Call `write` in a thread to write an archive with this path, which is unpacked in the container."""

        def work(process: subprocess.Popen[bytes]) -> str:
            with contextlib.suppress(BrokenPipeError):  # the exit code tells why
                write(_pipe(process.stdin), place)
            errors = process.communicate()[1]
            return last_line(errors) if process.returncode else ""

        async with self._working():
            place = (await self._absolute(path)).strip("/")
            error = await self._transfer(work, "-", f"{self.container}:/")
            if error:
                await self._check()
                raise OSError(f"{path} cannot be written in the machine: {error}")

    async def _transfer(self, work: Callable[[subprocess.Popen[bytes]], T], *arguments: str) -> T:
        """Call `work` in a thread with the engine's client that copies an archive."""
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
            [self._engine.program, "cp", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=client_environment(), cwd=private_folder(), start_new_session=True,
        )  # fmt: skip

        def whole() -> T:
            try:
                return work(process)
            finally:
                process.kill()
                process.communicate()  # closes its pipes and waits for its end

        try:
            async with asyncio.timeout(COPY_SECONDS):
                return await threads.run(whole)
        except TimeoutError:
            raise SandboxError(f"{self.name} cp took longer than {COPY_SECONDS:g} s") from None
        finally:
            process.kill()

    async def close(self) -> None:
        """Remove the container; see `Machine.close` and `Engine.discard`."""
        self.failure = SandboxError("the machine of this rollout is closed")
        if self.container in self._engine.live:
            await self._engine.discard(self.container)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
