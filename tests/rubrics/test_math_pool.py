"""The processes that compare answers: right stays right under load, one bad answer harms no other, and none is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.core.errors import VerificationError
from harness.rubrics.math_pool import PROGRAM, MathPool

BINOMIAL = r"\binom{10^9}{5\cdot 10^8}"
"""Cannot be computed, and is not seen to be too large either."""


@contextmanager
def pool_of(max_workers: int = 1, idle_seconds: float = 30) -> Iterator[MathPool]:
    pool = MathPool(max_workers, idle_seconds)
    try:
        yield pool
    finally:
        pool.close()


def tree(pid: int) -> list[int]:
    """A process and its descendants, those that are alive."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if fields[0] != "Z" and int(fields[1]) == pid:
            found += tree(int(path.parent.name))
    return [pid, *found]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(done: Callable[[], bool]) -> None:
    """Wait for something that is bound to happen; fails after a minute."""
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


def same(index: int) -> tuple[str, str]:
    return rf"\frac{{{3 * index + 3}}}{{{3 * index + 6}}}", rf"\frac{{{index + 1}}}{{{index + 2}}}"


@pytest.mark.slow
def test_with_every_core_busy_right_answers_stay_right() -> None:
    """Far more checks than processes, burners on every core, a time limit that waiting would use up many times over,
    and an event loop that is held up."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        with pool_of(max_workers=4) as pool:

            async def main() -> tuple[list[bool], list[bool]]:
                async with asyncio.TaskGroup() as tasks:
                    right = [tasks.create_task(pool.check(*same(index), 1.0)) for index in range(400)]
                    wrong = [tasks.create_task(pool.check(same(index)[0], "7", 1.0)) for index in range(100)]
                    await asyncio.sleep(0)
                    time.sleep(3)  # noqa: ASYNC251  # the loop is late
                return [task.result() for task in right], [task.result() for task in wrong]

            right, wrong = asyncio.run(main())
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert right == [True] * 400
    assert wrong == [False] * 100


@pytest.mark.slow
def test_an_answer_that_cannot_be_computed_is_cut_and_takes_no_other_with_it() -> None:
    with pool_of() as pool:

        async def main() -> list[str]:
            said: list[str] = []

            async def ask(answer: str, gold: str) -> None:
                try:
                    said.append(str(await pool.check(answer, gold, 0.5)))
                except VerificationError as error:
                    said.append(str(error))

            await ask("1", "1.0")
            (pid,) = pool.pids
            async with asyncio.TaskGroup() as tasks:
                for index in range(20):
                    tasks.create_task(ask(*(same(index) if index % 5 else (BINOMIAL, "5"))))
            assert pool.pids == (pid,), "a cut check costs a fork, not a new process"
            return said[1:]

        said = asyncio.run(main())
    assert [text for text in said if text == "True"] == ["True"] * 16
    cut = [text for text in said if text != "True"]
    assert len(cut) == 4
    assert all("stopped after 0.5 s of CPU time" in text and "binom" in text for text in cut)


@pytest.mark.slow
def test_a_child_or_a_process_that_is_killed_is_replaced_and_the_check_is_done_again() -> None:
    with pool_of() as pool:

        async def main() -> None:
            assert await pool.check("1", "1.0", 5)
            (pid,) = pool.pids
            parent, child = tree(pid)
            os.kill(child, signal.SIGKILL)
            assert await pool.check("2", "2.0", 5)
            assert pool.pids == (pid,)
            os.killpg(parent, signal.SIGKILL)
            assert await pool.check("3", "3.0", 5)
            (other,) = pool.pids
            assert other != pid
            assert not is_alive(parent)

        asyncio.run(main())


@pytest.mark.slow
def test_a_check_whose_child_is_killed_twice_has_no_verdict() -> None:
    with pool_of() as pool:

        async def main() -> None:
            assert await pool.check("1", "1.0", 5)
            (pid,) = pool.pids
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(caught())
                seen: set[int] = set()
                while len(seen) < 2:
                    for child in set(tree(pid)[1:]) - seen:
                        if cpu_ticks(child) >= 10:  # at work on the check, not waiting for one
                            os.kill(child, signal.SIGKILL)
                            seen.add(child)
                    await asyncio.sleep(0.01)
            assert "died 2 times (killed by signal 9; killed by signal 9)" in str(asked.result())
            assert "binom" in str(asked.result())
            assert await pool.check("2", "2.0", 5)

        async def caught() -> BaseException | None:
            try:
                await pool.check(BINOMIAL, "5", 60)
            except VerificationError as error:
                return error
            return None

        asyncio.run(main())


def cpu_ticks(pid: int) -> int:
    """Hundredths of a second that a process has worked."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


