"""Rounds of chaos on a Ray cluster, with a fixed seed: see `chaos_ray`. `make chaos` plays more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chaos_ray import ray_rounds
from chaos_rounds import report
from chaos_scene import Scene
from ray_cluster import RayCluster, ray_cluster

pytestmark = [pytest.mark.slow, pytest.mark.plugins]

SEED, ROUNDS = 1, 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'bench-harness[ray]'")
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("chaos"), SEED).open() as scene:
        yield scene


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_round(cluster: RayCluster, scene: Scene, number: int) -> None:
    this = ray_rounds(cluster, SEED, ROUNDS)[number]
    verdict = this.verdict(scene, f"ray{number}")
    assert not verdict.found, report([verdict], seed=SEED, seconds=verdict.seconds)
    assert verdict.faults == 1
