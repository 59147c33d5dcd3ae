"""Read-only view of the beginning of a growing conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast, overload

from harness.core.types import Message, Messages


class Prefix(Sequence[Message]):
    """Read-only list of the first `end` messages of a growing transcript, which are not copied."""

    __slots__ = ("_end", "_messages")

    def __init__(self, messages: Messages, end: int) -> None:
        self._messages = messages
        self._end = end

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Message | Messages:
        if isinstance(index, slice):
            return [self._messages[i] for i in range(*index.indices(self._end))]
        position = index + self._end if index < 0 else index
        if not 0 <= position < self._end:
            raise IndexError(f"message {index} does not exist; the list has {self._end} messages")
        return self._messages[position]

    def __len__(self) -> int:
        return self._end

    def __iter__(self) -> Iterator[Message]:
        return (self._messages[i] for i in range(self._end))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(cast("Sequence[object]", other))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which are not hashable

    def __add__(self, other: Sequence[Message]) -> Messages:
        return [*self, *other]

    def __radd__(self, other: Sequence[Message]) -> Messages:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))
