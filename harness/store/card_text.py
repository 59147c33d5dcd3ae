"""Untrusted text in Markdown: as one line that can be nothing but text, and as a block of code that it cannot leave.
Owns what is escaped; knows nothing of cards."""

from __future__ import annotations

import html
import re

from harness.harmless import OBEYED

_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_CONTROL = re.compile(rf"(?:[\s\x00-\x1f\u200c\u200d]|{OBEYED.pattern})+")


def escape(text: str) -> str:
    """Untrusted text as one line of Markdown that renders as itself, also inside a table."""
    flat = _CONTROL.sub(" ", text).strip()
    return _SPECIAL.sub(r"\\\1", html.escape(flat, quote=False))


def fenced(text: str, language: str) -> str:
    """A code block that `text` cannot end early, and in which nothing is hidden."""
    text = OBEYED.sub("\ufffd", text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
