"""`bench exec`: a program of the user's, run as Python would run it, with imports of `osmosis_ai` answered. Owns what a
program finds (`__main__`, arguments, path), also in processes that it spawns, and its way out; what the imports lead to
is `compat.osmosis`.

A program may await at its top level, as documents print programs: without that, none of it would run as printed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import os
import sys
from collections.abc import Coroutine, Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Annotated, Any, cast

import typer

from harness.cli.stdout import unsay_secrets
from harness.core.errors import UsageError
from harness.plugins.osmosis import finder

INTERRUPTED = 130

_OUR_STDOUT = unsay_secrets.__code__.co_filename

SCRIPT = "BENCH_EXEC_SCRIPT"
"""Environment variable that tells the processes that a program spawns which program that is."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command("exec", context_settings={"allow_interspersed_args": False})
def execute(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="For the script; options too.")
    ] = None,
) -> None:
    """Run a Python script, answering its imports of osmosis_ai with what bench has under those names.

    The script runs as under `python`: its own arguments, folder and exit code. It may use `await` at the top level.
    """
    raise typer.Exit(run_script(script, arguments or []))


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Run a program to its end.

    Args:
        script: Its file.
        arguments: Of the program.

    Returns:
        Its exit code.

    Raises:
        UsageError: the file cannot be read.
    """
    source, path = _read(script), os.path.abspath(script)
    _answer()
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(line_buffering=True)  # who pipes a program that goes on for hours wants to see it go on
    with _as_main(path, [script, *arguments]) as namespace:
        try:
            _run(source, path, namespace)
        except SystemExit as stop:
            return _status(stop)
        except BaseException as exc:
            is_interrupted = isinstance(exc, KeyboardInterrupt)
            exc.__suppress_context__ |= is_interrupted  # pages of what it cancelled, all of it wanted
            sys.excepthook(type(exc), exc.with_traceback(_own_frames(exc, path)), exc.__traceback__)
            return INTERRUPTED if is_interrupted else 1
    return 0


def run_again(namespace: dict[str, Any]) -> None:
    """Run the program once more in a process that it has spawned, as `multiprocessing` does with any program.

    Args:
        namespace: Of the module that stands for the program there.
    """
    path = os.environ[SCRIPT]
    finder.install(over_newer=True)
    sys.argv[0] = path
    namespace.update(__file__=path, __spec__=_Spec(path))
    _run(Path(path).read_bytes(), path, namespace)


def _answer() -> None:
    finder.install(over_newer=True)
    if not finder.answers():
        typer.echo("note: osmosis-ai is installed here and answers its own imports; bench answers none", err=True)


def _read(script: str) -> bytes:
    if script == "-":
        raise UsageError("bench exec reads no program from stdin: write it to a file, and name that")
    path = Path(script)
    if path.is_dir():
        raise UsageError(f"{script} is a folder; name the Python file in it that is to run")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no file {script}; paths start at {Path.cwd()}") from None
    except OSError as exc:
        raise UsageError(f"{script} cannot be read: {exc.strerror or exc}") from exc


class _Spec(ModuleSpec):
    """Says to `multiprocessing` which module to import in a spawned process: one that answers imports first."""

    def __init__(self, path: str) -> None:
        super().__init__("harness.plugins.osmosis.exec_child", SourceFileLoader("__main__", path), origin=path)

    @property
    def parent(self) -> str:
        """None, as for any program: its relative imports must not begin here."""
        return ""


@contextmanager
def _as_main(path: str, argv: list[str]) -> Generator[dict[str, Any]]:
    """A fresh `__main__`, with the arguments and the import path of the program; what was there is put back."""
    module = ModuleType("__main__")
    module.__spec__ = spec = _Spec(path)
    vars(module).update(
        __file__=path, __loader__=spec.loader, __package__=None, __cached__=None, __builtins__=__builtins__
    )
    before, before_argv, before_script = sys.modules["__main__"], sys.argv, os.environ.get(SCRIPT)
    folder = os.path.dirname(os.path.realpath(path))
    sys.modules["__main__"], sys.argv, os.environ[SCRIPT] = module, argv, path
    sys.path.insert(0, folder)
    try:
        yield vars(module)
    finally:
        sys.modules["__main__"], sys.argv = before, before_argv
        if folder in sys.path:
            sys.path.remove(folder)
        if before_script is None:
            os.environ.pop(SCRIPT, None)
        else:
            os.environ[SCRIPT] = before_script


def _run(source: bytes, path: str, namespace: dict[str, Any]) -> None:
    code: CodeType = compile(source, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    made: object = eval(code, namespace)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(cast("Coroutine[object, object, None]", made))


def _own_frames(exc: BaseException, path: str) -> Any:
    """The traceback from the program's first frame on, without that of our stdout where it was printing: ours say
    nothing about it."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    last = trace
    while last is not None and last.tb_next is not None:
        if last.tb_next.tb_frame.f_code.co_filename == _OUR_STDOUT:
            last.tb_next = None
        last = last.tb_next
    return trace


def _status(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return int(stop.code or 0)
    typer.echo(str(stop.code), err=True)
    return 1
