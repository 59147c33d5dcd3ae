"""The indexes of runs that a server has open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from harness.core.errors import StoreError
from harness.plugins.view.run_index import RunIndex
from harness.store.catalogue import ListedRun

_OPEN = 8
"""Maximum number of runs whose indexes are open."""


class Indexes:
    """The open indexes of a server; the one that was not used for the longest time is closed."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, RunIndex] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, entry: ListedRun) -> RunIndex:
        """The index of a run, which is opened if it is not.

        Raises:
            StoreError: the run's manifest cannot be read.
        """
        if entry.manifest is None:
            raise StoreError(f"{entry.problems[0] if entry.problems else 'the run cannot be read'}")
        with self._lock:
            found = self._open.get(entry.run.path)
            if found is None or found.is_closed():
                found = self._open[entry.run.path] = RunIndex(entry)
            found.entry = entry
            self._open.move_to_end(entry.run.path)
            while len(self._open) > _OPEN:
                self._open.popitem(last=False)[1].close()
            return found

    def known(self, path: Path) -> RunIndex | None:
        """The index of a run if it is open."""
        return self._open.get(path)

    def close(self) -> None:
        """Close all indexes."""
        with self._lock:
            for each in self._open.values():
                each.close()
            self._open.clear()
