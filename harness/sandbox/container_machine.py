"""A machine in a container of docker or podman. The image needs `sh` and `sleep`, and no Python.

The main process of the container only waits. A program that exceeds its timeout is killed by a script in the container,
since killing the engine's client does not end it. If even this script cannot be started, for example because the
program has used up all processes, the container is restarted, which keeps its files."""

from __future__ import annotations

import asyncio
import contextlib
import io
import posixpath
import secrets
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from harness.core.errors import ConfigError, EnvironmentFault, SandboxError
from harness.sandbox.api import Outcome, Result
from harness.sandbox.container import IMAGE
from harness.sandbox.engine_client import CALL_SECONDS, Engine, client_environment, end, ended, last_line, turn
from harness.sandbox.images import local_image
from harness.sandbox.machine import FILE_BYTES, FOLDER_BYTES, Exec, Machine, MachineSpec, OnOutput
from harness.sandbox.pipes import Pipes
from harness.usercode.threads import offload

MAX_FILES = 100_000

NOT_STARTED = 127
"""Exit code of a program that the container cannot start, as in a shell."""

_WAIT = "while :; do sleep 3600 || [ $? -gt 128 ] || exit 1; done"
"""Main process: also continues if its `sleep` is killed. A shell as process 1 removes processes whose parent has
ended."""

_BEGIN = r"""printf '\036%s %s\n' "$1" "$$" >&2; cd -- "$2" || exit 126; shift 2; exec "$@" """
"""Reports on stderr that the program starts, with its process id, which is also the id of its session."""

_MARK = "BENCH_EXEC"
"""Environment variable that tells to which call of `exec` a process belongs."""

_KILL = r"""
mark=$1 killed=" $2 " passes=0
stat=$(cat "/proc/$2/stat" 2>/dev/null)
set -- ${stat##*) }
since=${20:-999999999999999}
while [ "$passes" -lt 50 ]; do
  passes=$((passes + 1)) found=
  for folder in /proc/[0-9]*; do
    pid=${folder#/proc/}
    [ "$pid" -gt 1 ] && [ "$pid" != "$$" ] || continue
    stat=$(cat "$folder/stat" 2>/dev/null) || continue
    set -- ${stat##*) }
    case $1 in Z | X | "") continue ;; esac
    hit=
    case $killed in *" $pid "* | *" $2 "* | *" $4 "*) hit=1 ;; esac
    if [ -z "$hit" ]; then
      case "$(cat "$folder/environ" 2>/dev/null)" in
        *"BENCH_EXEC=$mark"*) hit=1 ;;
        *BENCH_EXEC=*) ;;
        *) [ "$2" != 1 ] || [ "${20}" -lt "$since" ] || hit=1 ;;
      esac
    fi
    [ -n "$hit" ] || continue
    killed="$killed$pid " found=1
    kill -9 "$pid" 2>/dev/null
  done
  [ -n "$found" ] || exit 0
done
exit 1
"""
"""Kills a program and all that it has started: processes of its session, children, processes with its mark, and orphans
without any mark that are not older. Uses nothing but `sh` and `cat`."""


