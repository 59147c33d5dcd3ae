"""What a program in a sandbox cannot use up, measured from outside on its whole process tree; and how it is said that
it tried. Every attack is bounded by itself, too, and is shown to go through where the limit allows it."""

from __future__ import annotations

import asyncio
import os
import secrets
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sandboxes import eventually, marked, sandbox

from harness.core.errors import ConfigError
from harness.sandbox import Limits, Result

CONTAINED = ["bubblewrap"]
EVERY = ["bubblewrap", "unsafe-local"]


def run(
    way: str, program: str, *, measure: Callable[[list[int]], float] | None = None, **limits: Any
) -> tuple[Result, float]:
    """Run a program, and measure all its processes again and again meanwhile: the result and the highest measure."""
    mark = f"mark-{secrets.token_hex(8)}"
    highest = 0.0

    async def main() -> Result:
        nonlocal highest

        async def look() -> None:
            nonlocal highest
            while measure is not None:
                highest = max(highest, measure(marked(mark)))
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(look())
            argv = ["python", "-c", textwrap.dedent(program), mark]
            result = await sandbox(way).run({}, argv, b"", Limits(**limits))
            looking.cancel()
        return result

    result = asyncio.run(main())
    assert eventually(lambda: marked(mark) == [], 20), "something is still alive"
    return result, highest


def resident(pids: list[int]) -> float:
    """Megabytes, shared ones divided among their holders; 0 if a process ended meanwhile, since its part of the pages
    that it shared is then counted twice."""
    total = 0
    for pid in pids:
        total += sum(int(line.split()[1]) for line in mapped(pid) if line.startswith("Pss:"))
    return total / 1024 if all(map(mapped, pids)) else 0.0


def mapped(pid: int) -> list[str]:
    """What a process has in memory, in lines; none if it has ended."""
    try:
        return Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return []


# Processes

FORK_BOMB = """
import os, sys, time
made = 0
for _ in range(200):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    made += 1
time.sleep(0.3)
print(made, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("bound", [5, 20])
def test_a_fork_bomb_stops_at_the_bound_that_the_kernel_keeps(bound: int) -> None:
    result, most = run("bubblewrap", FORK_BOMB, measure=len, processes=bound)
    assert result.stdout == f"{bound - 1}\n"  # and the program itself
    assert most <= bound  # looked at now and then


@pytest.mark.slow
def test_the_same_bomb_goes_off_where_it_may() -> None:
    lasting = FORK_BOMB.replace("sleep(0.3)", "sleep(3)")  # to look at 201 processes takes a while
    result, most = run("bubblewrap", lasting, measure=len, processes=250)
    assert result.stdout == "200\n"
    assert most > 20


def test_two_bombs_at_once_have_a_bound_each() -> None:
    async def main() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            runs = [
                tasks.create_task(sandbox().run({}, ["python", "-c", FORK_BOMB], b"", Limits(processes=10)))
                for _ in range(3)
            ]
        return [run.result().stdout for run in runs]

    assert asyncio.run(main()) == ["9\n"] * 3


def test_a_bomb_that_grows_in_generations_is_contained() -> None:
    program = """
        import os, time
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            try:
                os.fork()
            except OSError:
                time.sleep(0.01)
        """
    _, most = run("bubblewrap", program, measure=len, processes=30, wall_seconds=3)
    assert 20 < most <= 30


def test_threads_count() -> None:
    program = """
        import threading, time
        made = 0
        try:
            for _ in range(100):
                threading.Thread(target=time.sleep, args=(0.5,), daemon=True).start()
                made += 1
        except RuntimeError:
            pass
        print(made)
        """
    assert run("bubblewrap", program, processes=10)[0].stdout == "9\n"
    assert run("bubblewrap", program, processes=150)[0].stdout == "100\n"


def test_where_the_kernel_keeps_no_bound_a_bomb_is_seen_and_ended() -> None:
    result, most = run("unsafe-local", FORK_BOMB, measure=len, processes=20)
    assert result.outcome == "processes"
    assert most <= 201


# Memory

GROW = """
import sys, time
held = []
for _ in range(40):
    held.append(bytearray(b"x") * (20 << 20))
    time.sleep(0.04)
