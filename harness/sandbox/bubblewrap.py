"""Sandbox backend with bubblewrap: Linux namespaces without a daemon.

Only these things are visible in the sandbox: the machine's programs and libraries and the Python interpreter,
read-only; a private folder in memory; separate processes and devices.

Users: when started by root, bubblewrap creates no user namespace, and the launcher switches to an unused user id before
it starts the program. So the kernel's limit on processes applies (it never does for root) and counts this run alone.
When started by another user, bubblewrap creates a user namespace, which has its own process count since Linux 5.14."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from harness.sandbox.api import Limits
from harness.sandbox.backend import Sandbox
from harness.sandbox.interpreter import ROOT_FOLDERS, base_interpreter, hidden, package_paths, shown
from harness.sandbox.launch_data import LAUNCHER, Launch, Lifeline
from harness.sandbox.seccomp import filter_program

NOBODY = 65534
PACKAGES = "/opt/packages"

_OWN_THREADS = 3
"""Number of threads of the sandbox itself: two of bubblewrap (outside and in the namespaces), one of the launcher."""

_FIRST_UID, _LAST_UID = 1_900_000_000, 1_999_999_999
"""User ids that accounts, containers and systemd do not use."""


class Bubblewrap(Sandbox):
    """Sandbox that uses bubblewrap.

    Args:
        program: Path of `bwrap`.
        packages: Installed packages that programs may import in addition to the standard library.

    Raises:
        EnvironmentFault: a package is not installed.
    """

    name = "bubblewrap"

    def __init__(self, program: str, packages: Sequence[str] = ()) -> None:
        self._program = program
        self._packages = package_paths(packages)
        self._uids = _spare_uids() if os.geteuid() == 0 else None

    @contextmanager
    def launch(self, limits: Limits) -> Generator[Launch, None, None]:
        """Prepare the start of one process; see `Sandbox.launch`."""
        python = base_interpreter()
        read_end, write_end = os.pipe()
        lifeline = Lifeline()
        try:
            os.write(write_end, filter_program())
        finally:
            os.close(write_end)
        uid = random.SystemRandom().randrange(*self._uids) if self._uids else None
        rlimits: dict[str, int] = {}
        if uid is not None:
            rlimits["NPROC"] = limits.processes + 1  # plus the launcher, which has the same user
        elif _counts_by_namespace():
            rlimits["NPROC"] = limits.processes + 2  # plus bubblewrap inside, which also has the same user
        seccomp = ("--seccomp", str(read_end)) if filter_program() else ()
        try:
            yield Launch(
                command=(self._program, *self._rights(), *seccomp, *self._view(limits), "--", python, *LAUNCHER),
                python=python,
                base="/tmp",
                env=program_environment("/tmp", os.path.dirname(python))
                | ({"PYTHONPATH": PACKAGES} if self._packages else {}),
                pass_fds=(read_end, lifeline.read_end),
                request={"uid": uid, "strict": True},
                rlimits=rlimits,
                own_threads=_OWN_THREADS,
                has_init=True,
                lifeline=lifeline,
            )
        finally:
            os.close(read_end)
            lifeline.cut()

    def _rights(self) -> list[str]:
        options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        options += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        if self._uids:
            return [*options, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), *options]

    def _view(self, limits: Limits) -> list[str]:
        """The mount options, in the order in which the file system is built."""
        options: list[str] = []
        made: set[str] = set()

        def place(path: str, *operation: str) -> None:
            for parent in reversed(PurePosixPath(path).parents[:-1]):
                if str(parent) not in made:
                    made.add(str(parent))
                    options.extend(("--perms", "0755", "--dir", str(parent)))
            options.extend((*operation, path))

        paths = shown()
        for path in paths:
            place(path, "--ro-bind", path)
            made.add(path)
        for path in ROOT_FOLDERS:
            if Path(path).is_symlink():
                options += ["--symlink", os.readlink(path), path]
            elif Path(path).is_dir():
                options += ["--ro-bind", path, path]
        for path in hidden(paths):
            options += ["--perms", "0755", "--size", "4096", "--tmpfs", path, "--remount-ro", path]
        for name, path in self._packages.items():
            place(f"{PACKAGES}/{name}", "--ro-bind", path)
        shared = max(1 << 20, (limits.disk_mb << 20) // 8)
        private = max(1 << 20, (limits.disk_mb << 20) - shared)
        options += ["--proc", "/proc", "--dev", "/dev"]
        options += ["--perms", "1777", "--size", str(shared), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        options += ["--perms", "1777", "--size", str(private), "--tmpfs", "/tmp", "--remount-ro", "/"]
        return [*options, "--chdir", "/tmp"]


def program_environment(base: str, *folders: str) -> dict[str, str]:
    """Environment variables of a sandboxed program.

    Args:
        base: The private folder.
        *folders: Folders of programs, in addition to the usual ones.
    """
    return {
        "PATH": ":".join((*folders, "/usr/local/bin", "/usr/bin", "/bin")),
        "HOME": f"{base}/work",
        "TMPDIR": base,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",  # so that repeated runs behave the same
        "PYTHONDONTWRITEBYTECODE": "1",
        # else numeric libraries start one thread per CPU, each with buffers, and exceed the limits
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def _spare_uids() -> tuple[int, int] | None:
    """A range of unused user ids that root can switch to; None in a container with too few ids."""
    try:
        rows = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return None
    for first, _, count in rows:
        if first <= _FIRST_UID and first + count > _LAST_UID:
            return _FIRST_UID, _LAST_UID
        if first <= 60_000 and first + count > 61_000:
            return 60_000, 61_000  # ids of an unprivileged container: above accounts, below those of systemd
    return None


def _counts_by_namespace() -> bool:
    """Return whether the kernel counts processes per user namespace; older kernels count all of a user's processes."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (5, 14)
