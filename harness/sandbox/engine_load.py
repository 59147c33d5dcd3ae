"""Limits on the work that is given to a container engine at once, and pauses for one that is out of order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from harness.core.errors import SandboxError
from harness.usercode.deadline import waiting
from harness.usercode.threads import Offload, cores

T = TypeVar("T")

FAILURES = 3
"""Number of failed starts in a row after which no container is started for a while."""

PAUSE_SECONDS = 30.0
"""How long no container is started then, in seconds, before one start is tried."""

TRIAL_SECONDS = 200.0
"""How long no other container is started while one start is tried, in seconds."""

Gate = Literal["builds", "starts", "execs"]

AT_ONCE: dict[Gate, int] = {"builds": 2, "starts": max(2, 2 * cores()), "execs": 16 * cores()}
"""Maximum numbers of concurrent builds, starts and programs in containers. Waiting counts towards no timeout."""

threads = Offload()
"""Threads for calls of engines, so that slow ones do not delay the code of environments."""

os.register_at_fork(after_in_child=threads._forget)  # pyright: ignore[reportPrivateUsage]

_background: set[asyncio.Future[Any]] = set()

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Gate, asyncio.Semaphore]] = WeakKeyDictionary()


@asynccontextmanager
async def turn(gate: Gate) -> AsyncGenerator[None, None]:
    """Wait for a turn. The time does not count towards the timeout of the rollout."""
    loop = asyncio.get_running_loop()
    gates = _gates.setdefault(loop, {name: asyncio.Semaphore(count) for name, count in AT_ONCE.items()})
    with waiting():
        await gates[gate].acquire()
    try:
        yield
    finally:
        gates[gate].release()


def in_background(work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Start `work`, and keep it from being deleted while it runs."""
    task = asyncio.ensure_future(work)
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, which continues if the await is cancelled."""
    return await asyncio.shield(in_background(work))


class Breaker:
    """Delays starts of containers, or getting an image, after it has failed several times in a row, so that thousands
    of rollouts neither fail at once nor wait for an engine that is out of order. After a pause, it is tried once; if it
    fails, those that wait fail, too.

    Failed starts of one image delay only those of this image."""

    def __init__(self) -> None:
        self._failed: list[str] = []
        self._reason = ""
        self._until = 0.0
        self._trial: str | None = None
        self._trial_ends = 0.0
        self._trial_failed = 0.0

    async def admit(self, what: str, image: str, since: float) -> None:
        """Wait until this may be tried for `image`. The time does not count towards the timeout of the rollout.

        Args:
            what: A name for messages.
            image: Name of the image.
            since: When the rollout began to wait, in seconds of the monotonic clock.

        Raises:
            SandboxError: it was tried meanwhile, and failed.
        """
        with waiting():
            while self._failed.count(image) >= FAILURES or len(set(self._failed)) >= FAILURES:
                if self._trial_failed > since:
                    raise SandboxError(
                        f"{what} failed {len(self._failed)} times in a row, also after a pause. "
                        f"The last error was: {self._reason}"
                    )
                left = max(self._until, self._trial_ends) - time.monotonic()
                if left <= 0:
                    self._trial, self._trial_ends = image, time.monotonic() + TRIAL_SECONDS
                    return
                await asyncio.sleep(min(left, 1.0))

    def record(self, image: str, error: str = "") -> None:
        """Record that it failed; without an error, that it succeeded."""
        if error:
            self._failed = [*self._failed[-99:], image]
            self._reason, self._until = error, time.monotonic() + PAUSE_SECONDS
            if self._trial == image:
                self._trial_failed = time.monotonic()
        else:
            self._failed.clear()
        if self._trial == image:
            self._trial, self._trial_ends = None, 0.0
