"""How a schedule ends before its work is done: a dead endpoint, a dead disk, a user who has had enough."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_parts import fresh, outline, play, standing, until

from harness.core.errors import EnvironmentFault, StoreError, SystemicError, ThreadsHung
from harness.engine.remaining_work import Todo
from harness.engine.scheduler import Bounds

DEAD = SystemicError("the endpoint is dead", reason="connection")


def bounds(generation: int, scoring: int, group_size: int = 1) -> Bounds:
    return Bounds(generation, scoring, 1000, group_size)


# A dead endpoint


def test_a_judge_that_is_gone_stops_new_work_and_keeps_what_is_being_generated(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(4, 1)) as run:
            await run.settled()
            run.generation.end("0.0", "1.0")
            await run.settled()
            assert (list(run.scoring.open), run.progress.backlog) == (["0.0"], 1)
            run.scoring.end("0.0", result=DEAD)
            await run.settled()
            assert run.scoring.started == ["0.0"], "what waits is not scored either"
            assert run.generation.cancelled == []
            assert list(run.generation.open) == ["2.0", "3.0", "4.0", "5.0"]
            assert not run.result.done()
            assert await run.finish() is DEAD
            assert len(run.generation.started) == 6, "nothing new was started"
            assert (run.progress.done, run.progress.backlog, run.progress.scoring) == (0, 0, 0)
            assert sorted(run.executor.forgotten) == [f"key-{n}.0" for n in range(1, 6)]
        lines = outline(tmp_path / "j")
        assert sorted(line for line in lines if " " in line) == [f"generated key-{n}.0" for n in range(6)]

    play(main)


def test_a_judge_that_is_gone_does_not_leave_generation_waiting_for_room(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(2, 1)) as run:
            for name in ("0.0", "1.0", "2.0", "3.0", "4.0"):
                await until(lambda name=name: name in run.generation.open)
                run.generation.end(name)
                await run.settled()
            assert run.generation.open == {}, "both workers wait for room"
            run.scoring.end("0.0", result=DEAD)
            assert await run.finish() is DEAD
            assert run.scoring.started == ["0.0"]
        assert sum(line.startswith("generated") for line in outline(tmp_path / "j")) == 5

    play(main)


def test_a_systemic_error_stops_the_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(4, 1)) as run:
            await run.settled()
            run.generation.end("0.0", "1.0")
            await run.settled()
            assert list(run.scoring.open) == ["0.0"]
            assert list(run.generation.open) == ["2.0", "3.0", "4.0", "5.0"]
            run.generation.end("3.0", result=DEAD)
            await run.settled()
            assert sorted(run.generation.cancelled) == ["2.0", "4.0", "5.0"]
            assert not run.result.done(), "what was generated is still scored"
            assert await run.finish() is DEAD
            assert run.scoring.started == ["0.0", "1.0"]
            assert (run.progress.scored, run.progress.unscored.total()) == (2, 0)
        lines = outline(tmp_path / "j")
        assert not [line for line in lines if line.startswith("failed")]
        assert not any(f"key-{n}" in line for line in lines for n in range(2, 20)), "no line for those in flight"

    play(main)


def test_a_systemic_error_does_not_lose_what_waits_for_room_in_the_backlog(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(2, 1)) as run:
            # One in scoring, two in the backlog; then one waits for room, while another is told that nobody is there.
            for name in ("0.0", "1.0", "2.0", "3.0"):
                await until(lambda name=name: name in run.generation.open)
                run.generation.end(name)
            await run.settled()
            assert (list(run.scoring.open), run.progress.backlog) == (["0.0"], 2)
            assert list(run.generation.open) == ["4.0"]
            run.generation.end("4.0", result=DEAD)
            assert await run.finish() is DEAD
            assert run.scoring.started == ["0.0", "1.0", "2.0", "3.0"]
            assert run.progress.scored == 4

    play(main)


def test_a_systemic_error_does_not_lose_a_whole_group_that_waits_for_room(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20, 2, grouped=True), bounds(2, 1, group_size=2)) as run:
            for name in ("0.0", "0.1", "1.0", "1.1", "2.0", "2.1"):
                await until(lambda name=name: name in run.generation.open)
                run.generation.end(name)
            await run.settled()
            assert (run.scoring.started, run.progress.backlog) == (["0.0+0.1"], 2)
            assert list(run.generation.open) == ["3.0"]
            run.generation.end("3.0", result=DEAD)
            assert await run.finish() is DEAD
            assert run.scoring.started == ["0.0+0.1", "1.0+1.1", "2.0+2.1"]

    play(main)


def test_the_first_of_several_systemic_errors_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(5), bounds(3, 3)) as run:
            await run.settled()
            run.generation.end("1.0", result=DEAD)
            run.generation.end("2.0", result=SystemicError("another"))
            assert await run.finish() is DEAD

    play(main)


# A dead disk


def test_a_disk_that_fails_stops_the_run_with_one_error(tmp_path: Path) -> None:
    syncs = 0

    def failing(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        if syncs > 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(fd)

    async def main() -> None:
        async with standing(tmp_path / "j", fresh(50), bounds(4, 2), fsync=failing) as run:
            with pytest.raises(StoreError, match=r"cannot write .*/j: Input/output error") as caught:
                await run.finish()
            assert not isinstance(caught.value, BaseExceptionGroup)
            assert run.progress.generating == run.progress.scoring == 0
            assert len(run.generation.started) < 50
            on_disk = [line for line in outline(tmp_path / "j") if line.startswith("scored")]
            assert run.progress.scored == len(run.outcomes) <= len(on_disk)

    play(main)


def test_a_disk_that_fails_while_all_wait_for_the_model_is_met_by_the_next_line(tmp_path: Path) -> None:
    def failing(fd: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    async def main() -> None:
        async with standing(tmp_path / "j", fresh(8), bounds(4, 4), fsync=failing) as run:
            await until(lambda: len(run.generation.open) == 4)
            run.generation.end("2.0")
            with pytest.raises(StoreError, match="quota"):
                await run.result
            assert run.scoring.started == []
            assert sorted(run.generation.cancelled) == ["0.0", "1.0", "3.0"] or len(run.generation.cancelled) == 4

    (tmp_path / "j").touch()
    play(main)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device that is always full is Linux's")
def test_a_full_disk_stops_the_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(8), bounds(4, 4)) as run:
            os.dup2(os.open("/dev/full", os.O_WRONLY), run.journal._fd)
            with pytest.raises(StoreError, match=r"cannot write .*/j: .*[Nn]o space left"):
                await run.finish()

    play(main)


# A dataset or a pool of threads that gives up


def test_a_row_that_cannot_be_read_ends_the_run_with_its_own_error(tmp_path: Path) -> None:
    def broken() -> Iterator[Todo]:
        yield from fresh(3)
        raise EnvironmentFault("row 3 is broken")

    async def main() -> None:
        async with standing(tmp_path / "j", broken(), bounds(2, 2)) as run:
            with pytest.raises(EnvironmentFault, match="row 3 is broken"):
                await run.finish()

    play(main)


@pytest.mark.parametrize("stage", ["generation", "scoring"])
def test_hung_threads_end_the_run(tmp_path: Path, stage: str) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(9), bounds(2, 2)) as run:
            await run.settled()
            if stage == "scoring":
                run.generation.end("0.0")
                await until(lambda: run.scoring.open)
            getattr(run, stage).end("0.0", result=ThreadsHung("8 calls hang"))
            with pytest.raises(ThreadsHung, match="8 calls hang"):
                await run.result

    play(main)


# A user who has had enough


def test_stop_starts_nothing_new_and_finishes_what_is_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(3, 1)) as run:
            await run.settled()
            run.generation.end("0.0")
            await run.settled()
            run.schedule.stop()
            await run.settled()
            assert not run.result.done()
            assert list(run.generation.open) == ["1.0", "2.0", "3.0"]
            assert await run.finish() is None
            assert run.generation.started == ["0.0", "1.0", "2.0", "3.0"]
            assert run.progress.scored == 4

    play(main)


def test_stop_before_the_start_does_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(3, 1)) as run:
            run.schedule.stop()
            assert await run.finish() is None
            assert run.generation.started == []

    play(main)


def test_cancel_gives_up_what_is_in_flight_and_leaves_nothing_hanging(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(2, 1)) as run:
            for name in ("0.0", "1.0", "2.0", "3.0"):
                await until(lambda name=name: name in run.generation.open)
                run.generation.end(name)
            await run.settled()
            # One in scoring, two in the backlog, one waits for room, one generates.
            assert (list(run.scoring.open), list(run.generation.open)) == (["0.0"], ["4.0"])
            run.schedule.cancel()
            assert await run.result is None
            assert (run.generation.cancelled, run.scoring.cancelled) == (["4.0"], ["0.0"])
            assert run.progress.done == run.progress.generating == run.progress.scoring == 0
        lines = outline(tmp_path / "j")
        assert [line for line in lines if line.startswith("generated")] == [f"generated key-{n}.0" for n in range(4)]
        assert not [line for line in lines if line.startswith(("scored", "failed"))], "a resume scores them"

    play(main)


def test_cancelling_the_run_itself_leaves_nothing_hanging(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(20), bounds(3, 3)) as run:
            await run.settled()
            run.generation.end("0.0")
            await run.settled()
            run.result.cancel()
            await until(run.result.done)
            assert run.result.cancelled()
            assert len(run.generation.cancelled) == 3
            assert run.scoring.cancelled == ["0.0"]

    play(main)


def test_stop_then_cancel_is_how_an_interrupt_goes(tmp_path: Path) -> None:
    async def main() -> None:
        async with standing(tmp_path / "j", fresh(6, 3, grouped=True), bounds(4, 2, group_size=3)) as run:
            await run.settled()
            run.generation.end("0.0", "0.2", "1.0")
            await run.settled()
            run.schedule.stop()
            run.generation.end("0.1")
            await run.settled()
            assert [sorted(name.split("+")) for name in run.scoring.started] == [["0.0", "0.1", "0.2"]]
            run.scoring.end(*run.scoring.open)
            await run.settled()
            assert run.progress.scored == 3
            run.schedule.cancel()
            assert await run.result is None
            assert run.progress.done == 3, "a group that is not complete waits for a resume"

    play(main)
