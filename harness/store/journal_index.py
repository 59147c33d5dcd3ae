"""Compact index of a journal: examples, rollouts, their status, and the offsets of their newest lines. The newest line
of a rollout wins. Messages are not kept in memory."""

from __future__ import annotations

import contextlib
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from harness.core.keys import KeyIndex
from harness.core.records import BUDGET_SPENT, Example, Failed, Generated, Scored
from harness.core.types import JsonDict, value_class
from harness.store.codec import UnknownType
from harness.store.journal import JournalReader, line_error, scan
from harness.store.outcome_kinds import OUTCOMES

_STATUSES = tuple(name for name in OUTCOMES if name != "not_run")
_CODES = {name: code for code, name in enumerate(_STATUSES)}

NOWHERE = -1
"""Placeholder for the offset of a line that the journal does not have."""

LARGEST_INDEX, LARGEST_ROLLOUT = (1 << 38) - 1, (1 << 24) - 1
"""Largest index of an example and of a rollout. Both together fit in 62 bits."""

SPARSE = 64
"""Maximum number of bytes for each index in use, on average."""

_ESTIMATE_AFTER = 1 << 20
"""Bytes of a journal after which the number of its keys is estimated."""

_MOST_EXPECTED = 10_000
"""Maximum size of a journal over that of the part by which it is judged, so that a damaged one takes no more memory."""


@value_class
class LineOffsets:
    """Offsets of the newest lines of one rollout; `NOWHERE` for a missing one."""

    example: int
    """First line of the rollout's example."""
    base: int
    """Newest `generated` or `failed` line."""
    score: int
    """Newest `scored` line, if it is newer than `base`."""


def read_rollout(reader: JournalReader, lines: LineOffsets) -> tuple[Generated | Failed, Scored | None]:
    """Read the newest records of a rollout: how it ended, and its score if it has one.

    Raises:
        JournalDamaged: a line cannot be read.
    """
    base = cast("Generated | Failed", reader.record(lines.base))
    return base, None if lines.score == NOWHERE else cast(Scored, reader.record(lines.score))


class ExampleIndices:
    """Indices of examples that are in use. Takes a byte for each; a damaged journal with a huge index takes no more
    memory than others."""

    def __init__(self) -> None:
        self._near = bytearray()
        """1 at every index in use below its length."""
        self._far = set[int]()
        """Indices in use that were much larger than the number of indices when they were added."""
        self._count = 0
        self._free = 0
        """The smallest index above all that are in use."""

    def add(self, index: int) -> int:
        """Mark an index as used, or if it is negative or in use, the next one above all others.

        Returns:
            The index that was marked.

        Raises:
            ValueError: the index is larger than `LARGEST_INDEX`.
        """
        if index < 0 or index in self._far or (index < len(self._near) and self._near[index]):
            index = self._free
        if index > LARGEST_INDEX:
            raise ValueError(f"the index {index} of an example is too large")
        self._count += 1
        if index < len(self._near) or index < SPARSE * (self._count + SPARSE):
            self._near.extend(bytes(max(0, index + 1 - len(self._near))))
            self._near[index] = 1
        else:
            self._far.add(index)
        self._free = max(self._free, index + 1)
        return index


