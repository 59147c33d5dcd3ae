"""Common options of the `bench env` commands, and tables fitted to the terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console

from harness.core.types import JsonDict
from harness.report.text import clean, fit, make_console
from harness.settings.wording import shown_path

FOLDER = Path("environments")
"""Default folder of environment projects."""

ENV_ARGS_HELP = "Arguments of load_environment(): a JSON object, or KEY=VALUE; repeatable."

_PIPED_WIDTH = 1000
"""Line width in cells without a terminal: nothing is truncated."""

_GAP = "  "


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
    """Line width of a console, in cells."""
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
    every = [list(head), *cells] if head else cells
    if not every:
        return []
    widths = [max(cell_len(row[column]) for row in every) for column in range(len(every[0]))]
    left = width - cell_len(indent) - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    widths[-1] = max(8 if not wrap else 24, min(widths[-1], left))
    lines: list[str] = []
    for row in every:
        parts = textwrap.wrap(row[-1], widths[-1]) or [""] if wrap else [row[-1]]
        for number, part in enumerate(parts):
            first = row[:-1] if number == 0 else [""] * (len(row) - 1)
            line = _GAP.join(_cell(cell, size) for cell, size in zip([*first, part], widths, strict=True))
            lines.append((indent + line).rstrip())
    if head:
        lines.insert(1, indent + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    return lines


def _cell(text: str, size: int) -> str:
    if cell_len(text) <= size:
        return text + " " * (size - cell_len(text))
    return fit(text[: 4 * size], size) if size < 12 else _cut(text, size)


def _cut(text: str, size: int) -> str:
    """Truncate a text at its end."""
    while cell_len(text) > size - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def write(lines: Iterable[str], console: Console | None = None) -> None:
    """Print lines without markup, by default on stdout."""
    console = console or make_console()
    for line in lines:
        console.print(line, soft_wrap=True)


def shown(path: Path | str) -> str:
    """Path as the user would type it."""
    return shown_path(Path(path), Path.cwd())
