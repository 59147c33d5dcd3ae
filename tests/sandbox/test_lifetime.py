"""That nothing outlives a run, however it ends: orphans, daemons, a cancelled run, a killed harness. And that what ends
a program is told apart."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import uvloop
from sandboxes import eventually, marked, sandbox

from harness.core.errors import ConfigError, SandboxError
from harness.sandbox import Limits, Result

EVERY = ["bubblewrap", "unsafe-local"]

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3):
            KEEP or os.close(fd)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(0.1)
print("done", flush=True)
"""


@pytest.fixture
def mark() -> str:
    """A word that a program carries in its command line, so that it can be seen from outside."""
    return f"mark-{secrets.token_hex(8)}"


def run(way: str, program: str, mark: str = "", **limits: float) -> Result:
    argv = ["python", "-c", textwrap.dedent(program), mark]
    return asyncio.run(sandbox(way).run({}, argv, b"", Limits(**limits)))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files of this test alone: what it leaves is looked for, and others leave theirs meanwhile."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def leftovers() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("bench-sandbox-*"))


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("keeps_streams", ["True", "False"])
def test_a_daemon_ends_with_the_program_that_left_it(way: str, keeps_streams: str, mark: str) -> None:
    before = leftovers()
    result = run(way, DAEMON.replace("KEEP", keeps_streams), mark)
    assert (result.stdout, result.outcome, result.exit_code) == ("done\n", "exited", 0)
    assert result.wall_seconds < 5
    assert marked(mark) == []
    assert leftovers() <= before


@pytest.mark.parametrize("way", EVERY)
def test_nothing_is_left_at_the_moment_when_a_run_returns(way: str, mark: str) -> None:
    program = """
        import os, time
        for _ in range(40):
            if os.fork() == 0:
                held = bytearray(b"x") * (5 << 20)
                os.closerange(0, 3)
                time.sleep(60)
        time.sleep(0.1)
        os._exit(0)
        """

    async def main() -> list[list[int]]:
        left: list[list[int]] = []
        for _ in range(4):
            argv = ["python", "-c", textwrap.dedent(program), mark]
            await sandbox(way).run({}, argv, b"", Limits(processes=64))
            left.append(marked(mark))
        return left

    assert asyncio.run(main()) == [[]] * 4


def test_the_same_daemon_survives_where_nobody_looks_after_it(mark: str) -> None:
    subprocess.run([sys.executable, "-c", DAEMON.replace("KEEP", "False"), mark], check=True, capture_output=True)
    (daemon,) = marked(mark)
    os.kill(daemon, signal.SIGKILL)
    assert eventually(lambda: marked(mark) == [])


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_cancelled_run_is_over_at_once(way: str, runner: type, mark: str) -> None:
    program = "import os, time\nfor _ in range(3): os.fork()\ntime.sleep(60)"
    before = leftovers()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(sandbox(way).run({}, ["python", "-c", program, mark]))
            async with asyncio.timeout(60):
                while len(marked(mark)) < 8:  # noqa: ASYNC110  # another process is watched
                    await asyncio.sleep(0.01)
            running.cancel()
        assert running.cancelled()
        assert marked(mark) == []

    runner(main())  # type: ignore[operator]
    assert leftovers() <= before


