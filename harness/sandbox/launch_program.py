"""The program that runs in a sandbox and starts the model's code: it writes the files, drops privileges, starts the
program with its resource limits, and reports how it ended.

The harness never imports it: its source is sent to an interpreter in the sandbox, so it uses only the standard library
and nothing newer than Python 3.8. It reads its request from stdin, after its own source: the length in eight bytes,
then JSON; the rest of stdin belongs to the program. Its reports go to stderr, each after a nonce from the request. The
program cannot learn the nonce: the launcher is not dumpable, so its memory cannot be read, and it reads the request
before it starts the program."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import time

TYPE_CHECKING = False  # as in `typing`, which takes too long to import
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38


def read_exactly(fd: int, size: int) -> bytes:
    """Read exactly `size` bytes, since the rest belongs to the program."""
    parts: list[bytes] = []
    while size:
        part = os.read(fd, min(size, 1 << 20))
        if not part:
            raise SystemExit("the launch request is incomplete: its input ended too early")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def drop_privileges(request: dict[str, Any]) -> None:
    """Switch to the request's user, if it has one, and prevent others from reading this process or gaining rights from
    it."""
    uid = request.get("uid")
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    for option, value in ((PR_SET_DUMPABLE, 0), (PR_SET_NO_NEW_PRIVS, 1), (PR_SET_CHILD_SUBREAPER, 1)):
        prctl(request, option, value)


def prctl(request: dict[str, Any], option: int, value: int) -> None:
    """Set a process attribute, on Linux only."""
    if sys.platform != "linux":
        return
    try:
        import ctypes

        failed = ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        failed = True
    if failed and request.get("strict"):
        raise SystemExit(f"prctl({option}, {value}) failed")


def write_files(request: dict[str, Any]) -> None:
    """Create the work folder with its files and change into it."""
    work = os.path.join(request["base"], "work")
    os.mkdir(work, 0o700)
    os.chdir(work)
    for path, content in request["files"].items():
        folder = os.path.dirname(path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(content))


def set_limits(request: dict[str, Any]) -> None:
    """Set the resource limits of this process, which is about to become the program."""
    for name, (soft, hard) in request["rlimits"].items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        top = resource.getrlimit(number)[1]
        if top != resource.RLIM_INFINITY:
            soft, hard = min(soft, top), min(hard, top)
        try:
            resource.setrlimit(number, (soft, hard))
        except (ValueError, OSError):
            if request.get("strict"):
                raise


def become_program(request: dict[str, Any], failed: int) -> None:
    """In the child process: start a new session, set the limits and execute the program. Never returns."""
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        set_limits(request)
        prctl(request, PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execvpe(request["argv"][0], request["argv"], request["env"])
    except BaseException as error:  # every error is reported through the launcher
        os.write(failed, str(error).encode("utf-8", "replace")[:500])
    os._exit(127)


def start(request: dict[str, Any]) -> tuple[int, str]:
    """Start the program; return its pid and the error, if it could not be started."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        become_program(request, write_end)
    os.close(write_end)
    reason = b""
    while True:
        part = os.read(read_end, 500)
        if not part:
            break
        reason += part
    os.close(read_end)
    return pid, reason.decode("utf-8", "replace")


def watch(pid: int, request: dict[str, Any], wake: int) -> int | None:
    """Wait for the end of the program, its time limit, or the end of the harness; return the wait status if the program
    ended."""
    deadline = time.monotonic() + request["wall_seconds"]
    lifeline = request["lifeline"]
    sources = [wake] if lifeline is None else [wake, lifeline]
    while True:
        status = reap(pid)
        left = deadline - time.monotonic()
        if status is not None or left <= 0:
            return status
        ready = select.select(sources, [], [], left)[0]
        if lifeline in ready:
            return None  # the other end was closed; no data is ever written
        if wake in ready:
            os.read(wake, 512)


def reap(pid: int) -> int | None:
    """Collect all dead children; return the program's wait status if it is among them."""
    found = None
    while True:
        try:
            dead, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if dead == 0:
            return found
        if dead == pid:
            found = status


def kill_tree(pid: int) -> None:
    """Kill the program and all of its descendants. Orphans become children of this process and are found as such."""
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        for child in children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.002)
        except ChildProcessError:
            return


def children() -> list[int]:
    """Direct children of this process, from Linux's list of children, or else from all processes' parents."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        pass
    found: list[int] = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == me:
                    found.append(int(name))
    return found


def killed_for_memory() -> int:
    """Number of processes in this container that were killed for lack of memory, according to its control group."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def main() -> None:
    """Read the launch request from stdin, run its program, and report how it ended."""
    reports = os.dup(2)
    request: dict[str, Any] = json.loads(read_exactly(0, int.from_bytes(read_exactly(0, 8), "big")))

    def report(fields: dict[str, object]) -> None:
        os.write(reports, f"\n\x1e{request['nonce']} {json.dumps(fields)}\n".encode())

    if request["lifeline"] is not None:
        os.set_inheritable(request["lifeline"], False)
    os.umask(0o022)
    drop_privileges(request)
    write_files(request)
    wake, notify = os.pipe()
    os.set_blocking(notify, False)
    signal.set_wakeup_fd(notify, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only a signal with a handler interrupts `select`
    began, memory_kills = time.monotonic(), killed_for_memory() if request.get("container") else 0
    report({"starting": True})  # from now on, the program may kill or stop this process
    pid, reason = start(request)
    if reason:
        report({"failed": reason})
        return
    report({"started": True})
    for fd in (0, 1, 2):  # so that closing one is noticed outside
        os.close(fd)
    status = watch(pid, request, wake)
    took = time.monotonic() - began
    if status is None or request.get("delete_base"):
        kill_tree(pid)
    if request.get("delete_base"):
        os.chdir("/")
        shutil.rmtree(request["base"], ignore_errors=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Without a status, either the time is up or the harness has closed the lifeline; only the former is a timeout.
    is_late = status is None and took >= request["wall_seconds"]
    final: dict[str, object] = {"wall": took, "cpu": used.ru_utime + used.ru_stime, "timeout": is_late}
    if status is not None and os.WIFEXITED(status):
        final["code"] = os.WEXITSTATUS(status)
    elif status is not None:
        final["signal"] = os.WTERMSIG(status)
    if request.get("container"):
        final["memory"] = killed_for_memory() > memory_kills
    report(final)


if __name__ == "__main__":
    main()
