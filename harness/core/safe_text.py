"""Text that others wrote, made harmless for a terminal. Model output, tool output, dataset text, endpoint messages,
environment names and what environments print are untrusted: a control sequence among them can clear the screen, set the
clipboard or fake output.

Owns that one filter; `report.text` has the consoles that everything is printed on."""

from __future__ import annotations

import json
import re

LIMIT = 300
"""Characters of one foreign text in a line: enough for an error message, too few to push the rest off the screen."""

_STRINGS = re.compile(r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)")
"""OSC, DCS, SOS, PM and APC with what they carry: titles, links, clipboard contents. One that never ends loses only its
introducer below, so that nothing can hide the text after it. No part can match in two ways: linear time."""

_SEQUENCES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")
"""CSI (colours, cursor, erase) and two-character escapes."""

HIDDEN = (
    "\u061c\u200e\u200f\u202a-\u202e"  # bidirectional controls: show text in another order
    "\u00ad\u200b\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, and more of those controls
    "\U000e0000-\U000e007f"  # tag characters: invisible copies of ASCII
)
"""Letters that nobody sees, as what stands in the brackets of a regular expression."""

_UNSEEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{HIDDEN}]")
"""C0 without tab and newline, DEL, C1, and those."""

_SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters: no output encoding can write them."""

OBEYED = re.compile(f"{_UNSEEN.pattern}|{_SURROGATES.pattern}|[\u2028\u2029]")
"""All that is not text: one letter of it."""


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


def plain_json(value: object) -> str:
    """Indented JSON for a terminal as for a program: letters of all languages as they are, everything that a terminal
    would obey, or that nobody sees, as its number. What is no JSON is given as text."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return OBEYED.sub(lambda found: json.dumps(found.group())[1:-1], text)
