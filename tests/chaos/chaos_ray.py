"""Rounds on a Ray cluster: at a random moment an environment's process, a node, or the driver is killed. Nothing may be
lost, paid twice or scored wrongly, and no process may be left."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable

from chaos_others import Other, compare, ended, expect
from chaos_reader import Findings
from chaos_rounds import Round, Verdict, asked_again, look, until
from chaos_scene import Child, Scene
from ray_cluster import NODES, RayCluster

GROUP = "--executor ray"

PATIENCE = 400.0
"""Seconds to wait for a run: a busy computer needs a minute to start the processes of four environments on Ray."""

LATEST = 60
"""Request at which something is killed at the latest."""


def ray_rounds(cluster: RayCluster, seed: int, count: int) -> list[Other]:
    """So many rounds, of each kind in turn."""
    kinds: dict[str, Callable[[RayCluster, Child, random.Random], None]] = {
        "SIGKILL of a worker": _kill_worker, "SIGKILL of a node": _kill_node, "SIGKILL of the driver": _kill_driver,
    }  # fmt: skip
    rounds: list[Other] = []
    for number in range(count):
        name = list(kinds)[number % len(kinds)]
        rounds.append(Other(Round(GROUP, f"{name} {number}", ()), _play(cluster, kinds[name], f"{seed} {number}")))
    return rounds


def _play(
    cluster: RayCluster, strike: Callable[[RayCluster, Child, random.Random], None], seed: str
) -> Callable[[Scene, str, Verdict], None]:
    def play(scene: Scene, output_dir: str, verdict: Verdict) -> None:
        chosen = random.Random(seed)
        runtime = scene.cwd / "runtime.json"
        runtime.write_text(json.dumps({"env_vars": {"PYTHONPATH": scene.environ(runtime, [])["PYTHONPATH"]}}))
        on_ray = ("--executor", "ray", "--ray-address", cluster.address, "--ray-runtime-env", str(runtime))
        scene.trouble(latency=0.05)
        child = scene.start([], output_dir, *on_ray)
        first = chosen.randrange(1, LATEST)
        until(lambda: scene.asked() >= first or child.running.process.poll() is not None, 300.0)
        strike(cluster, child, chosen)
        verdict.faults += 1
        done = child.wait(PATIENCE)
        if strike is not _kill_driver:
            verdict.found.add(child.check(done, (0, 1)))
        until(lambda: not cluster.processes())
        seen = [look(scene, output_dir, verdict.found)]
        scene.relent()
        ended(scene.start([], output_dir, "--resume", "--retry-failed", *on_ray), verdict.found, PATIENCE)
        found = Findings()
        compare(scene, output_dir, found)
        # What the dead process had asked for was paid for, and is made again: the bill is larger, and nothing else is.
        found.wrong = [words for words in found.wrong if ": usage is " not in words]
        verdict.found.add(found)
        verdict.found.duplicated += asked_again(scene, seen)
        # Ray keeps its own descriptors until the end of the process; the pipes are ours.
        left = [words for words in verdict.found.left if not words.startswith("descriptor ") or "pipe:" in words]
        verdict.found.left = left
        until(lambda: not cluster.processes())
        expect(verdict.found, not cluster.processes(), "processes are left on the nodes")
        for name in NODES:
            cluster.add(name)

    return play


def _kill_worker(cluster: RayCluster, _child: Child, chosen: random.Random) -> None:
    until(lambda: bool(cluster.processes()))
    os.kill(chosen.choice(cluster.processes()), signal.SIGKILL)


def _kill_node(cluster: RayCluster, _child: Child, chosen: random.Random) -> None:
    cluster.kill(chosen.choice(NODES))


def _kill_driver(_cluster: RayCluster, child: Child, _chosen: random.Random) -> None:
    child.running.process.kill()
