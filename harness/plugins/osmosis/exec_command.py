"""`bench exec`: run a user's Python program as `python` would, except that `import osmosis_ai` loads bench's own
implementation. Sets up `__main__`, the arguments and the import path, also in spawned processes, and returns the exit
code. Programs may use `await` at the top level, because programs in the SDK's documentation do so."""

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
"""Environment variable with the path of the program that `bench exec` runs, for processes that the program spawns."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command("exec", context_settings={"allow_interspersed_args": False})
def execute(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENTS", help="For the script; options too.")
    ] = None,
) -> None:
    """Run a Python script, in which `import osmosis_ai` gets the implementation of bench.

    The script runs as under `python`: its own arguments, folder and exit code. It may use `await` at the top level.
    """
    raise typer.Exit(run_script(script, arguments or []))


def run_script(script: str, arguments: Sequence[str]) -> int:
    """Run a program until it exits.

    Args:
        script: Path of its file.
        arguments: Command-line arguments of the program.

    Returns:
        Its exit code.

    Raises:
        UsageError: the file cannot be read.
    """
    source, path = _read(script), os.path.abspath(script)
    finder.install(over_newer=True)
    if not finder.answers():
        typer.echo("note: the script uses the installed package osmosis-ai, not the implementation of bench", err=True)
    stdout: object = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        stdout.reconfigure(line_buffering=True)  # show the output of long programs at once, also in a pipe
    with _as_main(path, [script, *arguments]) as namespace:
        try:
            _run(source, path, namespace)
        except SystemExit as stop:
            if stop.code is None or isinstance(stop.code, int):
                return int(stop.code or 0)
            typer.echo(str(stop.code), err=True)
            return 1
        except BaseException as exc:
            is_interrupted = isinstance(exc, KeyboardInterrupt)
            exc.__suppress_context__ |= is_interrupted  # leaves out tracebacks of cancelled tasks
            sys.excepthook(type(exc), exc.with_traceback(_own_frames(exc, path)), exc.__traceback__)
            return INTERRUPTED if is_interrupted else 1
    return 0


def run_again(namespace: dict[str, Any]) -> None:
    """Run the program of `bench exec` again in a process that it has spawned, as `multiprocessing` does with any
    program.

    Args:
        namespace: Namespace in which the program runs there.
    """
    path = os.environ[SCRIPT]
    finder.install(over_newer=True)
    sys.argv[0] = path
    namespace.update(__file__=path, __spec__=_Spec(path))
    _run(Path(path).read_bytes(), path, namespace)


def _read(script: str) -> bytes:
    if script == "-":
        raise UsageError("bench exec cannot read a program from stdin: write it to a file and give its path")
    path = Path(script)
    if path.is_dir():
        raise UsageError(f"{script} is a folder; give the path of the Python file in it that should run")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"file {script} does not exist (looked in {Path.cwd()})") from None
    except OSError as exc:
        raise UsageError(f"{script} cannot be read: {exc.strerror or exc}") from exc


class _Spec(ModuleSpec):
    """Module spec of the program. It makes `multiprocessing` import `exec_child` in spawned processes; that module
    first makes `osmosis_ai` importable there."""

    def __init__(self, path: str) -> None:
        super().__init__("harness.plugins.osmosis.exec_child", SourceFileLoader("__main__", path), origin=path)

    @property
    def parent(self) -> str:
        """Package for relative imports: empty, as for any program, so that they do not start in this package."""
        return ""


@contextmanager
def _as_main(path: str, argv: list[str]) -> Generator[dict[str, Any]]:
    """Install a new `__main__` with the program's arguments and import path, and restore the previous one
    afterwards."""
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
    """Return the traceback from the program's first frame on, without the frames of bench's own stdout wrapper."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    last = trace
    while last is not None and last.tb_next is not None:
        if last.tb_next.tb_frame.f_code.co_filename == _OUR_STDOUT:
            last.tb_next = None
        last = last.tb_next
    return trace
