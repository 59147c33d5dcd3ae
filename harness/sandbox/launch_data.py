"""Starting data of a sandboxed process: the command line of its sandbox, and the request that the launcher in it reads.
The launcher is the program `launch_program`."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.sandbox.api import Files, Limits

START_SECONDS = 30.0
"""Timeout for starting a sandbox."""

MAX_FILES_BYTES = 256 * 1024 * 1024

OPEN_FILES = 128


class Lifeline:
    """A pipe without data. The launcher holds one end and kills everything when the other end is closed, either on
    purpose or because the harness died. Unlike a signal, this works from the very start."""

    def __init__(self) -> None:
        self._fds = os.pipe()
        self.read_end = self._fds[0]

    def cut(self) -> None:
        """Close the pipe; may be called repeatedly."""
        fds, self._fds = self._fds, ()
        for fd in fds:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Launch:
    """How a backend starts one process.

    Args:
        command: Command that starts the sandbox with the launcher in it. The request and the program's input are
            written to its stdin.
        python: The interpreter that `argv[0] == "python"` stands for.
        base: Path of the private folder in the sandbox.
        env: Environment variables of the program.
        outer_env: Environment variables of `command`.
        pass_fds: File descriptors that `command` inherits besides stdin, stdout and stderr; closed after the start.
        request: Additional fields of the request.
        rlimits: Resource limits that the launcher sets in addition to those of all backends.
        own_threads: Number of threads in the process tree that belong to the sandbox; None if it cannot be seen.
        has_init: Whether the process below `command` is the init of a process namespace with its own file system. It
            exits only when no other process of the sandbox is left.
        lifeline: Pipe whose closing makes the launcher kill the program; None if the backend cannot pass one.
        start_seconds: Timeout for the start.
    """

    command: tuple[str, ...]
    python: str
    base: str
    env: Mapping[str, str]
    outer_env: Mapping[str, str] = field(default_factory=dict[str, str])
    pass_fds: tuple[int, ...] = ()
    request: JsonDict = field(default_factory=JsonDict)
    rlimits: Mapping[str, int] = field(default_factory=dict[str, int])
    own_threads: int | None = None
    has_init: bool = False
    lifeline: Lifeline | None = None
    start_seconds: float = START_SECONDS


def encode_request(launch: Launch, files: Files, argv: Sequence[str], limits: Limits, nonce: str) -> bytes:
    """Encode the data for stdin that precedes the program's own input: the launcher's source and its request.

    Raises:
        ConfigError: a path is outside the work folder, or `argv` is empty.
    """
    if isinstance(argv, str) or not argv or any("\0" in part for part in argv):
        raise ConfigError(f"argv must be a program and its arguments, not {argv!r}")
    cpu = math.ceil(limits.cpu_seconds)
    hard = {
        "AS": limits.memory_mb << 21,
        "FSIZE": limits.file_mb << 20,
        "NOFILE": OPEN_FILES,
        "CORE": 0,
        **launch.rlimits,
    }
    # at the soft limit the program gets a signal (SIGXCPU), at the hard limit it is killed
    rlimits = {"CPU": (cpu, cpu + 1), **{name: (value, value) for name, value in hard.items()}}
    request: JsonDict = {
        "nonce": nonce,
        "argv": [launch.python if argv[0] == "python" else argv[0], *argv[1:]],
        "env": dict(launch.env),
        "base": launch.base,
        "files": _encode_files(files),
        "rlimits": rlimits,
        "wall_seconds": limits.wall_seconds,
        "lifeline": launch.lifeline.read_end if launch.lifeline is not None else None,
        **launch.request,
    }
    return b"".join(len(part).to_bytes(8, "big") + part for part in (_launcher_source(), json.dumps(request).encode()))


def _encode_files(files: Files) -> dict[str, str]:
    encoded: dict[str, str] = {}
    total = 0
    for path, content in files.items():
        parts = PurePosixPath(path)
        if not path or "\0" in path or path.endswith("/") or parts.is_absolute() or {"..", "."} & set(path.split("/")):
            raise ConfigError(
                f"files: {path!r} must be the relative path of a file below the work folder, without '..'"
            )
        data = content.encode() if isinstance(content, str) else content
        total += len(data)
        if total > MAX_FILES_BYTES:
            raise ConfigError(f"files: together more than {MAX_FILES_BYTES >> 20} MB (exceeded at {path!r})")
        encoded[str(parts)] = base64.b64encode(data).decode()
    for path in encoded:
        for folder in PurePosixPath(path).parents:
            if str(folder) in encoded:
                raise ConfigError(f"files: {str(folder)!r} cannot be a file and the folder of {path!r}")
    return encoded


@cache
def _launcher_source() -> bytes:
    """Source of the launcher. It is sent over stdin, so that process lists do not show it in full."""
    return Path(__file__).with_name("launch_program.py").read_bytes()


LAUNCHER: tuple[str, ...] = (
    "-I",
    "-S",
    "-c",
    "import os\n"
    "def read(size):\n"
    "    text = b''\n"
    "    while len(text) < size:\n"
    "        part = os.read(0, size - len(text))\n"
    "        if not part: raise SystemExit('the launch program was not sent')\n"
    "        text += part\n"
    "    return text\n"
    "exec(read(int.from_bytes(read(8), 'big')))",
)
"""Interpreter arguments that load and run the launcher."""