class Recorded:
    """State of a journal's rollouts. `load` reads a whole journal; `advance` reads new lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = 0
        """Offset after the last complete line that was read."""
        self._examples = KeyIndex()
        self._example_lines = array("q")
        self._example_indices = array("q")
        self._taken = ExampleIndices()
        self._rollouts = KeyIndex()
        self._status = bytearray()
        self._failed = bytearray()
        """1 at the number of every rollout whose newest `generated` or `failed` line is `failed`."""
        self._base = array("q")
        self._score = array("q")
        self._example_of = array("i")
        self._rollout_index = array("i")

    @classmethod
    def load(cls, path: Path) -> Recorded:
        """Read a journal in one pass. An incomplete last line is ignored.

        Raises:
            JournalDamaged: a line before the last one cannot be read, or lines contradict each other.
            StoreError: the file cannot be read.
        """
        recorded = cls(path)
        for _ in recorded.advance():
            pass
        return recorded

    def advance(self, stop: int | None = None) -> Iterator[tuple[int, int, JsonDict]]:
        """Read the lines added since the last call. The iterator must be exhausted.

        Args:
            stop: Do not read lines that begin at this offset or later; a later call reads them.

        Yields:
            (number of the line's rollout, the line's offset, the line) for every line except those of examples.
            Rollouts are numbered from 0 in the order of their first line; a number may occur more than once.

        Raises:
            JournalDamaged: as in `load`.
            StoreError: as in `load`.
        """
        estimate_at = self.end + _ESTIMATE_AFTER
        for offset, end, document in scan(self.path, self.end, stop):
            if end > estimate_at:
                estimate_at = sys.maxsize
                self._expect_more()
            try:
                number = self._note(offset, document)
            except UnknownType as error:
                raise line_error(self.path, offset, error) from error
            except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
                raise line_error(self.path, offset, f"{type(error).__name__}: {error}") from error
            self.end = end
            if number >= 0:
                yield number, offset, document

    def _expect_more(self) -> None:
        """Make room for as many keys as the file probably has, judged by the part that was read."""
        with contextlib.suppress(OSError):
            more = min(self.path.stat().st_size / max(1, self.end), _MOST_EXPECTED)
            for keys in (self._examples, self._rollouts):
                keys.expect(int(1.05 * more * len(keys)))

    def __len__(self) -> int:
        """Number of rollouts with at least one line in the journal."""
        return len(self._rollouts)

    @property
    def example_count(self) -> int:
        """Number of examples with a line in the journal."""
        return len(self._examples)

    def example_number(self, key: str) -> int | None:
        """Number of the example, from 0 in the order of first lines; None if it has no line."""
        number = self._examples.find(key)
        return None if number < 0 else number

    def example_line(self, key: str) -> int | None:
        """Offset of the example's first line; None if there is no such line."""
        number = self._examples.find(key)
        return None if number < 0 else self._example_lines[number]

    def example_index(self, key: str) -> int | None:
        """Position of the example in tables: its index in the plan of the process that recorded it."""
        number = self._examples.find(key)
        return None if number < 0 else self._example_indices[number]

    def examples(self) -> Iterator[Example]:
        """The examples in the order of their first lines, read one by one."""
        with JournalReader(self.path) as reader:
            for offset in self._example_lines:
                yield cast(Example, reader.record(offset))

    def number(self, key: str) -> int:
        """Number of the rollout; -1 if it has no line."""
        return self._rollouts.find(key)

    def status_at(self, number: int) -> str:
        """Status of the rollout with this number, a name in `OUTCOMES`."""
        return _STATUSES[self._status[number]]

    def status(self, key: str) -> str | None:
        """Status of the rollout, a name in `OUTCOMES`; None if it has no line."""
        number = self._rollouts.find(key)
        return None if number < 0 else _STATUSES[self._status[number]]

    def generated_at(self, key: str) -> int | None:
        """Offset of the newest `generated` line; None if there is no such line, or if the rollout failed later."""
        number = self._rollouts.find(key)
        return None if number < 0 or self._failed[number] else self._base[number]

    def scored_at(self, key: str) -> int | None:
        """Offset of the newest `scored` line; None if the newest `generated` line has none."""
        number = self._rollouts.find(key)
        return None if number < 0 or self._score[number] == NOWHERE else self._score[number]

    def failed_at(self, key: str) -> int | None:
        """Offset of the newest `failed` line; None if there is no such line, or if the rollout was generated later."""
        number = self._rollouts.find(key)
        return self._base[number] if number >= 0 and self._failed[number] else None

    def counts(self) -> dict[str, int]:
        """Number of rollouts by status."""
        return {name: self._status.count(value) for value, name in enumerate(_STATUSES)}

    def is_done(self, number: int) -> bool:
        """Return whether the rollout with this number has ended: it needs no generation and no scoring."""
        return self._status[number] != _CODES["generated"]

    def is_scored(self, number: int) -> bool:
        """Return whether the rollout with this number has a score."""
        return self._status[number] == _CODES["scored"]

    def place(self, number: int) -> tuple[int, int]:
        """Example index and rollout index of the rollout with this number; table rows are sorted by these."""
        return self._example_indices[self._example_of[number]], self._rollout_index[number]

    def row(self, number: int) -> tuple[int, int, int, int, int, int]:
        """`place` and `lines` of the rollout with this number, and the number of its key (`core.keys.key_number`)."""
        example = self._example_of[number]
        return (
            self._example_indices[example], self._rollout_index[number], self._example_lines[example],
            self._base[number], self._score[number], self._rollouts.number(number),
        )  # fmt: skip

    def lines(self, number: int) -> LineOffsets:
        """Offsets of the newest lines of the rollout with this number."""
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
            return  # already recorded: its rollouts keep their position in tables
        # An index occurs twice if the dataset got new rows before the recorded ones. Tables would average the two
        # examples as one, so the second gets a new index.
        self._example_indices.append(self._taken.add(int(document.get("index", 0))))
        self._example_lines.append(offset)

    def _note_rollout(self, offset: int, document: JsonDict, *, failed: bool) -> int:
        example = self._examples.find(document["example_key"])
        if example < 0:
            raise ValueError("no earlier line contains the example that this line refers to")
        rollout_index = document["rollout_index"]
        if not 0 <= rollout_index <= LARGEST_ROLLOUT:
            raise ValueError(f"the index {rollout_index} of a rollout is out of range")
        number = self._rollouts.add(document["key"])
        if number == len(self._base):
            self._status.append(0)
            self._failed.append(0)
            self._base.append(offset)
            self._score.append(NOWHERE)
            self._example_of.append(example)
            self._rollout_index.append(rollout_index)
        kind = "generated" if not failed else "budget" if document.get("reason") == BUDGET_SPENT else "failed"
        self._status[number] = _CODES[kind]
        self._failed[number] = failed
        self._base[number] = offset
        self._score[number] = NOWHERE
        return number

    def _note_score(self, offset: int, document: JsonDict) -> int:
        number = self._rollouts.find(document["key"])
        if number < 0:
            raise ValueError("no earlier line contains the rollout that this line refers to")
        self._status[number] = _CODES.get(document["outcome"], _CODES["unscored"])
        self._score[number] = offset
        return number
