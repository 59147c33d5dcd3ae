"""Parsers for models that write their reasoning before the answer as `<think>…</think>`."""

from __future__ import annotations

from harness.core.types import Prompt
from harness.rubrics.parser import FormatReward, Parser

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkParser(Parser):
    """Parser for models that always write the tags, at an endpoint that does not remove them. It extracts the text
    after the last `</think>`. Without this tag there is no answer: `extract_fn` gets an empty text."""

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


def _follows_format(text: str) -> float:
    """Return 1 for a text with one pair of tags at its start and text after it, else 0."""
    once = text.count(_OPEN) == 1 and text.count(_CLOSE) == 1
    return float(once and text.strip().startswith(_OPEN) and bool(text.rpartition(_CLOSE)[2]))
