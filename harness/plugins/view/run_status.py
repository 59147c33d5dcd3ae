"""State of the engine of a run in progress, from the file `status.json` that it keeps in the run folder."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import cast

from harness.core.types import JsonDict
from harness.store.codec import from_text
from harness.store.rundir import RunDir
from harness.store.safe_files import read_file
from harness.store.values import number, table

_SIZE = 1 << 20
_LARGEST = 2.0**53
"""Numbers from here on, which are not exact in a browser, are ignored."""

_MOST_DELAYS = 20
_LONGEST_REASON = 500


def read_status(run: RunDir) -> JsonDict | None:
    """Content of the file; the keys are documented in docs/reference/run-folder.md. Values of wrong types are left out.

    Args:
        run: A run whose lock is held.

    Returns:
        None if the file is missing or damaged, or was written before the lock was taken: by a process that was killed.
    """
    path = run.path / "status.json"
    with suppress(OSError, ValueError, RecursionError):
        if os.lstat(path).st_mtime_ns < os.lstat(run.path / ".lock").st_mtime_ns:
            return None
        found = table(from_text(read_file(path, _SIZE)))
        names = ("planned", "done", "scored", "generating", "scoring", "per_minute", "left")
        delays = found.get("delays")
        listed = cast("list[object]", delays) if isinstance(delays, list) else []
        return {
            **{name: _amount(found.get(name)) for name in names},
            "delays": [_delay(table(each)) for each in listed[:_MOST_DELAYS]],
        }
    return None


def _delay(found: JsonDict) -> JsonDict:
    reason = found.get("reason")
    shown = reason[:_LONGEST_REASON].encode("utf-8", "replace").decode() if isinstance(reason, str) else ""
    return {"reason": shown, "until": _amount(found.get("until"), 1e11)}


def _amount(value: object, limit: float = _LARGEST) -> float | None:
    """A number from 0 to below a limit; None for other values."""
    known = number(value)
    return known if known is not None and 0 <= known < limit else None
