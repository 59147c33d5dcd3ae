"""A Ray cluster of several nodes on this computer, in a process of its own. Run as a script, it starts the cluster,
prints its address, and does what its input says: `kill NAME`, `add NAME`."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ENVIRON = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "120"}
"""Environment variables of the cluster, and of what connects to it."""

NODES = ("north", "south", "west")


class RayCluster:
    """The cluster, as a test sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self._answer()

    def kill(self, name: str) -> None:
        """Kill all processes of a node."""
        self._order(f"kill {name}")

    def add(self, name: str) -> None:
        """Add a node if it is not there."""
        self._order(f"add {name}")

    def processes(self) -> list[int]:
        """Ids of the processes of environments that run on the nodes, and of their descendants."""
        mark = f"BENCH_TEST_CLUSTER={self._process.pid}\0".encode()
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes() and b"isolation" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
            except OSError:  # gone, or not ours
                continue
        return found

    def _order(self, words: str) -> None:
        assert self._process.stdin is not None
        print(words, file=self._process.stdin, flush=True)
        assert self._answer() == "done"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        assert answer, "the cluster has ended"
        return answer


@contextmanager
def ray_cluster(cpus: int = 2, variables: Mapping[str, str] = ENVIRON) -> Iterator[RayCluster]:
    """Start a cluster with a head that runs nothing, and three nodes, with these environment variables."""
    with subprocess.Popen(
        [sys.executable, __file__, str(cpus)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **variables}, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield RayCluster(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(120)


def main(cpus: int) -> None:
    """Start the cluster, and obey until the input ends."""
    os.environ["BENCH_TEST_CLUSTER"] = str(os.getpid())
    orders, out = sys.stdin, os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Ray prints is no answer
    cluster_utils: Any = importlib.import_module("ray.cluster_utils")
    common: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80 << 20}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**common, "num_cpus": 0, "node_name": "head"})
    nodes = {name: cluster.add_node(**common, num_cpus=cpus, node_name=name) for name in NODES}
    print(cluster.address, file=out)
    for line in orders:
        order, name = line.split()
        if order == "kill":
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
        elif name not in nodes:
            nodes[name] = cluster.add_node(**common, num_cpus=cpus, node_name=name)
        print("done", file=out)
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
