"""Load `.env` of the working directory into the environment. Only the command line does this, so that importing the
package never changes environment variables."""

from __future__ import annotations

import io
from collections.abc import MutableMapping
from pathlib import Path


def load(path: Path, environ: MutableMapping[str, str]) -> list[str]:
    """Set the variables of a `.env` file in `environ`, except those already set.

    Args:
        path: The file; may be missing.
        environ: Environment variables to update.

    Returns:
        Notices, one line each, about lines that cannot be parsed; they contain no values.
    """
    if not path.is_file():
        return []
    try:
        variables, wrong = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return [f"{path.name} was not read: {type(error).__name__}"]
    for name, value in variables.items():
        environ.setdefault(name, value)
    return [f"{path.name}, line {line} was skipped: it is not of the form NAME=value" for line in wrong]


def parse(text: str) -> tuple[dict[str, str], list[int]]:
    """Parse a `.env` file into its variables and the numbers of lines that are not `NAME=value`. Values are not
    interpolated."""
    from dotenv.parser import parse_stream  # slow to import, and most commands find no such file

    variables: dict[str, str] = {}
    wrong: list[int] = []
    for binding in parse_stream(io.StringIO(text.removeprefix("\ufeff"))):
        whole, key, value = binding.original.string, binding.key, binding.value
        if binding.error or (key is not None and (value is None or not key.isidentifier())):
            wrong.append(binding.original.line + whole[: len(whole) - len(whole.lstrip())].count("\n"))
        elif key is not None and value is not None:
            is_comment = whole.partition("=")[2].lstrip(" \t").startswith("#")  # which the parser reads as a value
            variables[key] = "" if is_comment else value
    return variables, wrong
