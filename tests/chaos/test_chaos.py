"""Chaos with a fixed seed, a test a round: nothing lost, nothing twice, nothing wrong, nothing left behind. `make
chaos` plays the same rounds and more random ones, and prints a report."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from chaos_catalogue import drawn, named
from chaos_others import Other, others
from chaos_rounds import Round, report
from chaos_scene import Scene

SEED, DRAWN = 1, 4
"""`make chaos` draws more."""

ROUNDS: list[Round | Other] = [*named(), *others(), *drawn(SEED, DRAWN)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("chaos"), SEED).open() as scene:
        yield scene


@pytest.mark.slow
@pytest.mark.parametrize("this", ROUNDS, ids=[each.title for each in ROUNDS])
def test_a_round(scene: Scene, this: Round | Other) -> None:
    verdict = this.verdict(scene, f"out{ROUNDS.index(this)}")
    assert not verdict.found, report([verdict], seed=SEED, seconds=verdict.seconds)
    assert verdict.faults or this.title.startswith("random points"), "a named round always does its damage"


@pytest.mark.slow
def test_what_the_scene_imports_is_nobody_elses(scene: Scene) -> None:
    ours = str(scene.cwd.parent)
    assert [path for path in sys.path if path.startswith(ours)] == []
    assert [
        name for name, each in sys.modules.items() if (getattr(each, "__file__", None) or "").startswith(ours)
    ] == []
