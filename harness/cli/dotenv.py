"""`.env` in the working directory. Owns reading it into an environment; only the command line calls it, so that
importing the package never changes a process.

A parser of its own, since the format needed is a page of code: `NAME=value`, optional `export`, `#` comments, quotes.
No interpolation and no multi-line values: what a key holds is what stands there.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from pathlib import Path

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*?)\s*")
_DOUBLE = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_SINGLE = re.compile(r"'(?P<text>[^']*)'\s*(?:#.*)?")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse(text: str) -> tuple[dict[str, str], list[int]]:
    """The variables in `text`, and the numbers of lines that are not understood."""
    variables: dict[str, str] = {}
    wrong: list[int] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        value = _value(match["value"]) if match else None
        if match is None or value is None:
            wrong.append(number)
        else:
            variables[match["name"]] = value
    return variables, wrong


def _value(text: str) -> str | None:
    if text.startswith('"'):
        match = _DOUBLE.fullmatch(text)
        return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), match["text"]) if match else None
    if text.startswith("'"):
        match = _SINGLE.fullmatch(text)
        return match["text"] if match else None
    return _COMMENT.sub("", text)


def load(path: Path, environ: MutableMapping[str, str]) -> list[str]:
    """Put the variables of `path` into `environ` where they are not set yet.

    Args:
        path: The file; nothing happens when there is none.
        environ: The process's environment.

    Returns:
        Notices, one line each, about what could not be read; never a value.
    """
    if not path.is_file():
        return []
    try:
        variables, wrong = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        return [f"{path.name} was not read: {type(exc).__name__}"]
    for name, value in variables.items():
        environ.setdefault(name, value)
    return [f"{path.name}, line {number}: not NAME=value; skipped" for number in wrong]
