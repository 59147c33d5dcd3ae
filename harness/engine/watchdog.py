"""Watchdog thread that reports environment code that blocks the event loop or ignores the cancellation of its task. It
cannot stop such code. While one `async def` blocks, every rollout of every run waits, and nothing else would show the
cause. A heartbeat on the event loop records the time; when it is late, the watchdog inspects the stack of the loop's
thread."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from harness.core import openai_client
from harness.usercode.exceptions import where

logger = logging.getLogger(__name__)

THRESHOLD = 0.5
"""Seconds for which one call may block the event loop before it is reported. With 512 rollouts in flight, an iteration
of the loop takes a large part of this time even without blocking code."""

STUBBORN = 5.0
"""Seconds after its cancellation after which a task that still runs is reported."""

_PERIOD = 0.05
"""Seconds between two checks, and between two heartbeats."""


@dataclass(slots=True)
class Blocked:
    """One function that has blocked the event loop."""

    name: str
    """Name of the run whose environment contains the function."""
    where: str
    """Location of the code as `function (file:line)`."""
    times: int = 0
    seconds: float = 0.0
    """Total seconds for which the function has blocked the event loop."""


class Watchdog:
    """Context manager that reports code that blocks the running event loop.

    Args:
        sources: Source files of environments, each with the name of a run that uses the file.
        threshold: Seconds after which a call counts as blocking.
        on_stubborn: Called with the location, as `function (file:line)`, of code that ignores the cancellation of its
            task; None to only log it.
    """

    def __init__(
        self,
        sources: Mapping[Path, str],
        *,
        threshold: float = THRESHOLD,
        on_stubborn: Callable[[str], None] | None = None,
    ) -> None:
        self._names = {str(path): name for path, name in sources.items()}
        self._threshold = threshold
        self._found: dict[tuple[str, str], Blocked] = {}
        self._beat = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_stubborn = on_stubborn
        self._cancelled: dict[asyncio.Task[Any], float] = {}
        """Tasks that still run although they were cancelled, with the time of the first check that found them."""
        self._looked = 0.0

    @property
    def found(self) -> tuple[Blocked, ...]:
        """Functions that have blocked the event loop so far."""
        return tuple(self._found.values())

    def __enter__(self) -> Watchdog:
        """Start to watch the event loop that runs in this thread."""
        if self._names:
            self._on_beat(asyncio.get_running_loop())
            watched = threading.get_ident()
            self._thread = threading.Thread(target=self._watch, args=(watched,), name="bench-watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching, and report in total how long each function that blocked more than once has blocked."""
        self._stop.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()
        for each in self.found:
            if each.times > 1:
                logger.warning(
                    "%s: %s blocked the event loop %d times, %.1f s in all",
                    each.name, each.where, each.times, each.seconds,
                )  # fmt: skip

    def _on_beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beat = time.monotonic()
        self._timer = loop.call_later(_PERIOD, self._on_beat, loop)
        if self._beat - self._looked >= 1.0:
            self._looked = self._beat
            self._look_at_tasks(self._beat)

    def _look_at_tasks(self, now: float) -> None:
        """Report tasks that still run although they were cancelled by a time limit or at the end of the run."""
        going = [task for task in asyncio.all_tasks() if task.cancelling()]
        self._cancelled = {task: self._cancelled.get(task, now) for task in going}
        for task, since in self._cancelled.items():
            if now - since < STUBBORN or (frame := self._awaiting(task)) is None:
                continue
            self._cancelled[task] = math.inf  # report it once
            name, place = self._names[frame.f_code.co_filename], where(frame)
            logger.warning(
                "%s: %s still runs although it was cancelled%s", name, place,
                "" if self._on_stubborn else ", and the run waits for it: do not catch CancelledError, or set isolate "
                "= true, which ends its process",
            )  # fmt: skip
            if self._on_stubborn is not None:
                self._on_stubborn(place)

    def _awaiting(self, task: asyncio.Task[Any]) -> FrameType | None:
        """Return the innermost stack frame of environment code in which a task waits; None if it has no such frame."""
        found: FrameType | None = None
        coroutine: Any = task.get_coro()
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None)
            if frame is not None and frame.f_code.co_filename in self._names:
                found = frame
            coroutine = getattr(coroutine, "cr_await", None)
        return found

    def _watch(self, watched: int) -> None:
        suspect: FrameType | None = None
        excused = 0.0  # the last beat before the openai package was imported
        looked = time.monotonic()
        while not self._stop.wait(_PERIOD):
            now, beat = time.monotonic(), self._beat
            # Native code that holds the interpreter lock blocks this thread, too: if this thread is late, the frame
            # that it sees first has blocked the loop.
            was_locked_out = now - looked > self._threshold
            looked = now
            if now - beat < self._threshold:
                suspect = None
                continue
            stack = sys._current_frames().get(watched)  # pyright: ignore[reportPrivateUsage]  # the only way
            if beat == excused or self._imports_sdk(stack):
                excused, suspect, stack = beat, None, None
                continue
            frame, stack = self._environment_frame(stack), None
            if frame is not None and (frame is suspect or was_locked_out):
                self._note(frame, beat)
                frame = None
                looked = time.monotonic()
            # One sighting proves nothing: a busy loop is late as well. The same call in two consecutive checks does.
            suspect = frame

    def _environment_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost stack frame of environment code in a call stack; None if there is no such frame."""
        while frame is not None and frame.f_code.co_filename not in self._names:
            frame = frame.f_back
        return frame

    def _imports_sdk(self, frame: FrameType | None) -> bool:
        """Return whether the environment's code waits for the first import of the openai package, made for it."""
        while frame is not None and frame.f_code.co_filename not in self._names:
            if frame.f_code.co_filename == openai_client.__file__:
                return True
            frame = frame.f_back
        return False

    def _note(self, frame: FrameType, beat: float) -> None:
        """Report the blocking code at once, then measure for how long it blocks."""
        code = frame.f_code
        name = self._names[code.co_filename]
        place = where(frame)
        del frame  # it references the author's local values
        each = self._found.setdefault((name, code.co_name), Blocked(name, place))
        each.times += 1
        if each.times == 1:
            logger.warning(
                "%s: %s blocks the event loop, and with it every rollout of every run: make it a plain def, which runs "
                "in a thread, or await what it waits for",
                name, place,
            )  # fmt: skip
        while self._beat == beat and not self._stop.wait(_PERIOD):
            pass
        each.seconds += (self._beat if self._beat != beat else time.monotonic()) - beat
