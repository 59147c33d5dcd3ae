"""Exclusive use of a caller's client, in order of request, across all evaluations, event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Place:
    """A task waiting for a client."""

    called: asyncio.Future[None]
    has_turn: bool = False


@dataclass(slots=True)
class _Line:
    """The queue of a client in use."""

    client: object
    """Referenced so that its id is not reused."""
    waiting: deque[_Place] = field(default_factory=deque[_Place])


_lines: dict[int, _Line] = {}
"""Queues of the clients in use, by id: callers' objects may be neither hashable nor weakly referable."""

_guard = threading.RLock()
"""Lock for `_lines`, which event loops of several threads share; held briefly. It is reentrant: garbage collection can
run the cleanup of an abandoned task in the thread that holds it."""


@asynccontextmanager
async def turn(client: object) -> AsyncGenerator[None]:
    """Hold the client exclusively; callers wait in order of request. Not reentrant."""
    await _enter(client)
    try:
        yield
    finally:
        _leave(client)


async def _enter(client: object) -> None:
    with _guard:
        line = _lines.get(id(client))
        if line is None:
            _lines[id(client)] = _Line(client)
            return
        place = _Place(asyncio.get_running_loop().create_future())
        line.waiting.append(place)
    try:
        await place.called
    except BaseException:
        with _guard, suppress(ValueError):  # already removed: its turn had come, or it was skipped
            line.waiting.remove(place)
        if place.has_turn:
            _leave(client)
        raise


def _leave(client: object) -> None:
    with _guard:
        line = _lines[id(client)]
        while line.waiting:
            place = line.waiting.popleft()
            with suppress(RuntimeError):  # its loop is closed, so no task waits there
                place.called.get_loop().call_soon_threadsafe(_call, place.called)
                place.has_turn = True
                return
        del _lines[id(client)]


def _call(called: asyncio.Future[None]) -> None:
    if not called.done():
        called.set_result(None)