class ExecPipes(Pipes):
    """Pipes of a program in a container.

    Args:
        nonce: Secret of this call, by which the report of the start is known.
        bound: Maximum number of bytes stored of each stream.
        pauses: Unused.
        notify: Called after every event.
    """

    def __init__(self, nonce: str, bound: int, pauses: bool, notify: Callable[[], None]) -> None:
        super().__init__(nonce, bound, pauses, notify)
        self._mark = f"\x1e{nonce} ".encode()
        self.head = b""
        """The start of stderr: messages of the engine, until the report of the start."""
        self.pid: int | None = None
        """Id of the program's process in the container, once it has been started."""
        self.begun = asyncio.Event()
        """Set when the program has been started, or the engine's client has ended."""
        self.flood = asyncio.Event()
        """Set when a stream is so long that the program must be killed."""
        self.on_output: OnOutput | None = None
        self.fault: Exception | None = None
        """Error of `on_output`."""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2 and self.pid is None:
            data = self._after_start(data)
        if data:
            stream = self.stdout if fd == 1 else self.stderr
            stream.add(data)
            if stream.is_above_kill_limit:
                self.flood.set()
            if self.on_output is not None and self.fault is None:
                try:
                    self.on_output("stdout" if fd == 1 else "stderr", data)
                except Exception as error:  # raised by `exec`; here it would be lost
                    self.fault = error
        self._notify()

    def _after_start(self, data: bytes) -> bytes:
        self.head = (self.head + data)[-65_536:]
        _, mark, rest = self.head.partition(self._mark)
        number, line, rest = rest.partition(b"\n")
        if not mark or not line:
            return b""
        self.pid = int(number) if number.isdigit() else 0
        self.begun.set()
        return rest

    def process_exited(self) -> None:
        self.begun.set()
        super().process_exited()


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
        local = await local_image(engine, image, spec.images)
        name = f"bench-{secrets.token_hex(8)}"
        answer = await engine.start(name, [*_options(spec), local, "-c", _WAIT])
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
    pairs += [("--env", f"{name}={value}") for name, value in spec.env.items()]
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
        options = ["--env", f"{_MARK}={mark}"]
        for name, value in call.env.items():
            options += ["--env", f"{name}={value}"]
        if call.user is not None:
            options += ["--user", call.user]
        if call.stdin:
            options.append("--interactive")
        pipes, changed = await self._spawn(options, [call.cwd or ".", *call.argv], call.output_bytes)
        pipes.on_output = call.on_output
        try:
            pipes.write(call.input)
            pipes.close_stdin()
            outcome, wall = await self._wait(pipes, changed, call.timeout, mark)
        finally:
            end(pipes)
        return pipes, _result(pipes, outcome, wall)

    async def _spawn(
        self, options: Sequence[str], program: Sequence[str], bound: int
    ) -> tuple[ExecPipes, asyncio.Event]:
        if self._is_closed:
            raise SandboxError("the machine of this rollout is closed")
        nonce = secrets.token_hex(16)

        def make(_: str, bound: int, pauses: bool, notify: Callable[[], None]) -> ExecPipes:
            return ExecPipes(nonce, bound, pauses, notify)

        arguments = ["exec", *options, self.container, "sh", "-c", _BEGIN, "sh", nonce, *program]
        pipes, changed = await self._engine.spawn(arguments, bound, make)
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
        script = ["sh", "-c", _KILL, "sh", mark, str(pipes.pid or "unknown")]
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
        found: list[bytes] = []

        def keep(archive: tarfile.TarFile) -> None:
            member = archive.next()
            if member is None or not member.isreg():
                raise FileNotFoundError(f"{path} is not a regular file")
            if member.size > limit:
                raise ValueError(f"{path} has {member.size:,} bytes, more than {limit:,}")
            content = archive.extractfile(member)
            found.append(b"" if content is None else content.read())

        await self._receive(path, keep)
        return found[0]

    async def write_file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file; see `Machine.write_file`."""
        content = data.encode() if isinstance(data, str) else data
        member = tarfile.TarInfo((await self._absolute(path)).lstrip("/"))
        if not member.name:
            raise IsADirectoryError(path)
        member.size, member.mode, member.mtime = len(content), mode, int(time.time())
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(member, io.BytesIO(content))
        answer = await self._engine.call("cp", "-", f"{self.container}:/", stdin=archive.getvalue())
        await self._check_written(answer.code, path, answer.error)

    async def copy_in(self, source: Path, target: str) -> None:
        """Copy a folder into the machine; see `Machine.copy_in`."""
        inside = (await self._absolute(target)).strip("/")

        def fill(tar: tarfile.TarFile) -> None:
            files = sorted(source.rglob("*")) if source.is_dir() else [source]
            if not files and inside:
                files = [source]
            for file in files:
                relative = file.relative_to(source).as_posix() if source.is_dir() else source.name
                tar.add(file, posixpath.normpath(f"{inside}/{relative}").lstrip("/"), recursive=False, filter=_rootly)

        code, error = await offload.run(self._send, fill)
        await self._check_written(code, target, error)

    async def copy_out(self, source: str, target: Path, limit: int = FOLDER_BYTES) -> None:
        """Copy a folder out of the machine; see `Machine.copy_out`."""

        def keep(archive: tarfile.TarFile) -> None:
            size = 0
            for count, member in enumerate(archive):
                if count == 0 and not member.isdir():
                    raise FileNotFoundError(f"{source} is not a folder")
                size += member.size
                if size > limit or count > MAX_FILES:
                    raise ValueError(f"{source} has more than {limit:,} bytes, or more than {MAX_FILES:,} files")
                _extract(archive, member, target)

        await offload.run(target.mkdir, parents=True, exist_ok=True)
        await self._receive(source, keep)

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

    async def _receive(self, path: str, keep: Callable[[tarfile.TarFile], None]) -> None:
        """Pass the archive of a path in the container to `keep`, in a thread."""
        absolute = await self._absolute(path)
        process = self._client("cp", f"{self.container}:{absolute}", "-")
        try:
            error = await offload.run(_unpack, process, keep)
        finally:
            process.kill()
        if error is not None:
            await self._engine.is_running(self.container)
            raise FileNotFoundError(f"{path} cannot be read in the machine: {error}")

    def _client(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the engine's client, for a thread that reads or writes an archive."""
        return subprocess.Popen(
            [self._engine.program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=client_environment(), cwd="/", start_new_session=True,
        )  # fmt: skip

    def _send(self, fill: Callable[[tarfile.TarFile], None]) -> tuple[int, str]:
        """Write an archive into the container; blocks. Returns the exit code and the last error."""
        with self._client("cp", "-", f"{self.container}:/") as process:
            stdin = _pipe(process.stdin)
            try:
                # The exit code tells why the client no longer reads.
                with contextlib.suppress(BrokenPipeError), tarfile.open(fileobj=stdin, mode="w|") as tar:
                    fill(tar)
            except BaseException:
                process.kill()
                raise
            errors = process.communicate()[1]
        return process.returncode, last_line(errors)

    async def _check_written(self, code: int, path: str, error: str) -> None:
        if code:
            await self._engine.is_running(self.container)
            raise OSError(f"{path} cannot be written in the machine: {error}")

    async def close(self) -> None:
        """Remove the container; see `Machine.close`. Completes in its thread even if the await is cancelled."""
        if not self._is_closed:
            self._is_closed = True
            await offload.run(self._engine.remove, self.container)


def _rootly(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owner on this computer from a file that is copied into a machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Extract a regular file or a folder into `target`, in place of the first folder of its path."""
    parts = PurePosixPath(member.name).parts[1:]
    if not parts or ".." in parts:
        return
    path = target.joinpath(*parts)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
    elif member.isreg() and (content := archive.extractfile(member)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(0o644 | (member.mode & 0o111))


def _unpack(process: subprocess.Popen[bytes], keep: Callable[[tarfile.TarFile], None]) -> str | None:
    """Read the archive that a process writes; blocks. Returns its last error if it is not an archive."""
    stdout, stderr = _pipe(process.stdout), _pipe(process.stderr)
    try:
        with tarfile.open(fileobj=stdout, mode="r|") as archive:
            keep(archive)
    except tarfile.ReadError:
        return last_line(stderr.read())
    finally:
        process.kill()
        process.communicate()
    return None


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
