"""Exclusive use of a caller's model client, across all evaluations, event loops and threads."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Waiter:
    """A task that waits for a client."""

    ready: asyncio.Future[None]
    has_turn: bool = False


@dataclass(slots=True)
class _Queue:
    """Queue of the tasks that wait for a client in use."""

    client: object
    """The client, referenced so that its id is not reused."""
    waiting: deque[_Waiter] = field(default_factory=deque[_Waiter])


_queues: dict[int, _Queue] = {}
"""Queues of the clients in use, by `id(client)`, since a caller's object may be neither hashable nor weakly
referable."""

_guard = threading.RLock()
"""Lock for `_queues`, which the event loops of several threads share. It is reentrant, because garbage collection can
run the cleanup of an abandoned task in the thread that has the lock."""


@asynccontextmanager
async def turn(client: object) -> AsyncGenerator[None]:
    """Reserve a model client exclusively for the `with` block. Waiting tasks are served in order. Not reentrant."""
    waiter = None
    with _guard:
        queue = _queues.get(id(client))
        if queue is None:
            _queues[id(client)] = _Queue(client)
        else:
            waiter = _Waiter(asyncio.get_running_loop().create_future())
            queue.waiting.append(waiter)
    if queue is not None and waiter is not None:
        try:
            await waiter.ready
        except BaseException:
            with _guard, suppress(ValueError):  # already removed from the queue: it got the client, or it was skipped
                queue.waiting.remove(waiter)
            if waiter.has_turn:
                _leave(client)
            raise
    try:
        yield
    finally:
        _leave(client)


def _leave(client: object) -> None:
    with _guard:
        queue = _queues[id(client)]
        while queue.waiting:
            waiter = queue.waiting.popleft()
            with suppress(RuntimeError):  # its loop is closed, so no task waits there
                waiter.ready.get_loop().call_soon_threadsafe(_notify, waiter.ready)
                waiter.has_turn = True
                return
        del _queues[id(client)]


def _notify(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
