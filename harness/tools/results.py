"""Convert a tool's return value to the content of a tool message, with a limit on its length."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Set
from enum import Enum
from typing import TypeGuard, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from harness.core.types import JsonDict

MAX_OUTPUT_CHARS = 20_000
"""Maximum characters of a tool's result, about 5,000 tokens. Without it, a tool that returns a file or a page could
fill the model's context in one turn."""

_PARTS = {"file", "image_url", "input_audio", "refusal", "text"}
"""Types of OpenAI content parts. Each holds its value under the name of the type."""


def to_content(result: object, max_chars: int | None = MAX_OUTPUT_CHARS) -> str | list[JsonDict]:
    """Convert a result to message content.

    A string is returned unchanged. Other JSON values, dataclasses and pydantic models are converted to JSON, other
    objects with `str`. A list of OpenAI content parts is passed through.

    Args:
        result: The tool's return value.
        max_chars: Maximum characters of text, kept from both ends; None for no limit.
    """
    if not is_parts(result):
        return cap(to_text(result), max_chars)
    if max_chars is None:
        return result
    left = max_chars
    parts: list[JsonDict] = []
    for part in result:
        text: object = part.get("text") if part["type"] == "text" else None
        if isinstance(text, str):
            parts.append({**part, "text": cap(text, left)})
            left = max(0, left - len(text))
        else:
            parts.append(part)  # images are never cut
    return parts


def is_parts(value: object) -> TypeGuard[list[JsonDict]]:
    """Return whether a value is a list of OpenAI content parts."""
    return (
        isinstance(value, list)
        and bool(cast("list[object]", value))
        and all(isinstance(part, dict) and _is_part(cast(JsonDict, part)) for part in cast("list[object]", value))
    )


def to_text(result: object) -> str:
    """Convert a result to text; see `to_content`."""
    if isinstance(result, str):
        return _whole(str.__str__(result))  # for an enum of strings, the string
    if isinstance(result, Enum):
        return to_text(result.value)
    if isinstance(result, bytes | bytearray):
        return result.decode("utf-8", "replace")
    try:
        return _whole(json.dumps(result, ensure_ascii=False))
    except (TypeError, ValueError):
        pass
    if isinstance(result, dict | list | tuple | Set | BaseModel) or dataclasses.is_dataclass(result):
        try:
            return _whole(json.dumps(to_jsonable_python(result, fallback=str), ensure_ascii=False))
        except ValueError:
            pass  # a value that contains itself
    return _whole(str(cast(object, result)))


def cap(text: str, max_chars: int | None) -> str:
    """Shorten `text` to its first and last characters, `max_chars` in total, around a line with the number of omitted
    ones."""
    if max_chars is None or len(text) <= max_chars:
        return text
    head, tail = max_chars - max_chars // 2, max_chars // 2
    left_out = f"[… {len(text) - max_chars:,} characters left out …]"
    return "\n".join(part for part in (text[:head], left_out, text[len(text) - tail :]) if part)


def _is_part(part: JsonDict) -> bool:
    kind: object = part.get("type")
    return isinstance(kind, str) and kind in _PARTS and kind in part


def _whole(text: str) -> str:
    """Replace lone surrogates in `text`, which files and requests cannot encode."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
