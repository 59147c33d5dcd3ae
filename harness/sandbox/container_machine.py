"""A machine in a container of docker or podman. The image needs `sh` and `sleep`, and no Python.

The main process of the container only waits. A program that exceeds its timeout is killed by a script in the container,
since killing the engine's client does not end it. If even this script cannot be started, for example because the
program has used up all processes, the container is restarted, which keeps its files."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.sandbox.api import Outcome, Result
from harness.sandbox.archives import NoArchive, pack, read_regular, unpack, write_regular
from harness.sandbox.container import IMAGE
from harness.sandbox.engine_client import CALL_SECONDS, Engine, end, ended, last_line, turn, variables
from harness.sandbox.exec_pipes import BEGIN, KILL, MARK, ExecPipes
from harness.sandbox.images import local_image
from harness.sandbox.leftovers import client_environment
from harness.sandbox.machine import FILE_BYTES, FOLDER_BYTES, Exec, Machine, MachineSpec
from harness.usercode.threads import offload

COPY_SECONDS = 600.0
"""Timeout for copying files into or out of a container."""

CLOSED = "the machine of this rollout is closed"

T = TypeVar("T")

NOT_STARTED = 127
"""Exit code of a program that the container cannot start, as in a shell."""

_WAIT = "while :; do sleep 3600 || [ $? -gt 128 ] || exit 1; done"
"""Main process: also continues if its `sleep` is killed. A shell as process 1 removes processes whose parent has
ended."""


class Containers:
    """Starts machines in containers.

    Args:
        engine: The container engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def open(self, spec: MachineSpec) -> Machine:
        """Start a machine; see `open_machine`."""
        engine, image = self._engine, spec.image or IMAGE
        if spec.disk_mb is not None and (problem := await engine.refuses_disk_limit()):
            raise ConfigError(
                f"MachineSpec(disk_mb={spec.disk_mb}): {engine.name} cannot limit the disk space here ({problem}). "
                "Omit disk_mb, or move the storage of the engine to xfs that is mounted with pquota"
            )
        local = await local_image(engine, image, spec.images, spec.build_seconds)
        name = f"bench-{secrets.token_hex(8)}"
        environment, secret = variables(spec.env)
        answer = await engine.start(name, [*_options(spec), *environment, local, "-c", _WAIT], secret)
        if answer.code:
            raise EnvironmentFault(f"the image {str(image)!r} has no program `sh`, which machines need: {answer.error}")
        return ContainerMachine(engine, name)


