"""Remove control sequences from untrusted text before it is shown in a terminal.

Model output, tool output, dataset text, endpoint messages, environment names and output printed by environments are
untrusted: a control sequence in them can clear the screen, set the clipboard or fake output."""

from __future__ import annotations

import json
import re

LIMIT = 300
"""Default maximum length of untrusted text in a line, in characters."""

_STRINGS = re.compile(r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)")
"""Pattern of the escape sequences OSC, DCS, SOS, PM and APC with their contents: titles, links, clipboard contents. If
such a sequence is not terminated, only its first characters are removed, so that it cannot hide the text after it. The
pattern is unambiguous, so matching takes linear time."""

_SEQUENCES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")
"""Pattern of CSI sequences (colors, cursor, erase) and two-character escapes."""

HIDDEN = (
    "\u061c\u200e\u200f\u202a-\u202e"  # bidirectional controls: show text in another order
    "\u00ad\u200b\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, and more of those controls
    "\U000e0000-\U000e007f"  # tag characters: invisible copies of ASCII
)
"""Invisible characters, for use inside the brackets of a regular expression."""

_UNSEEN = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{HIDDEN}]")
"""Pattern of control characters except tab and newline, and of invisible characters."""

_SURROGATES = re.compile("[\ud800-\udfff]")
"""Pattern of lone surrogates, which no output encoding can represent."""

OBEYED = re.compile(f"{_UNSEEN.pattern}|{_SURROGATES.pattern}|[\u2028\u2029]")
"""Pattern of one character that is invisible or that a terminal interprets."""


def clean(text: object, limit: int = LIMIT) -> str:
    """Convert `text` to one line without control characters.

    Args:
        text: Any object, which is converted with `str`.
        limit: Maximum number of characters; longer text is cut and ends in `…`.
    """
    # Cut first, with room for removed characters, so that a huge text takes no time.
    line = " ".join(clean_block(str(text)[: 4 * limit + 100]).split())
    return line if len(line) <= limit else line[: max(0, limit - 1)] + "…"


def clean_block(text: str) -> str:
    """Remove control characters from `text`, keeping line breaks and tabs."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    text = _SEQUENCES.sub("", _STRINGS.sub("", text))
    return _SURROGATES.sub("\ufffd", _UNSEEN.sub("", text))


def plain_json(value: object) -> str:
    """Format a value as indented JSON that is safe in a terminal. Letters of all languages are kept; control characters
    and invisible characters are escaped. Values that JSON cannot represent are converted with `str`."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return OBEYED.sub(lambda found: json.dumps(found.group())[1:-1], text)
