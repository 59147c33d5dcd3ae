"""What a journal holds, in a few bytes a rollout: which examples and rollouts, how far each has come, and where its
newest lines begin. Owns the rule that the newest line wins; keeps no messages and decides nothing about what to do."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from harness.core.keyindex import KeyIndex
from harness.core.records import BUDGET_SPENT, Example
from harness.core.types import JsonDict
from harness.store.codec import UnknownType
from harness.store.journal import JournalReader, damaged, scan, unknown

Status: TypeAlias = Literal["generated", "scored", "unscored", "failed"]

_STATUSES: tuple[Status, ...] = ("generated", "scored", "unscored", "failed")
_GENERATED, _SCORED, _UNSCORED, _FAILED = range(4)

_FINAL, _RETRYABLE, _NONE, _OPEN = range(4)
"""What kind of failure the newest base line of a rollout is."""

NOWHERE = -1
"""Offset of a line that there is not."""


@dataclass(frozen=True, slots=True)
class LineOffsets:
    """Where the newest lines of one rollout begin; `NOWHERE` where there is none."""

    example: int
    """The first line of the rollout's example."""
    base: int
    """The newest `generated` or `failed` line."""
    score: int
    """The newest `scored` line, if it is newer than `base`."""


class Recorded:
    """The state of a journal's rollouts. `load` reads a whole journal; `advance` what was added since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        """Offset after the last whole line that was read."""
        self._examples = KeyIndex()
        self._example_lines = array("q")
        self._example_indices = array("q")
        self._taken = bytearray()
        """1 at every index that an example has."""
        self._rollouts = KeyIndex()
        self._status = bytearray()
        self._failure = bytearray()
        self._base = array("q")
        self._score = array("q")
        self._example_of = array("i")
        self._rollout_index = array("i")

    @classmethod
    def load(cls, path: Path) -> Recorded:
        """Reads a journal in one pass. A torn last line is left out.

        Raises:
            JournalDamaged: a line before the last one cannot be read, or lines contradict one another.
            StoreError: the file cannot be read.
        """
        recorded = cls(path)
        for _ in recorded.advance():
            pass
        return recorded

    def advance(self, stop: int | None = None) -> Iterator[tuple[int, int, JsonDict]]:
        """Reads the lines that were added since the last call. Must be read to its end.

        Args:
            stop: Leave the lines that begin at this offset or later for the next call.

        Yields:
            (number of the line's rollout, the line's offset, the line) for every line but those of examples. Numbers
            count rollouts from 0 in the order of their first line; a number may come more than once.

        Raises:
            JournalDamaged: as `load`.
            StoreError: as `load`.
        """
        for offset, end, document in scan(self.path, self.end, stop):
            try:
                number = self._note(offset, document)
            except UnknownType as error:
                raise unknown(self.path, offset, error) from error
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
                raise damaged(self.path, offset, f"{type(error).__name__}: {error}") from error
            self.end = end
            if number >= 0:
                yield number, offset, document

    def __len__(self) -> int:
        """Rollouts that have any line."""
        return len(self._rollouts)

    @property
    def example_count(self) -> int:
        """Examples that have a line."""
        return len(self._examples)

    def has_example(self, key: str) -> bool:
        """Whether the journal holds the example."""
        return self._examples.find(key) >= 0

    def example_number(self, key: str) -> int | None:
        """The example's number, counted from 0 in the order of first lines; None if it has no line."""
        number = self._examples.find(key)
        return None if number < 0 else number

    def example_line(self, key: str) -> int | None:
        """Where the example's first line begins; None if there is none."""
        number = self._examples.find(key)
        return None if number < 0 else self._example_lines[number]

    def example_index(self, key: str) -> int | None:
        """The example's place in every table: its index in the plan that recorded it."""
        number = self._examples.find(key)
        return None if number < 0 else self._example_indices[number]

    def examples(self) -> Iterator[Example]:
        """The examples in the order of their first lines, read one by one."""
        with JournalReader(self.path) as reader:
            for offset in self._example_lines:
                yield cast(Example, reader.record(offset))

    def number(self, key: str) -> int | None:
        """The rollout's number; None if no line names it."""
        number = self._rollouts.find(key)
        return None if number < 0 else number

    def status(self, key: str) -> Status | None:
        """How far the rollout has come; None if no line names it."""
        number = self._rollouts.find(key)
        return None if number < 0 else _STATUSES[self._status[number]]

    def retryable(self, key: str) -> bool:
        """Whether the rollout failed in a way that time may heal."""
        number = self._rollouts.find(key)
        return number >= 0 and self._status[number] == _FAILED and self._failure[number] in (_RETRYABLE, _OPEN)

    def is_open(self, key: str) -> bool:
        """Whether the rollout failed only because the budget was spent, so that a resume makes it again."""
        number = self._rollouts.find(key)
        return number >= 0 and self._failure[number] == _OPEN

    @property
    def open_count(self) -> int:
        """Rollouts that failed only because the budget was spent."""
        return self._failure.count(_OPEN)

    def generated_at(self, key: str) -> int | None:
        """Offset of the newest `generated` line; None if there is none, or if the rollout failed after it."""
        number = self._rollouts.find(key)
        if number < 0 or self._failure[number] != _NONE:
            return None
        return self._base[number]

    def scored_at(self, key: str) -> int | None:
        """Offset of the newest `scored` line; None if there is none for the newest `generated` line."""
        number = self._rollouts.find(key)
        return None if number < 0 or self._score[number] == NOWHERE else self._score[number]

    def failed_at(self, key: str) -> int | None:
        """Offset of the newest `failed` line; None if there is none, or if the rollout was generated after it."""
        number = self._rollouts.find(key)
        return self._base[number] if number >= 0 and self._failure[number] != _NONE else None

    def pending(self) -> Iterator[int]:
        """Offsets of the `generated` lines that still want a score, in the order of their rollouts."""
        return (self._base[n] for n, status in enumerate(self._status) if status == _GENERATED)

    def counts(self) -> dict[Status, int]:
        """Rollouts by status."""
        return {name: self._status.count(value) for value, name in enumerate(_STATUSES)}

    def is_done(self, number: int) -> bool:
        """Whether the rollout of that number has an outcome."""
        return self._status[number] != _GENERATED

    def is_scored(self, number: int) -> bool:
        """Whether the rollout of that number has a score."""
        return self._status[number] == _SCORED

    def place(self, number: int) -> tuple[int, int]:
        """(example index, rollout index) of the rollout of that number: the order of rows in every table."""
        return self._example_indices[self._example_of[number]], self._rollout_index[number]

    def lines(self, number: int) -> LineOffsets:
        """Where the newest lines of the rollout of that number begin."""
        return LineOffsets(self._example_lines[self._example_of[number]], self._base[number], self._score[number])

    def _note(self, offset: int, document: JsonDict) -> int:
        kind = document.get("type")
        if kind == "scored":
            return self._note_score(offset, document)
        if kind == "generated" or kind == "failed":
            return self._note_rollout(offset, document, failed=kind == "failed")
        if kind == "example":
            self._note_example(offset, document)
            return -1
        raise UnknownType(f"line type {kind!r} is not known to this version of bench")

    def _note_example(self, offset: int, document: JsonDict) -> None:
        number = self._examples.add(document["example_key"])
        if number < len(self._example_lines):
            return  # known: its rollouts keep their place in every table
        index = int(document.get("index", 0))
        # A dataset that got new rows before the recorded ones gives an index a second time. Tables address examples by
        # it and would average two as one.
        if index < 0 or (index < len(self._taken) and self._taken[index]):
            index = len(self._taken)
        self._taken.extend(bytes(max(0, index + 1 - len(self._taken))))
        self._taken[index] = 1
        self._example_lines.append(offset)
        self._example_indices.append(index)

    def _note_rollout(self, offset: int, document: JsonDict, *, failed: bool) -> int:
        example = self._examples.find(document["example_key"])
        if example < 0:
            raise ValueError("its example has no line before it")
        number = self._rollouts.add(document["key"])
        if number == len(self._base):
            self._status.append(0)
            self._failure.append(0)
            self._base.append(offset)
            self._score.append(NOWHERE)
            self._example_of.append(example)
            self._rollout_index.append(document["rollout_index"])
        self._status[number] = _FAILED if failed else _GENERATED
        self._failure[number] = _failure_of(document) if failed else _NONE
        self._base[number] = offset
        self._score[number] = NOWHERE
        return number

    def _note_score(self, offset: int, document: JsonDict) -> int:
        number = self._rollouts.find(document["key"])
        if number < 0:
            raise ValueError("its rollout has no line before it")
        self._status[number] = _SCORED if document["outcome"] == "scored" else _UNSCORED
        self._score[number] = offset
        return number


def _failure_of(document: JsonDict) -> int:
    if document.get("reason") == BUDGET_SPENT:
        return _OPEN
    return _RETRYABLE if document["retryable"] else _FINAL
