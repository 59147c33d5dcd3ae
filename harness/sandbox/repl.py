"""The Python interpreter for a model's code, run in a sandbox by `session_program`. It keeps one namespace and returns
the output of each piece of code. Uses only the standard library.

It reads one JSON object per line from stdin (`code`, `mark`, and `apart` to separate the parts of the result) and
writes one per line to stdout: first `ready`, then for each request `mark`, `output`, `errors`, `value` and `error`.
Unless `apart` is set, `output` includes the other three, and their fields are empty. The code's output is redirected to
files, so it can neither mix with the replies nor fill a pipe."""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import sys
import tempfile
import traceback
from typing import IO, Any, TextIO

MAX_OUTPUT = 50_000
"""Maximum characters of output that are returned, from its start and its end."""

MAX_VALUE = 10_000
"""Maximum characters of the value of a last expression."""


def run(code: str, number: int, scope: dict[str, Any], apart: bool) -> dict[str, Any]:
    """Run code in `scope`; return its output, the value of its last expression, or its traceback.

    Args:
        code: Statements. The value of a final expression is shown unless it is None.
        number: Number of earlier calls, for tracebacks.
        scope: The persistent namespace.
        apart: Whether to return output, errors, value and traceback separately.
    """
    name = f"<cell {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            value, error = captured(code, name, scope, (output, errors if apart else output), apart)
            return {"output": shown(output), "errors": shown(errors), "value": value, "error": error}
    except OSError as error:
        message = f"[The output could not be stored: {error}]\n"
        return {"output": message, "errors": "", "value": None, "error": None}


def captured(
    code: str, name: str, scope: dict[str, Any], targets: tuple[IO[bytes], IO[bytes]], apart: bool
) -> tuple[str | None, str | None]:
    """Run code and redirect its stdout and stderr, including those of its child processes, to two files. Returns the
    value of the last expression and the traceback if `apart`; else writes them to the files."""
    for target, file in zip((1, 2), targets, strict=True):
        os.dup2(file.fileno(), target)
    if sys.stdin is None or sys.stdin.closed:  # closed by exit()
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # stays open
    value = error = None
    with writer(1) as output, writer(2) as errors:
        sys.stdout, sys.stderr = output, errors if apart else output
        try:
            value = execute(code, name, scope, apart)
        except BaseException as raised:  # any exception of the code, even of exit(), is part of its result
            error = trimmed(raised, name)
        flush_and_write("" if apart else error or "")
    sys.stdout = sys.stderr = writer(os.open(os.devnull, os.O_WRONLY), closefd=True)
    return (value, cut(error) if error is not None else None) if apart else (None, None)


def writer(target: int, closefd: bool = False) -> TextIO:
    """Open an unbuffered text stream, so that its output stays in order with that of other writers."""
    return open(target, "w", encoding="utf-8", errors="backslashreplace", closefd=closefd, buffering=1)


def execute(code: str, name: str, scope: dict[str, Any], apart: bool) -> str | None:
    """Run all statements except a final expression; print the value of that expression, or return it if `apart`."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)
    if not isinstance(last, ast.Expr):
        return None
    value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
    if value is None:
        return None
    scope["_"] = value
    text = repr(value)
    text = text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "…"
    if apart:
        return text
    sys.stdout.write(text + "\n")
    return None


def flush_and_write(text: str) -> None:
    """Write to the output, even if the code closed or replaced `sys.stdout`."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # may be an object of the code's, with any behaviour
            stream.flush()
    os.write(1, text.encode("utf-8", "backslashreplace"))


def trimmed(error: BaseException, name: str) -> str:
    """Format the traceback without this program's own frames."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != name:
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frames, limit=-10, chain=False))
    except Exception:  # an exception whose `__str__` fails
        return f"{type(error).__name__}\n"


def cut(text: str) -> str:
    """Shorten text by omitting its middle."""
    left_out = len(text) - MAX_OUTPUT
    if left_out <= 0:
        return text
    return f"{text[: MAX_OUTPUT // 2]}\n[… {left_out} characters left out …]\n{text[-MAX_OUTPUT // 2 :]}"


def shown(file: IO[bytes]) -> str:
    """Read a file as text, omitting the middle if it is too long."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size <= 4 * MAX_OUTPUT:
        text = file.read().decode("utf-8", "replace")
        if len(text) <= MAX_OUTPUT:
            return text
        head, tail = text[: MAX_OUTPUT // 2], text[-MAX_OUTPUT // 2 :]
    else:
        head = file.read(MAX_OUTPUT // 2).decode("utf-8", "replace")
        file.seek(-(MAX_OUTPUT // 2), os.SEEK_END)
        tail = file.read().decode("utf-8", "replace")
    return f"{head}\n[… {size - len(head.encode()) - len(tail.encode())} bytes left out …]\n{tail}"


def main() -> None:
    """Read requests from stdin and answer them, until the end of the input."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # input() reads end of file at once
    scope: dict[str, Any] = {"__name__": "__main__"}
    here = os.getpid()
    replies.write(b'{"ready": true}\n')
    replies.flush()
    for number, line in enumerate(requests, 1):
        request = json.loads(line)
        reply = run(request["code"], number, scope, request["apart"])
        if os.getpid() != here:
            os._exit(0)  # in a fork made by the code: only the original process answers
        replies.write(json.dumps({**reply, "mark": request["mark"]}).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
