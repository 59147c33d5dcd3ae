"""Text that others wrote, made harmless for a terminal. Model output, tool output, dataset text, endpoint messages and
environment names are untrusted: a control sequence among them can clear the screen, set the clipboard or fake output.

Owns that one filter and the consoles that everything is printed on."""

from __future__ import annotations

import io
import re
import sys
from typing import IO

from rich.cells import cell_len, chop_cells
from rich.console import Console

LIMIT = 300
"""Characters of one foreign text in a line: enough for an error message, too few to push the rest off the screen."""

_STRINGS = re.compile(r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)")
"""OSC, DCS, SOS, PM and APC with what they carry: titles, links, clipboard contents. One that never ends loses only its
introducer below, so that nothing can hide the text after it. No part can match in two ways: linear time."""

_SEQUENCES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")
"""CSI (colours, cursor, erase) and two-character escapes."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls: show text in another order
    "\u00ad\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible
    "\U000e0000-\U000e007f]"  # tag characters: invisible copies of ASCII
)

_SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters: no output encoding can write them."""


def clean(text: object, limit: int = LIMIT) -> str:
    """One line of `text` without anything that a terminal would obey.

    Args:
        text: Anything; its `str` is taken.
        limit: Characters at most; what is longer ends in `…`.
    """
    # The cut comes first, with room for what is removed, so that a huge text costs nothing.
    line = " ".join(clean_block(str(text)[: 4 * limit + 100]).split())
    return line if len(line) <= limit else line[: max(0, limit - 1)] + "…"


def clean_block(text: str) -> str:
    """`text` with its lines and tabs kept and everything that a terminal would obey removed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    text = _SEQUENCES.sub("", _STRINGS.sub("", text))
    return _SURROGATES.sub("\ufffd", _UNSEEN.sub("", text))


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
