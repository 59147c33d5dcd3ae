"""What `--executor ray` costs and brings, on a cluster in a process of its own on this computer: CPU of the driver for
each further rollout, by the number of processes, and for processes that wait; and the wall time of an environment that
computes, with one process and with two."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.children import Cost, bench, environment, measure, server

CPUS = 100
"""CPUs that the cluster pretends to have, so that so many processes find room."""

PROCESSES = (1, 4, 16)
CROWD = 100
"""Number of processes of the largest run, which is made once."""
FEW, MANY = 500, 2_500
"""Rollouts of the two runs whose difference gives the cost of a further one."""
CROWD_MANY = 12_500
"""The same for the largest run: what the start of a hundred processes costs the driver differs by seconds."""

SHORT_MS, LONG_MS = 5_000, 35_000
"""How long the model takes in the two runs whose difference gives the cost of processes that wait."""

BUSY_ROLLOUTS, BUSY_SECONDS = 150, 0.2
"""Of the environment that computes: enough that the start of the processes, about four seconds, matters little."""

ROUNDS = 3

_CLUSTER = """
import ray, sys
context = ray.init(address="local", num_cpus=int(sys.argv[1]), include_dashboard=False, _node_ip_address="127.0.0.1")
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class RayCosts:
    """The measurements."""

    plain_ms: float
    """CPU of the driver for a further rollout without Ray, in milliseconds; median of the rounds."""
    driver_ms: dict[int, float]
    """The same with Ray, by the number of processes."""
    one_s: float
    """Wall time of the environment that computes, with one process, in seconds; median of the rounds."""
    two_s: float

    @property
    def speedup(self) -> float:
        """What a second process brings."""
        return self.one_s / self.two_s


@dataclass(frozen=True, slots=True)
class CrowdCosts:
    """What `CROWD` processes cost the driver."""

    driver_ms: float
    """CPU of the driver for a further rollout, in milliseconds."""
    waiting_ms: float
    """CPU of the driver for a process that waits, in milliseconds a second."""
    process_mb: float
    """Memory of the driver for each further process, in megabytes."""


def run_ray(folder: Path, rounds: int = ROUNDS) -> RayCosts:
    """Measure.

    Args:
        folder: Where to work.
        rounds: How often each is run.
    """
    found: dict[int, list[float]] = {number: [] for number in (0, *PROCESSES)}
    walls: dict[int, list[float]] = {1: [], 2: []}
    with server() as url, _cluster() as address:
        for _ in range(rounds):
            for processes, costs in found.items():
                costs.append(_further_ms(folder, url, address, processes))
            for processes, seconds in walls.items():
                seconds.append(_busy_s(folder, _options(address, processes)))
    plain = median(found.pop(0))
    return RayCosts(
        plain,
        {key: median(each) for key, each in found.items()},
        median(walls[1]),
        median(walls[2]),
    )


def run_crowd(folder: Path) -> CrowdCosts:
    """Measure once.

    Args:
        folder: Where to work.
    """
    waiting: list[Cost] = []
    with server() as url, _cluster() as address:
        driver_ms = _further_ms(folder, url, address, CROWD, CROWD_MANY)
        for milliseconds in (SHORT_MS, LONG_MS):
            with server("--latency", str(milliseconds), "--sigma", "0") as slow:
                waiting.append(_run(folder, slow, CROWD, CROWD, _options(address, CROWD)))
        alone = _run(folder, url, CROWD, CROWD, _options(address, 1))
    return CrowdCosts(
        driver_ms,
        (waiting[1].cpu_s - waiting[0].cpu_s) / (LONG_MS - SHORT_MS) / CROWD * 1e6,
        (waiting[0].peak_mb - alone.peak_mb) / (CROWD - 1),
    )


def _options(address: str, processes: int) -> tuple[str, ...]:
    return ("--executor", "ray", "--ray-address", address, "--workers", str(processes))


def _further_ms(folder: Path, url: str, address: str, processes: int, most: int = MANY) -> float:
    on_ray = _options(address, processes) if processes else ()
    few, many = (_run(folder, url, number, max(64, processes), on_ray).cpu_s for number in (FEW, most))
    return (many - few) / (most - FEW) * 1000


def _run(folder: Path, url: str, rollouts: int, in_flight: int, more: tuple[str, ...]) -> Cost:
    arguments = json.dumps({"rows": rollouts})
    command = bench(
        "run", "bench-load", "-a", arguments, "-n", str(rollouts), "-r", "1", "-c", str(in_flight), "-m", "load",
        "-b", url, "--json", "-q", "-o", str(folder / "outputs"), *more,
    )  # fmt: skip
    cost = measure(command, folder)
    assert json.loads(cost.output)["runs"][0]["summary"]["scored"] == rollouts
    return cost


def _busy_s(folder: Path, more: tuple[str, ...]) -> float:
    arguments = json.dumps({"rows": BUSY_ROLLOUTS, "seconds": BUSY_SECONDS})
    command = bench(
        "run", "bench-busy", "-a", arguments, "-n", str(BUSY_ROLLOUTS), "-r", "1", "-m", "reference/oracle",
        "--json", "-q", "-o", str(folder / "outputs"), *more,
    )  # fmt: skip
    [run] = json.loads(measure(command, folder).output)["runs"]
    return float(run["summary"]["wall_s"])


@contextlib.contextmanager
def _cluster() -> Iterator[str]:
    """A cluster in another process, so that its CPU is not the driver's; gives its address."""
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER, str(CPUS)], env={**environment(), "RAY_USAGE_STATS_ENABLED": "0"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield next(line.strip() for line in child.stdout if line[:1].isdigit())
        finally:
            child.stdin.close()
            child.wait(60)
