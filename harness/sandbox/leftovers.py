"""Containers that a process leaves when it is killed: labels that tell their owner, and a helper process.

Every container has labels with the run and with the process that started it. A helper process removes that process's
containers when it ends without doing so, for example after `SIGKILL` or a second Ctrl-C. Containers that are
left even then (the helper was killed, too, or the machine was switched off) are removed before the next container is
started on this machine."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import socket
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from harness.core.errors import SandboxError
from harness.usercode.scope import scope

EXIT_SECONDS = 10.0
"""How long this process waits for the helper at its end."""

RUN, OWNER, MACHINE = "bench.run", "bench.owner", "bench.machine"
"""Labels of a container: the id of the run, the process that started it, and the machine of that process."""

HELPER = "bench-container-cleanup"
"""Name of the helper process, for lists of processes."""

_HELPER_SCRIPT = """
read -r word
[ "$word" != done ] || exit 0
for pause in 0 2 4; do # again, since a start may still be in progress
  sleep $pause
  for id in $("$1" ps -aq -f "label=$2"); do "$1" rm -f -v "$id"; done # podman removes none if one does not exist
done
"""

_KEPT = frozenset(
    {"PATH", "HOME", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE",
     "SSL_CERT_DIR", "REGISTRY_AUTH_FILE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
)  # fmt: skip
"""Environment variables that the engine's client needs in addition to the engine's own: programs, sockets, proxies and
registries. The container gets none of them."""

OF_ENGINES = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_")


def client_environment(more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Environment variables of the client program of the container engine.

    Args:
        more: Additional ones, which it passes to a container.
    """
    own = os.environ.items()
    return {**{name: text for name, text in own if name.upper() in _KEPT or name.startswith(OF_ENGINES)}, **more}


@cache
def private_folder() -> Path:
    """A folder that only this user can enter, for locks and as the working folder of clients: old versions of podman
    write a file `oom` there when a container runs out of memory."""
    folder = Path(tempfile.gettempdir(), f"bench-{os.getuid()}")
    with contextlib.suppress(OSError):
        folder.mkdir(0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder
    return Path(tempfile.mkdtemp(prefix="bench-"))


@dataclass(frozen=True, slots=True)
class Leftover:
    """A container whose owner has ended.

    Args:
        container: Its id.
        run: Id of the run, or "" if it belonged to none.
    """

    container: str
    run: str


def labels() -> list[str]:
    """Options that label a container with its run, its owner and its machine."""
    options: list[str] = []
    for name, value in ((RUN, scope().run), (OWNER, owner(os.getpid())), (MACHINE, machine())):
        options += ["--label", f"{name}={value}"]
    return options


@cache
def machine() -> str:
    """Identifier of this machine and user. The engine may be on another machine, with containers of several; and users
    may not see each other's processes."""
    known = ""
    with contextlib.suppress(OSError):
        known = Path("/etc/machine-id").read_text().strip()
    return hashlib.sha256(f"{known or uuid.getnode()} {socket.gethostname()} {os.getuid()}".encode()).hexdigest()[:16]


def owner(pid: int) -> str:
    """Identifier of a running process: the boot of the machine, the process namespace, its id and its start time. Where
    there is no /proc, only its id."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return f"--{pid}-"
    return f"{boot.replace('-', '')}-{space}-{pid}-{_started(pid)}"


def _started(pid: int) -> str:
    """When a process was started, in ticks since the boot; "" if this cannot be seen."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_over(label: str, is_running: bool) -> bool:
    """Return whether the process of an owner label has certainly ended. A process of another process namespace cannot
    be seen, so it may be alive.

    Args:
        label: The owner label of a container.
        is_running: Whether the container is running. One of another boot that runs may belong to a copy of this machine
            that uses the same engine.
    """
    boot, space, pid, started = (*label.split("-"), "", "", "", "")[:4]
    if not pid.isdecimal():
        return False
    own_boot, own_space, *_ = owner(os.getpid()).split("-")
    if boot != own_boot:
        return not is_running
    if space != own_space:
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    now = _started(int(pid))
    return bool(started and now) and now != started


class _Helper:
    """The process that removes this process's containers if it ends without removing them."""

    def __init__(self, program: str, live: set[str]) -> None:
        label = f"{OWNER}={owner(os.getpid())}"
        self._live = live
        self._process = subprocess.Popen(
            ["sh", "-c", _HELPER_SCRIPT, HELPER, program, label], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=client_environment(),
            cwd=private_folder(), start_new_session=True, bufsize=0,
        )  # fmt: skip
        assert self._process.stdin is not None
        self._pipe = self._process.stdin

    def at_exit(self) -> None:
        """Let the helper end. If containers are left, such as those of an event loop that was stopped, it removes
        them."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if not self._live:
                self._pipe.write(b"done\n")
                self._process.wait(EXIT_SECONDS)
        with contextlib.suppress(OSError):
            self._pipe.close()

    def forget(self) -> None:
        """Close the pipe in a forked child, which has no containers."""
        with contextlib.suppress(OSError):
            os.close(self._pipe.fileno())


_helpers: dict[str, _Helper] = {}
_forgotten: list[_Helper] = []
"""Helpers of the process that forked this one; kept, since a file object that is deleted closes its file descriptor,
whose number may be that of another file by then."""


def watch(program: str, live: set[str]) -> None:
    """Start the helper process for an engine, unless it is running.

    Args:
        program: The engine's client program.
        live: Names of the containers that this process has now.

    Raises:
        SandboxError: it cannot be started.
    """
    if program not in _helpers:
        try:
            _helpers[program] = helper = _Helper(program, live)
        except OSError as error:
            raise SandboxError(f"the process that removes containers cannot be started: {error}") from error
        atexit.register(helper.at_exit)


def _forget() -> None:
    while _helpers:
        helper = _helpers.popitem()[1]
        atexit.unregister(helper.at_exit)
        helper.forget()
        _forgotten.append(helper)


os.register_at_fork(after_in_child=_forget)
