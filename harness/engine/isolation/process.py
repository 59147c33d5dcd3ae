"""One isolated worker process, as the parent process controls it: communication, health checks and termination. `pool`
and the executor react when the worker dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import cast

from harness.core.errors import NODE_LOST, WORKER_HUNG, EnvironmentLoadError, WorkerDied
from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.isolation.spawned import PATIENCE, Process, Recipe, start_process
from harness.engine.isolation.wire import FrameReader, error_from_json, pack

logger = logging.getLogger(__name__)

_TICK = 1.0
"""Seconds between health checks. The time without a message is counted in checks, so that a delay of the parent
process, or a suspended machine, is not mistaken for a worker that hangs."""

_MOST_LOST = 5
"""Number of computers to try for a process that must load before the event loop runs."""


@dataclass(eq=False, slots=True)
class Call:
    """An order (to generate or score a rollout) that a worker process is executing."""

    number: int
    patience: float | None
    """Time limit in seconds, by the process's own clock; None for no limit."""
    inbox: asyncio.Queue[JsonDict | WorkerDied] = field(default_factory=asyncio.Queue["JsonDict | WorkerDied"])


class Worker(asyncio.Protocol):
    """One worker process, which is started by the constructor and loads its environment.

    Args:
        recipe: How to start the process.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.death: WorkerDied | None = None
        self.on_death: Callable[[WorkerDied], None] | None = None
        """Called with the cause when the process ends unexpectedly."""
        self.is_loaded = False
        """Whether the environment was loaded by `loaded`, before the event loop ran."""
        self.is_started = False
        """Whether the process accepts orders."""
        self.is_fresh = True
        """Whether the process has never received an order."""
        self.held = 0
        """Number of rollouts that wait for their scores, whose live states the process has."""
        self.blocked_by = ""
        """Last report of code that blocked the process's event loop; "" without one."""
        self._calls: dict[int, Call] = {}
        self._numbers = count()
        self._transport: asyncio.WriteTransport | None = None
        self._reading: asyncio.ReadTransport | None = None
        self._is_ending = self._has_said_end = False
        self._silent = 0
        self._ended: asyncio.Future[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._spawned = self._spawn()

    @property
    def node(self) -> str:
        """Name of the computer on which the process runs; "" for this one."""
        return self._spawned.node

    # Before the event loop

    def loaded(self) -> JsonDict:
        """Wait until the environment is loaded, and return the worker's description of the environment. Blocking.

        Raises:
            HarnessError: loading failed; the process has ended.
        """
        try:
            description = self._hear_or_replace()
        except BaseException:
            self.kill_and_wait()
            raise
        self.is_loaded = True
        return description

    def kill_and_wait(self) -> None:
        """Kill the process, and wait until it has exited. Blocking."""
        self.kill()
        self._spawned.watch.join(PATIENCE)

    def ask(self, order: JsonDict) -> JsonDict:
        """Send an order before the event loop runs, and return the process's report. Blocking.

        Raises:
            HarnessError: the environment's code raised an error, or its process ended.
        """
        assert self._transport is None, "ask must not be called once the event loop reads the pipes"
        _write(self._spawned, order)
        return self._hear_or_replace(order)

    def _spawn(self) -> Process:
        recipe, self._lines = self.recipe, FrameReader()
        spawned = start_process(recipe)
        _write(
            spawned,
            {
                "type": "load", "env_id": recipe.env_id, "env_args": recipe.env_args,
                "extra_env_kwargs": recipe.extra_env_kwargs, "memory_mb": recipe.memory_mb,
                "log_level": logging.getLogger().getEffectiveLevel(), "expected": recipe.expected,
            },
        )  # fmt: skip
        return spawned

    def _hear_or_replace(self, order: JsonDict | None = None) -> JsonDict:
        """Return the process's report. If its computer is lost, start it on another one and repeat the order."""
        for lost in count():
            try:
                if lost:
                    self._spawned.kill()
                    self._spawned = self._spawn()
                    if order is not None:
                        self._hear()
                        _write(self._spawned, order)
                return self._hear()
            except EnvironmentLoadError:
                if self._spawned.death_reason != NODE_LOST or lost + 1 == _MOST_LOST:
                    raise
                logger.warning("%s; it is started on another computer", self._spawned.how_it_ended())
        raise AssertionError("count() does not end")

    def _slow(self) -> EnvironmentLoadError:
        return EnvironmentLoadError(
            f"environment {self.recipe.name!r}: the process of this environment was ended because loading took longer "
            f"than {self.recipe.load_seconds:g} s"
        )

    def _hear(self) -> JsonDict:
        until = time.monotonic() + self.recipe.load_seconds
        poll = select.poll()
        poll.register(self._spawned.reports, select.POLLIN)
        while True:
            if self._spawned.is_killed or not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                self.kill()
                raise self._slow()
            data = os.read(self._spawned.reports, 1 << 16)
            try:
                frames = self._lines.feed(data)
                if not data:
                    words, bound = self._spawned.how_it_ended(2.0), f"worker_memory_mb = {self.recipe.memory_mb}"
                    has_said = self.recipe.memory_mb < 0 or bound in words
                    raise EnvironmentLoadError(
                        f"environment {self.recipe.name!r}: {words} while loading"
                        + ("" if has_said else f", with {bound}")
                    )
                for frame in frames:
                    if frame["type"] == "log":
                        _log(frame)
                    elif frame["type"] == "raised":
                        raise error_from_json(frame)
                    else:
                        return frame
            except (ValueError, TypeError, LookupError):
                self.kill()
                raise EnvironmentLoadError(f"environment {self.recipe.name!r}: {self._protocol_error()}") from None

    # In the event loop

    async def start(self) -> None:
        """Connect the process to the event loop, so that it accepts orders.

        Raises:
            HarnessError: the environment failed to load, or the process died.
        """
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        self._ready = None if self.is_loaded else loop.create_future()
        reports, orders = self._spawned.files()
        self._reading, _ = await loop.connect_read_pipe(lambda: self, reports)
        self._transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, orders)
        self._spawned.watch.on_end(partial(_call_in, loop, self._on_exit))
        loop.call_later(_TICK, self._look, loop)
        if self._ready is not None:
            try:
                async with asyncio.timeout(self.recipe.load_seconds):
                    await self._ready
            except TimeoutError:
                self.kill()
                raise self._slow() from None
            finally:
                self._ready = None
        if self.death is not None:
            raise self.death.anew()
        self.is_started = True
        self.send({"type": "start"})

    def send(self, frame: JsonDict) -> None:
        """Send an order or an answer to the process. Does nothing if the process has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack(frame))

    @contextlib.contextmanager
    def order(self, frame: JsonDict, patience: float | None) -> Generator[Call]:
        """Context manager that sends an order; leaving it early cancels the order. Reports arrive in the inbox."""
        if self.death is not None:
            raise self.death.anew()
        self.is_fresh = False
        call = Call(next(self._numbers), patience)
        self._calls[call.number] = call
        self.send({**frame, "order": call.number})
        try:
            yield call
        finally:
            if self._calls.pop(call.number, None) is not None and self.death is None:
                self.send({"type": "cancel", "order": call.number})

    def done(self, call: Call) -> None:
        """Mark an order as complete, so that it is not cancelled when the block of `order` is left."""
        self._calls.pop(call.number, None)

    async def end(self, patience: float) -> None:
        """Tell the process to tear its environment down and to exit.

        Args:
            patience: Seconds after which the process is killed.
        """
        try:
            if self.death is None and self._transport is not None and self._ended is not None:
                self._is_ending = True
                self.send({"type": "end"})
                try:
                    async with asyncio.timeout(patience):
                        await self._ended
                except TimeoutError:
                    logger.warning("%s: the process was ended: its teardown took over %g s", self.recipe.name, patience)
                else:
                    if not self._has_said_end:
                        logger.warning("%s while its environment was being torn down", self._spawned.how_it_ended())
        finally:
            self.kill()
            await asyncio.to_thread(self._spawned.watch.join, PATIENCE)

    def kill(self, death: WorkerDied | None = None) -> None:
        """Kill the process and its descendants; does not wait for their end."""
        if self.death is None and not self._is_ending:
            self.death = death or WorkerDied(f"the process of {self.recipe.name} was ended")
        if self._transport is not None:
            self._transport.abort()
        if self._reading is not None:
            self._reading.close()
        self._spawned.kill()

    def data_received(self, data: bytes) -> None:
        """Process messages of the worker that `data` completes."""
        self._silent = 0
        try:
            for frame in self._lines.feed(data):
                self._on_frame(frame)
        except (ValueError, TypeError, LookupError):
            self.die(WorkerDied(self._protocol_error()))

    def _on_frame(self, frame: JsonDict) -> None:
        kind = frame["type"]
        if kind == "log":
            if frame["name"] == "harness.engine.watchdog":
                self.blocked_by = str(frame["text"])
            _log(frame)
        elif kind == "stubborn":
            words = f"{self.recipe.name} was ended because {frame['where']} still runs although it was cancelled"
            self.die(WorkerDied(f"the process of {words}", WORKER_HUNG))
        elif kind == "ended":
            self._has_said_end = True
            self._resolve(self._ended)
        elif kind == "ask" or "to" in frame:
            call = self._calls.get(frame["to"])
            if call is not None:
                call.inbox.put_nowait(frame)
        elif self._ready is not None and not self._ready.done():
            if kind == "raised":
                self._ready.set_exception(error_from_json(frame))
            elif kind == "loaded":
                self._ready.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Schedule a check of how the process ended, which is known a moment after its pipe is closed."""
        if not self._spawned.is_killed and self._ended is not None:
            self._ended.get_loop().call_later(_TICK, self._on_exit)

    def _on_exit(self) -> None:
        self._resolve(self._ended)
        if not self._is_ending and self.death is None:
            self.die(WorkerDied(self._spawned.how_it_ended(), self._spawned.death_reason))

    def _resolve(self, future: asyncio.Future[None] | None) -> None:
        if future is not None and not future.done():
            future.set_result(None)

    def die(self, death: WorkerDied) -> None:
        """Kill the process, and report its death to all orders that it is executing."""
        if self._spawned.is_killed:
            return
        self.kill(death)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(death.anew())
        for call in self._calls.values():
            call.inbox.put_nowait(death)
        if self.on_death is not None and not self._is_ending:
            self.on_death(death)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._spawned.is_killed:
            return
        if self._spawned.is_over:
            self._on_exit()  # a descendant that cannot be killed keeps the output open
            return
        if self.is_started and not self._is_ending:
            self._silent += 1
        bounds = [call.patience for call in self._calls.values() if call.patience is not None]
        if self._silent * _TICK > min([self.recipe.silence, *(bound + self.recipe.overdue for bound in bounds)]):
            where = f" ({self.blocked_by.partition(', and with it')[0].partition(': ')[2]})" if self.blocked_by else ""
            self.die(
                WorkerDied(
                    f"the process of {self.recipe.name} was ended because it did not respond for "
                    f"{self._silent * _TICK:g} s{where}",
                    WORKER_HUNG,
                )
            )
            return
        loop.call_later(_TICK, self._look, loop)

    def _protocol_error(self) -> str:
        return (
            f"the process of {self.recipe.name} was ended: its code wrote into the pipe through which bench "
            "communicates with it"
        )


def _write(process: Process, order: JsonDict) -> None:
    line = pack(order)
    with contextlib.suppress(BrokenPipeError):  # the cause is reported when the answer is missing
        while line:
            line = line[os.write(process.orders, line) :]


def _call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: no notification is needed
        loop.call_soon_threadsafe(callback)


def _log(frame: JsonDict) -> None:
    logging.getLogger(cast(str, frame["name"])).log(frame["level"], "%s", redactor.text(frame["text"]))
