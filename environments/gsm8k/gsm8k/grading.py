r"""What a reply's final answer is, as an exact number. Owns the reading of `\boxed{}` and `####`; knows no dataset.

The rules, each against a way to be credited for an answer that was not given:

- Thinking is no answer: only what follows the last `</think>` counts, and nothing of a `<think>` that never closes.
- Only marked answers count: every `\boxed{…}`, and what follows `####` on its line. A number in prose is nothing.
- A reply commits to one number. Marks that disagree, or a mark that holds several numbers, are no answer: listing
  `\boxed{18}` and `\boxed{19}` earns nothing, in either order.
- A mark is read whole: `18 apples` is 18; `18 or more`, `1.5 million`, `9+9` and `18 or 19` are not numbers.
- Markup does not matter: currency, `%`, thousands separators, trailing `.0`, spaces, units, typographic minus signs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction

MAX_LENGTH = 200
"""Longer marks are no numbers: keeps arithmetic on a hostile reply's million digits out of the grader."""

_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|(?<!\\)[{}]")
_HASHES = re.compile(r"(?<!#)####(?!#)([^\n]*)")
_ENUMERATED = re.compile(r"\d+[.)]\s+\S")
"""`#### 1. Count the eggs` is a Markdown heading of level four, not an answer of 1."""
_LABEL = re.compile(r"[^\d=:]{0,40}[=:]")
"""`x =` or `Total:` before the number."""

_FRACTION = re.compile(r"\A(\D*)\\[dt]?frac\{(\d+)\}\{(\d+)\}")
_LATEX = (
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\[,;: ()\[\]]|~"), " "),
    (re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathit|mbox|boxed|fbox|left|right)(?![a-z])"), " "),
    (re.compile(r"\^?\{?\\(?:circ|degree)\}?"), "°"),
    (re.compile(r"\\(?=[%$])"), ""),
    (re.compile(r"[{}$€£¥₹]"), " "),
    (re.compile(r"(?<=[A-Za-z])\s*(?:\^\s*[23](?!\s*\d)|[²³])"), ""),  # square and cubic units
)
_CHARACTERS = str.maketrans(dict.fromkeys("−‐‑‒–—﹣-", "-") | {",": ",", ".": ".", "+": "+"})

_NUMBER = re.compile(
    r"(?P<sign>[-+]?) ?"
    r"(?P<value>(?:\d{1,3}(?:,\d{2,3})*,\d{3}(?!\d)|\d{1,3}(?: \d{3})+(?!\d)|\d+)(?:\.\d*)?|\.\d+)"
    r"(?P<power>[eE][-+]?\d{1,2}(?!\d))?"
    r"(?: ?/ ?(?P<divisor>\d+))?"
    r"(?P<unit>.*)"
)
_UNIT = re.compile(r"[^\W\d_]+|[\s%°.'’\"/()-]")
_NOT_UNITS = {
    "or", "and", "to", "k", "K", "M", "bn", "hundred", "thousand", "million", "billion", "trillion", "dozen",
}  # fmt: skip
"""What changes the number or offers another one."""


def final_answer(reply: str) -> Fraction | None:
    """The one number that a reply commits to, or None.

    Args:
        reply: Text of the last assistant message.
    """
    said = reply.rpartition("</think>")[2].partition("<think>")[0]
    values = {number(mark) for mark in set(_marks(said))}
    return values.pop() if len(values) == 1 else None


def number(text: str) -> Fraction | None:
    """The exact value of a text that is one number with or without unit, or None.

    Args:
        text: For instance `$1,234.0`, `-3/4`, `18 apples`, `x = \\frac{1}{2}`.
    """
    if len(text) > MAX_LENGTH:
        return None
    plain = _plain(text)
    found = _NUMBER.fullmatch(_LABEL.sub("", plain, count=1).strip() if _LABEL.match(plain) else plain)
    if found is None or not _is_unit(found["unit"]):
        return None
    divisor = int(found["divisor"] or 1)
    if divisor == 0:
        return None
    digits = re.sub("[ ,]", "", found["value"])
    return Fraction(found["sign"] + digits.removesuffix(".") + (found["power"] or "")) / divisor


def _marks(text: str) -> Iterator[str]:
    """The contents of all answer marks; boxes without any digit and headings are none."""
    rest: list[str] = []
    position = 0
    for start, end, content in _boxes(text):
        rest.append(text[position:start])
        position = end
        if any(char.isnumeric() for char in content):
            yield content
    rest.append(text[position:])
    for found in _HASHES.finditer(" ".join(rest)):
        content = found[1].strip()[: MAX_LENGTH + 1]
        if not _ENUMERATED.match(content) and _NUMBER.match(_LABEL.sub("", _plain(content), count=1).strip()):
            yield content


def _boxes(text: str) -> list[tuple[int, int, str]]:
    r"""Start, end and content of each outermost, closed `\boxed{…}`; one pass, so that nesting costs nothing."""
    boxes: list[tuple[int, int, str]] = []
    open_braces: list[re.Match[str]] = []
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            open_braces.append(brace)
        elif open_braces:
            opening = open_braces.pop()
            if opening[0] != "{":
                while boxes and boxes[-1][0] > opening.start():
                    boxes.pop()  # it stood inside this one
                boxes.append((opening.start(), brace.end(), text[opening.end() : brace.start()]))
    return boxes


def _plain(text: str) -> str:
    """`text` without markup, its digits ASCII, its spaces single."""
    text = _FRACTION.sub(r"\1\2/\3", text.translate(_CHARACTERS))
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    # superscripts and vulgar fractions have no decimal value, so they stay and spoil the number, as they should
    text = "".join(str(unicodedata.decimal(char, char)) for char in text)
    return " ".join(text.split()).strip("*_` ")


def _is_unit(text: str) -> bool:
    """Whether what follows a number leaves its value alone."""
    if any(char.isnumeric() for char in text) or _UNIT.sub("", text):
        return False
    return _NOT_UNITS.isdisjoint(re.findall(r"\w+", text))
