"""The program that runs in a sandbox for a whole rollout and executes the requests of `workbench`: commands, each in
its own shell, and Python code, in one persistent `repl`. It enforces the time limit of each request; the sandbox
enforces the other limits. Uses only the standard library.

It reads one JSON object per line and writes one per line for each, with the `mark` of the request. The programs that it
starts can access neither its pipes nor its memory, so no command can forge a reply."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

MAX_OUTPUT = 50_000
"""Maximum bytes of each output stream of a command that are returned, from its start and its end."""

START_SECONDS = 60.0
"""Timeout for starting an interpreter."""

MAX_REPLY = 8_000_000
"""Maximum bytes of one reply of the interpreter; a longer one must be forged."""

BOOT = "import json; exec(json.loads(open(0, 'rb', 0, closefd=False).readline()))"
"""Runs the program given as the first line of input. If it were on the command line, every list of processes would show
it."""

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
    """

    def __init__(self, program: str) -> None:
        self.program = program
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
        try:
            with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
                child = subprocess.Popen(
                    [shell(), "-c", request["command"]], stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                    cwd=request["folder"], env={**os.environ, **request["environment"]}, start_new_session=True,
                )  # fmt: skip
                timed_out = False
                try:
                    child.wait(request["seconds"])
                except subprocess.TimeoutExpired:
                    timed_out = True
                    kill_group(child)
                code = child.returncode
                return {
                    "stdout": shown(output), "stderr": shown(errors), "timed_out": timed_out,
                    "exit_code": code if code >= 0 else 128 - code,
                }  # fmt: skip
        except (OSError, ValueError) as error:  # no such folder, disk full, a command that is too long or contains NUL
            return {"stdout": "", "stderr": f"{error}", "timed_out": False, "exit_code": 126}


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
    process.wait()


def shown(file: IO[bytes]) -> str:
    """Read a file as text, omitting the middle if it is too long."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= MAX_OUTPUT:
        return file.read().decode("utf-8", "replace")
    head = file.read(MAX_OUTPUT // 2).decode("utf-8", "replace")
    file.seek(-(MAX_OUTPUT // 2), os.SEEK_END)
    tail = file.read().decode("utf-8", "replace")
    return f"{head}\n[… {size - 2 * (MAX_OUTPUT // 2)} bytes left out …]\n{tail}"


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
            runner = RequestRunner(request["program"])
            os.environ.update(request["environment"])
            if request["start"] and shell():
                null = subprocess.DEVNULL
                start = [shell(), "-c", request["start"]]
                subprocess.Popen(start, stdin=null, stdout=null, stderr=null, start_new_session=True)
            missing = [name for name in request["modules"] if importlib.util.find_spec(name) is None]
            reply: dict[str, Any] = {"missing": missing, "shell": shell()}
        else:
            reply = runner.code(request) if "code" in request else runner.command(request)
        replies.write(json.dumps({**reply, "mark": request["mark"]}).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
