"""Parse docstrings in the Google, NumPy and reST styles: the description, and the text of each parameter."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

_PARAMETERS = {
    "args", "arguments", "keyword args", "keyword arguments", "other parameters", "parameters", "params",
}  # fmt: skip
"""Headings of sections that describe parameters."""

_OTHERS = {
    "attributes", "example", "examples", "note", "notes", "raises", "references", "return", "returns", "see also",
    "todo", "usage", "warning", "warnings", "warns", "yield", "yields",
}  # fmt: skip
"""Headings of all other sections. Their text is for programmers and not part of the tool's description."""

_GOOGLE_HEADING = re.compile(r"^(?P<title>[A-Za-z][A-Za-z ]*):\s*$")
_GOOGLE_ITEM = re.compile(r"^(?P<name>\*{0,2}\w+)\s*(?:\((?P<type>.*?)\))?\s*:(?:\s+|$)(?P<text>.*)$")
_NUMPY_RULE = re.compile(r"^\s*-{3,}\s*$")
_NUMPY_ITEM = re.compile(r"^(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(r"^:(?P<kind>\w+)(?:\s+(?P<words>[^:]*))?:\s*(?P<text>.*)$")
_FIELD_PARAMETERS = {"arg", "argument", "key", "keyword", "kwarg", "param", "parameter"}


@dataclass(slots=True)
class Documented:
    """A parsed docstring."""

    description: str = ""
    """The text before the first section."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    """Descriptions by parameter name; a description may have several lines."""


def read_docstring(docstring: str | None) -> Documented:
    """Parse a docstring in any of the three styles.

    Args:
        docstring: The docstring as in the source; None if the function has none.
    """
    lines = _lines(docstring or "")
    documented = Documented()
    description: list[str] = []
    index, is_open = 0, True
    while index < len(lines):
        title, body = _heading(lines, index)
        found = _FIELD.match(lines[index])
        if title:
            end = _end_of_section(lines, body, is_numpy=body == index + 2)
            if title in _PARAMETERS:
                read = _numpy if body == index + 2 else _google
                documented.parameters.update(_items(lines[body:end], read))
            index, is_open = end, False
        elif found:
            end = _end_of_block(lines, index + 1)
            words = (found["words"] or "").split()
            if found["kind"] in _FIELD_PARAMETERS and words:
                documented.parameters[words[-1].lstrip("*")] = _joined([found["text"], *lines[index + 1 : end]])
            index, is_open = end, False
        else:
            if is_open:
                description.append(lines[index])
            index += 1
    documented.description = "\n".join(description).strip()
    return documented


def _lines(docstring: str) -> list[str]:
    """The lines of a docstring without their common indentation."""
    lines = inspect.cleandoc(docstring).splitlines()
    match = _GOOGLE_HEADING.match(lines[0]) if len(lines) > 1 else None
    if match and match["title"].lower() in _PARAMETERS and not lines[1].startswith((" ", "\t")):
        # A docstring that is a single section: `cleandoc` removed the indentation of its items.
        return [lines[0], *(f"    {line}" for line in lines[1:])]
    return lines


def _heading(lines: list[str], index: int) -> tuple[str, int]:
    """The title (in lower case) of the section that starts at a line, and the first line of its body; "" if none
    starts."""
    line = lines[index]
    below = lines[index + 1] if index + 1 < len(lines) else ""
    known = _PARAMETERS | _OTHERS
    if line.strip().lower() in known and not line.startswith(" ") and _NUMPY_RULE.match(below):
        return line.strip().lower(), index + 2
    match = _GOOGLE_HEADING.match(line)
    if match and match["title"].lower() in known and (below.startswith((" ", "\t")) or not below.strip()):
        return match["title"].lower(), index + 1
    return "", index


def _end_of_section(lines: list[str], start: int, *, is_numpy: bool) -> int:
    """The end of a section: for NumPy at the next heading, for Google at the first line without indentation."""
    for index in range(start, len(lines)):
        if is_numpy:
            if _heading(lines, index)[0] or _FIELD.match(lines[index]):
                return index
        elif lines[index].strip() and not lines[index].startswith((" ", "\t")):
            return index
    return len(lines)


def _end_of_block(lines: list[str], start: int) -> int:
    """The end of a reST field: the first line after its indented lines."""
    end = start
    for index in range(start, len(lines)):
        if lines[index].startswith((" ", "\t")):
            end = index + 1
        elif lines[index].strip():
            break
    return end


def _google(line: str) -> list[tuple[str, str]]:
    """Parse the line `name (type): text`."""
    match = _GOOGLE_ITEM.match(line)
    return [(match["name"], match["text"])] if match else []


def _numpy(line: str) -> list[tuple[str, str]]:
    """Parse the line `name : type` or `name, other : type`. The text follows in indented lines."""
    match = _NUMPY_ITEM.match(line)
    return [(name, "") for name in re.split(r"\s*,\s*", match["names"])] if match else []


def _items(lines: list[str], head: Callable[[str], list[tuple[str, str]]]) -> dict[str, str]:
    """Parse the items of a section into texts by name. Lines with deeper indentation belong to the item above."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    names: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        heads = [] if line.startswith((" ", "\t")) else head(line)
        if heads:
            names = [name.lstrip("*") for name, _ in heads]
            current = [heads[0][1]]
            found.update(dict.fromkeys(names, current))
        elif names:
            current.append(line)
    return {name: _joined(text) for name, text in found.items()}


def _joined(lines: list[str]) -> str:
    """Join the first line of an item and the lines below it, without their own indentation."""
    below = textwrap.dedent("\n".join(lines[1:]))
    return f"{lines[0].strip()}\n{below}".strip()
