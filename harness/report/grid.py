"""Tables whose first column is names and whose others are figures, as lines of a given width. Owns the layout: names
give way where space is short, groups of columns move to a table of their own, and no figure is ever cut."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.text import Text

from harness.report.text import fit, in_ascii

LEAST_NAME, MOST_NAME = 12, 40
"""Cells of a name: what no lack of space takes from it, and what it never exceeds."""

NAME_SHARE = 4
"""A name keeps this part of the width where another table can take the figures that it displaces."""

GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A head and the figures below it, as words."""

    head: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        """Cells that it takes."""
        return max(map(cell_len, [self.head, *self.cells]))


Group: TypeAlias = list[Column]
"""Columns that stay together."""


def grid(names: Sequence[str], what: str, groups: Sequence[Group], width: int) -> Iterator[Text]:
    """The groups beside the names, as many in one table as fit; a blank line between two tables.

    Args:
        names: One a row, harmless.
        what: Their head.
        groups: Each column with a cell for every name.
        width: Of the terminal, in cells. A table of one group may be wider if it must.
    """
    longest = min(MOST_NAME, max(map(cell_len, [what, *names])))
    least = min(longest, max(LEAST_NAME, width // NAME_SHARE))
    packed: list[Group] = []
    for group in groups:
        if packed and least + _width([*packed[-1], *group]) <= width:
            packed[-1] = [*packed[-1], *group]
        else:
            packed.append(list(group))
    # One width for all, so that a name looks the same in each.
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
    """Words as lines; those of an indented paragraph hang by two more cells."""
    first, later = " " * indent, " " * (indent + 2 if indent else 0)
    wrapped = textwrap.wrap(
        words, max(20, width), initial_indent=first, subsequent_indent=later, break_on_hyphens=False
    )
    yield from (Text(line, style) for line in wrapped)


def head(words: str) -> Text:
    """A line that begins a part."""
    return Text(words, "bold")


def plain(line: Text) -> Text:
    """A line for a terminal that has no characters but ASCII's."""
    return Text(in_ascii(line.plain), line.style)
