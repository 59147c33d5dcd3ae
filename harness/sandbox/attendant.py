"""The program that stays in a sandbox for a whole rollout and does what `workbench` asks: commands, each in a shell of
its own, and code, in one `repl` that it keeps. Owns their processes and the time that each may take; what they may use
beside that is the sandbox's business. Runs none of their code itself. Imports the standard library alone.

It reads one JSON object a line and writes one a line for each, with the `mark` that was in the request. Its pipes and
its memory are out of reach of what it starts: no command can answer for it.
"""

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

MOST = 50_000
"""Bytes of each stream of a command that are passed on, from its start and its end."""

START_SECONDS = 60.0
"""An interpreter that has not started by then never will."""

LONGEST_REPLY = 8_000_000
"""Bytes of one reply of the interpreter; more was not written by it."""

BOOT = "import json; exec(json.loads(open(0, 'rb', 0, closefd=False).readline()))"
"""Runs the program that is the first line of its input: one on a command line would be in every list of processes."""

NOT_DUMPABLE = (4, 0, 0, 0, 0)
"""PR_SET_DUMPABLE, off: others of the same user can no longer read this process's memory or open its pipes."""


class Repl:
    """The interpreter, from its start to its end.

    Args:
        program: The text of `repl`.
    """

    def __init__(self, program: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0, start_new_session=True,
        )  # fmt: skip
        self.stdin.write(json.dumps(program).encode() + b"\n")

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Its reply, or `lost` and why: `timeout`, `ended` or `garbled`."""
        mark = os.urandom(16).hex()
        try:
            self.stdin.write(json.dumps({**request, "mark": mark}).encode() + b"\n")
        except BrokenPipeError:
            return self.lost("ended")
        reply = self.reply(seconds)
        if "lost" in reply or (reply.pop("mark", None) == mark and fits(reply, request["apart"])):
            return reply
        return self.lost("garbled")  # the code answered for its interpreter

    def reply(self, seconds: float) -> dict[str, Any]:
        """What it writes next."""
        line = b""
        end = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.stdout.fileno(), select.POLLIN)
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0:
                return self.lost("timeout")
            if not poll.poll(min(left, 0.2) * 1000):
                if self.process.poll() is not None:  # and a child of it holds the pipe
                    return self.lost("ended")
                continue
            part = os.read(self.stdout.fileno(), 1 << 16)
            if not part:
                return self.lost("ended")
            line += part
            if len(line) > LONGEST_REPLY:
                return self.lost("garbled")
        try:
            reply: Any = json.loads(line)
        except ValueError:  # the code wrote to its interpreter's own pipe
            return self.lost("garbled")
        return {**reply} if isinstance(reply, dict) and "lost" not in reply else self.lost("garbled")

    def lost(self, why: str) -> dict[str, Any]:
        """End it, with its process group; how it came to that."""
        if why == "ended":
            with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its pipe, and lives
                self.process.wait(1)
        code = self.process.poll()
        self.end()
        return {"lost": why, "code": code}

    def end(self) -> None:
        """End it, with its process group."""
        kill_group(self.process)
        self.stdout.close()
        with contextlib.suppress(OSError):
            self.stdin.close()

    @property
    def stdin(self) -> IO[bytes]:
        """Where it reads."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """Where it writes."""
        assert self.process.stdout is not None
        return self.process.stdout


class Attendant:
    """What does as it is asked.

    Args:
        program: The text of `repl`.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self.repl: Repl | None = None

    def code(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a piece of code in the interpreter, which is started if there is none."""
        started = time.monotonic()
        if self.repl is None:
            self.repl = Repl(self.program)
            if self.repl.reply(START_SECONDS) != {"ready": True}:
                self.repl.end()
                self.repl = None
                return {"failed": "the Python interpreter does not start"}
        ready = time.monotonic() - started
        reply = self.repl.ask({"code": request["code"], "apart": request["apart"]}, request["seconds"])
        if "lost" in reply:
            self.repl = None
        return {**reply, "ready_seconds": ready}

    def command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a command in a shell; what it leaves running in the background goes on."""
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
        except (OSError, ValueError) as error:  # no such folder, no room, a command that is too long or holds a NUL
            return {"stdout": "", "stderr": f"{error}", "timed_out": False, "exit_code": 126}


def fits(reply: dict[str, Any], apart: bool) -> bool:
    """Whether the interpreter can have said so."""
    kinds: dict[str, tuple[type, ...]] = {"output": (str,)}
    if apart:
        kinds |= {"errors": (str,), "value": (str, type(None)), "error": (str, type(None))}
    return reply.keys() == kinds.keys() and all(isinstance(reply[name], kind) for name, kind in kinds.items())


def shell() -> str:
    """The shell that there is; empty if there is none."""
    return shutil.which("bash") or shutil.which("sh") or ""


def in_background(command: str | None) -> None:
    """Start a command that is waited for by nobody, if there is one."""
    if command and shell():
        none = subprocess.DEVNULL
        subprocess.Popen([shell(), "-c", command], stdin=none, stdout=none, stderr=none, start_new_session=True)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started and that did not leave its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def shown(file: IO[bytes]) -> str:
    """What a file holds, without its middle if that is too much."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= MOST:
        return file.read().decode("utf-8", "replace")
    head = file.read(MOST // 2).decode("utf-8", "replace")
    file.seek(-(MOST // 2), os.SEEK_END)
    tail = file.read().decode("utf-8", "replace")
    return f"{head}\n[… {size - 2 * (MOST // 2)} bytes left out …]\n{tail}"


def missing(modules: list[str]) -> list[str]:
    """Those that cannot be imported here."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def main() -> None:
    """Answer requests until the input ends."""
    with contextlib.suppress(Exception):  # no such call on this system: then marks are the only guard
        ctypes.CDLL(None).prctl(*NOT_DUMPABLE)
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1):
        os.dup2(nothing, target)
    attendant = Attendant("")
    for line in requests:
        request = json.loads(line)
        if "program" in request:
            attendant = Attendant(request["program"])
            os.environ.update(request["environment"])
            in_background(request["start"])
            reply: dict[str, Any] = {"missing": missing(request["modules"]), "shell": shell()}
        else:
            reply = attendant.code(request) if "code" in request else attendant.command(request)
        replies.write(json.dumps({**reply, "mark": request["mark"]}).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