print("held", flush=True)
"""

TREE = """
import os, sys, time
for _ in range(10):
    if os.fork() == 0:
        held = bytearray(b"x") * (60 << 20)
        time.sleep(20)
        os._exit(0)
    time.sleep(0.1)
time.sleep(1)
print("held", flush=True)
os._exit(0)
"""

SHARED = """
import mmap, os, time
held = []
for _ in range(10):
    one = mmap.mmap(-1, 60 << 20)
    for at in range(0, len(one), 4096):
        one[at] = 1
    held.append(one)
    time.sleep(0.1)
print("held", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("attack", [GROW, TREE, SHARED], ids=["one process", "a tree of small ones", "shared pages"])
def test_memory_is_bounded_over_the_whole_tree(way: str, attack: str) -> None:
    result, most = run(way, attack, measure=resident, memory_mb=300)
    assert (result.outcome, result.stdout, result.exit_code) == ("memory", "", None)
    assert most < 500
    if way == "bubblewrap":
        result, _ = run(way, attack, memory_mb=1500)
        assert (result.outcome, result.stdout) == ("exited", "held\n")


def test_one_process_cannot_reserve_more_than_twice_the_bound_at_once() -> None:
    program = "bytearray(1500 << 20)"
    for way in EVERY:
        result, most = run(way, program, measure=resident, memory_mb=300)
        assert (result.outcome, result.exit_code) == ("exited", 1)
        assert "MemoryError" in result.stderr
        assert most < 300


@pytest.mark.slow
def test_pages_that_children_share_count_once() -> None:
    program = """
        import os, time
        held = bytearray(b"x") * (150 << 20)
        for _ in range(10):
            if os.fork() == 0:
                time.sleep(1)
                os._exit(0)
        time.sleep(1)
        print("held")
        """
    result, _ = run("bubblewrap", program, memory_mb=300)
    assert (result.outcome, result.stdout) == ("exited", "held\n")


# Disk

FILL = """
import errno, os, sys
written = 0
try:
    for number in range(100):
        with open(f"{sys.argv[2]}/{number}", "wb") as file:
            for _ in range(10):
                written += file.write(bytes(1 << 20))
                file.flush()
except OSError as error:
    print(errno.errorcode[error.errno])
print(written >> 20)
"""


@pytest.mark.parametrize(("folder", "bound"), [("/tmp", 56), ("/tmp/work", 56), ("/dev/shm", 8)])
def test_the_private_folders_hold_no_more_than_their_bound(folder: str, bound: int) -> None:
    argv = ["python", "-c", FILL, "x", folder]
    result = asyncio.run(sandbox().run({}, argv, b"", Limits(disk_mb=64)))
    reason, written = result.stdout.split()
    assert reason == "ENOSPC"
    assert bound - 1 <= int(written) <= bound


@pytest.mark.parametrize("way", EVERY)
def test_one_file_is_bounded(way: str) -> None:
    program = """
        import errno
        with open("big", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError as error:
                print(errno.errorcode[error.errno], file.tell() >> 20)
        """
    assert run(way, program, file_mb=5)[0].stdout == "EFBIG 5\n"


@pytest.mark.parametrize("way", EVERY)
def test_a_program_that_does_not_know_of_the_bound_on_files_is_ended(way: str) -> None:
    argv = ["sh", "-c", "exec head -c 20000000 /dev/zero > big"]
    result = asyncio.run(sandbox(way).run({}, argv, b"", Limits(file_mb=5)))
    assert (result.outcome, result.exit_code, result.signal) == ("disk", None, 25)


@pytest.mark.slow
def test_empty_files_without_end_are_an_attack_on_the_disk() -> None:
    program = "for n in range(400_000):\n    open(str(n), 'w').close()\nprint('made')"
    assert run("bubblewrap", program, cpu_seconds=60, wall_seconds=60)[0].outcome == "disk"
    assert run("bubblewrap", program.replace("400_000", "20_000"))[0].stdout == "made\n"


# Time


@pytest.mark.parametrize("way", EVERY)
def test_a_busy_program_runs_out_of_processor_time(way: str) -> None:
    result, _ = run(way, "while True: pass", cpu_seconds=1)
    assert (result.outcome, result.exit_code) == ("cpu", None)
    assert result.cpu_seconds


@pytest.mark.parametrize("way", EVERY)
def test_a_busy_tree_runs_out_of_processor_time_together(way: str) -> None:
    program = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    result, _ = run(way, program, cpu_seconds=2, wall_seconds=30)
    assert result.outcome == "cpu"
    assert result.cpu_seconds


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        """
        import signal, time
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        while True:
            time.sleep(60)
        """,
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, signal, time\nif os.fork(): os.kill(os.getppid(), signal.SIGSTOP)\ntime.sleep(60)",
    ],
    ids=["sleeping", "deaf to every signal", "stopped", "stopping the launcher"],
)
def test_time_runs_out_for_everybody(way: str, program: str) -> None:
    result, _ = run(way, program, wall_seconds=0.7)
    assert (result.outcome, result.exit_code) == ("timeout", None)
    assert result.wall_seconds > 0.6


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize(("number", "outcome"), [("KILL", "signalled"), ("STOP", "timeout")])
def test_a_program_that_ends_or_stops_its_launcher_at_once_is_judged_all_the_same(
    way: str, number: str, outcome: str
) -> None:
    argv = ["sh", "-c", f"kill -{number} $PPID; sleep 60"]
    result = asyncio.run(sandbox(way).run({}, argv, b"", Limits(wall_seconds=0.5)))
    assert (result.outcome, result.exit_code) == (outcome, None)


