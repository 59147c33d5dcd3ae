"""The Python interpreter that a model talks to, run inside a sandbox by `attendant`. Owns one namespace that stays, and
the text that each piece of code leads to; knows no limits, which are the sandbox's. Imports the standard library alone.

It reads one JSON object a line from standard input (`code`, `mark`, and `apart` if its parts are wanted one by one) and
writes one a line to standard output: `ready` at the start, then for each `mark` and `output` alone, in which errors,
the value and the traceback have their places, or `output`, `errors`, `value` and `error`. What the code prints, by
whatever means, goes to files that are read afterwards, so it can neither mix with the replies nor fill a pipe.
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


def run(code: str, number: int, scope: dict[str, Any], apart: bool) -> dict[str, Any]:
    """Run a piece of code in `scope`; what it printed, the value of its last expression, or its traceback.

    Args:
        code: Statements; the value of an expression at the end is shown, unless it is None.
        number: How many came before, for tracebacks.
        scope: The namespace that stays.
        apart: Whether these are wanted one by one.
    """
    name = f"<cell {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    try:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            value, error = captured(code, name, scope, (output, errors) if apart else (output, output), apart)
            if not apart:
                return {"output": shown(output)}
            return {"output": shown(output), "errors": shown(errors), "value": value, "error": error}
    except OSError as error:
        words = f"[The output could not be kept: {error}]\n"
        return {"output": words, "errors": "", "value": None, "error": None} if apart else {"output": words}


def captured(
    code: str, name: str, scope: dict[str, Any], targets: tuple[IO[bytes], IO[bytes]], apart: bool
) -> tuple[str | None, str | None]:
    """Run a piece of code whose output and errors, those of its child processes included, go to two files; the value of
    its last expression and its traceback if they are to be apart, else they are written there."""
    for target, file in zip((1, 2), targets, strict=True):
        os.dup2(file.fileno(), target)
    if sys.stdin is None or sys.stdin.closed:  # exit() closes it
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # it stays
    value = error = None
    with writer(1) as output, writer(2) as errors:
        sys.stdout, sys.stderr = output, errors if apart else output
        try:
            value = execute(code, name, scope, apart)
        except (
            BaseException
        ) as raised:  # whatever the code raises, exit() included, is its own: the interpreter goes on
            error = trimmed(raised, name)
        say("" if apart else error or "")
    sys.stdout = sys.stderr = writer(os.open(os.devnull, os.O_WRONLY), closefd=True)
    return value, cut(error) if error is not None else None


def writer(target: int, closefd: bool = False) -> TextIO:
    """A text stream that holds nothing back, so that it keeps its place among the output of others."""
    return open(target, "w", encoding="utf-8", errors="backslashreplace", closefd=closefd, buffering=1)


def execute(code: str, name: str, scope: dict[str, Any], apart: bool) -> str | None:
    """Run all but a last expression as statements, and write the value of that one, or give it back."""
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
    text = text if len(text) <= LONGEST_VALUE else text[:LONGEST_VALUE] + "…"
    if apart:
        return text
    sys.stdout.write(text + "\n")
    return None


def say(text: str) -> None:
    """Write to the output, even if the code closed or replaced `sys.stdout`."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be the code's own object, which may do anything
            stream.flush()
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


def cut(text: str) -> str:
    """A text without its middle if that is too much."""
    left_out = len(text) - MOST
    if left_out <= 0:
        return text
    return f"{text[: MOST // 2]}\n[… {left_out} characters left out …]\n{text[-MOST // 2 :]}"


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
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # input() meets the end at once
    scope: dict[str, Any] = {"__name__": "__main__"}
    here = os.getpid()
    replies.write(b'{"ready": true}\n')
    replies.flush()
    for number, line in enumerate(requests, 1):
        request = json.loads(line)
        reply = run(request["code"], number, scope, request["apart"])
        if os.getpid() != here:
            os._exit(0)  # a fork that the code made: one interpreter answers
        replies.write(json.dumps({**reply, "mark": request["mark"]}).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
