"""The events of an evaluation: their names, their payloads and who is told. Owns the order start, progress of every
task, complete; a listener that fails costs no result.

The engine tells of outcomes from inside its loop and waits for nobody, so events go to sinks that return at once: a
file, or the queue of `listening`, whose other end awaits the caller's function."""

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
from types import TracebackType
from typing import Self, TypeAlias, cast

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
"""Takes an event and returns at once; must not raise."""


class Events:
    """Tells of one evaluation.

    Args:
        started: The evaluation.
        sinks: Who is told, in this order.
    """

    def __init__(self, started: Started, sinks: Sequence[Sink] = ()) -> None:
        self._started = started
        self._sinks = tuple(sinks)

    def start(self) -> None:
        """The first request is about to be sent."""
        self._tell(START, {**self._started.totals})

    def progress(self, model_id: str, task_id: str, completed: int) -> None:
        """One task of one model has come to its end.

        Args:
            model_id: What results call the model.
            task_id: The task.
            completed: Tasks of all models that have an outcome by now.
        """
        of = self._started.totals["totalRuns"]
        self._tell(PROGRESS, {"modelId": model_id, "taskId": task_id, "completed": completed, "totalRuns": of})

    def complete(self, duration_ms: int, summary: Sequence[ModelSummary]) -> None:
        """All models have come to their end; nothing is stored yet."""
        self._tell(COMPLETE, {"durationMs": duration_ms, "summary": copy.deepcopy(list(summary))})

    def _tell(self, name: str, payload: JsonDict) -> None:
        for sink in self._sinks:
            sink(name, {"runId": self._started.run_id, **payload})


class EventFile:
    """A file that gets a line of JSON for each event: `{"event", "at", "payload"}`. Lines are added to what is there.

    Args:
        path: The file; folders above it are made.
        private: For its owner only, and so the folders that are made.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, path: str | Path, *, private: bool = False) -> None:
        self._path = Path(path)
        with translated("open", self._path):
            make_folder(self._path.absolute().parent, private=private)
            flags, mode = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, file_mode(private=private)
            self._fd: int | None = os.open(self._path, flags, mode)
            if private and self._path.is_file():
                os.fchmod(self._fd, 0o600)  # it may be there from before

    def write(self, name: str, payload: JsonDict) -> None:
        """Add an event. What cannot be written is said once in the log, and nothing more is tried."""
        if self._fd is None:
            return
        line = json.dumps({"event": name, "at": timestamp(), "payload": payload}, ensure_ascii=True, default=str)
        try:
            write_all(self._fd, redactor.text(line, patterns=False).encode("ascii") + b"\n")
        except OSError as error:
            logger.warning("cannot write %s: %s; no more events go there", self._path, error.strerror or error)
            self.close()

    def close(self) -> None:
        """No more events; idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@asynccontextmanager
async def listening(listener: Listener | None) -> AsyncGenerator[list[Sink]]:
    """A sink that lets `listener` know of every event, one after the other, awaited if it is async; none without it.

    The block ends when the last event was told. What the listener raises is said once in the log.
    """
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
            except Exception:  # the boundary around the caller's function: the evaluation is paid for
                if is_well:
                    logger.warning("on_event raised at %s; further failures are not told", event[0], exc_info=True)
                is_well = False

    failure: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(tell())
        try:
            yield [lambda name, payload: queue.put_nowait((name, payload))]
        except asyncio.CancelledError as error:
            telling.cancel()
            failure = error
        except BaseException as error:  # raised again outside: the group would wrap it
            failure = error
        queue.put_nowait(None)
    if failure is not None:
        raise failure
