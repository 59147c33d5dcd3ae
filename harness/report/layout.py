"""Tables and paragraphs as lines of a given width. `rich.table.Table` lays out every table."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from harness.report.numerals import NONE
from harness.report.text import fit, in_ascii

LEAST_NAME, MOST_NAME = 12, 40
"""Minimum and maximum cells of a name."""

NAME_SHARE = 4
"""Names keep at least 1 / NAME_SHARE of the width, if columns of figures can move to another table."""

GAP = 2
"""Cells between two columns."""

_BOX = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
"""A line below the header, and no other borders."""


@dataclass(frozen=True, slots=True)
class Column:
    """A header and the cells below it."""

    head: str
    cells: Sequence[str]
    is_text: bool = False
    """Whether the cells are aligned on the left, as text; figures are aligned on the right."""
    shrink: Literal["", "middle", "end", "wrap"] = ""
    """How to narrow the column in a table that is too wide: cut its cells in the middle or at the end, or wrap them; ""
    to leave them unchanged."""
    least: int = 0
    """Minimum width in character cells to which the column may shrink."""
    style: str = ""

    @property
    def width(self) -> int:
        """Width of the column in cells when nothing is cut."""
        return max(map(cell_len, [self.head, *self.cells]))

    @property
    def narrowest(self) -> int:
        """Minimum width of the column in cells."""
        return min(self.width, self.least) if self.shrink else self.width


Group: TypeAlias = list[Column]
"""Columns that stay in one table when others move to the next."""


class _Cells:
    """All cells of a column as one block of text for rich, which is far faster than a rich cell for each."""

    def __init__(self, cells: Sequence[str], column: Column) -> None:
        self._cells, self._column = cells, column

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self._column.narrowest, max(map(cell_len, self._cells)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, column = options.max_width, self._column
        for cell in self._cells:
            parts = [cell]
            if cell_len(cell) > width:
                parts = textwrap.wrap(cell, width) if column.shrink == "wrap" else [_cut(cell, width, column.shrink)]
            for part in parts:
                space = " " * (width - cell_len(part))
                yield Segment(part + space if column.is_text else space + part)
                yield Segment.line()


def _cut(cell: str, width: int, shrink: str) -> str:
    if shrink == "middle":
        return fit(cell, width)
    text = Text(cell)
    text.truncate(width, overflow="ellipsis")
    return text.plain


def table_lines(columns: Sequence[Column], width: int) -> Iterator[Text]:
    """Format a table as lines of text, with a header unless all headers are empty.

    Args:
        columns: The columns; no line if they have no cells.
        width: Width of the terminal in cells. A table whose columns cannot shrink enough is wider.
    """
    count = len(columns[0].cells)
    if not count:
        return
    has_head = any(column.head for column in columns)
    table = Table(box=_BOX, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_header=has_head)
    for column in columns:
        table.add_column(
            _Cells([column.head], column), min_width=column.narrowest, no_wrap=not column.shrink, style=column.style
        )
    step = 1 if any(column.shrink == "wrap" for column in columns) else count
    for start in range(0, count, step):
        table.add_row(*(_Cells(column.cells[start : start + step], column) for column in columns))
    console = Console(file=io.StringIO(), width=width)
    for number, segments in enumerate(Segment.split_lines(console.render(table))):
        line = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        line.rstrip()
        yield Text(line.plain, "bold") if has_head and number == 0 else line


def table_width(columns: Sequence[Column]) -> int:
    """Minimum width of a table in cells."""
    return sum(column.narrowest for column in columns) + GAP * (len(columns) - 1)


def grid(
    names: Sequence[str], what: str, groups: Sequence[Group], width: int, *, least: int | None = None
) -> Iterator[Text]:
    """Format groups of columns as one or more tables, each beginning with the names and holding as many groups as fit.
    A later table omits rows that have no value in it. A blank line separates two tables.

    Args:
        names: Name of each row, without control characters.
        what: Header of the column of names.
        groups: Groups of columns, each column with a cell for every name.
        width: Width of the terminal in cells. A table with a single group may be wider.
        least: Minimum cells of a name if figures can move to another table; None for a share of the width.
    """
    longest = min(MOST_NAME, max(map(cell_len, [what, *names])))
    least = min(longest, max(LEAST_NAME, width // NAME_SHARE if least is None else least))
    packed: list[Group] = []
    for group in groups:
        if packed and least + GAP + table_width([*packed[-1], *group]) <= width:
            packed[-1] = [*packed[-1], *group]
        else:
            packed.append(list(group))
    # The same width in all tables, so that a name is cut the same way in each.
    room = min([longest, *(max(min(longest, LEAST_NAME), width - GAP - table_width(columns)) for columns in packed)])
    for position, columns in enumerate(packed):
        rows = [
            row for row in range(len(names)) if not position or any(column.cells[row] != NONE for column in columns)
        ]
        shown = [Column(what, [fit(names[row], room).rstrip() for row in rows], is_text=True)]
        shown += [replace(column, cells=[column.cells[row] for row in rows]) for column in columns]
        if position and rows:
            yield Text()
        yield from table_lines(shown, width)


def prose(words: str, width: int, style: str = "", *, indent: int = 0, break_words: bool = True) -> Iterator[Text]:
    """Wrap text into lines; continuation lines of an indented paragraph are indented by two more cells.

    Args:
        words: The text.
        width: Maximum width of a line in cells.
        style: Style of the lines.
        indent: Cells before the first line.
        break_words: Whether to break words that are too long; without it, paths can be copied.
    """
    first, later = " " * indent, " " * (indent + 2 if indent else 0)
    wrapped = textwrap.wrap(
        words, max(20, width), initial_indent=first, subsequent_indent=later, break_long_words=break_words,
        break_on_hyphens=False,
    )  # fmt: skip
    yield from (Text(line, style) for line in wrapped)


def labelled(
    label: str, words: str, width: int, *, break_words: bool = True, max_lines: int | None = None
) -> Iterator[Text]:
    """Wrap text to the right of a label; if it has more than `max_lines` lines, the last one ends with `…`."""
    wrapped = textwrap.wrap(
        words, max(len(label) + 20, width), initial_indent=label, subsequent_indent=" " * len(label),
        break_long_words=break_words, break_on_hyphens=break_words, max_lines=max_lines, placeholder=" …",
    )  # fmt: skip
    yield from map(Text, wrapped)


def head(words: str) -> Text:
    """A line of text in bold, as a header."""
    return Text(words, "bold")


def plain(line: Text) -> Text:
    """Convert a line to ASCII, for terminals that support no other characters."""
    return Text(in_ascii(line.plain), line.style)


def print_lines(lines: Iterable[Text | str], console: Console) -> None:
    """Print lines without wrapping, so that paths and commands can be copied; in ASCII on terminals that support no
    other characters."""
    for line in lines:
        text = Text(line) if isinstance(line, str) else line
        console.print(plain(text) if console.options.ascii_only else text, soft_wrap=True)
