"""The end of a process in which environments ran."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tables import for_each_row

from harness.cli import process_end as ending

END = """
import sys, threading, time
from harness.cli.process_end import end_in_time
{before}
print("the result")
end_in_time(3)
sys.exit(3)
"""


def ended(before: str) -> subprocess.CompletedProcess[str]:
    """A process that ends as `bench` does, after something of an environment's."""
    source = END.format(before=before)
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_threads_that_never_end_are_named_and_not_waited_for() -> None:
    before = "\n".join([
        "for name in ['one', 'two', 'two', 'a\\x1b[2Jb', 'four']:",
        "    threading.Thread(target=time.sleep, args=(3600,), name=name).start()",
    ])  # fmt: skip
    done = ended(before)
    assert (done.returncode, done.stdout) == (3, "the result\n")
    assert done.stderr == (
        "note: ended without waiting for threads that are still running: one, two (2 of that name), ab and 1 more\n"
    )


def test_workers_of_our_own_are_not_named() -> None:
    before = "\n".join([
        "import asyncio",
        "from harness.rubrics.math_pool import _Process",
        "worker = _Process()",
    ])  # fmt: skip
    assert ended(before).stderr == ""


@for_each_row(
    "before",
    [
        "",
        "threading.Thread(target=time.sleep, args=(0.3,)).start()",
        "threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()",
    ],
)
def test_threads_that_end_are_waited_for_without_a_word(before: str) -> None:
    done = ended(before)
    assert (done.returncode, done.stdout, done.stderr) == (3, "the result\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what a process has started")
def test_programs_that_go_on_are_listed_and_not_ended(capfd: pytest.CaptureFixture[str]) -> None:
    programs = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) for _ in range(2)]
    for each in programs:
        assert each.stdin is not None and each.stdout is not None
        each.stdin.write(b"x")
        assert each.stdout.read(1) == b"x", "it runs under its own name from here on"
    over = subprocess.Popen(["true"])
    over.wait()
    try:
        listed = list(ending._children())  # pyright: ignore[reportPrivateUsage]
        assert {f"cat (process {each.pid})" for each in programs} <= set(listed)
        assert not any(f"(process {over.pid})" in each for each in listed)
        assert all(each.poll() is None for each in programs)
    finally:
        for each in programs:
            each.kill()
            each.communicate()


def test_what_an_environment_does_at_exit_may_not_last_for_ever() -> None:
    hangs = "import atexit, harness.cli.process_end as ending\nending.AT_EXIT = 0.2\natexit.register(time.sleep, 3600)"
    done = ended(hangs)
    assert (done.returncode, done.stdout) == (3, "the result\n")
    assert done.stderr == "note: ended without waiting for `atexit` functions of the environment, after 0.2 s\n"


def test_what_an_environment_does_at_exit_is_done() -> None:
    done = ended("import atexit; atexit.register(lambda: (time.sleep(0.2), print('sent')))")
    assert (done.returncode, done.stdout, done.stderr) == (3, "the result\nsent\n", "")
