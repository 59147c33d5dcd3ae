r"""The number that a reply commits to. Owns the reading of `\boxed{}`.

Only what follows the thinking counts. A box is read whole: markup, currency, separators of thousands, a unit and `.0`
leave its number alone; anything else in it makes it no number. Boxes that disagree, and one with a number beside one
with something else in digits, are no answer."""

from __future__ import annotations

import re
import unicodedata

MAX_LENGTH = 200
"""Longer boxes hold no number that was asked for."""

_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|(?<!\\)[{}]")

_MARKUP = (
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\!"), ""),
    (re.compile(r"\\[,;: ]|~"), " "),
    (re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mathit|mbox|boxed|fbox)(?![a-z])"), " "),
    (re.compile(r"\\(?=[$])"), ""),
    (re.compile(r"[{}$€£]"), " "),
)
_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?: \d{3})+(?!\d)|\d+)(?:\.0*)?(?![\d,.])(.*)", re.ASCII)
_LABEL = re.compile(r"[^\d=:]{0,40}[=:]")
"""`x =` or `Total:` before the number."""

_UNIT = re.compile(r"[A-Za-z .()]*")
_NOT_UNITS = {"or", "and", "to", "k", "m", "hundred", "thousand", "million", "billion", "dozen"}
"""What changes the number or offers another one."""


def read_number(reply: str) -> str:
    r"""The number in a reply's `\boxed{}`, in plain digits; "" unless it commits to exactly one."""
    said = reply.rpartition("</think>")[2].partition("<think>")[0]
    numbers = {_number(box) for box in _boxes(said) if any(char.isnumeric() for char in box)}
    return numbers.pop() if len(numbers) == 1 else ""


def _number(box: str) -> str:
    """The plain digits of one box, or ""."""
    if len(box) > MAX_LENGTH:
        return ""
    for pattern, replacement in _MARKUP:
        box = pattern.sub(replacement, box)
    ascii_digits = "".join(str(unicodedata.decimal(char, char)) for char in box)
    found = _NUMBER.fullmatch(_LABEL.sub("", " ".join(ascii_digits.split()).strip("*_ "), count=1).strip())
    if found is None or not _UNIT.fullmatch(found[2]):
        return ""
    if not _NOT_UNITS.isdisjoint(re.findall("[a-z]+", found[2].lower())):
        return ""
    digits = re.sub("[ ,]", "", found[1])
    return digits.lstrip("0") or "0"


def _boxes(text: str) -> list[str]:
    r"""The content of each closed `\boxed{…}`, but of none inside another."""
    boxes: list[tuple[int, str]] = []
    open_braces: list[re.Match[str]] = []
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            open_braces.append(brace)
        elif open_braces:
            opening = open_braces.pop()
            if opening[0] != "{":
                while boxes and boxes[-1][0] > opening.start():
                    boxes.pop()  # it stood inside this one
                boxes.append((opening.start(), text[opening.end() : brace.start()]))
    return [content for _, content in boxes]
