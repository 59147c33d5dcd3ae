"""Text of cards and pages: untrusted text in Markdown, as one line and as a block of code, and a run's settings."""

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
    """Untrusted text as one line of Markdown that renders as itself, also inside a table."""
    flat = _CONTROL.sub(" ", text).strip()
    return _SPECIAL.sub(r"\\\1", html.escape(flat, quote=False))


def fenced(text: str, language: str) -> str:
    """A code block that `text` cannot end early, and in which nothing is hidden."""
    text = OBEYED.sub("\ufffd", text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def shown_config(path: Path, cap: int = DOCUMENT) -> str | None:
    """The text of a run's `config.toml` for readers; None if it cannot be read.

    One that an older version or a person wrote may hold secrets under their names: then it is written anew without
    them, and without its comments but those above the first line.

    Args:
        path: The file.
        cap: Bytes at most.
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
