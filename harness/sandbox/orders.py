"""What a contained process is told: how its sandbox starts, and the order that the warden in it reads. Owns the wording
of both and the checks of what the caller gives; starts nothing."""

from __future__ import annotations

import base64
import contextlib
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
"""A sandbox that has not come up after this long has failed."""

MAX_FILES_BYTES = 256 * 1024 * 1024

OPEN_FILES = 128


class Lifeline:
    """A pipe that nobody writes to. The warden holds one end; when the other is gone, on purpose or with the harness,
    it ends everything. Nothing can come too early for it, as a signal can."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()

    def cut(self) -> None:
        """Let go; may be called again."""
        for fd in (self.read_end, self._write_end):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self.read_end = self._write_end = -1


@dataclass(frozen=True, slots=True)
class Launch:
    """How one way starts one process.

    Args:
        command: Starts the sandbox with the warden in it; the order and the program's input go to its stdin.
        python: What `argv[0] == "python"` stands for.
        base: The private folder, as seen inside.
        env: The environment of the program.
        outer_env: The environment of `command`.
        pass_fds: What `command` inherits beside stdin, stdout and stderr; closed when it has started.
        order: More for the warden.
        rlimits: Limits for the warden to set, beside those that hold in every way.
        own_threads: How many of the tree's threads belong to the sandbox; None where the tree cannot be seen.
        has_init: Whether the process below `command` is the init of a process namespace, with a file system of its own:
            it ends when, and only when, nothing inside is left.
        lifeline: For the warden, where it can be passed on.
        start_seconds: How long it may take to come up.
    """

    command: tuple[str, ...]
    python: str
    base: str
    env: Mapping[str, str]
    outer_env: Mapping[str, str] = field(default_factory=dict[str, str])
    pass_fds: tuple[int, ...] = ()
    order: JsonDict = field(default_factory=JsonDict)
    rlimits: Mapping[str, int] = field(default_factory=dict[str, int])
    own_threads: int | None = None
    has_init: bool = False
    lifeline: Lifeline | None = None
    start_seconds: float = START_SECONDS


def encode_order(launch: Launch, files: Files, argv: Sequence[str], limits: Limits, nonce: str) -> bytes:
    """What goes to stdin before the program's own input: the warden, and what it is to do.

    Raises:
        ConfigError: a path leaves the work folder, or `argv` holds no program.
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
    # over the first bound on time a program is told (SIGXCPU), over the second it is killed
    rlimits = {"CPU": (cpu, cpu + 1), **{name: (value, value) for name, value in hard.items()}}
    order: JsonDict = {
        "nonce": nonce,
        "argv": [launch.python if argv[0] == "python" else argv[0], *argv[1:]],
        "env": dict(launch.env),
        "base": launch.base,
        "files": _encode_files(files),
        "rlimits": rlimits,
        "wall_seconds": limits.wall_seconds,
        "lifeline": launch.lifeline.read_end if launch.lifeline is not None else None,
        "uid": None,
        "strict": False,
        "sweep": False,
        "container": False,
        **launch.order,
    }
    return b"".join(len(part).to_bytes(8, "big") + part for part in (warden_source(), json.dumps(order).encode()))


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
            raise ConfigError(f"files: more than {MAX_FILES_BYTES >> 20} MB, at {path!r}")
        encoded[str(parts)] = base64.b64encode(data).decode()
    for path in encoded:
        for folder in PurePosixPath(path).parents:
            if str(folder) in encoded:
                raise ConfigError(f"files: {str(folder)!r} cannot be a file and the folder of {path!r}")
    return encoded


@cache
def warden_source() -> bytes:
    """The program that runs inside; it is sent there ahead of the order, so that no process list shows it at length."""
    return Path(__file__).with_name("warden.py").read_bytes()


WARDEN: tuple[str, ...] = (
    "-I",
    "-S",
    "-c",
    "import os\n"
    "def read(size):\n"
    "    text = b''\n"
    "    while len(text) < size:\n"
    "        part = os.read(0, size - len(text))\n"
    "        if not part: raise SystemExit('the warden was not sent')\n"
    "        text += part\n"
    "    return text\n"
    "exec(read(int.from_bytes(read(8), 'big')))",
)
"""Arguments with which an interpreter becomes the warden."""
