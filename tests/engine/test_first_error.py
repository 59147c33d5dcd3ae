"""A run that is to stop at its first error, and runs that take turns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from engine_parts import fresh, outline, play, scored, standing

from harness.core.errors import EnvironmentFault
from harness.core.records import Failed, Scored
from harness.engine.evaluation import Evaluation
from harness.engine.prepare import LiveRun, StartOptions
from harness.engine.scheduler import Bounds
from harness.settings.resolver import resolve


def bounds(generation: int) -> Bounds:
    return Bounds(generation, 4, 1000, fail_fast=True)


def test_a_rollout_is_scored_before_the_next_begins(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(3), bounds(1)) as run:
            await run.settled()
            run.generation.end("0.0")
            await run.settled()
            assert (run.scoring.started, run.generation.started) == (["0.0"], ["0.0"])
            assert run.progress.scoring == 1
            run.scoring.end("0.0")
            await run.settled()
            assert run.generation.started == ["0.0", "1.0"]
            assert await run.finish() is None
            assert run.schedule.last_error is None
            assert (run.progress.scored, run.progress.scoring, run.progress.backlog) == (3, 0, 0)

    play(main)


def test_nothing_begins_after_a_failure(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(5), bounds(1)) as run:
            await run.settled()
            assert await run.finish(failures={"1.0": "timeout"}) is None
            assert run.generation.started == ["0.0", "1.0"]
            assert isinstance(run.schedule.last_error, Failed)
            assert (run.progress.scored, dict(run.progress.unscored)) == (1, {"timeout": 1})
        kinds = [line.split()[0] for line in outline(tmp_path / "j") if " " in line]
        assert kinds == ["generated", "scored", "failed"]

    play(main)


def test_what_is_in_flight_beside_a_failure_comes_to_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(9), bounds(3)) as run:
            await run.settled()
            run.generation.end("1.0", result="timeout")
            await run.settled()
            assert list(run.generation.open) == ["0.0", "2.0"]
            assert await run.finish() is None
            assert run.generation.started == ["0.0", "1.0", "2.0"]
            assert run.progress.scored == 2

    play(main)


def test_a_rollout_without_a_score_is_an_error_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(5), bounds(1)) as run:
            await run.settled()
            broken = replace(scored("key-0.0"), outcome="unscored", reward=None, reasons={"hook": "raised KeyError"})

            async def score(rollouts: object) -> list[Scored]:
                return [broken]

            run.executor.score = score  # type: ignore[method-assign,assignment]
            assert await run.finish() is None
            assert (run.generation.started, run.schedule.last_error) == (["0.0"], broken)

    play(main)


TURNS = """
import asyncio
from harness import Rubric, SingleTurnEnv

class Turns(SingleTurnEnv):
    now, peak = 0, 0

    async def setup_state(self, state):
        Turns.now += 1
        Turns.peak = max(Turns.peak, Turns.now)
        while Turns.peak < state["info"]["together"]:
            await asyncio.sleep(0)
        Turns.now -= 1
        if state["answer"] == "fail":
            raise ValueError("no")

    def reference_reply(self, example, messages):
        return "yes"

async def fine():
    return 1.0

def load_environment(answers=("a", "b"), together=1):
    info = {"together": together}
    rows = [{"question": f"{n}", "answer": answer, "info": info} for n, answer in enumerate(answers)]
    return Turns(dataset=rows, rubric=Rubric([fine]))
"""


@pytest.fixture
def suite_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a suite of runs of one environment, each with its own arguments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turns_env.py").write_text(TURNS)

    def write(*args: dict[str, object]) -> str:
        entries = [
            f'[[eval]]\nenv_id = "./turns_env.py"\nname = "run-{number}"\n'
            f"env_args = {{ {', '.join(f'{name} = {json.dumps(value)}' for name, value in each.items())} }}\n"
            for number, each in enumerate(args)
        ]
        (tmp_path / "suite.toml").write_text("\n".join(entries))
        return "suite.toml"

    return write


FLAGS = {"model": "reference/oracle", "num_examples": -1, "rollouts_per_example": 1, "max_concurrent": 1}


async def run_hosted(target: str, **options: object) -> list[LiveRun]:
    fail_fast = bool(options.pop("fail_fast", False))
    async with Evaluation(resolve(target, FLAGS).runs, start=StartOptions(fail_fast=fail_fast)).hosted() as runs:
        await Evaluation([], **options).play(runs)  # type: ignore[arg-type]
        return runs


def turns(run: LiveRun) -> type:
    return type(run.plan.environment)


@pytest.mark.parametrize(("at_once", "peak"), [(1, 1), (2, 2), (None, 3)])
def test_runs_take_turns_in_their_order(suite_file: Callable[..., str], at_once: int | None, peak: int) -> None:
    target = suite_file(*[{"together": peak}] * 3)
    runs = asyncio.run(run_hosted(target, at_once=at_once))
    assert [run.progress.state for run in runs] == ["done"] * 3
    assert turns(runs[0]).peak == peak  # type: ignore[attr-defined]
    if at_once == 1:
        ends = [(run.progress.started, run.progress.finished) for run in runs]
        assert all(before[1] <= after[0] for before, after in pairwise(ends))  # type: ignore[operator]


def test_an_error_stops_its_own_run_alone_and_the_run_says_so(suite_file: Callable[..., str]) -> None:
    target = suite_file({"answers": ["a", "fail", "c", "d"]}, {})
    bad, good = asyncio.run(run_hosted(target, fail_fast=True))
    assert (bad.progress.state, good.progress.state) == ("stopped", "done")
    assert bad.progress.note.startswith("stopped at its first error, as requested: ValueError: no")
    assert bad.summary is not None
    assert (bad.summary.scored, bad.summary.unscored, bad.summary.not_run) == (1, {"environment_error": 1}, 2)


def test_an_error_in_the_last_rollout_stops_nothing(suite_file: Callable[..., str]) -> None:
    [run] = asyncio.run(run_hosted(suite_file({"answers": ["a", "fail"]}), fail_fast=True))
    assert (run.progress.state, run.progress.note) == ("done", "")


def test_runs_that_are_given_up_leave_no_lock(suite_file: Callable[..., str]) -> None:
    resolved = resolve(suite_file({}), FLAGS).runs

    async def main() -> None:
        with pytest.raises(RuntimeError, match="changed my mind"):
            async with Evaluation(resolved, start=StartOptions()).hosted() as runs:
                folders.extend(run.folder for run in runs)
                raise RuntimeError("changed my mind")

    folders: list = []
    asyncio.run(main())
    [folder] = folders
    assert folder.read_manifest().status == "interrupted"
    folder.lock().release()


def test_hosted_runs_begin_all_or_none(suite_file: Callable[..., str]) -> None:
    target = suite_file({}, {"answers": []})

    async def main() -> None:
        with pytest.raises(EnvironmentFault, match="dataset is empty"):
            async with Evaluation(resolve(target, FLAGS).runs, start=StartOptions()).hosted():
                raise AssertionError("it must not begin")

    asyncio.run(main())