def _options(spec: MachineSpec) -> list[str]:
    options = {
        "--entrypoint": "sh",
        "--hostname": "machine",
        "--ipc": "private",
        "--log-driver": "none",
        "--stop-timeout": "0",
        "--pids-limit": str(spec.processes + 1),  # plus the main process's `sleep`
        "--memory": f"{spec.memory_mb}m",
        "--memory-swap": f"{spec.memory_mb}m",
    }
    if not spec.network:
        options["--network"] = "none"
    if spec.cpus is not None:
        options["--cpus"] = f"{spec.cpus:g}"
    if spec.disk_mb is not None:
        options["--storage-opt"] = f"size={spec.disk_mb}m"
    if spec.user is not None:
        options["--user"] = spec.user
    if spec.folder is not None:
        options["--workdir"] = spec.folder
    pairs = [*options.items(), ("--cap-drop", "MKNOD"), ("--cap-drop", "NET_RAW")]
    return [part for pair in pairs for part in pair]


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
        self._restarting = asyncio.Lock()
        self._is_closed = False

    # Programs

    async def run(self, call: Exec) -> Result:
        """Run a program; see `Machine.exec`."""
        async with turn("execs"):
            pipes, result = await self._run_once(call)
            if pipes.pid is None and result.outcome == "exited":
                if await self._accepts_programs():
                    words = last_line(pipes.head)
                    raise ConfigError(f"{self.name} does not accept the arguments of exec: {words}")
                await self.restart()
                pipes, result = await self._run_once(call)
        if pipes.fault is not None:
            raise pipes.fault
        if pipes.pid is None and result.outcome == "exited":
            await self._engine.is_running(self.container)  # else the engine has failed, not the programs in it
        return result

    async def _run_once(self, call: Exec) -> tuple[ExecPipes, Result]:
        mark = secrets.token_hex(16)
        options, secret = variables({**call.env, MARK: mark})
        if call.user is not None:
            options += ["--user", call.user]
        if call.stdin:
            options.append("--interactive")
        pipes, changed = await self._spawn(options, [call.cwd or ".", *call.argv], call.output_bytes, secret)
        pipes.on_output = call.on_output
        feeding = asyncio.ensure_future(_feed(pipes, call.input))
        try:
            outcome, wall = await self._wait(pipes, changed, call.timeout, mark)
        finally:
            feeding.cancel()
            end(pipes)
        return pipes, _result(pipes, outcome, wall)

    async def _spawn(
        self, options: Sequence[str], program: Sequence[str], bound: int, env: Mapping[str, str]
    ) -> tuple[ExecPipes, asyncio.Event]:
        if self._is_closed:
            raise SandboxError(CLOSED)
        nonce = secrets.token_hex(16)

        def make(_: str, bound: int, pauses: bool, notify: Callable[[], None]) -> ExecPipes:
            return ExecPipes(nonce, bound, pauses, notify)

        arguments = ["exec", *options, self.container, "sh", "-c", BEGIN, "sh", nonce, *program]
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
                await asyncio.shield(self._stop(mark, pipes, ending))
        except asyncio.CancelledError:
            if outcome == "exited" and not self._is_closed:
                await asyncio.shield(self._stop(mark, pipes, ending))
            raise
        finally:
            ending.cancel()
            flood.cancel()
        return outcome, time.monotonic() - started

    async def _stop(self, mark: str, pipes: ExecPipes, ending: asyncio.Future[None]) -> None:
        """Kill a program, and wait for the end of the engine's client."""
        await self._kill(mark, pipes)
        await asyncio.wait({ending}, timeout=5.0)

    async def _kill(self, mark: str, pipes: ExecPipes) -> None:
        """Kill all processes of a call; restart the container if this is not possible."""
        with contextlib.suppress(TimeoutError):  # its start may not have been reported yet
            async with asyncio.timeout(2.0):
                await pipes.begun.wait()
        script = ["sh", "-c", KILL, "sh", mark, str(pipes.pid or "unknown")]
        try:
            done = await self._engine.call("exec", "--privileged", "--user", "0", self.container, *script, seconds=20)
        except SandboxError:  # no answer in time
            await self.restart()
            return
        if done.code:
            await self.restart()

    async def _accepts_programs(self) -> bool:
        """Return whether the container starts a program.

        Raises:
            SandboxError: the container is gone, or the engine does not answer.
        """
        done = await self._engine.call("exec", self.container, "sh", "-c", ":")
        if done.code:
            await self._engine.is_running(self.container)
        return done.code == 0

    async def restart(self) -> None:
        """End all processes; see `Machine.restart`. If the programs in the container have destroyed its shell, it does
        not start again, and `exec` then returns exit code 127."""
        async with self._restarting:
            await self._engine.call("restart", "-t", "0", self.container, seconds=CALL_SECONDS)

    # Files

    async def read_file(self, path: str, limit: int = FILE_BYTES) -> bytes:
        """Read a file; see `Machine.read_file`."""
        return await self._receive(path, lambda stream: read_regular(stream, path, limit))

    async def write_file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file; see `Machine.write_file`."""
        name = (await self._absolute(path)).lstrip("/")
        content = data.encode() if isinstance(data, str) else data
        await self._send(path, lambda stream: write_regular(stream, name, content, mode))

    async def copy_in(self, source: Path, target: str) -> None:
        """Copy a folder into the machine; see `Machine.copy_in`."""
        folder = (await self._absolute(target)).strip("/")
        await self._send(target, lambda stream: pack(stream, source, folder))

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
                self._folder = answer.output.decode().strip() or "/"
            path = f"{self._folder}/{path}"
        return posixpath.normpath(path)

    async def _receive(self, path: str, read: Callable[[IO[bytes]], T]) -> T:
        """Call `read` in a thread with the archive of a path in the container."""

        def work(process: subprocess.Popen[bytes]) -> T | str:
            try:
                return read(_pipe(process.stdout))
            except NoArchive:
                return last_line(_pipe(process.stderr).read())

        found = await self._transfer(work, f"{self.container}:{await self._absolute(path)}", "-")
        if isinstance(found, str):
            await self._engine.is_running(self.container)
            raise FileNotFoundError(f"{path} cannot be read in the machine: {found}")
        return found

    async def _send(self, path: str, write: Callable[[IO[bytes]], None]) -> None:
        """Call `write` in a thread to write an archive, which is unpacked in the container."""

        def work(process: subprocess.Popen[bytes]) -> str:
            with contextlib.suppress(BrokenPipeError):  # the exit code tells why
                write(_pipe(process.stdin))
            errors = process.communicate()[1]
            return last_line(errors) if process.returncode else ""

        error = await self._transfer(work, "-", f"{self.container}:/")
        if error:
            await self._engine.is_running(self.container)
            raise OSError(f"{path} cannot be written in the machine: {error}")

    async def _transfer(self, work: Callable[[subprocess.Popen[bytes]], T], *arguments: str) -> T:
        """Call `work` in a thread with the engine's client that copies an archive."""
        if self._is_closed:
            raise SandboxError(CLOSED)
        process = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
            [self._engine.program, "cp", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=client_environment(), cwd="/", start_new_session=True,
        )  # fmt: skip

        def whole() -> T:
            try:
                return work(process)
            finally:
                process.kill()
                process.communicate()  # closes its pipes and waits for its end

        try:
            async with asyncio.timeout(COPY_SECONDS):
                return await offload.run(whole)
        except TimeoutError:
            raise SandboxError(f"{self.name} cp took longer than {COPY_SECONDS:g} s") from None
        finally:
            process.kill()

    async def close(self) -> None:
        """Remove the container; see `Machine.close`. Completes in its thread even if the await is cancelled."""
        if not self._is_closed:
            self._is_closed = True
            await offload.run(self._engine.remove, self.container)


async def _feed(pipes: ExecPipes, data: bytes) -> None:
    """Write the input of a program once it has started: if it ends before its input is read, podman otherwise loses its
    output, with the report of its start."""
    if data:
        await pipes.begun.wait()
    pipes.write(data)
    pipes.close_stdin()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _result(pipes: ExecPipes, outcome: Outcome, wall: float) -> Result:
    errors = pipes.stderr.text
    code = pipes.exit_code if pipes.exit_code is not None else -1
    if pipes.pid is None:
        errors, code = pipes.head.decode("utf-8", "replace"), NOT_STARTED
    return Result(
        exit_code=code if outcome == "exited" else None,
        stdout=pipes.stdout.text,
        stderr=errors,
        outcome=outcome,
        wall_seconds=wall,
        stdout_truncated=pipes.stdout.is_truncated,
        stderr_truncated=pipes.stderr.is_truncated,
    )
