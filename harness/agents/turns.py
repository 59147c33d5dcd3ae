"""Turns at a caller's client: whoever has one uses it alone, in whatever evaluation, event loop or thread. Owns who
waits for which client; knows nothing of what it is used for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Place:
    """One who waits."""

    called: asyncio.Future[None]
    has_turn: bool = False


@dataclass(slots=True)
class _Line:
    """Those that wait for a client which is in use."""

    client: object
    """Kept, so that its id stays its own."""
    waiting: deque[_Place] = field(default_factory=deque[_Place])


_lines: dict[int, _Line] = {}
"""Of each client that is in use, by its id: callers' objects need be neither hashable nor weakly referable."""

_guard = threading.RLock()
"""Held for a moment at a time; event loops of several threads share `_lines`. Whoever holds it may come again: garbage
collection ends tasks that were left behind wherever it happens to run."""


@asynccontextmanager
async def turn(client: object) -> AsyncGenerator[None]:
    """The client, alone, in the order of asking. Not to be entered again by whoever is inside."""
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
        with _guard, suppress(ValueError):  # gone from the line: its turn had come, or it was passed over
            line.waiting.remove(place)
        if place.has_turn:
            _leave(client)
        raise


def _leave(client: object) -> None:
    with _guard:
        line = _lines[id(client)]
        while line.waiting:
            place = line.waiting.popleft()
            with suppress(RuntimeError):  # its loop is closed, so nobody waits there any more
                place.called.get_loop().call_soon_threadsafe(_call, place.called)
                place.has_turn = True
                return
        del _lines[id(client)]


def _call(called: asyncio.Future[None]) -> None:
    if not called.done():
        called.set_result(None)
