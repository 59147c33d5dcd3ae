"""Text of messages, for columns of data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from harness.store.rows import content_text


def by_role(messages: Sequence[object], role: str) -> list[Mapping[str, object]]:
    """The messages of one role."""
    tables = [cast("Mapping[str, object]", message) for message in messages if isinstance(message, Mapping)]
    return [table for table in tables if table.get("role") == role]


def last_text(messages: Sequence[object], role: str) -> str | None:
    """Text of the last message of `role`; None without such a message or text."""
    found = by_role(messages, role)
    return content_text(found[-1].get("content")) if found else None
