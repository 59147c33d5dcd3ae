"""Load `.env` of the working directory into the environment. Only the command line does this, so that importing the
package never changes a process."""

from __future__ import annotations

import io
from collections.abc import MutableMapping
from pathlib import Path


def load(path: Path, environ: MutableMapping[str, str]) -> list[str]:
    """Put the variables of a `.env` file into `environ` where they are not set yet. Values are not interpolated.

    Args:
        path: The file; it may be missing.
        environ: The process's environment.

    Returns:
        Notices, one line each, about lines that could not be read; never a value.
    """
    if not path.is_file():
        return []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return [f"{path.name} was not read: {type(error).__name__}"]
    from dotenv.parser import parse_stream  # most commands find no such file

    notices: list[str] = []
    for binding in parse_stream(io.StringIO(text)):
        whole, key, value = binding.original.string, binding.key, binding.value
        if binding.error or (key is not None and (value is None or not key.isidentifier())):
            line = binding.original.line + whole[: len(whole) - len(whole.lstrip())].count("\n")
            notices.append(f"{path.name}, line {line}: not NAME=value; skipped")
        elif key is not None and value is not None:
            is_comment = whole.partition("=")[2].lstrip(" \t").startswith("#")  # which the parser takes for a value
            environ.setdefault(key, "" if is_comment else value)
    return notices
