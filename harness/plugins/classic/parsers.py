"""Parsers of the classic API, based on those of `harness.rubrics`. Two rules differ from theirs: how fields in tags are
found, and the format reward of `XMLParser`, which gives every reply the points for spacing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from harness.core.types import Prompt, text_of
from harness.rubrics import parser, xml_parser
from harness.rubrics.parser import identity


class Parser(parser.Parser):
    """`vf.Parser(extract_fn)`: applies `extract_fn` to the last assistant message."""

    def __init__(self, extract_fn: Callable[[str], Any] = identity) -> None:
        self.logger = logging.getLogger(f"verifiers.parsers.{type(self).__name__}")
        super().__init__(extract_fn)

    def get_format_reward_func(self) -> Callable[..., float]:
        """Return the reward function for the parser's format, which also accepts other arguments of reward
        functions."""
        grade = super().get_format_reward_func()

        def format_reward_func(completion: Prompt, **kwargs: Any) -> float:
            return grade(completion)

        return format_reward_func


class ThinkParser(Parser, parser.ThinkParser):
    """`vf.ThinkParser`: extracts the text after `</think>`, or "" if there is no such tag."""


class MaybeThinkParser(Parser, parser.MaybeThinkParser):
    """`vf.MaybeThinkParser`: extracts the text after `</think>`, or the whole text if there is no such tag."""


class XMLParser(Parser):
    """`vf.XMLParser(fields, answer_field, extract_fn)`: extracts fields that are written in tags.

    Args:
        fields: Tag names; a tuple is one field with several names.
        answer_field: Field that `parse_answer` returns.
        extract_fn: Stored as an attribute, but not applied to fields.

    Raises:
        ValueError: the first name of a field is not unique, or a field has no name.
        TypeError: a field is neither a string nor a tuple of strings.
    """

    def __init__(
        self,
        fields: Sequence[str | tuple[str, ...]],
        answer_field: str = "answer",
        extract_fn: Callable[[str], Any] = identity,
    ) -> None:
        super().__init__(extract_fn)
        self._fields = [xml_parser.read_fields([field])[0] for field in fields]
        first = self.get_fields()
        repeated = next((name for name in first if first.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"Duplicate field name: {repeated}")
        # Two fields may have a later name in common, while the parser of `harness.rubrics` requires unique names.
        self._tags = xml_parser.XMLParser(list(dict.fromkeys(name for names in self._fields for name in names)))
        self.answer_field = answer_field

    def parse(self, text: str, strip: bool = True, last: bool = False) -> SimpleNamespace:
        """Parse text and return an object with one attribute per tag name; None for missing tags."""
        # As in the original, white space next to the tags is never part of the value, even without `strip`.
        return self._tags.parse(text, strip=True, last=last)

    def parse_answer(self, completion: Prompt) -> Any:
        """Extract the value of `answer_field`: the last one in a string, or, in a list of messages, the first one in
        the last assistant message that has one."""
        if isinstance(completion, str):
            return getattr(self.parse(completion, last=True), self.answer_field, None)
        for message in reversed(self.get_assistant_messages(completion)):
            answer = getattr(self.parse(text_of(message)), self.answer_field, None)
            if answer is not None:
                return answer
        return None

    def get_fields(self) -> list[str]:
        """Return the first name of each field."""
        return [names[0] for names in self._fields]

    def get_format_str(self) -> str:
        """Return a description of the format for prompts."""
        shown = [names[0] if len(names) == 1 else f"[ {' | '.join(names)} ]" for names in self._fields]
        return "\n".join(f"<{name}>\n...\n</{name}>" for name in shown)

    def format(self, **values: Any) -> str:
        """Format the given values as text, each enclosed in its tag.

        Raises:
            ValueError: a field has no value.
        """
        parts: list[str] = []
        for names in self._fields:
            value = next((values[name] for name in names if name in values), None)
            if value is None:
                raise ValueError(f"Missing value for field '{names[0]}'; pass it under one of the names {names}")
            parts.append(f"<{names[0]}>\n{value}\n</{names[0]}>")
        return "\n".join(parts)

    def get_format_reward_func(self) -> Callable[..., float]:
        """Return a reward function that grades the format of every assistant message and returns the mean. A message
        gets 0.4 × the share of fields present (if any is complete), 0.2 in any case, 0.2 for starting with the first
        field and 0.2 for ending with the last."""

        def format_reward_func(completion: Prompt, **kwargs: Any) -> float:
            return self._mean_over_replies(completion, self._grade)

        return format_reward_func

    def _grade(self, text: str) -> float:
        bare = text.strip()
        grade = 0.2
        if any(value is not None for value in vars(self.parse(text)).values()):
            touched = [any(f"<{name}>" in text or f"</{name}>" in text for name in names) for names in self._fields]
            grade += 0.4 * sum(touched) / len(self._fields)
        if any(bare.startswith(f"<{name}>") for name in self._fields[0]):
            grade += 0.2
        if any(bare.endswith(f"</{name}>") for name in self._fields[-1]):
            grade += 0.2
        return grade
