"""The program that runs in a sandbox for a whole rollout and executes the requests of `workbench`: commands, each in
its own shell, and Python code, in one persistent `repl`. It enforces the time limit of each request; the sandbox
enforces the other limits. Uses only the standard library.

It reads one JSON object per line and writes one per line for each, with the `mark` of the request. The programs that it
starts can access neither its pipes nor its memory, so no command can forge a reply."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import importlib.util
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

MARK = "BENCH_EXEC"
"""Environment variable that tells to which command a process belongs."""

START_SECONDS = 60.0
"""Timeout for starting an interpreter."""

MAX_REPLY = 8_000_000
"""Maximum bytes of one reply of the interpreter; a longer one must be forged."""

BOOT = "import json; exec(json.loads(open(0, 'rb', 0, closefd=False).readline()))"
"""Runs the program given as the first line of input. If it were on the command line, every list of processes would show
it."""

KILL_SECONDS = 5.0
"""How long the end of a killed process is awaited."""

MAX_PASSES = 50
"""How often all processes are searched for those to kill."""

NOT_DUMPABLE = (4, 0, 0, 0, 0)
"""Arguments of PR_SET_DUMPABLE to switch it off: other processes of the same user cannot read this process's memory or
open its pipes."""


class Repl:
    """The process of the Python interpreter that runs the model's code.

    Args:
        program: The source of `repl`.
    """

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.stdin.write(json.dumps(program).encode() + b"\n")

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request and return the reply, or the result of `failed` (`timeout`, `exited` or `malformed`)."""
        mark = os.urandom(16).hex()
        try:
            self.stdin.write(json.dumps({**request, "mark": mark}).encode() + b"\n")
        except BrokenPipeError:
            return self.failed("exited")
        reply = self.reply(seconds)
        if "failure" in reply or (reply.pop("mark", None) == mark and is_result(reply)):
            return reply
        return self.failed("malformed")  # the code wrote a reply itself

    def reply(self, seconds: float) -> dict[str, Any]:
        """Read the interpreter's next reply; or return the result of `failed`."""
        line = b""
        end = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.stdout.fileno(), select.POLLIN)
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0:
                return self.failed("timeout")
            if not poll.poll(min(left, 0.2) * 1000):
                if self.process.poll() is not None:  # a child of it may still hold the pipe
                    return self.failed("exited")
                continue
            part = os.read(self.stdout.fileno(), 1 << 16)
            if not part:
                return self.failed("exited")
            line += part
            if len(line) > MAX_REPLY:
                return self.failed("malformed")
        try:
            reply: Any = json.loads(line)
        except ValueError:  # the code wrote to its interpreter's pipe
            return self.failed("malformed")
        return {**reply} if isinstance(reply, dict) and "failure" not in reply else self.failed("malformed")

    def failed(self, why: str) -> dict[str, Any]:
        """Kill the interpreter and its process group; return a reply with the reason (`failure`) and the exit code."""
        if why == "exited":
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may have closed its pipe while running
                self.process.wait(1)
        code = self.process.poll()
        self.end()
        return {"failure": why, "code": code}

    def end(self) -> None:
        """Kill the interpreter and its process group."""
        kill_group(self.process)
        self.stdout.close()
        with contextlib.suppress(OSError):
            self.stdin.close()


