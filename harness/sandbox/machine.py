"""A machine of its own for each rollout: programs and files in one place, for the whole rollout. One interface for
containers and bubblewrap; `container_machine` and `bubblewrap_machine` implement it."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypedDict, Unpack

from harness.core.errors import ConfigError, SandboxError
from harness.sandbox.api import Result

FILE_BYTES = 16 << 20
FOLDER_BYTES = 1 << 30
ARGUMENT_BYTES = 128 << 10
"""Linux starts no program with an argument of this size."""

BASH_OR_SH = 'command -v bash >/dev/null && exec bash -c "$1"; exec sh -c "$1"'
"""A script for `sh -c` that runs its argument as a command of bash, or of sh if there is no bash."""

OnOutput: TypeAlias = Callable[[str, bytes], object]
"""Called with `stdout` or `stderr` and the next part of the output, as it arrives."""


class ExecOptions(TypedDict, total=False):
    """Options of `Machine.exec`."""

    timeout: float
    """Seconds (60) from the start of the program; in bubblewrap from the call, without waiting for its turn."""
    stdin: bytes | str
    """The program's whole input."""
    env: Mapping[str, str]
    """Additional environment variables."""
    cwd: str | None
    """Working folder of the program."""
    user: str | None
    """User that runs it; containers only."""
    output_bytes: int
    """Maximum bytes kept of stdout and of stderr (1,000,000). The result says if there was more; a program in a
    container that writes eight times as much is killed."""
    on_output: OnOutput | None
    """Called with each part of the output as it arrives; in bubblewrap with all of it at the end."""


@dataclass(frozen=True, slots=True)
class Exec:
    """A call of `Machine.exec`, validated.

    Raises:
        ConfigError: an invalid value.
        ValueError: a text that no program can have as an argument or input, which may be a model's.
    """

    argv: Sequence[str]
    timeout: float = 60.0
    stdin: bytes | str = b""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    user: str | None = None
    output_bytes: int = 1_000_000
    on_output: OnOutput | None = None

    def __post_init__(self) -> None:
        if isinstance(self.argv, str) or not self.argv:
            raise ConfigError(f"argv must be a list with a program and its arguments, not {self.argv!r}")
        for part in self.argv:
            if "\0" in part:
                raise ValueError("a program and its arguments cannot contain a NUL character")
            if len(os.fsencode(part)) >= ARGUMENT_BYTES:
                raise ValueError(f"an argument of a program must have less than {ARGUMENT_BYTES:,} bytes")
        if isinstance(self.stdin, str):
            self.stdin.encode()  # raises for half of a character, such as "\\ud800"
        for name, value in {"timeout": self.timeout, "output_bytes": self.output_bytes}.items():
            if not 0 < value < float("inf"):
                raise ConfigError(f"exec({name}=…) must be above 0, not {value!r}")
        check_variables(self.env)

    @property
    def input(self) -> bytes:
        """The input as bytes."""
        return self.stdin.encode() if isinstance(self.stdin, str) else self.stdin


