"""What the commands of `bench env` share: their options, and tables that fit the terminal."""

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
"""Where projects of environments lie unless one says otherwise."""

ENV_ARGS_HELP = "Arguments of load_environment(): a JSON object, or KEY=VALUE; repeatable."

_PIPED_WIDTH = 1000
"""Cells of a line that no terminal shows: nothing is cut."""

_GAP = "  "


def env_args(texts: Sequence[str] | None) -> JsonDict:
    """What the uses of -a say together; a later one wins.

    Raises:
        ConfigError: one is neither a JSON object nor KEY=VALUE.
    """
    from harness.settings.values import table_texts  # the table of settings is slow to import, and lists need none

    merged: JsonDict = {}
    for table in table_texts(texts or (), "-a"):
        merged.update(table)
    return merged


def width_of(console: Console) -> int:
    """Cells of a line."""
    return console.width if console.is_terminal or "COLUMNS" in os.environ else _PIPED_WIDTH


def table(
    rows: Iterable[Sequence[str]], width: int, *, head: Sequence[str] = (), indent: str = "", wrap: bool = False
) -> list[str]:
    """Rows as aligned columns. The last column takes what is left of the width.

    Args:
        rows: Cells; foreign text is made harmless here.
        width: Of the whole.
        head: The columns' heads, if they have any.
        indent: In front of every line.
        wrap: Whether a last cell that is too long goes on below, or is cut.
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
    """`text` without its end: it is prose, and its beginning says most."""
    while cell_len(text) > size - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def write(lines: Iterable[str], console: Console | None = None) -> None:
    """Print lines as they are, by default on stdout, in an encoding that can hold them."""
    console = console or make_console()
    for line in lines:
        console.print(line, soft_wrap=True)


def shown(path: Path | str) -> str:
    """A path as the user would type it."""
    return shown_path(Path(path), Path.cwd())
