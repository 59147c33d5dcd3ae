"""The public interface of sandboxes: the protocol, the limits and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from harness.core.errors import ConfigError

Outcome: TypeAlias = Literal["exited", "signalled", "timeout", "cpu", "memory", "processes", "disk", "output"]
"""How a program ended: normally (`exited`), by a signal that is not due to a limit (`signalled`), or by exceeding a
limit."""

Files: TypeAlias = Mapping[str, "str | bytes"]
"""Files in the work folder at the start: relative path to content."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one run, for its whole process tree unless stated otherwise.

    Args:
        wall_seconds: Wall time from start to end; for a session its whole life, including idle time.
        cpu_seconds: CPU time.
        memory_mb: Memory in use. A single process may reserve twice as much address space.
        processes: Number of concurrent processes and threads.
        file_mb: Size of any single file.
        disk_mb: Total size of the private temporary folder, which contains the work folder, and of shared memory.
        output_bytes: Maximum bytes kept of stdout and of stderr. A run that writes eight times as much is killed.

    Raises:
        ConfigError: a limit is not a positive number.
    """

    wall_seconds: float = 30.0
    cpu_seconds: float = 20.0
    memory_mb: int = 1024
    processes: int = 64
    file_mb: int = 64
    disk_mb: int = 256
    output_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            wanted = "a number" if field.name.endswith("_seconds") else "a whole number"
            kinds = (int, float) if field.name.endswith("_seconds") else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
                raise ConfigError(f"Limits.{field.name} must be {wanted} above 0, not {value!r}")


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one run.

    Args:
        exit_code: The program's exit code if it `exited`; else None.
        stdout: The first `output_bytes` of stdout; undecodable bytes are replaced.
        stderr: As `stdout`.
        outcome: How the program ended.
        wall_seconds: Wall time from start to end of the program.
        cpu_seconds: CPU time of the program and the children that it waited for; None if it was killed before this
            could be read.
        stdout_truncated: Whether stdout was longer.
        stderr_truncated: Whether stderr was longer.
        signal: Number of the signal that ended the program, if one did and it is known.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    outcome: Outcome
    wall_seconds: float
    cpu_seconds: float | None = None
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    signal: int | None = None


class Session(Protocol):
    """A long-running program with line-based input and output. Leaving its `async with` kills its whole process
    tree."""

    async def send(self, data: bytes) -> None:
        """Write to the program's stdin. Waits while the program does not read.

        If the program has ended or closed its stdin, the data is dropped; the next `read_line` reports the end."""
        ...

    async def read_line(self, timeout: float) -> bytes:
        r"""Read the next line of stdout with its `\n`, or the rest at the end of output; `b""` at the end.

        A line longer than `output_bytes` is returned in parts. Unread output is buffered up to `output_bytes`; then the
        program has to wait.

        Raises:
            TimeoutError: no complete line within `timeout` seconds. A partial line is kept for the next call.
        """
        ...

    @property
    def is_running(self) -> bool:
        """Whether the program is running."""
        ...

    async def close(self) -> Result:
        """Kill the program and its children if they are running, and return the result with the unread stdout.

        A program that had to be killed has the outcome `signalled`. May be called repeatedly."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """A place to run untrusted code.

    The paths of `files` are relative to the work folder, which contains nothing else and is the program's current
    directory. `argv[0] == "python"` means the sandbox's Python interpreter."""

    @property
    def name(self) -> str:
        """`bubblewrap`, `docker`, `podman` or `unsafe-local`."""
        ...

    async def run(
        self, files: Files, argv: Sequence[str], stdin: str | bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> Result:
        """Run a program to completion. Cancelling kills its whole process tree.

        The number of concurrent runs is limited by the machine; waiting for a turn does not count towards any limit.

        Args:
            files: Contents of the work folder.
            argv: The program and its arguments.
            stdin: The program's whole input.
            limits: Resource limits. Exceeding one is a result, not an error.

        Raises:
            ConfigError: invalid `files` or `argv`; nothing was started.
            SandboxError: the sandbox itself failed, not the program; must never be scored.
        """
        ...

    def session(
        self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> AbstractAsyncContextManager[Session]:
        """Start a long-running program. Arguments and errors are those of `run`, but sessions never wait for a turn."""
        ...

    async def open_session(self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Session:
        """Start a long-running program like `session`, for callers without `async with`; they must call `close`."""
        ...