LEAST_MEMORY_MB, LEAST_CPUS = 6, 0.01
"""Smallest limits that docker accepts; podman fails with less in words that name no setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """Description of the machine that a rollout gets.

    Args:
        sandbox: `docker`, `podman`, `bubblewrap` or `unsafe-local`; `auto` takes the first of docker and podman that
            works if there is an image, else the sandbox of `find_sandbox()`.
        image: Name of an image, or a `Path` of a folder with a Dockerfile, which is built once.
        images: Names of images, with the image to use instead of each, also in the Dockerfile.
        network: Whether programs may use the network.
        cpus: Number of processors; None for no limit.
        memory_mb: Memory of all programs together.
        processes: Number of concurrent processes and threads.
        disk_mb: Disk space. In containers None is no limit, and a number needs an engine whose storage can limit it.
        user: User that runs programs; defaults to that of the image.
        env: Environment variables of all programs.
        folder: The working folder of programs; defaults to that of the image.
        build_seconds: Timeout for building or pulling the image.

    Raises:
        ConfigError: an invalid value, or one that the sandbox cannot have.
    """

    sandbox: str = "auto"
    image: str | Path | None = None
    images: Mapping[str, str] = field(default_factory=dict[str, str])
    network: bool = False
    cpus: float | None = None
    memory_mb: int = 2048
    processes: int = 256
    disk_mb: int | None = None
    user: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: str | None = None
    build_seconds: float = 3600.0

    def __post_init__(self) -> None:
        whole = {"memory_mb": self.memory_mb, "processes": self.processes, "disk_mb": self.disk_mb}
        for name, value in whole.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"MachineSpec.{name} must be a whole number above 0, not {value!r}")
        for name, value in {"cpus": self.cpus, "build_seconds": self.build_seconds}.items():
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(f"MachineSpec.{name} must be a number above 0, not {value!r}")
        if self.memory_mb < LEAST_MEMORY_MB:
            raise ConfigError(f"MachineSpec.memory_mb must be at least {LEAST_MEMORY_MB}, not {self.memory_mb}")
        if self.cpus is not None and self.cpus < LEAST_CPUS:
            raise ConfigError(f"MachineSpec.cpus must be at least {LEAST_CPUS}, not {self.cpus!r}")
        check_variables(self.env)
        names = [self.image] if isinstance(self.image, str) else []
        if wrong := [name for name in (*names, *self.images.values()) if not is_image_name(name)]:
            raise ConfigError(f"MachineSpec: {wrong[0]!r} is not the name of an image; a folder is a Path")
        if self.folder is not None and not self.folder.startswith("/"):
            raise ConfigError(f"MachineSpec.folder must be an absolute path, not {self.folder!r}")

    def refuse(self, sandbox: str) -> None:
        """Reject values that a sandbox without images cannot have.

        Raises:
            ConfigError: the name of the first such value.
        """
        values = {name: getattr(self, name) for name in ("image", "network", "cpus", "user", "folder")}
        for name, value in values.items():
            if value:
                raise ConfigError(
                    f"MachineSpec({name}={value!r}) needs a container: {sandbox} cannot do this. "
                    "Use sandbox='docker' or sandbox='podman'"
                )


class Machine(ABC):
    """A running machine. Its methods may be called concurrently.

    Paths are absolute, or relative to the working folder."""

    name: str
    """`docker`, `podman`, `bubblewrap` or `unsafe-local`."""

    failure: SandboxError | None = None
    """The first failure of the machine itself. Every later call raises it, too: code that catches it must not reach a
    result that looks like one of the programs."""

    restarts: int = 0
    """How often a container was restarted, which also ends the services in it."""

    @contextmanager
    def working(self) -> Generator[None]:
        """Remember the first failure inside the block, and raise it instead of entering another one."""
        if self.failure is not None:
            raise self.failure
        try:
            yield
        except SandboxError as error:
            if self.failure is not None and self.failure is not error:
                raise self.failure from error
            self.failure = error
            raise

    async def exec(self, argv: Sequence[str], **options: Unpack[ExecOptions]) -> Result:
        """Run a program to its end. Processes that it leaves in the background keep running.

        After a timeout, and if the call is cancelled, the program is killed with all processes that it has started.

        Args:
            argv: The program and its arguments.
            **options: See `ExecOptions`.

        Returns:
            How the program ended: `exited`, `timeout` or `output`; a program that cannot be started has `exited` with
            code 126 or 127, as in a shell. `signalled` means that it was lost with all other programs: in a container,
            since another program had to be ended by a restart; in bubblewrap, for example because of too much memory,
            with the files, and the machine starts afresh with the next call.

        Raises:
            ConfigError: an invalid argument, or one that this machine cannot have.
            ValueError: a text in `argv` has a NUL character or 131,072 bytes or more, or a text is not Unicode.
            SandboxError: the machine itself failed.
        """
        return await self.run(Exec(argv, **options))

    @abstractmethod
    async def run(self, call: Exec) -> Result:
        """Run a program; see `exec`."""

    @abstractmethod
    async def read_file(self, path: str, limit: int = FILE_BYTES) -> bytes:
        """Read a regular file.

        Args:
            path: Its path. Symbolic links are followed.
            limit: Maximum size in bytes.

        Raises:
            FileNotFoundError: there is no regular file with this path.
            ValueError: it is larger than `limit`.
            OSError: the file exists, but cannot be read.
            SandboxError: the machine itself failed.
        """

    @abstractmethod
    async def write_file(self, path: str, data: bytes | str, mode: int = 0o644) -> None:
        """Write a file; replaces an existing one, and creates missing folders.

        Raises:
            OSError: the file cannot be written.
            SandboxError: the machine itself failed.
        """

    async def copy_in(self, source: Path, target: str) -> None:
        """Copy the contents of a folder, or a file, into a folder of the machine; containers only. Links stay links.

        Args:
            source: The folder or file on this computer.
            target: The folder in the machine; created if missing.
        """
        raise ConfigError(f"copy_in needs a container; {self.name} has read_file and write_file")

    async def copy_out(self, source: str, target: Path, limit: int = FOLDER_BYTES) -> None:
        """Copy the regular files and folders of a folder in the machine to this computer; containers only. Links and
        special files are left out.

        Args:
            source: The folder in the machine.
            target: The folder on this computer; created if missing.
            limit: Maximum number of bytes of all files together.

        Raises:
            FileNotFoundError: there is no such folder.
            OSError: the folder exists, but cannot be read.
            ValueError: the files are larger than `limit`, or more than 100,000.
        """
        raise ConfigError(f"copy_out needs a container; {self.name} has read_file and write_file")

    async def restart(self) -> None:
        """End all processes and keep the files; containers only."""
        raise ConfigError(f"restart needs a container; {self.name} would lose its files")

    @abstractmethod
    async def close(self) -> None:
        """Remove the machine with its processes and files. May be called repeatedly."""


@asynccontextmanager
async def open_machine(spec: MachineSpec) -> AsyncGenerator[Machine, None]:
    """Start a machine, and remove it when the `async with` block ends.

    Raises:
        SandboxMissing: no suitable sandbox works here; the message says what to install.
        ConfigError: the sandbox cannot do what `spec` asks for.
        EnvironmentFault: the image cannot be built.
        SandboxError: the sandbox itself failed, or is not used for a while after several failures.
    """
    from harness.sandbox.find import find_machines  # imports the implementations

    machine = await find_machines(spec).open(spec)
    try:
        yield machine
    finally:
        await machine.close()


VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
"""Name of an environment variable. Shells obey some others, such as those of exported functions."""


def check_variables(variables: Mapping[str, str]) -> None:
    """Validate environment variables.

    Raises:
        ConfigError: an invalid name or value.
    """
    for name, text in variables.items():
        if not VARIABLE.fullmatch(name) or "\0" in text:
            raise ConfigError(
                f"the environment variable {name!r} is not valid: names consist of letters, digits and underscores"
            )


_NAME = re.compile(r"[\w.]+[\w.-]*(:\d+)?(/[\w.-]+)*(:\w[\w.-]*)?(@\w+:[0-9a-fA-F]+)?", re.ASCII)
_TRANSPORT = re.compile(r"(containers-storage|dir|docker-archive|docker-daemon|oci|oci-archive|ostree|sif|tarball):")
"""With these, podman reads an image from a path of this computer."""


def is_image_name(name: str) -> bool:
    """Return whether a text is the name of an image in a registry or in the engine, and not a path or an option."""
    return _NAME.fullmatch(name) is not None and _TRANSPORT.match(name) is None
