"""The gates of a run, with every rollout in the test's hands and a real journal underneath."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from zlib import crc32

import pytest
from engine_parts import (
    HastyExecutor,
    fresh,
    generated,
    items_of,
    outline,
    play,
    records,
    standing,
    until,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.records import Failed, Scored
from harness.core.types import Usage
from harness.engine.progress import RunProgress
from harness.engine.remaining_work import RolloutGroup, Todo, Todos
from harness.engine.scheduler import Bounds, Schedule
from harness.store.journal import Journal


def bounds(generation: int, scoring: int, total: int = 1000, group_size: int = 1) -> Bounds:
    return Bounds(generation, scoring, total, group_size)


# The gates


def test_the_generation_gate_is_reached_and_never_exceeded(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(10), bounds(3, 3)) as run:
            await run.settled()
            assert list(run.generation.open) == ["0.0", "1.0", "2.0"]
            assert run.progress.generating == 3
            for done in range(10):
                run.generation.end(f"{done}.0")
                await run.settled()
                assert len(run.generation.open) == min(3, 9 - done)
                run.scoring.end(*run.scoring.open)
                await run.settled()
            assert await run.finish() is None
            assert (run.generation.peak, run.progress.generating) == (3, 0)
            assert run.generation.started == [f"{index}.0" for index in range(10)]

    play(main)


def test_the_scoring_gate_is_reached_and_never_exceeded(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(6), bounds(6, 2)) as run:
            await run.settled()
            run.generation.end(*run.generation.open)
            await run.settled()
            assert list(run.scoring.open) == ["0.0", "1.0"]
            assert (run.progress.scoring, run.progress.backlog) == (2, 4)
            run.scoring.end("1.0")
            await run.settled()
            assert list(run.scoring.open) == ["0.0", "2.0"]
            assert await run.finish() is None
            assert run.scoring.peak == 2
            assert (run.progress.scoring, run.progress.backlog, run.progress.scored) == (0, 0, 6)

    play(main)


def test_what_was_done_before_is_counted_when_the_first_request_is_under_way(tmp_path: Path) -> None:
    counted: list[list[str]] = []

    async def main() -> None:
        def count() -> None:
            counted.append(list(run.generation.started))

        todos = Todos(each for each in [*[count] * 5, *fresh(2), *[count] * 2])
        async with standing(tmp_path / "j", todos, bounds(1, 1)) as run:
            await run.settled()
            assert counted == [["0.0"]] * 5
            assert await run.finish() is None
            assert counted == [["0.0"]] * 5 + [["0.0", "1.0"]] * 2

    play(main)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_ends_when_all_that_was_done_before_is_counted(tmp_path: Path, stopped: bool) -> None:
    counted: list[int] = []

    async def main() -> None:
        steps = Todos((lambda: counted.append(1)) for _ in range(500))
        async with standing(tmp_path / "j", steps, bounds(3, 3)) as run:
            if stopped:
                run.schedule.stop()
            assert await run.finish() is None
            assert len(counted) == (0 if stopped else 500)
            assert list(steps) == []
            assert len(counted) == 500, "whoever goes on alone counts on the way"

    play(main)


def test_processes_take_turns_at_scoring(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(7), bounds(7, 1)) as run:
            run.executor.holders.update({f"key-{index}.0": "first" if index < 4 else "second" for index in range(6)})
            await run.settled()
            run.generation.end(*run.generation.open)
            await run.settled()
            assert await run.finish() is None
            assert run.scoring.started == ["0.0", "4.0", "6.0", "1.0", "5.0", "2.0", "3.0"]

    play(main)


def test_a_slow_scorer_starves_generation_only_when_the_backlog_is_full(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(2, 1)) as run:
            for _ in range(10):
                await run.settled()
                run.generation.end(*run.generation.open)
            await run.settled()
            # One in scoring, two in the backlog, and two that wait for room with their slots' workers.
            assert list(run.scoring.open) == ["0.0"]
            assert run.progress.backlog == 2
            assert run.generation.started == ["0.0", "1.0", "2.0", "3.0", "4.0"]
            assert (run.generation.open, run.progress.generating) == ({}, 0)
            run.scoring.end("0.0")
            await run.settled()
            assert list(run.scoring.open) == ["1.0"]
            assert run.generation.started[5:] == ["5.0"], "room for one in the backlog lets one more generate"
            assert run.progress.backlog == 2
            assert await run.finish() is None
            assert run.progress.scored == 20

    play(main)


def test_a_generation_slot_is_free_when_the_last_message_is_in(tmp_path: Path) -> None:
    disk = threading.Event()

    def slow_fsync(fd: int) -> None:
        assert disk.wait(60), "the test forgot the disk"
        os.fsync(fd)

    async def main() -> None:
        async with standing(tmp_path / "j", fresh(3), bounds(1, 1), fsync=slow_fsync) as run:
            await until(lambda: run.generation.open)
            run.generation.end("0.0")
            await until(lambda: "1.0" in run.generation.open, "the next generation begins before the fsync")
            assert run.scoring.started == [], "nothing is scored that is not on disk"
            assert run.progress.done == 0
            disk.set()
            await until(lambda: run.scoring.open)
            assert outline(tmp_path / "j")[:2] == ["example-0", "generated key-0.0"]
            run.scoring.end("0.0")
            await run.finish()
            assert run.progress.scored == 3

    play(main)


def test_an_outcome_counts_only_when_its_line_is_on_disk(tmp_path: Path) -> None:
    disk, entered = threading.Event(), threading.Event()

    def slow_fsync(fd: int) -> None:
        entered.set()
        assert disk.wait(60), "the test forgot the disk"
        os.fsync(fd)

    async def main() -> None:
        async with standing(tmp_path / "j", fresh(1), bounds(1, 1), fsync=slow_fsync) as run:
            await until(lambda: run.generation.open)
            disk.set()
            run.generation.end("0.0")
            await until(lambda: run.scoring.open)
            disk.clear()
            entered.clear()
            run.scoring.end("0.0")
            await until(entered.is_set, "the score is being synced")
            assert outline(tmp_path / "j")[-1] == "scored key-0.0", "written, but who knows where it is"
            assert (run.progress.scored, run.outcomes) == (0, [])
            assert not run.result.done()
            disk.set()
            await run.finish()
            assert (run.progress.scored, run.outcomes) == (1, [1])

    play(main)


def test_unlimited_gates_take_everything_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(40), bounds(-1, -1, total=40)) as run:
            await run.settled()
            assert len(run.generation.open) == 40
            run.generation.end(*run.generation.open)
            await run.settled()
            assert len(run.scoring.open) == 40
            await run.finish()

    play(main)


def test_no_gate_has_more_workers_than_there_are_rollouts() -> None:
    few = Bounds(512, 512, total=3)
    assert (few.generators, few.scorers, few.backlog) == (3, 3, 3)


def test_gates_behind_generation_count_rollouts_and_let_at_least_one_group_through() -> None:
    roomy, narrow = Bounds(8, 13, total=100, group_size=4), Bounds(2, 2, total=100, group_size=5)
    assert (roomy.generators, roomy.backlog, roomy.scorers) == (8, 2, 3)
    assert (narrow.generators, narrow.backlog, narrow.scorers) == (2, 1, 1)


# Groups


def test_a_group_is_scored_once_and_whole_when_its_last_member_is_generated(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(2, 3, grouped=True), bounds(6, 6, group_size=3)) as run:
            await run.settled()
            run.generation.end("0.0", "0.2", "1.1")
            await run.settled()
            assert run.scoring.started == []
            run.generation.end("0.1")
            await run.settled()
            assert run.scoring.started == ["0.0+0.1+0.2"], "by index, whichever came first"
            run.generation.end("1.0", "1.2")
            await run.finish()
            assert len(run.scoring.started) == 2
            assert run.progress.scored == 6
            lines = outline(tmp_path / "j")
            assert [line for line in lines if line.startswith("example")] == ["example-0", "example-1"]
            assert max(lines.index(f"generated key-0.{n}") for n in range(3)) < lines.index("scored key-0.0")

    play(main)


@pytest.mark.parametrize("gate", [1, 2, 3, 7])
def test_a_group_larger_than_the_gate_is_no_deadlock(tmp_path: Path, gate: int) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(4, 8, grouped=True), bounds(gate, 1, group_size=8)) as run:
            await run.settled()
            assert len(run.generation.open) == gate
            await run.finish()
            assert run.generation.peak == gate
            assert run.progress.scored == 32
            assert len(run.scoring.started) == 4

    play(main)


def test_a_group_that_lost_a_member_is_unscored(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(2, 3, grouped=True), bounds(6, 6, group_size=3)) as run:
            await run.settled()
            run.generation.end("0.1", result="timeout")
            run.generation.end("0.0")
            await run.settled()
            assert outline(tmp_path / "j").count("unscored key-0.0") == 0, "the group is not complete yet"
            run.generation.end("0.2")
            await run.finish()
            assert dict(run.progress.unscored) == {"timeout": 1, "group incomplete": 2}
            assert run.progress.scored == 3
            assert [set(name.split("+")) for name in run.scoring.started] == [{"1.0", "1.1", "1.2"}]
            assert sorted(run.executor.forgotten) == ["key-0.0", "key-0.2"]
            incomplete = [r for r in records(tmp_path / "j") if isinstance(r, Scored) and r.reward is None]
            assert {r.reason for r in incomplete} == {"group incomplete"}

    play(main)


def test_a_group_of_failures_has_nobody_to_tell(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(1, 3, grouped=True), bounds(3, 3, group_size=3)) as run:
            await run.finish(failures={f"0.{n}": "timeout" for n in range(3)})
            assert dict(run.progress.unscored) == {"timeout": 3}
            assert run.scoring.started == []

    play(main)


def test_recorded_members_join_their_group(tmp_path: Path) -> None:
    items = items_of(0, 3)
    group = RolloutGroup(3)
    todos = [
        Todo(items[0], recorded=generated(items[0]), group=group),
        Todo(items[1], recorded=generated(items[1]), group=group),
        Todo(items[2], group=group),
    ]

    async def main() -> None:
        journal = Journal.open(tmp_path / "j")
        for record in (items[0].example, generated(items[0]), generated(items[1])):
            await journal.append(record)
        journal.close()
        async with standing(tmp_path / "j", todos, bounds(1, 1, group_size=3)) as run:
            await run.settled()
            assert list(run.generation.open) == ["0.2"]
            assert run.scoring.started == []
            await run.finish()
            assert run.scoring.started == ["0.0+0.1+0.2"]

    play(main)


# What comes of a rollout


def test_what_a_rollout_says_that_is_no_json_becomes_a_failed_line(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(3), bounds(3, 3)) as run:
            await run.settled()
            odd = generated(items_of(1)[0], usage=Usage(3, 4, requests=1), state={"socket": object()})
            run.generation.end("1.0", result=odd)
            await run.finish()
            failure = next(record for record in records(tmp_path / "j") if isinstance(record, Failed))
            assert (failure.key, failure.reason, failure.retryable) == ("key-1.0", "environment_error", False)
            assert (
                "JSON cannot represent a value of type object; messages, info and state must be JSON" in failure.error
            )
            assert failure.usage == Usage(3, 4, requests=1), "it was paid for"
            assert run.progress.usage.input_tokens == 3
            assert (run.progress.scored, dict(run.progress.unscored)) == (2, {"environment_error": 1})
            assert run.executor.forgotten == ["key-1.0"], "its live state would stay for ever"

    play(main)


def test_generating_alone_leaves_scoring_to_a_later_pass(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(4), bounds(2, 2), score=False) as run:
            await run.finish(failures={"1.0": "timeout"})
            assert run.scoring.started == []
            assert sorted(run.executor.forgotten) == ["key-0.0", "key-2.0", "key-3.0"]
            assert run.progress.done == 1
            assert [line for line in outline(tmp_path / "j") if line.startswith(("scored", "unscored"))] == []

    play(main)


def test_nothing_to_do_ends_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", [], bounds(4, 4)) as run:
            assert await run.finish() is None
            assert (tmp_path / "j").read_bytes() == b""

    play(main)


# Any order of things


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    examples=st.integers(1, 6),
    rollouts=st.integers(1, 4),
    gates=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    grouped=st.booleans(),
    speeds=st.lists(st.integers(0, 12), min_size=1, max_size=24),
    failing=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=4),
)
def test_every_rollout_comes_to_one_outcome_within_the_gates(
    tmp_path_factory: pytest.TempPathFactory, examples: int, rollouts: int, gates: tuple[int, int], grouped: bool,
    speeds: list[int], failing: set[tuple[int, int]],
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("any") / "j"
    failures = {f"{example}.{rollout}": "timeout" for example, rollout in failing}
    planned = {f"{example}.{rollout}" for example in range(examples) for rollout in range(rollouts)}

    async def main() -> None:
        executor = HastyExecutor(lambda name: speeds[crc32(name.encode()) % len(speeds)], dict(failures))
        progress = RunProgress("test", "test", "model", len(planned))
        limits = Bounds(*gates, len(planned), rollouts if grouped else 1)

        def within(*_: object) -> None:
            assert progress.generating <= gates[0]
            together = rollouts if grouped else 1
            assert progress.scoring <= max(gates[1], together), "a gate lets at least one group through"
            assert progress.backlog <= max(gates[0], together)
            assert progress.done <= len(planned)

        executor.watch = within
        journal = Journal.open(path)
        try:
            schedule = Schedule(
                fresh(examples, rollouts, grouped=grouped), executor, journal, progress, limits, on_outcome=within
            )
            assert await schedule.run() is None
        finally:
            journal.close()
        assert executor.peak["generation"] <= gates[0]
        assert executor.peak["scoring"] <= gates[1]
        lost = planned & failures.keys()
        assert progress.done == len(planned)
        assert progress.unscored["timeout"] == len(lost)
        incomplete = {
            name for name in planned - lost if grouped and any(bad.split(".")[0] == name.split(".")[0] for bad in lost)
        }
        assert progress.unscored["group incomplete"] == len(incomplete)
        scored = [name for group in executor.groups for name in group]
        assert sorted(scored) == sorted(planned - lost - incomplete)
        assert all(len(group) == (rollouts if grouped else 1) for group in executor.groups)

    play(main)
    lines = outline(path)
    assert len([line for line in lines if line.startswith("example")]) == examples
    outcomes = [line.split()[1] for line in lines if line.startswith(("scored", "unscored", "failed"))]
    assert sorted(outcomes) == sorted(f"key-{name}" for name in planned)
    generations = [line.split()[1] for line in lines if line.startswith(("generated", "failed"))]
    assert sorted(generations) == sorted(f"key-{name}" for name in planned)
