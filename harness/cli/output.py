"""Output of commands that only show something: lines fitted to the terminal, tables, JSON, questions; and the common
options of the `bench env` commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from harness.core.errors import StoreError, UsageError
from harness.core.types import JsonDict
from harness.report.layout import Column, print_lines, table_lines
from harness.report.text import clean, make_console
from harness.settings.wording import shown_path

FOLDER = Path("environments")
"""Default folder of environment projects."""

ENV_ARGS_HELP = "Arguments of load_environment(): a JSON object, or KEY=VALUE; repeatable."

_PIPED_WIDTH = 1000
"""Line width in cells without a terminal: nothing is truncated."""


def check_target(path: Path, *, force: bool) -> None:
    """Check that the file that `-o` names can be written, before its content is created.

    Raises:
        UsageError: it is a folder, its folder does not exist, or it exists and `force` is false.
    """
    if os.path.isdir(path):
        raise UsageError(f"-o {path} is a folder; give a file in it")
    if not os.path.isdir(path.parent):
        raise UsageError(f"-o {path}: the folder {path.parent} does not exist; create it first")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} already exists; replace it with --force, or give another file with -o")


def env_args(texts: Sequence[str] | None) -> JsonDict:
    """Merge the values of repeated -a options; later ones override earlier ones.

    Raises:
        ConfigError: a value is neither a JSON object nor KEY=VALUE.
    """
    from harness.settings.values import table_texts  # slow to import, and lists do not need the settings

    merged: JsonDict = {}
    for table in table_texts(texts or (), "-a"):
        merged.update(table)
    return merged


def width_of(console: Console) -> int:
    """Return the line width of a console, in cells."""
    return console.width if console.is_terminal or "COLUMNS" in os.environ else _PIPED_WIDTH


def table(
    rows: Iterable[Sequence[str]], width: int, *, head: Sequence[str] = (), indent: str = "", wrap: bool = False
) -> list[str]:
    """Format rows as aligned columns. The last column takes the remaining width.

    Args:
        rows: Cells; control characters are removed here.
        width: Width of the table in cells.
        head: Column headings; empty for none.
        indent: Prefix of every line.
        wrap: Wrap a last cell that is too long; otherwise truncate it.
    """
    cells = [[clean(cell, 1000) for cell in row] for row in rows]
    if not cells:
        return []
    columns = [Column(name, each, True) for name, *each in zip(head or [""] * len(cells[0]), *cells, strict=True)]
    columns[-1] = replace(columns[-1], shrink="wrap" if wrap else "end", least=24 if wrap else 8)
    return [indent + line.plain for line in table_lines(columns, width - len(indent))]


def write(lines: Iterable[Text | str], console: Console | None = None) -> None:
    """Print lines without markup, by default on stdout."""
    print_lines(lines, console or make_console())


def write_fitted(lines_of: Callable[[int], Iterable[Text | str]]) -> None:
    """Print on stdout the lines that a function returns for the line width of stdout."""
    console = make_console()
    print_lines(lines_of(width_of(console)), console)


def write_text(text: str) -> None:
    """Print a whole document on stdout, in UTF-8 in every locale.

    Raises:
        StoreError: stdout cannot be written, for example because its disk is full.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # the reader has seen enough: ends the command without a message
    except OSError as error:
        raise StoreError(f"cannot write to stdout: {error.strerror or error}") from error


def write_json(value: object) -> None:
    """Print a value as indented JSON on stdout."""
    typer.echo(json.dumps(value, indent=2))


def write_result(lines_of: Callable[[int], Iterable[Text | str]], document: object, *, as_json: bool) -> None:
    """Print a result on stdout: as lines fitted to the line width, or its JSON form with `as_json`."""
    if as_json:
        write_json(document)
    else:
        write_fitted(lines_of)


def can_ask() -> bool:
    """Return whether a user can answer a question on the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> bool:
    """Ask a yes-or-no question on stderr; no is the default."""
    typer.echo(f"{question} [y/N]: ", nl=False, err=True)  # typer's prompt would print a space on stdout
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def shown(path: Path | str) -> str:
    """Return a path as the user would type it."""
    return shown_path(Path(path), Path.cwd())
