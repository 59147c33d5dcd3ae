"""The table models × environments of an invocation as JSON: the one of `bench report`, with the same figures, marks and
footnotes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import suppress

from harness.core.types import JsonDict
from harness.plugins.view.run_list import RunList, RunNotFound
from harness.report.page.gather import page_of
from harness.report.paper_tables.cells import table_of_page
from harness.report.paper_tables.footnotes import cell_notes, footnotes
from harness.report.paper_tables.layout import Shown, layout_of
from harness.store.catalogue import ListedRun

_KEPT = 8
"""Maximum number of tables to keep."""


class SuiteTables:
    """The tables of a server. A table is computed again only if its runs have changed; it reads their journals.

    Args:
        runs: The runs that the server shows.
    """

    def __init__(self, runs: RunList) -> None:
        self._runs = runs
        self._known: OrderedDict[object, JsonDict] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, suite: str) -> JsonDict:
        """The table of an invocation; the keys are documented in docs/reference/view.md.

        Args:
            suite: Id of the invocation; may be untrusted, since it is never used as a path.

        Raises:
            RunNotFound: no run belongs to it.
            HarnessError: none of its runs can be read.
        """
        entries = [each for each in self._runs.entries() if suite and each.manifest and each.manifest.suite == suite]
        if not entries:
            raise RunNotFound(f"There is no suite {suite}.")
        key = suite, tuple(map(_state_of, entries))
        with self._lock:  # one at a time: a table may need much memory
            if key not in self._known:
                self._known[key] = _table_json(entries[::-1])
                while len(self._known) > _KEPT:
                    self._known.popitem(last=False)
            self._known.move_to_end(key)
            return self._known[key]


def _state_of(entry: ListedRun) -> tuple[object, ...]:
    """Facts about a run; if they are the same, its part of the table is the same."""
    with suppress(OSError):
        found = os.lstat(entry.run.journal_path)
        return entry.id, entry.state, found.st_size, found.st_mtime_ns
    return entry.id, entry.state


def _table_json(entries: list[ListedRun]) -> JsonDict:
    table = table_of_page(page_of([entry.run.path for entry in entries]))
    layout = layout_of(table)
    runs = {place: cell.entry.id for place, cell in table.cells.items()}
    return {
        "corner": layout.corner,
        "columns": layout.columns,
        "rows": [
            {
                "name": name,
                "cells": [
                    _cell_json(shown, runs.get((name, column)) or runs.get((column, name)))
                    for column, shown in zip(layout.columns, cells, strict=True)
                ],
            }
            for name, cells in layout.rows
        ],
        "notes": [[*note] for note in cell_notes(table).values()],
        "footnotes": footnotes(table),
    }


def _cell_json(shown: Shown, run_id: str | None) -> JsonDict:
    return {
        "run": run_id, "mean": shown.mean, "interval": shown.interval, "best": shown.is_best,
        "sign": shown.sign, "letter": shown.letter,
    }  # fmt: skip
