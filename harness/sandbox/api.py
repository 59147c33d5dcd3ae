"""Resource limits of sandboxed programs, and the results of their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

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
        output_bytes: Maximum bytes stored of stdout and of stderr. A run that writes eight times as much is killed.

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