@pytest.mark.parametrize("way", EVERY)
def test_a_run_cancelled_at_any_moment_leaves_nothing(way: str, mark: str) -> None:
    async def main() -> None:
        for hundredths in range(12):
            try:
                async with asyncio.timeout(hundredths / 100):
                    await sandbox(way).run({}, ["python", "-c", "import time; time.sleep(60)", mark])
            except TimeoutError:
                pass
            assert eventually(lambda: marked(mark) == [])

    before = leftovers()
    open_before = len(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert leftovers() <= before
    assert len(os.listdir("/proc/self/fd")) <= open_before


HARNESS = """
import asyncio, sys
from harness.sandbox import find_sandbox

async def main():
    program = "import os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(60)"
    sandbox = find_sandbox(sys.argv[1])
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sandbox.run({}, ["python", "-c", program, sys.argv[2]]))
        session = await sandbox.open_session({}, ["python", "-c", program, sys.argv[2]])

asyncio.run(main())
"""


@pytest.mark.parametrize("way", EVERY)
def test_a_killed_harness_takes_everything_along(way: str, mark: str) -> None:
    sandbox(way)
    before = leftovers()
    # backwards: the harness itself must not carry the mark
    code = HARNESS.replace("sys.argv[2]", "sys.argv[2][::-1]")
    with subprocess.Popen([sys.executable, "-c", code, way, mark[::-1]]) as harness:
        assert eventually(lambda: len(marked(mark)) == 4, 20)
        harness.send_signal(signal.SIGKILL)
        harness.wait()
    assert eventually(lambda: marked(mark) == [])
    assert eventually(lambda: leftovers() <= before)


# How a program ends


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize(
    ("program", "outcome", "code", "number"),
    [
        ("raise SystemExit(7)", "exited", 7, None),
        ("import os; os._exit(137)", "exited", 137, None),
        ("import os; os.kill(os.getpid(), 9)", "signalled", None, 9),
        ("import os; os.abort()", "signalled", None, 6),
        ("import ctypes; ctypes.string_at(0)", "signalled", None, 11),
        ("import os; [os.close(fd) for fd in range(3)]; os._exit(5)", "exited", 5, None),
        ("import os, time; [os.close(fd) for fd in range(3)]; time.sleep(0.5); os._exit(6)", "exited", 6, None),
        ("import os; os.kill(os.getppid(), 9); import time; time.sleep(60)", "signalled", None, None),
    ],
)
def test_how_a_program_ends_is_told_exactly(
    way: str, program: str, outcome: str, code: int | None, number: int | None, mark: str
) -> None:
    result = run(way, program, mark, wall_seconds=20)
    assert (result.outcome, result.exit_code, result.signal) == (outcome, code, number)
    assert eventually(lambda: marked(mark) == [])


def test_killing_everybody_kills_nobody_outside() -> None:
    result = run("bubblewrap", "import os\nos.kill(-1, 9)\nos.kill(os.getpid(), 9)")
    assert (result.outcome, result.exit_code) == ("signalled", None)


@pytest.mark.parametrize("way", EVERY)
def test_input_files_and_output_go_through_whole(way: str) -> None:
    data = bytes(range(256)) * 4000
    program = """
        import hashlib, sys
        data = sys.stdin.buffer.read()
        print(hashlib.sha256(data).hexdigest(), len(data), open("a/b/c.bin", "rb").read() == data, open("ü.txt").read())
        """
    files = {"a/b/c.bin": data, "ü.txt": "größer", "a/main.py": textwrap.dedent(program)}

    async def main() -> Result:
        return await sandbox(way).run(files, ["python", "a/main.py"], data)

    import hashlib

    assert asyncio.run(main()).stdout == f"{hashlib.sha256(data).hexdigest()} {len(data)} True größer\n"


@pytest.mark.parametrize("way", EVERY)
def test_input_that_nobody_reads_holds_nothing_up(way: str) -> None:
    async def main() -> Result:
        return await sandbox(way).run({}, ["python", "-c", "print('over')"], b"x" * 5_000_000)

    assert asyncio.run(main()).stdout == "over\n"


@pytest.mark.parametrize("way", EVERY)
def test_a_program_that_is_not_there_is_nobodys_answer(way: str) -> None:
    with pytest.raises(SandboxError, match=f"{way}: the program cannot be started: .*No such file"):
        asyncio.run(sandbox(way).run({}, ["no-such-program"]))


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../a", "a/../../b", "a/..", ".", "./a", "a/", "a\0b", "a/./b"])
def test_a_path_that_may_leave_the_work_folder_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="must be the relative path of a file below the work folder"):
        asyncio.run(sandbox("unsafe-local").run({path: "x"}, ["python", "-c", ""]))


def test_a_file_cannot_be_a_folder_too() -> None:
    with pytest.raises(ConfigError, match="'a' cannot be a file and the folder of 'a/b/c'"):
        asyncio.run(sandbox("unsafe-local").run({"a": "x", "a/b/c": "y"}, ["python", "-c", ""]))


@pytest.mark.parametrize("argv", [[], "python", ["python", "a\0b"]])
def test_what_is_no_command_is_refused(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match="argv must be a program and its arguments"):
        asyncio.run(sandbox("unsafe-local").run({}, argv))


def test_no_more_runs_at_once_than_the_machine_has_room_for(mark: str) -> None:
    from harness.sandbox.backend import RUNS_AT_ONCE

    most = 0

    async def main() -> None:
        nonlocal most
        async with asyncio.TaskGroup() as tasks:
            argv = ["python", "-c", "import time; time.sleep(0.2)", mark]
            runs = [tasks.create_task(sandbox().run({}, argv)) for _ in range(RUNS_AT_ONCE + 3)]
            while not all(run.done() for run in runs):
                most = max(most, len(marked(mark)))
                await asyncio.sleep(0.01)
        assert all(run.result().exit_code == 0 for run in runs)

    asyncio.run(main())
    assert 2 <= most <= RUNS_AT_ONCE
