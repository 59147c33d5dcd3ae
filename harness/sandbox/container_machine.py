"""A machine in a container of docker or podman. The image needs `sh` and `sleep`, and no Python.

The main process of the container only waits. A program that exceeds its timeout is killed by a script in the container,
since killing the engine's client does not end it. If programs in the container prevent this, for example because they
have used up all processes, the container is restarted, which keeps its files. An engine that fails is an error."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import posixpath
import secrets
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from harness.core.errors import ConfigError, SandboxError
from harness.sandbox.api import Outcome, Result
from harness.sandbox.archives import PATTERN, NoArchive, pack, read_regular, unpack, write_regular
from harness.sandbox.client_pipes import client_end, end_client
from harness.sandbox.engine_client import CALL_SECONDS, NO_SHELL, Engine
from harness.sandbox.engine_load import in_background, threads, turn
from harness.sandbox.exec_pipes import ALIVE, BEGIN, KILL, LACK, MARK, NO, NO_ROOM, ExecPipes, result_of, variables
from harness.sandbox.leftovers import client_environment, private_folder
from harness.sandbox.machine import FILE_BYTES, FOLDER_BYTES, Exec, Machine
from harness.sandbox.pipes import last_line
from harness.usercode.deadline import waiting

COPY_SECONDS = 600.0
"""Timeout for copying files into or out of a container."""

END_SECONDS = 5.0
"""How long the engine's client may run on after its program was killed."""

T = TypeVar("T")

