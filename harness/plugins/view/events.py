"""Server-sent events: changes of the list of runs, and of single runs while they are in progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from aiohttp import web

from harness.core.errors import StoreError
from harness.core.types import JsonDict
from harness.plugins.view.access import SECURITY_HEADERS
from harness.plugins.view.run_index import Indexes
from harness.plugins.view.run_info import live_counts
from harness.plugins.view.run_list import RunList, RunNotFound, run_json
from harness.store.codec import from_text, to_text
from harness.store.safe_files import read_file

PERIOD = 0.5
"""Seconds between two looks at the runs."""

LIST_PERIOD = 2.0
"""Seconds between two looks at the list of runs."""

PING = 15.0
"""Seconds after which an idle connection gets a comment, so that it stays open and its end is noticed."""

MOST_RUNS = 8
"""Maximum number of runs of a connection."""

_STATUS = "status.json"
"""File in the folder of a run in progress, with the state of its engine."""

_STATUS_SIZE = 1 << 20
_RATE_SECONDS = 60.0
"""Seconds over which the rate of a run is measured."""


class RunChanges:
    """Compares the state of one run with the state before.

    Args:
        runs: The list of runs.
        indexes: The open indexes.
        run_id: Id of the run.
        clock: Function that returns the time in seconds.
    """

    def __init__(
        self, runs: RunList, indexes: Indexes, run_id: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runs, self._indexes, self._id, self._clock = runs, indexes, run_id, clock
        self._last: JsonDict | None = None
        self._counts: list[tuple[float, int]] = []
        """Times, with the number of rollouts that had ended."""
        self._stamp: tuple[object, ...] | None = None

    def next(self) -> JsonDict | None:
        """The state of the run as JSON if it has changed; None if not."""
        try:
            found = self._state()
        except RunNotFound:
            found = {"id": self._id, "state": "removed"}
        except StoreError:
            return None  # the index is being built again
        if found == self._last:
            return None
        self._last = found
        return found

    def _state(self) -> JsonDict:
        entry = self._runs.find(self._id)
        index = self._indexes.of(entry)
        with index.reading():
            status, known = index.status(), run_json(entry)
            stamp = (index.stamp, index.note_file.stamp, status["done"], entry.state, known["scored"])
            if self._last is not None and stamp == self._stamp and entry.state != "running":
                return self._last
            self._stamp = stamp
            known |= live_counts(index) if entry.final is None else {}
        names = ("id", "state", "scored", "failed", "planned", "mean", "low", "high", "cost", "tokens")
        rate, eta = self._pace(known) if entry.state == "running" else (None, None)
        return {
            **{name: known[name] for name in names}, "index": status, "rate": rate, "eta": eta,
            "notes": index.note_file.stamp,
            "status": engine_status(entry.run.path / _STATUS) if entry.state == "running" else None,
        }  # fmt: skip

    def _pace(self, known: JsonDict) -> tuple[float | None, float | None]:
        """Rollouts per minute, and seconds to the end; None if unknown."""
        now, done = self._clock(), cast(int, known["scored"]) + cast(int, known["failed"])
        if not self._counts or self._counts[-1][1] != done:
            self._counts.append((now, done))
        while len(self._counts) > 2 and now - self._counts[0][0] > _RATE_SECONDS:
            self._counts.pop(0)
        (first, before), (last, after) = self._counts[0], self._counts[-1]
        if last - first < 1.0:
            return None, None
        rate = (after - before) / (last - first)
        planned = known["planned"]
        eta = None if planned is None or rate <= 0 else round(max(0, planned - done) / rate)
        return round(60 * rate, 1), eta


def engine_status(path: Path) -> JsonDict | None:
    """Content of the file with the state of a run's engine; None if it is missing or damaged."""
    with suppress(OSError, ValueError):
        found = from_text(read_file(path, _STATUS_SIZE))
        return cast(JsonDict, found) if isinstance(found, dict) else None
    return None


def list_state(runs: RunList) -> list[tuple[str, str, object]]:
    """Facts about all runs whose changes are reported."""
    with suppress(StoreError):
        return [(entry.id, entry.state, (entry.summary or {}).get("num_rollouts")) for entry in runs.entries()]
    return []


async def stream(
    request: web.Request, runs: RunList, indexes: Indexes, run_ids: Sequence[str], is_stopping: Callable[[], bool]
) -> web.StreamResponse:
    """Answer with events until the client or the server ends the connection.

    Args:
        request: The request.
        runs: The list of runs.
        indexes: The open indexes.
        run_ids: Ids of the runs whose changes are sent; changes of the list are always sent.
        is_stopping: Function that returns whether the server stops.
    """
    headers = {**SECURITY_HEADERS, "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    watched = [RunChanges(runs, indexes, run_id) for run_id in run_ids[:MOST_RUNS]]
    await response.write(b": open\n\n")
    listed, sent, looked = await asyncio.to_thread(list_state, runs), time.monotonic(), time.monotonic()
    while not is_stopping():
        changes = [await asyncio.to_thread(each.next) for each in watched]
        lines = [f"event: run\ndata: {to_text(change)}\n\n" for change in changes if change is not None]
        if time.monotonic() - looked >= LIST_PERIOD:
            found, looked = await asyncio.to_thread(list_state, runs), time.monotonic()
            lines += ["event: runs\ndata: {}\n\n"] if found != listed else []
            listed = found
        if not lines and time.monotonic() - sent >= PING:
            lines.append(": ping\n\n")
        if lines:
            await response.write("".join(lines).encode())
            sent = time.monotonic()
        await asyncio.sleep(PERIOD)
    return response
