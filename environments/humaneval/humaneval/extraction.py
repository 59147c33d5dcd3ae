"""Which program a reply holds. Owns the reading of fenced blocks and the end of a completion; runs nothing, and parses
nothing either: a hostile program is the sandbox's business from its first token on.

- Thinking is no answer: only what follows the last `</think>` counts, and nothing of a `<think>` that never closes.
- Chat: the last fenced block that defines the function; without one, the whole reply, if it defines the function.
- Completion: the prompt and what follows it, up to where a model usually starts something else.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from harness import JsonDict

STOPS = ("\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n@", "\nassert ", "\n```")
"""Beginnings of top-level code that is no longer the function. The first of them ends a completion."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Program:
    """What is run: first what the prompt gives, then what the model wrote, in one namespace.

    Args:
        given: Imports and helper functions that stand in the prompt before the function.
        code: The model's.
    """

    given: str
    code: str


def program_of(reply: str, info: JsonDict) -> Program | None:
    """The program of a reply, or None.

    Args:
        reply: Text of the last assistant message, or a completion.
        info: Of the example.
    """
    prompt, entry_point = str(info["prompt"]), str(info["entry_point"])
    if info["form"] == "completion":
        body = _until_stop(reply)
        return Program("", f"{prompt}{body}\n") if body.strip() else None
    said = reply.rpartition("</think>")[2].partition("<think>")[0]
    defines = definition_of(entry_point)
    blocks = [textwrap.dedent(block[2]) for block in _FENCE.finditer(said)]
    code = next((text for text in (*reversed(blocks), said) if defines.search(text)), None)
    if code is None:
        return None
    start = defines.search(prompt)
    return Program(prompt[: start.start()] if start else "", code)


def definition_of(name: str) -> re.Pattern[str]:
    """Matches where a top-level function, class or variable of this name begins."""
    return re.compile(
        rf"^(?:(?:async\s+)?def\s+{re.escape(name)}\s*\(|class\s+{re.escape(name)}\b|{re.escape(name)}\s*[:=])", re.M
    )


def _until_stop(completion: str) -> str:
    ends = [at for stop in STOPS if (at := completion.find(stop)) >= 0]
    return completion[: min(ends)] if ends else completion
