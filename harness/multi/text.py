"""What of a reply is the output that is scored: the text without the model's thoughts, and the estimate of its tokens.
Owns these rules; scores nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import cast

from harness.core.types import Prompt
from harness.multi import javascript

WORDS_A_TOKEN = 0.7

_THOUGHTS = tuple(
    (re.compile(f"<{name}>", re.IGNORECASE | re.ASCII), re.compile(f"</{name}>", re.IGNORECASE | re.ASCII))
    for name in ("think", "thinking")
)
"""Where a block of thoughts begins and ends. Two searches, for one expression would look for the end of each beginning
anew: a model that repeats itself can write thousands."""


def without_thoughts(text: str) -> str:
    """The text without `<think>…</think>` and `<thinking>…</thinking>`, trimmed. A block that is never closed stays: it
    is all that the model has said."""
    for begin, end in _THOUGHTS:
        text = _without(text, begin, end)
    return javascript.trimmed(text)


def output_of(completion: Prompt) -> str:
    """The output of a rollout: the text of the last assistant message, without thoughts.

    Args:
        completion: The messages after the prompt; a reply of tool calls alone has no text, nor has a refusal.
    """
    if isinstance(completion, str):
        return without_thoughts(completion)
    last = next((message for message in reversed(completion) if message.get("role") == "assistant"), None)
    return "" if last is None else without_thoughts(_text(last.get("content")))


def estimated_tokens(output: str) -> int:
    """Tokens as the documented results count them: words of the output, 0.7 of them a token."""
    return math.ceil(javascript.words(output) / WORDS_A_TOKEN)


def _without(text: str, begin: re.Pattern[str], end: re.Pattern[str]) -> str:
    kept: list[str] = []
    position = 0
    while (opened := begin.search(text, position)) and (closed := end.search(text, opened.end())):
        kept.append(text[position : opened.start()])
        position = closed.end()
    return "".join([*kept, text[position:]])


def _text(content: object) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts: list[str] = []
    for part in cast("list[object]", content):
        text = cast("Mapping[str, object]", part).get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)
