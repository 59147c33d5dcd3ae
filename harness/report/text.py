"""Consoles that print text literally, and functions that fit text. Untrusted text is cleaned by `safe_text`."""

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

_ASCII = str.maketrans({"─": "-", "━": "#", "–": "-", "…": "~", "≥": ">", "±": "+/-", "×": "x", "·": "-", "→": "->"})


def in_ascii(words: str) -> str:
    """Convert text written by this program to ASCII; untrusted names in it are not changed."""
    return words.translate(_ASCII)


def fit(text: str, width: int) -> str:
    """Pad or cut `text` to `width` cells. It is cut in the middle, since names differ at both ends."""
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
    """A console that prints all text literally and ignores a broken pipe."""

    def on_broken_pipe(self) -> None:
        """Stop printing. By default rich would end the process, and silence stdout when stderr is broken."""
        self.quiet = True


def make_console(*, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> PlainConsole:
    """Create a console on stdout, stderr or `file`: no markup, no emoji codes, no highlighting. Characters that the
    stream's encoding cannot write are replaced instead of raising an error."""
    stream = file or (sys.stderr if stderr else sys.stdout)
    if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
        stream.reconfigure(errors="replace")
    return PlainConsole(stderr=stderr, file=file, width=width, markup=False, emoji=False, highlight=False)
