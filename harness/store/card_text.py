"""Text for Markdown cards and pages: escaping and fencing of untrusted text, and a run's `config.toml`."""

from __future__ import annotations

import html
import re
import tomllib
from itertools import takewhile
from pathlib import Path
from typing import cast

from harness.core.redact import hidden
from harness.core.safe_text import OBEYED
from harness.core.size_limits import DOCUMENT
from harness.core.types import JsonDict
from harness.store.safe_files import read_file

_SPECIAL = re.compile(r"([\\`*_\[\]|~$])")
_CONTROL = re.compile(rf"(?:[\s\x00-\x1f\u200c\u200d]|{OBEYED.pattern})+")


def escape(text: str) -> str:
    """Escape untrusted text as one line of Markdown that renders literally, also inside a table."""
    flat = _CONTROL.sub(" ", text).strip()
    return _SPECIAL.sub(r"\\\1", html.escape(flat, quote=False))


def fenced(text: str, language: str) -> str:
    """Format `text` as a Markdown code block. The text cannot end the block, and invisible characters are replaced."""
    text = OBEYED.sub("\ufffd", text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def shown_config(path: Path, cap: int = DOCUMENT) -> str | None:
    """Text of a run's `config.toml` for cards and pages; None if it cannot be read.

    A file from an older version, or edited by hand, may contain named secrets. They are then redacted, and comments are
    removed, except those above the first line.

    Args:
        path: The file.
        cap: Maximum size in bytes.
    """
    import tomli_w

    try:
        text = read_file(path, cap).decode("utf-8")
        document: JsonDict = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        return None
    # The `key` of an `[[endpoint]]` names a variable.
    clean = {**cast(JsonDict, hidden(document)), **{name: document[name] for name in ("endpoint",) if name in document}}
    if clean == document:
        return text
    head = "".join(takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True)))
    return f"{head}\n{tomli_w.dumps(clean)}"