class RequestRunner:
    """Executes requests to run Python code or a shell command.

    Args:
        program: The source of `repl`.
        is_isolated: Whether the sandbox has a process namespace of its own.
    """

    def __init__(self, program: str, is_isolated: bool = False) -> None:
        self.program, self.is_isolated = program, is_isolated
        self.repl: Repl | None = None

    def code(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run code in the interpreter; start one if none is running."""
        started = time.monotonic()
        if self.repl is None:
            self.repl = Repl(self.program)
            if self.repl.reply(START_SECONDS) != {"ready": True}:
                self.repl.end()
                self.repl = None
                return {"failed": "the Python interpreter does not start"}
        ready = time.monotonic() - started
        reply = self.repl.ask({"code": request["code"], "apart": request["apart"]}, request["seconds"])
        if "failure" in reply:
            self.repl = None
        return {**reply, "ready_seconds": ready}

    def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a command in a shell. Its background processes keep running."""
        bound = request["output_bytes"]
        try:
            with (
                tempfile.TemporaryFile() as given,
                tempfile.TemporaryFile() as output,
                tempfile.TemporaryFile() as errors,
            ):
                given.write(base64.b64decode(request["stdin"]))
                given.seek(0)
                child = subprocess.Popen(
                    [shell(), "-c", request["command"]], stdin=given, stdout=output, stderr=errors,
                    cwd=request["folder"], start_new_session=True,
                    env={**os.environ, **request["environment"], MARK: request["mark"]},
                )  # fmt: skip
                timed_out = False
                try:
                    child.wait(request["seconds"])
                except subprocess.TimeoutExpired:
                    timed_out = True
                    kill_all(child, f"{MARK}={request['mark']}".encode(), self.is_isolated)
                code = -signal.SIGKILL if child.returncode is None else child.returncode
                return {
                    "stdout": shown(output, bound), "stderr": shown(errors, bound), "timed_out": timed_out,
                    "exit_code": code if code >= 0 else 128 - code,
                    "cut": [file.seek(0, os.SEEK_END) > bound for file in (output, errors)],
                }  # fmt: skip
        except (OSError, ValueError) as error:  # no such folder, disk full, a command that is too long or contains NUL
            return {"stdout": "", "stderr": f"{error}", "timed_out": False, "exit_code": 126, "cut": [False, False]}


def file(request: dict[str, Any]) -> dict[str, Any]:
    """Write a file if the request has `data`; else read one. Errors are part of the reply."""
    path = os.path.expanduser(request["file"])
    try:
        if "data" in request:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666), "wb") as target:
                if not stat.S_ISREG(os.fstat(target.fileno()).st_mode):  # a pipe would block
                    return {"error": "not a regular file"}
                target.truncate()
                target.write(base64.b64decode(request["data"]))
            os.chmod(path, request["mode"])
            return {"data": ""}
        if not stat.S_ISREG(os.stat(path).st_mode):
            return {"missing": "not a regular file"}
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as source:  # a pipe must not block
            size = os.fstat(source.fileno()).st_size
            if size > request["limit"]:
                return {"size": size}
            return {"data": base64.b64encode(source.read(request["limit"])).decode()}
    except FileNotFoundError as error:
        return {"missing": str(error)}
    except (OSError, ValueError) as error:
        return {"error": str(error)}


def is_result(reply: dict[str, Any]) -> bool:
    """Return whether a reply has the fields and types of an interpreter's reply."""
    text, optional = (str,), (str, type(None))
    kinds = {"output": text, "errors": text, "value": optional, "error": optional}
    return reply.keys() == kinds.keys() and all(isinstance(reply[name], kind) for name, kind in kinds.items())


def shell() -> str:
    """Path of bash or sh; empty if neither exists."""
    return shutil.which("bash") or shutil.which("sh") or ""


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILL_SECONDS)


def kill_all(process: subprocess.Popen[bytes], mark: bytes, is_isolated: bool) -> None:
    """Kill a process and all that it has started: its session, children, processes with its mark in their environment,
    and in a process namespace of its own also orphans without any mark that are not older."""
    killed, found = {process.pid}, os.path.isdir("/proc")
    begun = process_of(process.pid)[2] if found else 0
    parents = (1, os.getppid()) if is_isolated else ()
    for _ in range(MAX_PASSES):  # a process that waits for a device may not end
        if not found:
            break
        found = False
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            try:
                state, family, started = process_of(pid)
                with open(f"/proc/{pid}/environ", "rb") as file:
                    variables = file.read()
                is_orphan = family[0] in parents and started >= begun and MARK.encode() not in variables
                if state not in b"ZX" and ({pid, *family} & killed or mark in variables or is_orphan):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                    found = True
            except OSError:  # it has ended, or belongs to another user
                continue
    kill_group(process)


def process_of(pid: int) -> tuple[bytes, tuple[int, int], int]:
    """State, parent and session, and start time of a process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return fields[0], (int(fields[1]), int(fields[3])), int(fields[19])


def shown(file: IO[bytes], bound: int) -> str:
    """Read a file as text, omitting the middle if it is longer than `bound` bytes."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= bound:
        return file.read().decode("utf-8", "replace")
    head = file.read(bound // 2).decode("utf-8", "replace")
    file.seek(-(bound // 2), os.SEEK_END)
    tail = file.read().decode("utf-8", "replace")
    return f"{head}\n[… {size - 2 * (bound // 2)} bytes left out …]\n{tail}"


def main() -> None:
    """Read requests from stdin and answer them, until the end of the input."""
    with contextlib.suppress(Exception):  # not available on this system; then only marks protect the replies
        ctypes.CDLL(None).prctl(*NOT_DUMPABLE)
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    runner = RequestRunner("")
    for line in requests:
        request = json.loads(line)
        if "program" in request:
            runner = RequestRunner(request["program"], request["is_isolated"])
            os.environ.update(request["environment"])
            if request["start"] and shell():
                null = subprocess.DEVNULL
                start = [shell(), "-c", request["start"]]
                subprocess.Popen(start, stdin=null, stdout=null, stderr=null, start_new_session=True)
            missing = [name for name in request["modules"] if importlib.util.find_spec(name) is None]
            reply: dict[str, Any] = {"missing": missing, "shell": shell()}
        else:
            run = runner.code if "code" in request else file if "file" in request else runner.command
            reply = run(request)
        replies.write(json.dumps({**reply, "mark": request["mark"]}).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
