"""A process of an environment on a node of a Ray cluster, as the driver sees it: two pipes, like a process of this
computer. Two threads carry their content to the actor and back."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, BinaryIO

from harness.core.redact import redactor
from harness.engine.isolation.spawned import Recipe, show_line
from harness.engine.provenance import bench_version
from harness.plugins.ray_executor.library import part
from harness.plugins.ray_executor.process_actor import BEAT

if TYPE_CHECKING:
    from harness.plugins.ray_executor.cluster import Placement

LOST_AFTER = 10.0
"""Seconds without an answer of a node after which its processes count as lost. A node answers every `BEAT` seconds."""

_CHUNK = 1 << 20

assert LOST_AFTER > 2 * BEAT


class RemoteProcess:
    """A started process on a node. Has the attributes of `isolation.spawned.Process`.

    Args:
        recipe: How to start the process.
        placement: The node, with the actor that starts the process there.
    """

    def __init__(self, recipe: Recipe, placement: Placement) -> None:
        self._recipe = recipe
        self._placement = placement
        self._actor = placement.actor
        self._ray = part()
        self._lock = threading.Lock()
        self._is_killed = False
        self._end = ""
        self.node = placement.node_name
        self._taken, self.orders = os.pipe()
        self.reports, self._given = os.pipe()
        self._is_handed_over = False
        self.watch = _Watch()
        threading.Thread(target=self._feed, name="bench-ray-feed", daemon=True).start()
        threading.Thread(target=self._fetch, name="bench-ray-fetch", daemon=True).start()

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
        with contextlib.suppress(Exception):  # the connection to the cluster is lost
            self._ray.kill(self._actor)
        if not self._is_handed_over:
            for fd in (self.orders, self.reports):
                os.close(fd)

    def how_it_ended(self, patience: float = 0.0) -> str:
        """Return a description of how the process ended. Waits at most `patience` seconds until it has ended."""
        self.watch.join(patience)
        return self._end or f"the process of {self._recipe.name} on {self.node} was ended because its pipe was closed"

    def _feed(self) -> None:
        """Carry orders to the actor until the pipe is closed."""
        with os.fdopen(self._taken, "rb", buffering=0) as pipe:
            while data := pipe.read(_CHUNK):
                try:
                    self._ray.get(self._actor.feed.remote(data))
                except Exception:  # the actor has ended; `_fetch` says how
                    return

    def _fetch(self) -> None:
        """Carry reports from the actor until the process has ended or its node is lost."""
        end = ""
        with os.fdopen(self._given, "wb", buffering=0) as pipe:
            try:
                end = self._wait_for_start()
                while not end:
                    data, printed, ended = self._ray.get(self._actor.fetch.remote(), timeout=LOST_AFTER)
                    for line in printed:
                        show_line(f"{self._recipe.name} on {self.node}", redactor.text(line, patterns=False))
                    rest = memoryview(data)
                    while rest:
                        rest = rest[pipe.write(rest) or 0 :]
                    end = "" if ended is None else f"{ended} on {self.node}"
            except self._ray.exceptions.GetTimeoutError:
                self._placement.is_lost = True
                end = self._words(f"was given up because its node did not answer for {LOST_AFTER:g} s")
            except BrokenPipeError:
                end = self._words("was ended")
            except self._ray.exceptions.RayError as error:
                end = self._words(f"ended with its node or Ray's process there ({type(error).__name__})")
            except Exception as error:  # the driver is disconnected, for example because it ends
                end = self._words(f"cannot be reached ({type(error).__name__}: {error})")
            self._end = end
            with contextlib.suppress(Exception):
                self._ray.kill(self._actor)
            self._placement.release()
        self.watch.end()

    def _wait_for_start(self) -> str:
        """Wait until the node has started the process; return why that failed, else ""."""
        _, version = self._ray.get(self._actor.where.remote(), timeout=self._recipe.load_seconds)
        if version != bench_version():
            return self._words(f"was refused: bench is {version} there and {bench_version()} here")
        return ""

    def _words(self, what: str) -> str:
        return f"the process of {self._recipe.name} on {self.node} {what}"


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
    """Keyword arguments of `Recipe` for the process on the node."""
    return {each.name: getattr(recipe, each.name) for each in fields(Recipe) if each.name != "host"}
