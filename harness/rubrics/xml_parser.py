"""The parser for answers in tags such as `<answer>…</answer>`. Unlike in XML, there are neither attributes nor
escapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

from harness.core.types import Prompt, text_of
from harness.rubrics.parser import FormatReward, Parser, identity
from harness.settings.wording import suggestion


class XMLParser(Parser):
    """Parser that extracts fields written in tags.

    Args:
        fields: Tag names in the order of the format. A tuple is one field with alternative names; the first is used for
            writing.
        answer_field: The field that `parse_answer` returns.
        extract_fn: Function applied to every extracted value.

    Raises:
        ValueError: there are no fields, a name is empty or repeated, or `answer_field` is not among the fields.
        TypeError: a field is neither a string nor a tuple of strings.
    """

    def __init__(
        self,
        fields: Sequence[str | tuple[str, ...]],
        answer_field: str = "answer",
        extract_fn: Callable[[str], str] = identity,
    ) -> None:
        super().__init__(extract_fn)
        self._fields = read_fields(fields)
        every = [name for names in self._fields for name in names]
        # A format without a single answer may lack the default field, but not a field that is named explicitly.
        if answer_field != "answer" and answer_field not in every:
            raise ValueError(
                f"answer_field {answer_field!r} is not a field of this parser; {suggestion(answer_field, every)}"
            )
        self.answer_field = answer_field
        self._names = every

    def parse(self, text: str, strip: bool = True, last: bool = False) -> SimpleNamespace:
        """Extract the fields of `text` as attributes by name; None if the tag is missing.

        Args:
            text: The model's reply.
            strip: Whether to strip white space from each value.
            last: Whether to use the last occurrence of a tag instead of the first.
        """
        return SimpleNamespace(**{name: self._find(name, text, strip, last) for name in self._names})

    def parse_answer(self, completion: Prompt) -> str | None:
        """Return the last value of `answer_field` in the last assistant message that has this field; None if there is
        no such message."""
        if self.answer_field not in self._names:
            return None
        for message in reversed(self.get_assistant_messages(completion)):
            value = self._find(self.answer_field, text_of(message), True, True)
            if value is not None:
                return value
        return None

    def get_fields(self) -> list[str]:
        """Return the first names of all fields, in order."""
        return [names[0] for names in self._fields]

    def get_format_str(self) -> str:
        """Return a description of the format, for a prompt."""
        shown = [names[0] if len(names) == 1 else f"[ {' | '.join(names)} ]" for names in self._fields]
        return "\n".join(f"<{name}>\n...\n</{name}>" for name in shown)

    def format(self, **values: object) -> str:
        """Write values in this format, under the first names of their fields.

        Args:
            **values: One value per field, under any of its names.

        Raises:
            ValueError: a field has no value, or a name is unknown.
        """
        unknown = sorted(set(values) - set(self._names))
        if unknown:
            raise ValueError(f"no field is called {unknown[0]!r}; the fields are {', '.join(self._names)}")
        parts: list[str] = []
        for names in self._fields:
            value = next((values[name] for name in names if values.get(name) is not None), None)
            if value is None:
                raise ValueError(f"no value for field {names[0]!r} (allowed names: {', '.join(names)})")
            parts.append(f"<{names[0]}>\n{value}\n</{names[0]}>")
        return "\n".join(parts)

    def get_format_reward_func(self) -> FormatReward:
        """Return a reward function that grades the format of every assistant message and returns the mean grade.

        A message gets 0.2 for a complete field, 0.4 times the share of fields that it contains, 0.2 for starting with
        the first field, and 0.2 for ending with the last field."""

        def format_reward_func(completion: Prompt) -> float:
            return self._mean_over_replies(completion, self._grade)

        return format_reward_func

    def _find(self, name: str, text: str, strip: bool, last: bool) -> str | None:
        span = _span(name, text, last)
        if span is None:
            return None
        found = text[slice(*span)]
        return self.extract_fn(found.strip() if strip else found)

    def _grade(self, text: str) -> float:
        complete = any(_span(name, text, last=False) for name in self._names)
        touched = {name for name in self._names if f"<{name}>" in text or f"</{name}>" in text}
        bare = text.strip()
        grade = 0.0
        if complete:
            present = sum(any(name in touched for name in names) for names in self._fields)
            grade += 0.2 + 0.4 * present / len(self._fields)
        if any(bare.startswith(f"<{name}>") for name in self._fields[0]):
            grade += 0.2
        if any(bare.endswith(f"</{name}>") for name in self._fields[-1]):
            grade += 0.2
        return grade


def _span(name: str, text: str, last: bool) -> tuple[int, int] | None:
    """Return start and end of the content of the first or last occurrence of a tag. This is a plain search, since a
    regular expression would take quadratic time on many unclosed tags."""
    opening, closing = f"<{name}>", f"</{name}>"
    span: tuple[int, int] | None = None
    position = 0
    while (start := text.find(opening, position)) >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        span = (start, end)
        if not last:
            break
        position = end + len(closing)
    return span


def read_fields(fields: Sequence[str | tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Validate the fields of a format, and convert every field to a tuple of its names.

    Raises:
        ValueError: there are no fields, or a name is empty or repeated.
        TypeError: a field is neither a string nor a tuple of strings.
    """
    if isinstance(fields, str):
        raise TypeError(f"fields must be a list of names, not the string {fields!r}")
    result: list[tuple[str, ...]] = []
    for field in fields:
        names = cast("tuple[object, ...]", field) if isinstance(field, tuple) else (field,)
        if not all(isinstance(name, str) for name in names):  # possible despite the annotation
            raise TypeError(f"a field must be a string or a tuple of strings, not {field!r}")
        if not names or not all(names):
            raise ValueError("a field name must not be empty")
        result.append(tuple(str(name) for name in names))
    every = [name for names in result for name in names]
    repeated = sorted({name for name in every if every.count(name) > 1})
    if repeated or not every:
        raise ValueError(f"field {repeated[0]!r} occurs twice" if repeated else "XMLParser needs at least one field")
    return result
