"""The plain parser, base of all others: the last thing the assistant said, as it is or through one function. Owns the
reading of completions (text or messages, content as text or as parts)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from harness.core.types import Messages, Prompt, text_of

FormatReward: TypeAlias = Callable[[Prompt], float]
"""Says from 0 to 1 how well a completion keeps to a format. Its parameter is called `completion`."""


def identity(text: str) -> str:
    """The text itself."""
    return text


class Parser:
    """Reads the answer out of a completion.

    Args:
        extract_fn: Applied to the text that was found.
    """

    def __init__(self, extract_fn: Callable[[str], str] = identity) -> None:
        self.extract_fn = extract_fn

    def parse(self, text: str) -> Any:
        """What `extract_fn` makes of `text`."""
        return self.extract_fn(text)

    def parse_answer(self, completion: Prompt) -> str | None:
        """The answer in a completion: what `parse` makes of its text or of its last assistant message.

        Returns:
            None if there is no assistant message.
        """
        if isinstance(completion, str):
            return self.parse(completion)
        messages = self.get_assistant_messages(completion)
        return self.parse(text_of(messages[-1])) if messages else None

    def get_assistant_messages(self, completion: Prompt) -> Messages:
        """The messages of the model, in order; the text of a completion model counts as one."""
        return _by_role(completion, "assistant")

    def get_system_messages(self, completion: Prompt) -> Messages:
        """The system messages, in order."""
        return _by_role(completion, "system")

    def get_user_messages(self, completion: Prompt) -> Messages:
        """The messages of the user or the environment, in order."""
        return _by_role(completion, "user")

    def get_tool_messages(self, completion: Prompt) -> Messages:
        """The results of tool calls, in order."""
        return _by_role(completion, "tool")

    def get_format_reward_func(self) -> FormatReward:
        """A reward function for the format this parser asks for; the plain parser asks for none, so it gives 1."""

        def format_reward_func(completion: Prompt) -> float:
            return 1.0

        return format_reward_func

    def _mean_over_replies(self, completion: Prompt, grade: Callable[[str], float]) -> float:
        """The mean grade of the assistant's messages; 0 if there are none."""
        grades = [grade(text_of(message)) for message in self.get_assistant_messages(completion)]
        return math.fsum(grades) / len(grades) if grades else 0.0


def _by_role(completion: Prompt, role: str) -> Messages:
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}] if role == "assistant" else []
    return [message for message in completion if message.get("role") == role]
