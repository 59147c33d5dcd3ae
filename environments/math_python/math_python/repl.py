"""The Python interpreter that a model talks to, run inside the sandbox. Owns one namespace that stays, and the text
that each piece of code leads to; knows no limits, which are the sandbox's. Imports the standard library alone.

It reads one JSON object a line from standard input (`code`) and writes one a line to standard output: `ready` at the
start, then `output` for each. What
the code prints, by whatever means, goes to a file that is read afterwards, so it can neither mix with the replies nor
fill a pipe.
"""

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

MOST = 50_000
"""Characters of output that are passed on, from its start and its end."""

LONGEST_VALUE = 10_000
"""Characters of the value of a last expression."""


def run(code: str, number: int, scope: dict[str, Any]) -> str:
    """Run a piece of code in `scope`; what it printed, the value of its last expression, or its traceback.

    Args:
        code: Statements; the value of an expression at the end is shown, unless it is None.
        number: How many came before, for tracebacks.
        scope: The namespace that stays.
    """
    name = f"<cell {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        with tempfile.TemporaryFile() as file:
            captured(code, name, scope, file)
            return shown(file)
    except OSError as error:
        return f"[The output could not be kept: {error}]\n"


def captured(code: str, name: str, scope: dict[str, Any], file: IO[bytes]) -> None:
    """Run a piece of code whose output, that of its child processes included, goes to `file`."""
    for target in (1, 2):
        os.dup2(file.fileno(), target)
    if sys.stdin is None or sys.stdin.closed:  # exit() closes it
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # it stays
    with writer(1) as output:
        sys.stdout = sys.stderr = output
        try:
            execute(code, name, scope)
        except BaseException as error:  # whatever the code raises, exit() included, is its own: the interpreter goes on
            say(trimmed(error, name))
        say("")
    sys.stdout = sys.stderr = writer(os.open(os.devnull, os.O_WRONLY), closefd=True)


def writer(target: int, closefd: bool = False) -> TextIO:
    """A text stream that holds nothing back, so that it keeps its place among the output of others."""
    return open(target, "w", encoding="utf-8", errors="backslashreplace", closefd=closefd, buffering=1)


def execute(code: str, name: str, scope: dict[str, Any]) -> None:
    """Run all but a last expression as statements, and show the value of that one."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), scope)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
        if value is not None:
            scope["_"] = value
            text = repr(value)
            sys.stdout.write((text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…") + "\n")


def say(text: str) -> None:
    """Write to the output, even if the code closed or replaced `sys.stdout`."""
    with contextlib.suppress(Exception):  # it may be the code's own object, which may do anything
        sys.stdout.flush()
    os.write(1, text.encode("utf-8", "backslashreplace"))


def trimmed(error: BaseException, name: str) -> str:
    """The traceback without the frames of this program."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != name:
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frames, limit=-10, chain=False))
    except Exception:  # an exception whose text cannot be had
        return f"{type(error).__name__}\n"


def shown(file: IO[bytes]) -> str:
    """What a file holds, without its middle if that is too much."""
    size = file.seek(0, os.SEEK_END)
    if size <= 4 * MOST:
        file.seek(0)
        text = file.read().decode("utf-8", "replace")
        if len(text) <= MOST:
            return text
        head, tail = text[: MOST // 2], text[-MOST // 2 :]
    else:
        file.seek(0)
        head = file.read(MOST // 2).decode("utf-8", "replace")
        file.seek(-(MOST // 2), os.SEEK_END)
        tail = file.read().decode("utf-8", "replace")
    return f"{head}\n[… {size - len(head.encode()) - len(tail.encode())} bytes left out …]\n{tail}"


def main() -> None:
    """Answer requests until the input ends."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads count as processes, and are few
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # input() meets the end at once
    scope: dict[str, Any] = {"__name__": "__main__"}
    here = os.getpid()
    replies.write(b'{"ready": true}\n')
    replies.flush()
    for number, line in enumerate(requests, 1):
        output = run(json.loads(line)["code"], number, scope)
        if os.getpid() != here:
            os._exit(0)  # a fork that the code made: one interpreter answers
        replies.write(json.dumps({"output": output}).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
