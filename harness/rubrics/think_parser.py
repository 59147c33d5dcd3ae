"""Parsers for models that put their reasoning in front of the answer as `<think>…</think>`. Owns what counts as the
text after it; knows nothing of reasoning that an endpoint returns in a field of its own."""

from __future__ import annotations

from harness.core.types import Prompt
from harness.rubrics.parser import FormatReward, Parser

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkParser(Parser):
    """The text after the last `</think>`. Without it there is no answer: `parse` sees an empty text.

    For models that always write the tags, behind an endpoint that leaves them in.
    """

    def parse(self, text: str) -> str:
        """What `extract_fn` makes of the text after the last `</think>`, or of "" where there is none."""
        _, close, answer = text.rpartition(_CLOSE)
        return self.extract_fn(answer.strip() if close else "")

    def get_format_reward_func(self) -> FormatReward:
        """The share of assistant messages that open with `<think>`, close it once and say something after it."""

        def format_reward_func(completion: Prompt) -> float:
            return self._mean_over_replies(completion, _follows_format)

        return format_reward_func


class MaybeThinkParser(Parser):
    """The text after the last `</think>`, or the whole text where there is none."""

    def parse(self, text: str) -> str:
        """What `extract_fn` makes of the text after the last `</think>`, or of the whole text."""
        return self.extract_fn(text.rpartition(_CLOSE)[2].strip())


def _follows_format(text: str) -> float:
    once = text.count(_OPEN) == 1 and text.count(_CLOSE) == 1
    return float(once and text.strip().startswith(_OPEN) and bool(text.rpartition(_CLOSE)[2]))
