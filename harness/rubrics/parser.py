"""Parsers, which extract the answer from a completion (text or messages): the base class, and parsers for models that
write their reasoning before the answer as `<think>…</think>`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from harness.core.types import Messages, Prompt, text_of

FormatReward: TypeAlias = Callable[[Prompt], float]
"""Reward function that grades from 0 to 1 how well a completion follows a format. Its parameter must be called
`completion`."""


_OPEN, _CLOSE = "<think>", "</think>"


def identity(text: str) -> str:
    """Return the text unchanged."""
    return text


class Parser:
    """Extracts the answer from a completion: the text of the last assistant message.

    Args:
        extract_fn: Function applied to the text.
    """

    def __init__(self, extract_fn: Callable[[str], str] = identity) -> None:
        self.extract_fn = extract_fn

    def parse(self, text: str) -> Any:
        """Apply `extract_fn` to `text`."""
        return self.extract_fn(text)

    def parse_answer(self, completion: Prompt) -> str | None:
        """Extract the answer from a completion: apply `parse` to its text, or to the text of its last assistant
        message.

        Returns:
            The answer; None if there is no assistant message.
        """
        if isinstance(completion, str):
            return self.parse(completion)
        messages = self.get_assistant_messages(completion)
        return self.parse(text_of(messages[-1])) if messages else None

    def get_assistant_messages(self, completion: Prompt) -> Messages:
        """Return the assistant messages, in order; the text of a completion model counts as one."""
        return _by_role(completion, "assistant")

    def get_system_messages(self, completion: Prompt) -> Messages:
        """Return the system messages, in order."""
        return _by_role(completion, "system")

    def get_user_messages(self, completion: Prompt) -> Messages:
        """Return the user messages, in order. In a completion they were written by the environment."""
        return _by_role(completion, "user")

    def get_tool_messages(self, completion: Prompt) -> Messages:
        """Return the tool messages, in order."""
        return _by_role(completion, "tool")

    def get_format_reward_func(self) -> FormatReward:
        """Return a reward function for this parser's format. It always returns 1, since the base parser requires no
        format."""

        def format_reward_func(completion: Prompt) -> float:
            return 1.0

        return format_reward_func

    def _mean_over_replies(self, completion: Prompt, grade: Callable[[str], float]) -> float:
        """Return the mean grade of the assistant messages; 0 if there are no such messages."""
        grades = [grade(text_of(message)) for message in self.get_assistant_messages(completion)]
        return math.fsum(grades) / len(grades) if grades else 0.0


class ThinkParser(Parser):
    """Parser for models that always write `<think>…</think>`, at an endpoint that keeps these tags. It extracts the
    text after the last `</think>`. Without this tag there is no answer: `extract_fn` gets an empty string."""

    def parse(self, text: str) -> str:
        """Apply `extract_fn` to the text after the last `</think>`, or to "" if there is none."""
        _, close, answer = text.rpartition(_CLOSE)
        return self.extract_fn(answer.strip() if close else "")

    def get_format_reward_func(self) -> FormatReward:
        """Return a reward function: the share of assistant messages that start with `<think>`, have one `</think>`, and
        have text after it."""

        def format_reward_func(completion: Prompt) -> float:
            return self._mean_over_replies(completion, _follows_format)

        return format_reward_func


class MaybeThinkParser(Parser):
    """Parser that extracts the text after the last `</think>`, or the whole text if there is none."""

    def parse(self, text: str) -> str:
        """Apply `extract_fn` to the text after the last `</think>`, or to the whole text."""
        return self.extract_fn(text.rpartition(_CLOSE)[2].strip())


def _by_role(completion: Prompt, role: str) -> Messages:
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}] if role == "assistant" else []
    return [message for message in completion if message.get("role") == role]


def _follows_format(text: str) -> float:
    """Return 1 for text that starts with one pair of `<think>` tags and continues after them, else 0."""
    once = text.count(_OPEN) == 1 and text.count(_CLOSE) == 1
    return float(once and text.strip().startswith(_OPEN) and bool(text.rpartition(_CLOSE)[2]))
