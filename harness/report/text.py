"""What everything is printed on: consoles that take text literally, and words that fit a place. The filter of foreign
text is `harmless`'s; whoever prints has it from here."""

from __future__ import annotations

import io
import sys
from typing import IO

from rich.cells import cell_len, chop_cells
from rich.console import Console

from harness.core.safe_text import LIMIT as LIMIT
from harness.core.safe_text import clean as clean
from harness.core.safe_text import clean_block as clean_block
from harness.core.safe_text import plain_json as plain_json

_ASCII = str.maketrans({"─": "-", "–": "-", "…": "~", "≥": ">", "±": "+/-", "×": "x", "·": "-"})


def in_ascii(words: str) -> str:
    """Words of ours for a terminal that has no characters but ASCII's; names of others keep what they are made of."""
    return words.translate(_ASCII)


def fit(text: str, width: int) -> str:
    """`text` padded or cut to `width` cells. A cut leaves out the middle: names differ at both ends."""
    length = cell_len(text)
    if length <= width:
        return text + " " * (width - length)
    if width < 4:
        return text[:width]
    head = chop_cells(text, (width - 1) // 2)[0]
    tail = chop_cells(text[::-1], width - 1 - cell_len(head))[0][::-1]
    short = f"{head}…{tail}"
    return short + " " * (width - cell_len(short))


class PlainConsole(Console):
    """A console that takes every text literally and survives a reader that went away."""

    def on_broken_pipe(self) -> None:
        """Say no more. rich would end the process here, and silence stdout for a broken stderr."""
        self.quiet = True


def make_console(*, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> PlainConsole:
    """A console on stdout, stderr or `file`: no markup, no emoji codes, no guessed highlighting.

    Its stream replaces what its encoding cannot write instead of raising.
    """
    stream = file or (sys.stderr if stderr else sys.stdout)
    if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
        stream.reconfigure(errors="replace")
    return PlainConsole(stderr=stderr, file=file, width=width, markup=False, emoji=False, highlight=False)
