"""Parsers of the classic API, based on those of `harness.rubrics`. Two rules are different: the older API (generation
B) parses a reply without content as the string "None", and format rewards give every reply the points for spacing."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from harness.core.types import Messages, Prompt, text_of
from harness.rubrics import parser, xml_parser
from harness.rubrics.parser import identity


class Parser(parser.Parser):
    """`vf.Parser(extract_fn)`: applies `extract_fn` to the last assistant message."""

    def __init__(self, extract_fn: Callable[[str], Any] = identity) -> None:
        self.logger = logging.getLogger(f"verifiers.parsers.{type(self).__name__}")
        super().__init__(extract_fn)

    def parse_answer(self, completion: Prompt) -> Any:
        """Extract the answer from a string or the last assistant message; None if there is no assistant message."""
        if isinstance(completion, str):
            return self.parse(completion)
        messages = self.get_assistant_messages(completion)
        return self.parse(text_of(messages[-1])) if messages else None

    def get_format_reward_func(self) -> Callable[..., float]:
        """Return a reward function with a constant value, since this parser requires no format."""

        def format_reward_func(completion: Prompt, **kwargs: Any) -> float:
            return 1.0

        return format_reward_func


class ThinkParser(Parser):
    """`vf.ThinkParser`: extracts the text after `</think>`, or "" if there is no such tag."""

    def parse(self, text: str) -> Any:
        """Apply `extract_fn` to the text after `</think>`, or to "" without this tag."""
        return self.extract_fn(text.rpartition("</think>")[2].strip() if "</think>" in text else "")

    def get_format_reward_func(self) -> Callable[..., float]:
        """Return a reward function whose value is the share of assistant messages that start with `<think>`, have one
        `</think>`, and have text after it."""
        grade = parser.ThinkParser().get_format_reward_func()

        def format_reward_func(completion: Prompt, **kwargs: Any) -> float:
            return grade(completion)

        return format_reward_func


class MaybeThinkParser(Parser):
    """`vf.MaybeThinkParser`: extracts the text after `</think>`, or the whole text if there is no such tag."""

    def parse(self, text: str) -> Any:
        """Apply `extract_fn` to the text after `</think>`, or to the whole text without this tag."""
        return self.extract_fn(text.rpartition("</think>")[2].strip())


class XMLParser(Parser):
    """`vf.XMLParser(fields, answer_field, extract_fn)`: extracts fields that are written in tags.

    Args:
        fields: Tag names; a tuple is one field with several names.
        answer_field: Field that `parse_answer` returns.
        extract_fn: Stored as an attribute, but not applied to fields.
    """

    def __init__(
        self,
        fields: Sequence[str | tuple[str, ...]],
        answer_field: str = "answer",
        extract_fn: Callable[[str], Any] = identity,
    ) -> None:
        super().__init__(extract_fn)
        self._tags = xml_parser.XMLParser(_unrepeated(fields))
        self._fields: list[tuple[str, list[str]]] = [
            (field, [field]) if isinstance(field, str) else (field[0], list(field)) for field in fields
        ]
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
        return [name for name, _ in self._fields]

    def get_format_str(self) -> str:
        """Return a description of the format for prompts."""
        shown = [names[0] if len(names) == 1 else f"[ {' | '.join(names)} ]" for _, names in self._fields]
        return "\n".join(f"<{name}>\n...\n</{name}>" for name in shown)

    def format(self, **values: Any) -> str:
        """Format the given values as text, each enclosed in its tag.

        Raises:
            ValueError: a field has no value.
        """
        parts: list[str] = []
        for name, names in self._fields:
            value = next((values[each] for each in [name, *names] if each in values), None)
            if value is None:
                raise ValueError(f"Missing value for field '{name}'; pass it under one of the names {names}")
            parts.append(f"<{name}>\n{value}\n</{name}>")
        return "\n".join(parts)

    def get_format_reward_func(self) -> Callable[..., float]:
        """Return a reward function that grades the format of every assistant message and returns the mean. A message
        gets 0.4 × the share of fields present (if any is complete), 0.2 in any case, 0.2 for starting with the first
        field and 0.2 for ending with the last."""

        def format_reward_func(completion: Messages, **kwargs: Any) -> float:
            messages = self.get_assistant_messages(completion)
            grades = [self._grade(text_of(message)) for message in messages]
            return math.fsum(grades) / len(grades) if grades else 0.0

        return format_reward_func

    def _grade(self, text: str) -> float:
        parsed = self.parse(text)
        bare = text.strip()
        complete = [any(getattr(parsed, name, None) is not None for name in names) for _, names in self._fields]
        touched = [
            done or any(f"<{name}>" in text or f"</{name}>" in text for name in names)
            for done, (_, names) in zip(complete, self._fields, strict=True)
        ]
        grade = 0.2
        if any(complete):
            grade += 0.4 * sum(touched) / len(self._fields)
        if any(bare.startswith(f"<{name}>") for name in self._fields[0][1]):
            grade += 0.2
        if any(bare.endswith(f"</{name}>") for name in self._fields[-1][1]):
            grade += 0.2
        return grade


def _unrepeated(fields: Sequence[str | tuple[str, ...]]) -> Sequence[str | tuple[str, ...]]:
    """Validate that the first name of each field is unique, and return the fields.

    Raises:
        ValueError: a name is not unique, or a tuple is empty.
        TypeError: a field is neither a string nor a tuple of strings.
    """
    seen: set[str] = set()
    names: set[str] = set()
    unique: list[str | tuple[str, ...]] = []
    for field in fields:
        if isinstance(field, tuple) and not field:
            raise ValueError("Field tuple cannot be empty.")
        every = (field,) if isinstance(field, str) else field
        if not isinstance(every, tuple) or not all(isinstance(name, str) for name in every):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("Each field must be a string or a tuple of strings.")
        if every[0] in seen:
            raise ValueError(f"Duplicate field name: {every[0]}")
        seen.add(every[0])
        # Two fields may have a name in common here, while the parser of `harness.rubrics` requires unique names.
        left = tuple(name for name in every if name not in names)
        names.update(every)
        if left:
            unique.append(left)
    return unique
