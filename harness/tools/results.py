"""What a tool returned, as the content of a tool message. Owns the rendering to text and the cap on its length; owns no
message."""

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
"""About 5,000 tokens. A tool that returns a file or a page would otherwise fill the model's context in one turn."""

_PARTS = {"file", "image_url", "input_audio", "refusal", "text"}
"""Content parts of the OpenAI wire shape; each holds its value under its own name."""


def to_content(result: object, max_chars: int | None = MAX_OUTPUT_CHARS) -> str | list[JsonDict]:
    """A result as message content.

    A text stays as it is. Other JSON values, dataclasses and pydantic models become JSON, other objects what `str`
    makes of them. A list of OpenAI content parts passes through.

    Args:
        result: What the tool returned.
        max_chars: Characters of text that are kept, from both ends; None for all.
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
            parts.append(part)  # half an image is none
    return parts


def is_parts(value: object) -> TypeGuard[list[JsonDict]]:
    """Whether a value is a list of OpenAI content parts."""
    return (
        isinstance(value, list)
        and bool(cast("list[object]", value))
        and all(isinstance(part, dict) and _is_part(cast(JsonDict, part)) for part in cast("list[object]", value))
    )


def to_text(result: object) -> str:
    """A result as text; see `to_content`."""
    if isinstance(result, str):
        return _whole(str.__str__(result))  # of an enum of strings, the string
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
    """`text`, or its first and last characters, `max_chars` together, around a line that says how many are left out."""
    if max_chars is None or len(text) <= max_chars:
        return text
    head, tail = max_chars - max_chars // 2, max_chars // 2
    left_out = f"[… {len(text) - max_chars:,} characters left out …]"
    return "\n".join(part for part in (text[:head], left_out, text[len(text) - tail :]) if part)


def _is_part(part: JsonDict) -> bool:
    kind: object = part.get("type")
    return isinstance(kind, str) and kind in _PARTS and kind in part


def _whole(text: str) -> str:
    """`text` with lone surrogates replaced: no file and no request could hold them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
