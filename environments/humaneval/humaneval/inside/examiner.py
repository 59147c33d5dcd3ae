"""The hidden tests, inside the sandbox but out of the program's reach. Owns the verdict.

The program may run as it likes beside this process, as the same user. It cannot read the tests: they come through
stdin, which is read to the end before the program's process is started, from scratch and not as a copy of this one; and
this process's memory and files cannot be opened (it is not dumpable). It cannot give the verdict: that goes to a stream
that the program does not have, behind a nonce that came with the tests. It cannot bend the tests: they run here, on
plain data that the program's process sends (`values`), so nothing of the program is in this process. All it can do is
answer calls, or end: an examination that ends without a verdict is not passed.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import subprocess
import sys
from typing import Any, TextIO

from humaneval.inside.values import decode, encode

PR_SET_DUMPABLE = 4
OUT_OF_TIME = "its processor time was up"
MAX_ANSWER = 64 * 1024 * 1024


class Ended(BaseException):
    """The program is gone; no test goes on. Not an `Exception`, for tests that catch those."""


class Solver:
    """The program's process, as a function.

    Args:
        task: What it is to define.
    """

    def __init__(self, task: dict[str, str]) -> None:
        calls_read, calls_write = os.pipe()
        answers_read, answers_write = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-m", "humaneval.inside.solver", str(calls_read), str(answers_write)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(calls_read, answers_write),
        )
        os.close(calls_read)
        os.close(answers_write)
        self._calls: TextIO = os.fdopen(calls_write, "w", encoding="utf-8")
        self._answers: TextIO = os.fdopen(answers_read, encoding="utf-8", errors="replace")
        self._ask(task)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask([[encode(one) for one in args], {name: encode(one) for name, one in kwargs.items()}])

    def _ask(self, question: Any) -> Any:
        try:
            self._calls.write(json.dumps(question) + "\n")
            self._calls.flush()
            line = self._answers.readline(MAX_ANSWER)
        except OSError:
            line = ""
        if not line.endswith("\n"):
            raise Ended(self._end())
        try:
            answer = json.loads(line)
            if "error" in answer:
                kind, message = str(answer["error"]), str(answer["message"])
            else:
                return decode(answer.get("value"))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            raise Ended("it answered with what is no value") from None
        error = getattr(builtins, kind, None)
        if not isinstance(error, type) or not issubclass(error, Exception):
            raise RuntimeError(f"{kind}: {message}")
        try:
            raised = error(message)
        except TypeError:  # some take more than a message
            raised = RuntimeError(f"{kind}: {message}")
        raise raised

    def _end(self) -> str:
        """How the process ended, which it has or is about to."""
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "it stopped answering"
        if code == -signal.SIGXCPU:
            return OUT_OF_TIME
        return f"it ended with exit code {code}" if code >= 0 else f"it was ended by signal {-code}"


def hide() -> None:
    """Let no process of the same user look into this one or put a module in its way, or say that it cannot be done."""
    here = os.getcwd()  # where the program may write, and from where a test's `import random` would otherwise be served
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
            raise OSError("prctl(PR_SET_DUMPABLE) failed")


def prepare(order: dict[str, str]) -> dict[str, Any]:
    """The tests' namespace: what the prompt gives, and the tests; all of it the problem's own."""
    namespace: dict[str, Any] = {"__name__": "examination"}
    tests = compile(order["test"], "<tests>", "exec")
    try:
        given = compile(order["prompt"], "<prompt>", "exec")
    except SyntaxError:  # a prompt that only its completion makes whole: then the tests need nothing of it
        given = None
    if given is not None:
        exec(given, namespace)
    exec(tests, namespace)
    if not callable(namespace.get("check")):
        raise ValueError("they define no function check(candidate)")
    return namespace


def examine(order: dict[str, str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Start the program, run the tests, and give the verdict."""
    try:
        solver = Solver({name: order[name] for name in ("given", "code", "entry_point")})
        namespace[order["entry_point"]] = solver
        namespace["check"](solver)
    except Ended as error:
        reason = str(error)
        return {"passed": False, "timed_out": reason == OUT_OF_TIME, "reason": reason}
    except BaseException as error:  # a test that fails, however it does
        return {"passed": False, "reason": f"{type(error).__name__}: {error}"[:500]}
    return {"passed": True}


def main() -> None:
    """One examination."""
    order = json.loads(sys.stdin.buffer.read())
    try:
        hide()
        namespace = prepare(order)
    except Exception as error:  # before there is a program: it is not to blame
        verdict: dict[str, Any] = {"fault": f"{type(error).__name__}: {error}"}
    else:
        verdict = examine(order, namespace)
    sys.stdout.write("\n" + order["nonce"] + json.dumps(verdict) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
