"""The events of an evaluation, with their names and payloads: start, progress of every task, complete. An exception of
a listener does not affect the results. The engine reports outcomes from inside its event loop and must not be blocked,
so events are passed to sinks that return at once: a file, or the queue of `listening`, which awaits the caller's
function."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias, cast

from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.multi.document import Started
from harness.multi.options import Listener
from harness.multi.results import ModelSummary
from harness.store.atomic import file_mode, make_folder, translated, write_all
from harness.store.rundir import timestamp

logger = logging.getLogger(__name__)

START = "multi-model:eval:start"
PROGRESS = "multi-model:eval:progress"
COMPLETE = "multi-model:eval:complete"

Sink: TypeAlias = Callable[[str, JsonDict], None]
"""Function that receives an event and returns at once; must not raise."""


class Events:
    """The events of one evaluation, sent to all receivers.

    Args:
        started: The evaluation.
        sinks: Receivers of the events, called in this order.
    """

    def __init__(self, started: Started, sinks: Sequence[Sink] = ()) -> None:
        self._started = started
        self._sinks = tuple(sinks)

    def start(self) -> None:
        """Send the start event, just before the first request."""
        self._tell(START, {**self._started.totals})

    def progress(self, model_id: str, task_id: str, completed: int) -> None:
        """Send a progress event: one model has finished a task.

        Args:
            model_id: The model's name in the results.
            task_id: The task's id.
            completed: Number of finished tasks of all models.
        """
        of = self._started.totals["totalRuns"]
        self._tell(PROGRESS, {"modelId": model_id, "taskId": task_id, "completed": completed, "totalRuns": of})

    def complete(self, duration_ms: int, summary: Sequence[ModelSummary]) -> None:
        """Send the completion event, after all models have finished and before anything is stored."""
        self._tell(COMPLETE, {"durationMs": duration_ms, "summary": copy.deepcopy(list(summary))})

    def _tell(self, name: str, payload: JsonDict) -> None:
        for sink in self._sinks:
            sink(name, {"runId": self._started.run_id, **payload})


class EventFile:
    """File of an evaluation's events with one line of JSON per event: `{"event", "at", "payload"}`. Lines are appended
    to an existing file.

    Args:
        path: The file; missing parent folders are created.
        private: Make the file and the created folders readable by their owner only.

    Raises:
        StoreError: the file cannot be opened.
    """

    def __init__(self, path: str | Path, *, private: bool = False) -> None:
        self._path = Path(path)
        with translated("open", self._path):
            make_folder(self._path.absolute().parent, private=private)
            flags, mode = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, file_mode(private=private)
            self._fd: int | None = os.open(self._path, flags, mode)
            if private and self._path.is_file():
                os.fchmod(self._fd, 0o600)  # an existing file may be readable by others

    def write(self, name: str, payload: JsonDict) -> None:
        """Append an event to the file. A write error is logged once and closes the file."""
        if self._fd is None:
            return
        line = json.dumps({"event": name, "at": timestamp(), "payload": payload}, ensure_ascii=True, default=str)
        try:
            write_all(self._fd, redactor.text(line, patterns=False).encode("ascii") + b"\n")
        except OSError as error:
            logger.warning("cannot write %s: %s; later events are not written", self._path, error.strerror or error)
            self.close()

    def close(self) -> None:
        """Close the file. May be called repeatedly."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


@asynccontextmanager
async def listening(listener: Listener | None) -> AsyncGenerator[list[Sink]]:
    """Context manager that yields the event sinks for a caller's listener: one that passes every event to `listener`,
    in order, and awaits it if it is async; no sink if there is no listener. The `with` block ends when the last event
    has been delivered. Only the first exception of the listener is logged."""
    if listener is None:
        yield []
        return
    queue: asyncio.Queue[tuple[str, JsonDict] | None] = asyncio.Queue()

    async def tell() -> None:
        is_well = True
        while (event := await queue.get()) is not None:
            try:
                answer = listener(*event)
                if inspect.isawaitable(answer):
                    await cast("Awaitable[object]", answer)
            except Exception:  # boundary around the caller's function: the evaluation is paid for
                if is_well:
                    logger.warning("on_event failed at event %s; later errors are not logged", event[0], exc_info=True)
                is_well = False

    failure: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(tell())
        try:
            yield [lambda name, payload: queue.put_nowait((name, payload))]
        except asyncio.CancelledError as error:
            telling.cancel()
            failure = error
        except BaseException as error:  # raised again below, since the task group would wrap it
            failure = error
        queue.put_nowait(None)
    if failure is not None:
        raise failure
