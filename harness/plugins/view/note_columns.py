"""Notes of people as columns of a run, and the file that they are read from. They are not in the index: the file is
read again when it has changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from harness.core.errors import StoreError
from harness.core.keys import key_number
from harness.report.rollout_columns import RunRollout, rollout_columns
from harness.store.manifest import Manifest
from harness.store.notes import FILE, Note, Notes, read_notes
from harness.store.rundir import RunDir

NOTE_NUMBERS = frozenset({"note.score"})
NOTE_WORDS = frozenset({"note", "note.tag", "note.author"})
NOTED = "noted"
"""Names of the columns, and of the property, that are read from notes."""


class NoteFile:
    """The notes of a run, read again when their file has changed.

    Args:
        run: The run.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._seen: tuple[int, ...] | None = None
        self.notes = Notes()
        self.problem = ""
        """Why the file cannot be read; "" if it can."""

    @property
    def stamp(self) -> str:
        """Text that differs after each change of the file."""
        return "-".join(map(str, self._seen or ()))

    def refresh(self) -> bool:
        """Read the file if it has changed, and return whether it has."""
        seen: tuple[int, ...] = ()
        try:
            found = os.lstat(self._run.path / FILE)
            seen = found.st_ino, found.st_size, found.st_mtime_ns
        except OSError:
            pass
        if seen == self._seen:
            return False
        self._seen, self.notes, self.problem = seen, Notes(), ""
        try:
            self.notes = read_notes(self._run)
        except StoreError as error:
            self.problem = str(error)
        return True


class NoteColumns:
    """The columns of notes as arrays with a value for each rollout.

    Args:
        manifest: The run's manifest.
        notes: The notes.
        keys: Number of the key of each rollout, as `core.keys.key_number` gives it.
    """

    def __init__(self, manifest: Manifest, notes: Notes, keys: np.ndarray[Any, Any]) -> None:
        count, held = len(keys), self._held(notes, keys)
        self.noted = np.zeros(count, bool)
        self.noted[list(held)] = True
        full = np.full if held else _all
        self.numbers = {name: full(count, np.nan) for name in NOTE_NUMBERS}
        self.codes = {name: full(count, -1, "i4") for name in NOTE_WORDS}
        self.words: dict[str, list[object]] = {}
        """The different values of each column of words, by code."""
        columns = rollout_columns([manifest])
        rollouts = {number: RunRollout("", manifest, cast(Any, None), found) for number, found in held.items()}
        for name, array in self.numbers.items():
            for number, rollout in rollouts.items():
                value = columns.columns[name].read(rollout)
                array[number] = np.nan if value is None else value
        for name, array in self.codes.items():
            known: dict[object, int] = {}
            for number, rollout in rollouts.items():
                if value := columns.columns[name].read(rollout):
                    array[number] = known.setdefault(value, len(known))
            self.words[name] = list(known)

    @staticmethod
    def _held(notes: Notes, keys: np.ndarray[Any, Any]) -> Mapping[int, tuple[Note, ...]]:
        """Notes by the number of their rollout."""
        wanted = {key_number(key): key for key in notes.by_rollout}
        numbers = np.flatnonzero(np.isin(keys, list(wanted))).tolist() if wanted else []
        return {number: notes.of(wanted[int(keys[number])]) for number in numbers}


def _all(count: int, value: float, kind: str = "f8") -> np.ndarray[Any, Any]:
    """An array of equal values, which share the memory of one."""
    return np.broadcast_to(np.array(value, kind), (count,))
