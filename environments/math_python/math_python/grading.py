r"""Which answer a reply commits to. Owns the reading of boxes; whether it is right is math-verify's to say."""

from __future__ import annotations

import re

from harness import Parser

_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|\\[\\{}]|[{}]")
_SPELLING = re.compile(r"\\(?:left|right|displaystyle|!|,|;|:| )|(?<=\\)[dt](?=frac)")
_SPACE = re.compile(r"(?<![A-Za-z0-9])\s+|\s+(?![A-Za-z0-9])")


class OneBox(Parser):
    """The content of the box of a reply. Boxes that say different things are no answer, and thinking is not read."""

    def parse(self, text: str) -> str:
        """The content of the last outermost box if all say the same, else ""."""
        said = text.rpartition("</think>")[2].partition("<think>")[0]
        found = [content for content in boxes(said) if content]
        # `1 1/2` and `11/2` are two answers, so a space counts between digits and letters.
        spellings = {_SPACE.sub("", " ".join(_SPELLING.sub("", content).split())) for content in found}
        return found[-1] if len(spellings) == 1 else ""


def boxes(text: str) -> list[str]:
    r"""The contents of the outermost boxes that are closed, in order; one pass, so that nesting costs nothing."""
    found: list[tuple[int, str]] = []
    open_braces: list[re.Match[str]] = []
    for brace in _BRACE.finditer(text):
        if brace[0][0] == "\\" and len(brace[0]) == 2:
            continue  # an escaped brace is a letter
        if brace[0] != "}":
            open_braces.append(brace)
        elif open_braces:
            opening = open_braces.pop()
            if opening[0] != "{":
                while found and found[-1][0] > opening.start():
                    found.pop()  # it stood inside this one
                found.append((opening.start(), text[opening.end() : brace.start()].strip()))
    return [content for _, content in found]
