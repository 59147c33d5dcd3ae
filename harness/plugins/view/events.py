"""Server-sent events: changes of the list of runs, and of single runs while they are in progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from aiohttp import web

from harness.core.errors import StoreError
from harness.core.types import JsonDict
from harness.plugins.view.access import SECURITY_HEADERS
from harness.plugins.view.open_indexes import Indexes
from harness.plugins.view.run_info import live_counts
from harness.plugins.view.run_list import RunList, RunNotFound, run_json
from harness.plugins.view.run_status import read_status
from harness.store.codec import to_text

PERIOD = 0.5
"""Seconds between two looks at the runs."""

LIST_PERIOD = 2.0
"""Seconds between two looks at the list of runs."""

PING = 15.0
"""Seconds after which an idle connection gets a comment, so that it stays open and its end is noticed."""

MOST_RUNS = 8
"""Maximum number of runs of a connection."""


class RunChanges:
    """Compares the state of one run with the state before.

    Args:
        runs: The list of runs.
        indexes: The open indexes.
        run_id: Id of the run.
    """

    def __init__(self, runs: RunList, indexes: Indexes, run_id: str) -> None:
        self._runs, self._indexes, self._id = runs, indexes, run_id
        self._last: JsonDict | None = None
        self._stamp: tuple[object, ...] | None = None

    def next(self) -> JsonDict | None:
        """The state of the run as JSON if it has changed; None if not."""
        try:
            found = self._state()
        except RunNotFound:
            found = {"id": self._id, "state": "removed"}
        except StoreError:
            return None  # the index is being rebuilt
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
        notes = index.note_file.stamp
        return {**{name: known[name] for name in names}, "index": status, "notes": notes, "status": known["status"]}


def list_state(runs: RunList) -> list[tuple[str, str, object]]:
    """Facts about all runs whose changes are reported."""
    with suppress(StoreError):
        return [(entry.id, entry.state, (entry.summary or {}).get("num_rollouts")) for entry in runs.entries()]
    return []


def statuses(runs: RunList, state: list[tuple[str, str, object]]) -> JsonDict:
    """State of the engine of each run in progress, by the run's id.

    Args:
        runs: The list of runs.
        state: Facts about all runs, from `list_state`.
    """
    found: JsonDict = {}
    for run_id, name, _ in state:
        with suppress(RunNotFound, StoreError):
            if name == "running" and (status := read_status(runs.find(run_id).run)) is not None:
                found[run_id] = status
    return found


async def stream(
    request: web.Request, runs: RunList, indexes: Indexes, run_ids: Sequence[str], is_stopping: Callable[[], bool]
) -> web.StreamResponse:
    """Answer with events until the client or the server ends the connection.

    Args:
        request: The request.
        runs: The list of runs.
        indexes: The open indexes.
        run_ids: Ids of the runs whose changes are sent; if empty, the states of all runs in progress are sent. Changes
            of the list are always sent.
        is_stopping: Function that returns whether the server stops.
    """
    headers = {**SECURITY_HEADERS, "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    watched = [RunChanges(runs, indexes, run_id) for run_id in run_ids[:MOST_RUNS]]
    await response.write(b": open\n\n")
    listed, sent, looked = await asyncio.to_thread(list_state, runs), time.monotonic(), time.monotonic()
    shown: JsonDict = {}
    while not is_stopping():
        changes = [await asyncio.to_thread(each.next) for each in watched]
        lines = [f"event: run\ndata: {to_text(change)}\n\n" for change in changes if change is not None]
        if time.monotonic() - looked >= LIST_PERIOD:
            found, looked = await asyncio.to_thread(list_state, runs), time.monotonic()
            lines += ["event: runs\ndata: {}\n\n"] if found != listed else []
            listed = found
            if not watched:  # the list of runs, which shows the progress of each
                before, shown = shown, await asyncio.to_thread(statuses, runs, found)
                lines += [f"event: statuses\ndata: {to_text(shown)}\n\n"] if shown != before else []
        if not lines and time.monotonic() - sent >= PING:
            lines.append(": ping\n\n")
        if lines:
            await response.write("".join(lines).encode())
            sent = time.monotonic()
        await asyncio.sleep(PERIOD)
    return response
