"""Connection to a Ray cluster, shared by the environments of an invocation: nodes, room for processes, and where the
next process is placed."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.types import JsonDict
from harness.engine.isolation.spawned import Process, Recipe
from harness.plugins.ray_executor.executor import RaySettings
from harness.plugins.ray_executor.library import part
from harness.plugins.ray_executor.meeting import VARIABLES, meet, own_token
from harness.plugins.ray_executor.process_actor import ProcessActor
from harness.plugins.ray_executor.remote_process import RemoteProcess

logger = logging.getLogger(__name__)

LOOK = 2.0
"""Seconds between two looks at which nodes the cluster has."""

AVOID = 60.0
"""Seconds for which a node whose process was lost gets no new process, if there are others."""

PATIENCE = 60.0
"""Seconds to wait for a node when the cluster has none."""

_LONGEST_CAUSE = 500

_lock = threading.Lock()
_open: list[Cluster] = []
"""The connection of this process, if there is one: Ray allows only one."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster that is alive."""

    key: str
    name: str
    cpus: float


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A process's place on a node."""

    node: Node
    cpus: float
    """CPUs that it reserves."""
    actor: Any


class Cluster:
    """A connection to a cluster.

    Args:
        settings: Address and runtime environment.

    Raises:
        ConfigError: there is no cluster at the address.
    """

    def __init__(self, settings: RaySettings) -> None:
        self.settings = settings
        self.users = 0
        """Number of environments that use the connection."""
        self._changed = threading.Condition()
        self._used: defaultdict[str, float] = defaultdict(float)
        """CPUs in use by our processes, by node."""
        self._placed: set[Placement] = set()
        """The places that are counted in `_used`."""
        self._avoided: dict[str, float] = {}
        self._is_over = False
        self._ray = _connect(settings)
        try:
            self._actor = self._ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=8)(ProcessActor)
            self._on_node = part("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
            self.nodes = self._look()
            """The nodes that are alive, at most `LOOK` seconds ago."""
        except BaseException:
            self._ray.shutdown()
            raise
        threading.Thread(target=self._keep_looking, name="bench-ray-nodes", daemon=True).start()

    def place(self, cpus: float) -> Placement:
        """Create an actor on the node with most room. Blocking, if there is no node.

        Args:
            cpus: CPUs to reserve; none are reserved if the node has not so many left.

        Raises:
            EnvironmentFault: the cluster has no node.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._unavoided() or self._is_over, 2 * LOOK)
            # Last, since the nodes may change while this waits.
            if not self._changed.wait_for(lambda: self.nodes or self._is_over, PATIENCE) or self._is_over:
                raise EnvironmentFault(f"the Ray cluster has had no node with CPUs for {PATIENCE:g} s")
            usable = self._unavoided() or self.nodes
            node = max(usable, key=lambda node: node.cpus - self._used[node.key])
            reserved = cpus if self._used[node.key] + cpus <= node.cpus else 0.0
            self._used[node.key] += max(cpus, _LEAST)
        try:
            options = {"num_cpus": reserved, "scheduling_strategy": self._on_node(node.key, soft=False)}
            placement = Placement(node, cpus, self._actor.options(**options).remote())
        except BaseException:
            with self._changed:
                self._used[node.key] -= max(cpus, _LEAST)
            raise
        self._placed.add(placement)
        return placement

    def released(self, placement: Placement, *, is_lost: bool) -> None:
        """Count a process that has ended, once. If its node may be lost, list the nodes again."""
        with self._changed:
            if placement not in self._placed:
                return
            self._placed.remove(placement)
            self._used[placement.node.key] -= max(placement.cpus, _LEAST)
            if is_lost:
                self._avoided[placement.node.key] = time.monotonic() + AVOID
        if is_lost:
            self._refresh()

    def has(self, node: Node) -> bool:
        """Whether the node was alive when the nodes were last listed."""
        return any(each.key == node.key for each in self.nodes)

    def _unavoided(self) -> list[Node]:
        now = time.monotonic()
        return [node for node in self.nodes if self._avoided.get(node.key, 0.0) < now]

    def disconnect(self) -> None:
        """End the connection, and a cluster that bench has started."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._ray.shutdown()

    def _keep_looking(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._is_over, LOOK):
                    return
            self._refresh()

    def _refresh(self) -> None:
        with contextlib.suppress(Exception):  # the head does not answer: processes report what becomes of them
            found = self._look()
            with self._changed:
                self.nodes = found
                self._changed.notify_all()

    def _look(self) -> list[Node]:
        return [
            Node(each["NodeID"], _name_of(each), cpus)
            for each in self._ray.nodes()
            if each["Alive"] and (cpus := float(each["Resources"].get("CPU", 0))) > 0
        ]


@dataclass(eq=False, slots=True)
class RayHost:
    """Where the processes of one environment run. See `isolation.spawned.WorkerHost`."""

    cluster: Cluster
    workers: int
    """Number of processes that the user has set; 0 or less is as many as the nodes have room for."""
    cpus: float
    """CPUs that each reserves."""
    _is_closed: bool = field(default=False)

    @property
    def size(self) -> int:
        """Number of processes to run at once; at least 1."""
        if self.workers > 0:
            return self.workers
        return max(1, sum(int(node.cpus / self.cpus + 1e-9) for node in self.cluster.nodes))

    def start(self, recipe: Recipe) -> Process:
        """Start a process on a node. Does not wait."""
        return RemoteProcess(recipe, self.cluster, self.cpus)

    def close(self) -> None:
        """Release the connection; the last one disconnects, and ends a cluster that bench has started."""
        with _lock:
            if self._is_closed:
                return
            self._is_closed = True
            self.cluster.users -= 1
            if self.cluster.users == 0:
                _open.clear()
                self.cluster.disconnect()


def open_cluster(settings: RaySettings, workers: int) -> RayHost:
    """Connect to a cluster, or start one on this computer; one connection serves all environments.

    Args:
        settings: Settings of the executor.
        workers: Number of processes of the environment; 0 or less is as many as the nodes have room for.

    Raises:
        ConfigError: there is no cluster at the address, no node has enough CPUs, or this process already has a
            connection to another cluster.
    """
    with _lock:
        cluster = _open[0] if _open else Cluster(settings)
        mine, theirs = ((each.address, each.runtime_env) for each in (settings, cluster.settings))
        if mine != theirs:
            raise ConfigError(
                "executor_args: all environments of an invocation must have the same address and runtime_env"
            )
        if not any(node.cpus >= settings.worker_cpus for node in cluster.nodes):
            if not _open:
                cluster.disconnect()
            raise ConfigError(
                f"executor_args.worker_cpus: no node of the cluster has {settings.worker_cpus:g} CPUs",
                remedy="lower it, or add nodes",
            )
        _open[:] = [cluster]
        cluster.users += 1
    return RayHost(cluster, workers, settings.worker_cpus)


_LEAST = 1e-3
"""CPUs that a process counts as which reserves none, so that processes without are spread over the nodes."""


def _name_of(node: JsonDict) -> str:
    """Name of a node: the one that it was started with (`--node-name`), or else that of its computer."""
    name = node.get("NodeName")
    return str(name if name and name != node["NodeManagerAddress"] else node["NodeManagerHostname"])


def _connect(settings: RaySettings) -> Any:
    """Import Ray and connect.

    Raises:
        ConfigError: Ray is not installed, there is no cluster at the address, or the runtime environment is invalid.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about this computer is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # no warning about GPUs
    runtime = settings.runtime() or None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "runtime_env": runtime}
    ray = part()
    with _process_kept():
        try:
            if settings.address:
                meet(settings.address)
                options["address"] = settings.address
            else:
                own_token()
                options |= {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        except Exception as error:  # of several kinds: no cluster, a wrong address, no token
            raise _unusable(settings.address, error) from error
        try:
            ray.init(**options)
        except Exception as error:  # of several kinds: another version of Ray or Python, no more memory
            if runtime and isinstance(error, (TypeError, ValueError)):  # Ray validates it before it connects
                words = f"executor_args.runtime_env: {settings.runtime_env} cannot be used: {_words(error)}"
                raise ConfigError(words) from error
            raise _unusable(settings.address, error) from error
    # `log_to_driver` leaves out messages about nodes that die, with which Ray would fill the standard output.
    part("ray._private.worker")._worker_logs_enabled = False
    return ray


@contextlib.contextmanager
def _process_kept() -> Generator[None]:
    """Undo that Ray replaces the handler of SIGTERM and the exception hook of this process, and sets variables."""
    hook, handler = sys.excepthook, signal.getsignal(signal.SIGTERM)
    added = [name for name in VARIABLES if name not in os.environ]
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
        sys.excepthook = hook
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) != handler:
            signal.signal(signal.SIGTERM, handler)


def _unusable(address: str, error: Exception) -> ConfigError:
    where = f"the Ray cluster at {address!r}" if address else "a Ray cluster on this computer"
    return ConfigError(
        f"executor_args.address: {where} cannot be used: {_words(error)}",
        remedy="start one with `ray start --head`, or remove the address",
    )


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST_CAUSE]