@pytest.mark.slow
def test_processes_start_when_they_are_needed_and_end_when_they_are_not() -> None:
    with pool_of(max_workers=2, idle_seconds=0.2) as pool:
        assert pool.pids == ()

        async def ask() -> tuple[int, ...]:
            async with asyncio.TaskGroup() as tasks:
                for index in range(8):
                    tasks.create_task(pool.check(*same(index), 5))
            return pool.pids

        first = asyncio.run(ask())
        assert 1 <= len(first) <= 2
        wait_until(lambda: pool.pids == ())
        assert [is_alive(pid) for pid in first] == [False] * len(first)
        second = asyncio.run(ask())  # another event loop, other processes
        assert not set(first) & set(second)


@pytest.mark.slow
def test_a_check_that_nobody_waits_for_is_not_begun_and_one_that_runs_holds_up_nothing() -> None:
    with pool_of() as pool:

        async def main() -> None:
            assert await pool.check("1", "1.0", 5)
            running = asyncio.ensure_future(pool.check(BINOMIAL, "5", 1))
            waiting = [asyncio.ensure_future(pool.check(BINOMIAL, "5", 60)) for _ in range(5)]
            await asyncio.sleep(0.1)
            for task in (running, *waiting):
                task.cancel()
            assert await pool.check("2", "2.0", 5)

        asyncio.run(main())


@pytest.mark.slow
def test_a_fork_of_the_process_has_processes_of_its_own() -> None:
    program = """
import asyncio, os
from harness.rubrics.math_pool import math_pool
assert asyncio.run(math_pool.check("1", "1.0", 5))
parent = math_pool.pids
pid = os.fork()
if not pid:
    assert math_pool.pids == ()
    assert asyncio.run(math_pool.check("2", "2.0", 5))
    assert not set(math_pool.pids) & set(parent)
    math_pool.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert asyncio.run(math_pool.check("3", "3.0", 5))
assert math_pool.pids == parent
print("well")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("well\n", "")


def at_work(pid: int) -> bool:
    """Whether a descendant of a process computes, and does not only wait."""
    return any(cpu_ticks(child) >= 10 for child in tree(pid)[2:])


def test_when_the_program_is_killed_a_check_that_runs_ends_with_it() -> None:
    program = f"""
import asyncio
from harness.rubrics.math_pool import math_pool
asyncio.run(math_pool.check({BINOMIAL!r}, "5", 600))
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        wait_until(lambda: at_work(process.pid))
        pids = tree(process.pid)
        assert len(pids) == 3
    finally:
        process.kill()  # no handler of its own can run
        process.wait(60)
    wait_until(lambda: not any(is_alive(pid) for pid in pids))


@pytest.mark.slow
def test_without_the_kernel_s_help_a_check_ends_when_its_input_closes() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-P", PROGRAM, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert worker.stdin is not None and worker.stdout is not None
    with worker:
        assert json.loads(worker.stdout.readline())["ready"] is True
        request = {"id": 1, "answer": BINOMIAL, "gold": "5", "cpu_seconds": 600}
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()
        wait_until(lambda: any(cpu_ticks(pid) >= 10 for pid in tree(worker.pid)[1:]))
        (child,) = tree(worker.pid)[1:]
        worker.stdin.close()  # we live on, so the kernel sends nothing
        try:
            assert worker.wait(60) == 0
            assert not is_alive(child)
        finally:
            for pid in (worker.pid, child):
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)


def test_a_worker_whose_parent_is_gone_already_does_not_start() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    done = subprocess.run([sys.executable, "-P", PROGRAM, str(gone.pid)], input=b"", capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("end", ["exit", "SIGKILL"])
def test_when_the_program_ends_its_processes_are_gone(end: str) -> None:
    program = """
import asyncio, sys
from harness.rubrics.math_pool import math_pool
assert asyncio.run(math_pool.check("1", "1.0", 5))
print(*math_pool.pids, flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        pids = tree(int(process.stdout.readline()))
        assert len(pids) == 2
        assert [is_alive(pid) for pid in pids] == [True, True]
        if end == "exit":
            process.stdin.close()
            assert process.wait(60) == 0
        else:
            process.kill()
            process.wait(60)
    wait_until(lambda: not any(is_alive(pid) for pid in pids))


def test_a_library_that_cannot_be_loaded_is_no_wrong_answer(tmp_path: Path) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('made on demand')\n")
    program = """
import asyncio
from harness import MathRubric
from harness.rubrics.math import verify_math
try:
    asyncio.run(verify_math("1", "1.0"))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == (
        "VerificationError math-verify cannot be used (ImportError: made on demand); pip install -U "
        "'bench-harness[math]'\n"
    )


def test_processes_see_no_keys() -> None:
    os.environ["MATH_POOL_TEST_KEY"] = "secret"
    try:
        with pool_of() as pool:
            assert asyncio.run(pool.check("1", "1.0", 5))
            for pid in tree(pool.pids[0]):
                assert b"MATH_POOL_TEST_KEY" not in Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        del os.environ["MATH_POOL_TEST_KEY"]
