"""A process of an environment on a node of a Ray cluster, as the driver sees it: two pipes, like a process of this
computer. Two threads start the actor and carry the content of the pipes; the event loop calls nothing of Ray."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, BinaryIO

from harness.core.errors import NODE_LOST, WORKER_DIED
from harness.core.redact import redactor
from harness.engine.isolation.spawned import Recipe, show_line
from harness.engine.provenance import bench_version
from harness.plugins.ray_executor.library import part
from harness.plugins.ray_executor.process_actor import BEAT

if TYPE_CHECKING:
    from harness.plugins.ray_executor.cluster import Cluster, Placement

logger = logging.getLogger(__name__)

LOST_AFTER = 10
"""Seconds without an answer of a node after which its processes count as lost. A node answers every `BEAT` seconds. The
time is counted in seconds in which this process ran, so that a suspended driver gives up no node."""

START_SECONDS = 60
"""Seconds to wait for a node to start an actor with reserved CPUs; then it is started without any."""

MOST_LOST = 5
"""Number of times that the start of a process may fail on nodes that live. Any number of nodes that have died is passed
over: a node that has just died still counts as alive for some seconds."""

_STEP = 5.0
"""Seconds of each wait for an answer. More than `BEAT`, since each wait takes CPU; a part of `LOST_AFTER`, since a wait
ends too early if the driver is suspended."""

_CHUNK = 1 << 20
_LONGEST_CAUSE = 300

assert LOST_AFTER >= 2 * _STEP > 2 * BEAT


class _Silent(Exception):
    """A call of an actor was not answered within so many seconds."""


class RemoteProcess:
    """A process on a node. Has the attributes of `isolation.spawned.Process`.

    Args:
        recipe: How to start the process.
        cluster: Chooses the node.
        cpus: CPUs to reserve for it.
    """

    def __init__(self, recipe: Recipe, cluster: Cluster, cpus: float) -> None:
        self._recipe = recipe
        self._cluster = cluster
        self._cpus = cpus
        self._placement: Placement | None = None
        self._ray = part()
        self._is_killed = self._is_handed_over = self._is_lost = False
        self._lock = threading.Lock()
        self._is_begun = threading.Event()
        self._end = ""
        self.death_reason = WORKER_DIED
        self.watch = _Watch()
        self._taken, self.orders = os.pipe()
        self.reports, self._given = os.pipe()
        threading.Thread(target=self._feed, name="bench-ray-feed", daemon=True).start()
        threading.Thread(target=self._fetch, name="bench-ray-fetch", daemon=True).start()

    @property
    def node(self) -> str:
        """Name of the node; "" until one is chosen."""
        return "" if self._placement is None else self._placement.node.name

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        return self.watch.has_ended

    @property
    def is_killed(self) -> bool:
        """Whether `kill` was called."""
        return self._is_killed

    def files(self) -> tuple[BinaryIO, BinaryIO]:
        """The report pipe and the order pipe as files; the caller must close them."""
        self._is_handed_over = True
        return os.fdopen(self.reports, "rb", buffering=0), os.fdopen(self.orders, "wb", buffering=0)

    def kill(self) -> None:
        """End the actor, and with it the process and its descendants; does not wait for their end."""
        with self._lock:
            if self._is_killed:
                return
            self._is_killed = True
        threading.Thread(target=self._kill_actor, name="bench-ray-kill", daemon=True).start()
        if not self._is_handed_over:
            for fd in (self.orders, self.reports):
                os.close(fd)

    def how_it_ended(self, patience: float = 0.0) -> str:
        """Return a description of how the process ended. Waits at most `patience` seconds until it has ended."""
        self.watch.join(patience)
        return self._end or self._words("was ended because its pipe was closed")

    def _kill_actor(self) -> None:
        if self._placement is not None:
            with contextlib.suppress(Exception):  # it has ended, or the connection to the cluster is lost
                self._ray.kill(self._placement.actor)

    def _feed(self) -> None:
        """Carry orders to the actor until the pipe is closed."""
        with os.fdopen(self._taken, "rb", buffering=0) as pipe:
            self._is_begun.wait()
            while (placement := self._placement) is not None and (data := pipe.read(_CHUNK)):
                try:
                    self._ray.get(placement.actor.feed.remote(data))
                except Exception:  # the actor has ended; `_fetch` says how
                    return

    def _fetch(self) -> None:
        """Start the actor, and carry its reports until the process has ended or its node is lost."""
        with os.fdopen(self._given, "wb", buffering=0) as pipe:
            try:
                self._end = self._begin() or self._carry(pipe)
            except _Silent as silence:
                self._lose(f"was given up because its node did not answer for {silence} s")
            except BrokenPipeError:
                self._end = self._words("was ended")
            except Exception as error:  # of Ray: the node, the actor or the connection has ended
                cause = " ".join(str(error).split())[:_LONGEST_CAUSE]
                self._lose(f"ended with its node, or could not be started there ({type(error).__name__}: {cause})")
            self._is_begun.set()
            if self._placement is not None:
                self._release(self._placement, is_lost=self._is_lost)
        self.watch.end()

    def _release(self, placement: Placement, *, is_lost: bool) -> None:
        self._kill_actor()
        self._cluster.released(placement, is_lost=is_lost)

    def _begin(self) -> str:
        """Start the actor and its process, on another node if one has just died; return why that failed, else ""."""
        dead = part("ray.exceptions")
        cpus, seconds, lost = self._cpus, START_SECONDS, 0
        while True:
            self._placement = placement = self._cluster.place(cpus)
            try:
                refused = self._get(placement.actor.begin.remote(bench_version(), to_kwargs(self._recipe)), seconds)
                break
            except _Silent:
                if cpus == 0:
                    raise
                logger.warning(
                    "%s has not started a process for %d s; it is started without reserving CPUs, in case other jobs "
                    "of the cluster use them. Its logs say more if its runtime environment is at fault",
                    self.node, seconds,
                )  # fmt: skip
                cpus, seconds = 0.0, int(self._recipe.load_seconds)
                self._release(placement, is_lost=False)
            except (dead.RayActorError, dead.ActorUnschedulableError):
                self._release(placement, is_lost=True)
                lost += self._cluster.has(placement.node)
                if lost == MOST_LOST or self._is_killed:
                    raise
        if self._is_killed:  # while it was started
            return self._words("was ended")
        self._is_begun.set()
        return self._words(refused) if refused else ""

    def _carry(self, pipe: BinaryIO) -> str:
        assert self._placement is not None
        while True:
            data, printed, ended = self._get(self._placement.actor.fetch.remote(), LOST_AFTER)
            for line in printed:
                show_line(f"{self._recipe.name} on {self.node}", redactor.text(line, patterns=False))
            rest = memoryview(data)
            while rest:
                rest = rest[pipe.write(rest) or 0 :]
            if ended is not None:
                return f"{ended} on {self.node}"

    def _get(self, reference: Any, seconds: int) -> Any:
        """Wait for the result of a call, in steps; raise `_Silent` after so many seconds."""
        for _ in range(max(1, round(seconds / _STEP))):
            if self._ray.wait([reference], timeout=_STEP)[0]:
                return self._ray.get(reference)
        raise _Silent(seconds)

    def _lose(self, what: str) -> None:
        if self._is_begun.is_set():  # otherwise several nodes were tried
            self.death_reason = NODE_LOST
        self._is_lost = True
        self._end = self._words(what)

    def _words(self, what: str) -> str:
        return f"the process of {self._recipe.name}{f' on {self.node}' if self.node else ''} {what}"


class _Watch:
    """The end of a process; see `isolation.spawned.Watch`."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._notify: Callable[[], None] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether `end` was called."""
        return self._ended.is_set()

    def on_end(self, notify: Callable[[], None]) -> None:
        """Register a callback for the end of the process."""
        with self._lock:
            self._notify, has_ended = notify, self._ended.is_set()
        if has_ended:
            notify()

    def join(self, seconds: float) -> None:
        """Wait at most `seconds` until the process has ended."""
        self._ended.wait(seconds)

    def end(self) -> None:
        """Record that the process has ended."""
        with self._lock:
            self._ended.set()
            notify = self._notify
        if notify is not None:
            notify()


def to_kwargs(recipe: Recipe) -> dict[str, Any]:
    """Keyword arguments of `Recipe` for the process on the node. Variables that the process would not get here are
    hidden there, too: only this process knows the values of keys."""
    kept = {each.name: getattr(recipe, each.name) for each in fields(Recipe) if each.name not in ("host", "hidden")}
    return {**kept, "hidden": recipe.hidden | (set(os.environ) - set(recipe.environ(os.environ)))}
