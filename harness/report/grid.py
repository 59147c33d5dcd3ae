"""Tables with names in the first column and figures in the others, as lines of a given width. Names are cut if space is
short, and groups of columns move to another table; figures are never cut."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.text import Text

from harness.report.text import fit, in_ascii

LEAST_NAME, MOST_NAME = 12, 40
"""Minimum and maximum cells of a name."""

NAME_SHARE = 4
"""Share of the width, as 1 / NAME_SHARE, that names keep when figures can move to another table."""

GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A header and the cells below it, as text."""

    head: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        """Width of the column in cells."""
        return max(map(cell_len, [self.head, *self.cells]))


Group: TypeAlias = list[Column]
"""Columns that stay together."""


def grid(names: Sequence[str], what: str, groups: Sequence[Group], width: int) -> Iterator[Text]:
    """Format groups of columns beside the names, as many per table as fit; tables are separated by a blank line.

    Args:
        names: Name of each row, cleaned.
        what: Header of the names.
        groups: Groups of columns, each column with a cell for every name.
        width: Width of the terminal in cells. A table with a single group may be wider.
    """
    longest = min(MOST_NAME, max(map(cell_len, [what, *names])))
    least = min(longest, max(LEAST_NAME, width // NAME_SHARE))
    packed: list[Group] = []
    for group in groups:
        if packed and least + _width([*packed[-1], *group]) <= width:
            packed[-1] = [*packed[-1], *group]
        else:
            packed.append(list(group))
    # The same width in all tables, so that a name is cut the same way in each.
    room = min([longest, *(max(min(longest, LEAST_NAME), width - _width(columns)) for columns in packed)])
    for position, columns in enumerate(packed):
        if position:
            yield Text()
        yield from _table([fit(name, room) for name in [what, *names]], columns)


def _table(names: Sequence[str], columns: Group) -> Iterator[Text]:
    rows = [[column.head for column in columns], *zip(*(column.cells for column in columns), strict=True)]
    for position, (name, row) in enumerate(zip(names, rows, strict=True)):
        cells = [" " * (column.width - cell_len(cell)) + cell for cell, column in zip(row, columns, strict=True)]
        yield Text((" " * GAP).join([name, *cells]).rstrip(), "bold" if position == 0 else "")
        if position == 0:
            yield Text("─" * (cell_len(name) + _width(columns)))


def _width(columns: Group) -> int:
    return sum(GAP + column.width for column in columns)


def prose(words: str, width: int, style: str = "", *, indent: int = 0) -> Iterator[Text]:
    """Wrap text into lines; continuation lines of an indented paragraph are indented by two more cells."""
    first, later = " " * indent, " " * (indent + 2 if indent else 0)
    wrapped = textwrap.wrap(
        words, max(20, width), initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )
    yield from (Text(line, style) for line in wrapped)


def head(words: str) -> Text:
    """A bold header line."""
    return Text(words, "bold")


def plain(line: Text) -> Text:
    """A line converted to ASCII, for terminals without other characters."""
    return Text(in_ascii(line.plain), line.style)