# Output


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("fd", [1, 2])
def test_a_flood_is_cut_and_ended(way: str, fd: int) -> None:
    result, _ = run(way, f"import os\nwhile True: os.write({fd}, b'x' * 65536)", output_bytes=100_000)
    kept, other = (result.stdout, result.stderr) if fd == 1 else (result.stderr, result.stdout)
    assert result.outcome == "output"
    assert kept == "x" * 100_000
    assert other == ""
    assert (result.stdout_truncated, result.stderr_truncated) == (fd == 1, fd == 2)


@pytest.mark.parametrize("way", EVERY)
def test_too_much_output_is_cut_and_the_program_goes_on(way: str) -> None:
    result, _ = run(way, "import sys; sys.stdout.write('é' * 1500); sys.exit(4)", output_bytes=1001)
    assert (result.outcome, result.exit_code, result.stdout_truncated) == ("exited", 4, True)
    assert result.stdout == "é" * 500  # the cut goes through the next one


@pytest.mark.parametrize("way", EVERY)
def test_the_bound_itself_is_not_too_much(way: str) -> None:
    result, _ = run(way, "print('x' * 999)", output_bytes=1000)
    assert (result.stdout_truncated, len(result.stdout)) == (False, 1000)


# What the limits themselves may be


@pytest.mark.parametrize(
    ("name", "value"),
    [("wall_seconds", 0), ("cpu_seconds", -1.0), ("memory_mb", 1.5), ("processes", True), ("disk_mb", "64")],
)
def test_a_limit_that_is_none_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"Limits.{name} must be a .*number above 0, not {value!r}"):
        Limits(**{name: value})


def test_the_harness_itself_has_no_more_open_files_or_processes_afterwards() -> None:
    async def main() -> None:
        for _ in range(3):
            await sandbox().run({}, ["python", "-c", ""])

    asyncio.run(main())
    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert len(os.listdir("/proc/self/fd")) == before
