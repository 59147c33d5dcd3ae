"""What a caller of a sandbox sees: the protocol, the limits and the result. Owns their meaning; owns no process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from harness.core.errors import ConfigError

Outcome: TypeAlias = Literal["exited", "signalled", "timeout", "cpu", "memory", "processes", "disk", "output"]
"""How a program ended: by itself (`exited`), by a signal that is none of our limits (`signalled`), or at a limit."""

Files: TypeAlias = Mapping[str, "str | bytes"]
"""What lies in the work folder at the start: relative path to content."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use, counted over its whole process tree unless it says otherwise.

    Args:
        wall_seconds: From start to end. For a session, its whole life, silence included.
        cpu_seconds: Time on processors.
        memory_mb: Memory held at once. One process may reserve twice as much address space.
        processes: Processes and threads at once.
        file_mb: Size of any one file.
        disk_mb: The private temporary folder, which the work folder lies in, and shared memory, together.
        output_bytes: What is kept of each of stdout and stderr. Eight times as much ends the run.

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
    """What came of one run.

    Args:
        exit_code: The program's own, if it `exited`; else None.
        stdout: Its first `output_bytes`, undecodable bytes replaced.
        stderr: As `stdout`.
        outcome: How it ended.
        wall_seconds: From the start of the program to its end.
        cpu_seconds: Of the program and the children that it waited for; None if it was killed from outside before that
            could be read.
        stdout_truncated: Whether there was more.
        stderr_truncated: Whether there was more.
        signal: The number of the signal that ended the program, if one did and it is known.
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
    """A long-lived program that is talked to by lines. Leaving its `async with` kills its whole tree."""

    async def send(self, data: bytes) -> None:
        """Write to the program's stdin; returns when it is on its way, which a program that never reads delays.

        A program that has ended, or has closed its stdin, gets nothing: the next `read_line` tells.
        """
        ...

    async def read_line(self, timeout: float) -> bytes:
        r"""The next line of stdout with its `\n`, or what is left of it at the end; `b""` when there is no more.

        A line longer than `output_bytes` comes in parts. Unread output up to `output_bytes` is kept; a program that
        writes more waits for its reader.

        Raises:
            TimeoutError: no whole line came in `timeout` seconds; what came of it is kept for the next call.
        """
        ...

    @property
    def is_running(self) -> bool:
        """Whether the program lives."""
        ...

    async def close(self) -> Result:
        """End the program if it lives, with all that it started, and say how it ended; unread stdout is in the result.

        A program that lives is killed: its outcome is `signalled`. May be called again.
        """
        ...


@runtime_checkable
class Sandbox(Protocol):
    """A place to run code that nobody vouches for.

    The paths of `files` stand below the work folder, which is empty otherwise and is the program's current folder.
    `argv[0] == "python"` means the interpreter that the place offers.
    """

    @property
    def name(self) -> str:
        """`bubblewrap`, `docker`, `podman` or `unsafe-local`."""
        ...

    async def run(
        self, files: Files, argv: Sequence[str], stdin: str | bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> Result:
        """Run a program to its end. Cancelling kills its whole tree.

        Waits first while as many runs as fit this machine are under way; that wait counts towards no limit.

        Args:
            files: What the work folder holds.
            argv: The program and its arguments.
            stdin: All of the program's input.
            limits: What it may use. Running into one is a result, not an error.

        Raises:
            ConfigError: `files` or `argv` cannot be used; nothing was started.
            SandboxError: the sandbox itself failed. Says nothing about the program: never score it.
        """
        ...

    def session(
        self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS
    ) -> AbstractAsyncContextManager[Session]:
        """Start a program to talk to; the arguments, and what is raised on entering, as of `run`. Never waits."""
        ...

    async def open_session(self, files: Files, argv: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> Session:
        """As `session`, for those who cannot use `async with`; they must `close` it."""
        ...
