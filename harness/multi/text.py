"""The scored output of a reply: its text without the model's thinking, and the estimated number of tokens."""

from __future__ import annotations

import math
import re
from typing import cast

from harness.agents.messages import text_of_parts
from harness.core.types import Prompt
from harness.multi import javascript

WORDS_A_TOKEN = 0.7

_THOUGHTS = tuple(
    (re.compile(f"<{name}>", re.IGNORECASE | re.ASCII), re.compile(f"</{name}>", re.IGNORECASE | re.ASCII))
    for name in ("think", "thinking")
)
"""The start and end tags of thinking blocks. A single pattern would search for the end tag again from each of the start
tags, of which a reply can have thousands."""


def without_thoughts(text: str) -> str:
    """Remove `<think>…</think>` and `<thinking>…</thinking>` blocks from text, and trim the rest. An unclosed block
    stays, since it may be the whole reply."""
    for begin, end in _THOUGHTS:
        kept: list[str] = []
        position = 0
        while (opened := begin.search(text, position)) and (closed := end.search(text, opened.end())):
            kept.append(text[position : opened.start()])
            position = closed.end()
        text = "".join([*kept, text[position:]])
    return javascript.trimmed(text)


def output_of(completion: Prompt) -> str:
    """Return the scored text of a rollout: its last assistant message, without thinking.

    Args:
        completion: The messages after the prompt; a reply with tool calls alone, or a refusal, has no text.
    """
    if isinstance(completion, str):
        return without_thoughts(completion)
    last = next((message for message in reversed(completion) if message.get("role") == "assistant"), None)
    content: object = None if last is None else last.get("content")
    if isinstance(content, list):
        content = text_of_parts(cast("list[object]", content))
    return without_thoughts(content) if isinstance(content, str) else ""


def estimated_tokens(output: str) -> int:
    """Estimate tokens as the documented results do: the number of words divided by 0.7, rounded up."""
    return math.ceil(javascript.words(output) / WORDS_A_TOKEN)