_STUCK, _GONE = -1, -2
"""Results of a script that the programs in the container have not let run, or not to its end; and of one for which
the container has no working shell any more."""

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
        self.engine = engine
        self.container = container
        self._folder: str | None = None
        self._restarting = asyncio.Lock()
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
        folder, is_again = call.cwd or ".", False
        while True:
            pipes, result = await self._run_once(call, folder)
            if pipes.pid is not None or result.outcome != "exited":
                return pipes, result
            code = await self._kill(pipes)
            if self.restarts != pipes.restarts:  # another call has restarted the container meanwhile
                continue
            if is_again:
                break
            if code == pipes.exit_code == 0:
                raise SandboxError(f"{self.name} exec has lost the output of a program")
            if code:
                await self._recover(pipes.restarts)
            # The working folder may be gone. Then the shell says so, while the engine would not start it.
            folder, is_again = await self._absolute(call.cwd or "."), True
        words = last_line(pipes.head)
        if code == _GONE or (NO_ROOM.search(words) and (code == 0 or self._busy > 1)):
            return pipes, result  # programs in the container do not let others start
        if code == 0:
            raise ConfigError(f"{self.name} does not accept the arguments of exec: {words}")
        raise SandboxError(f"{self.name} does not start programs in the container: {words}")

    async def _run_once(self, call: Exec, folder: str) -> tuple[ExecPipes, Result]:
        changed = asyncio.Event()
        pipes = ExecPipes(call.output_bytes, changed.set, call.on_output)
        pipes.restarts = await self._restarts_now()
        options, secret = variables({**call.env, MARK: pipes.mark})
        if call.user is not None:
            options += ["--user", call.user]
        if folder.startswith("/"):
            options += ["--workdir", "/"]
        if call.stdin:
            options.append("--interactive")
        program = [self.container, SHELL, "-c", BEGIN, "sh", pipes.mark, folder, *call.argv]
        starting = self.engine.spawn(["exec", *options, *program], pipes, secret)
        outcome, wall = await self._wait(starting, pipes, changed, call)
        if outcome == "exited":
            if self.restarts != pipes.restarts and pipes.pid is not None:
                outcome = "signalled"
            else:
                await self._check_end(pipes)
        return pipes, result_of(pipes, outcome, wall)

    async def _wait(
        self, starting: Coroutine[Any, Any, None], pipes: ExecPipes, changed: asyncio.Event, call: Exec
    ) -> tuple[Outcome, float]:
        """Start a program and wait for its end. Kill it if it takes too long, writes too much, or is cancelled."""
        outcome: Outcome = "exited"
        tasks: list[asyncio.Future[Any]] = []
        stopping: asyncio.Future[None] | None = None
        try:
            await starting
            works = (client_end(pipes, changed), pipes.flood.wait(), pipes.feed(call.input))
            tasks = [asyncio.ensure_future(work) for work in works]
            await self._begin(pipes)
            started = time.monotonic()
            done, _ = await asyncio.wait(tasks[:2], timeout=call.timeout, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0] not in done:
                outcome = "output" if tasks[1] in done else "timeout"
                stopping = in_background(self._stop(pipes, changed))
                await asyncio.shield(stopping)
            return outcome, time.monotonic() - started
        except asyncio.CancelledError:
            stopping = stopping or in_background(self._stop(pipes, changed))
            with contextlib.suppress(SandboxError):  # `failure` has it
                await asyncio.shield(stopping)
            raise
        finally:
            for task in tasks:
                task.cancel()
            end_client(pipes)

    async def _begin(self, pipes: ExecPipes) -> None:
        """Wait until a program has been started, or the engine's client has ended.

        Raises:
            SandboxError: neither happens in time.
        """
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await pipes.begun.wait()
        except TimeoutError:
            raise SandboxError(f"{self.name} exec has not started its program in {CALL_SECONDS:g} s") from None

    async def _check_end(self, pipes: ExecPipes) -> None:
        """Check that the program has ended, and not only the engine's client.

        Raises:
            SandboxError: only the client has ended, or how the program ended is unknown.
        """
        code = -1 if pipes.exit_code is None else pipes.exit_code
        is_lost = code < 0
        if pipes.is_doubtful:
            found = await self._script(ALIVE, str(pipes.pid), pipes.memory_kills, restarts=pipes.restarts)
            is_lost = found == 0
            pipes.lacked_memory = found == LACK
        if is_lost:
            await self._kill(pipes)
            raise SandboxError(f"{self.name} exec ended before its program, with exit code {code}")

    async def _stop(self, pipes: ExecPipes, changed: asyncio.Event) -> None:
        """Kill a program and wait for its end. If its programs prevent this, restart the container.

        The script that kills programs runs with their rights only, since they may have replaced the shell."""
        seen = self.restarts
        try:
            if pipes.is_running:
                await self._begin(pipes)  # else it would start after the others have been killed
            is_killed = await self._kill(pipes) == 0
            if is_killed and pipes.is_running:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(END_SECONDS):
                        await client_end(pipes, changed)
            if not is_killed or pipes.is_running:
                await self._recover(seen)
        except SandboxError as error:
            self.failure = self.failure or error
            raise

    async def _kill(self, pipes: ExecPipes) -> int:
        """Kill all processes of a call. Returns 0 if none is left, and else as `_script`."""
        code = await self._script(KILL, pipes.mark, str(pipes.pid or "unknown"), restarts=pipes.restarts)
        return 0 if code == NO else code

    async def _restarts_now(self) -> int:
        """Wait for the end of a restart that is in progress. Returns the number of restarts."""
        async with self._restarting:
            return self.restarts

    async def _script(self, script: str, *arguments: str, restarts: int | None = None) -> int:
        """Run a script in the container as root, and once more if the engine fails.

        With `restarts`, the number of restarts before its processes were started, the result is 3 after another one:
        they have ended, and their ids may be those of others.

        Returns:
            0, 3 or 4, its exit code; or `_STUCK` or `_GONE`, for which programs in the container are the reason.

        Raises:
            SandboxError: the engine has failed twice, the container is gone, or it was ended from outside.
        """
        nonce = secrets.token_hex(8)
        command = [self.container, SHELL, "-c", f'printf %s "$1"; shift\n{script}', "sh", nonce, *arguments]
        failed = 0
        while True:
            seen = await self._restarts_now()
            if restarts not in (None, seen):
                return NO
            done = await self.engine.attempt("exec", "--user", "0", "--workdir", "/", *command)
            if done.output == nonce.encode():
                return done.code if done.code in (0, NO, LACK) else _STUCK
            failed += self.restarts == seen  # a restart by another call is no failure
            if failed == 2:
                break
        if done.code in (0, NO) or NO_SHELL.search(done.error) or not await self._is_running():
            return _GONE
        if NO_ROOM.search(done.error):
            return _STUCK
        raise SandboxError(f"{self.name} exec failed: {done.error}")

    async def _is_running(self) -> bool:
        """Return whether the container is running; see `Engine.is_running`."""
        return await self.engine.is_running(self.container, self.restarts > 0)

    async def _recover(self, seen: int) -> None:
        """Restart the container after its programs have made it unusable, unless this was done since `seen` restarts.

        Raises:
            SandboxError: the engine does not restart it.
        """
        async with self._restarting:
            if self.restarts != seen:
                return
            self.restarts += 1  # before, since programs end meanwhile
            done = await self.engine.call("restart", "-t", "0", self.container)
            if done.code and not NO_SHELL.search(done.error):
                raise SandboxError(f"{self.name} does not restart the container: {done.error}")

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
        await self._send(path, lambda stream, name: write_regular(stream, name, content, mode), True)

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
                answer = await self.engine.call(
                    "inspect", "--type", "container", "--format", "{{.Config.WorkingDir}}", self.container
                )
                if answer.code:
                    raise SandboxError(f"{self.name}: the container of this rollout is gone: {answer.error}")
                self._folder = answer.output.decode("utf-8", "replace").strip() or "/"
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
            name = place if self.name == "docker" else PATTERN.sub(r"\\\g<0>", place)
            found, error = await self._transfer(work, *links, f"{self.container}:{name}", "-")
            if error:
                await self._is_running()
                code = await self._script('[ -e "$1" ] || exit 3', place)
                kind = FileNotFoundError if code == NO else OSError
                raise kind(f"{path} cannot be read in the machine: {error}")
        return cast(T, found)

    async def _send(self, path: str, write: Callable[[IO[bytes], str], None], is_file: bool = False) -> None:
        """Call `write` in a thread to write an archive with this path, which is unpacked in the container."""

        def work(process: subprocess.Popen[bytes]) -> str:
            with contextlib.suppress(BrokenPipeError):  # the exit code tells why
                write(_pipe(process.stdin), place)
            errors = process.communicate()[1]
            return last_line(errors) if process.returncode else ""

        async with self._working():
            place = (await self._absolute(path)).strip("/")
            if not place and is_file:
                raise IsADirectoryError(f"{path} cannot be written in the machine: it is a folder")
            # Else podman makes the user of the image the owner, who could change the files.
            options = ["--archive=false"] if self.name == "podman" else []
            error = await self._transfer(work, *options, "-", f"{self.container}:/")
            if error:
                await self._is_running()
                raise OSError(f"{path} cannot be written in the machine: {error}")

    async def _transfer(self, work: Callable[[subprocess.Popen[bytes]], T], *arguments: str) -> T:
        """Call `work` in a thread with the engine's client that copies an archive."""
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
                [self.engine.program, "cp", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env=client_environment(), cwd=private_folder(), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            if error.errno == errno.E2BIG:
                raise
            raise SandboxError(f"{self.name}: {self.engine.program} cannot be started: {error}") from error

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
        """Remove the container; see `Machine.close` and `Engine.remove`."""
        self.failure = SandboxError("the machine of this rollout is closed")
        if self.container in self.engine.live:
            await self.engine.remove(self.container)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
