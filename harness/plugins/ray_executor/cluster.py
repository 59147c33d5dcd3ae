"""Connection to a Ray cluster, shared by the environments of an invocation: nodes, room for processes, and where the
next process is placed."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from harness.core.errors import ConfigError
from harness.core.types import JsonDict
from harness.engine.isolation.spawned import Process, Recipe
from harness.plugins.ray_executor.executor import RaySettings
from harness.plugins.ray_executor.library import part
from harness.plugins.ray_executor.process_actor import ProcessActor
from harness.plugins.ray_executor.remote_process import RemoteProcess, to_kwargs

logger = logging.getLogger(__name__)

LOOK = 2.0
"""Seconds between two looks at which nodes the cluster has."""

AVOID = 60.0
"""Seconds for which a node that did not answer gets no new process."""

_CONNECT_SECONDS = 10.0

_LONGEST_CAUSE = 500

_open: dict[RaySettings, Cluster] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the cluster that is alive."""

    key: str
    name: str
    slots: int
    """Number of processes that it has room for."""


@dataclass(eq=False, slots=True)
class Placement:
    """A process's place on a node."""

    cluster: Cluster
    key: str
    """Id of the node."""
    node_name: str
    actor: Any
    is_lost: bool = False
    """Whether the node did not answer."""
    _is_released: bool = False

    def release(self) -> None:
        """Make room on the node; idempotent."""
        if not self._is_released:
            self._is_released = True
            self.cluster.released(self)


class Cluster:
    """A connection to a cluster.

    Args:
        settings: Address, CPUs of a process, and runtime environment.

    Raises:
        ConfigError: there is no cluster at the address, or no node has enough CPUs.
    """

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self.users = 0
        """Number of environments that use the connection."""
        self._lock = threading.Lock()
        self._used: Counter[str] = Counter()
        self._avoided: dict[str, float] = {}
        self._looked = 0.0
        self._nodes: list[_Node] = []
        self._ray = _connect(settings)
        self._actor = self._ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=8)(ProcessActor)
        self._on_node = part("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        if not self._alive():
            self.disconnect()
            raise ConfigError(
                f"executor_args.worker_cpus: no node of the cluster has {settings.worker_cpus:g} CPUs",
                remedy="lower it, or add nodes",
            )

    @property
    def slots(self) -> int:
        """Number of processes that the nodes have room for; at least 1."""
        return max(1, sum(node.slots for node in self._alive()))

    def start(self, recipe: Recipe) -> Process:
        """Start a process on the node with most room."""
        with self._lock:
            node = self._freest()
            has_room = self._used[node.key] < node.slots
            self._used[node.key] += 1
        actor = self._actor.options(
            num_cpus=self._settings.worker_cpus if has_room else 0,
            scheduling_strategy=self._on_node(node.key, soft=False),
        ).remote(to_kwargs(recipe))
        return RemoteProcess(recipe, Placement(self, node.key, node.name, actor))

    def disconnect(self) -> None:
        """End the connection, and a cluster that bench has started."""
        self._ray.shutdown()

    def released(self, placement: Placement) -> None:
        """Count a process that has ended."""
        with self._lock:
            self._used[placement.key] -= 1
            if placement.is_lost:
                self._avoided[placement.key] = time.monotonic() + AVOID
            self._looked = 0.0

    def _freest(self) -> _Node:
        nodes = self._alive_locked()
        if not nodes:
            raise ConfigError("the Ray cluster has no node with room for a process any more")
        return max(nodes, key=lambda node: node.slots - self._used[node.key])

    def _alive(self) -> list[_Node]:
        with self._lock:
            return self._alive_locked()

    def _alive_locked(self) -> list[_Node]:
        now = time.monotonic()
        if not self._nodes or now - self._looked > LOOK:
            self._looked = now
            self._nodes = [
                _Node(each["NodeID"], _name_of(each), slots)
                for each in self._ray.nodes()
                if each["Alive"]
                and (slots := int(each["Resources"].get("CPU", 0) / self._settings.worker_cpus + 1e-9)) > 0
            ]
        usable = [node for node in self._nodes if self._avoided.get(node.key, 0.0) < now]
        return usable or self._nodes


@dataclass(eq=False, slots=True)
class RayHost:
    """Where the processes of one environment run. See `isolation.spawned.WorkerHost`."""

    cluster: Cluster
    workers: int
    """Number of processes that the user has set; 0 is as many as the nodes have room for."""
    _is_closed: bool = field(default=False)

    @property
    def size(self) -> int:
        """Number of processes to run at once."""
        return self.workers or self.cluster.slots

    def start(self, recipe: Recipe) -> Process:
        """Start a process on a node."""
        return self.cluster.start(recipe)

    def close(self) -> None:
        """Release the connection; the last one disconnects, and ends a cluster that bench has started."""
        with _lock:
            if self._is_closed:
                return
            self._is_closed = True
            self.cluster.users -= 1
            if self.cluster.users == 0:
                for settings in [key for key, cluster in _open.items() if cluster is self.cluster]:
                    del _open[settings]
                self.cluster.disconnect()


def open_cluster(settings: RaySettings, workers: int) -> RayHost:
    """Connect to a cluster, or start one on this computer; one connection serves all environments.

    Args:
        settings: Settings of the executor.
        workers: Number of processes of the environment; 0 is as many as the nodes have room for.

    Raises:
        ConfigError: there is no cluster at the address, or this process already has a connection with other settings.
    """
    with _lock:
        cluster = _open.get(settings)
        if cluster is None:
            if _open:
                raise ConfigError(
                    "executor_args: all environments of an invocation must have the same, for one cluster"
                )
            cluster = _open[settings] = Cluster(settings)
        cluster.users += 1
    return RayHost(cluster, workers)


def _name_of(node: JsonDict) -> str:
    """Name of a node: the one that it was started with (`--node-name`), or else that of its computer."""
    name = node.get("NodeName")
    return str(name if name and name != node["NodeManagerAddress"] else node["NodeManagerHostname"])


def _require_listener(address: str) -> None:
    """Raise an error if nothing listens at `HOST:PORT`: Ray itself would wait for minutes."""
    place = urlsplit(address if "//" in address else f"//{address}")
    try:
        if place.hostname and place.port:
            socket.create_connection((place.hostname, place.port), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise _unusable(address, error) from error


def _unusable(address: str, error: Exception) -> ConfigError:
    words = " ".join(str(error).split())[:_LONGEST_CAUSE]
    where = f"the Ray cluster at {address!r}" if address else "a Ray cluster on this computer"
    return ConfigError(
        f"executor_args.address: {where} cannot be used: {words}",
        remedy="start one with `ray start --head`, or remove the address",
    )


def _connect(settings: RaySettings) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about this computer is sent anywhere
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # no warning about GPUs
    options: dict[str, Any] = {
        "log_to_driver": False, "logging_level": logging.WARNING, "namespace": f"bench-{os.getpid()}",
        "runtime_env": settings.runtime() or None,
    }  # fmt: skip
    if settings.address:
        _require_listener(settings.address)
        options["address"] = settings.address
    else:
        options |= {"address": "local", "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    ray = part()
    try:
        ray.init(**options)
    except Exception as error:  # of several kinds: no cluster, another version of Ray or Python, a wrong address
        raise _unusable(settings.address, error) from error
    return ray
