"""Processors, memory, open files and Python, as this process has them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.cli.doctor.machine import check_event_loop, check_memory, check_open_files, check_processors, check_python


def test_this_machine_will_do() -> None:
    for check in (check_python, check_event_loop, check_processors, check_memory):
        assert [each for each in check() if each.status == "problem"] == []
    [loop] = check_event_loop()
    assert loop.says.startswith("uvloop ")
    assert sys.executable in check_python()[0].says


def test_processors_are_those_that_this_process_may_use() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("Linux binds processes to processors")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        [found] = check_processors()
    finally:
        os.sched_setaffinity(0, before)
    assert found.says.startswith("1 processor")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "in_flight", "status"), [(300, 32, "note"), (300, 256, "problem"), (4096, 256, "ok")]
)
def test_open_files_must_do_for_what_is_in_flight(limit: int, in_flight: int, status: str) -> None:
    code = (
        "import resource, sys; from harness.cli.doctor.machine import check_open_files\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)\n"
        "[found] = check_open_files(int(sys.argv[2])); print(found.status, found.says, found.fix, sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(limit), str(in_flight)], capture_output=True, text=True, timeout=60, check=True
    )
    said, says, fix = done.stdout.strip().split("|")
    assert (said, says.startswith(f"{limit:,} at most")) == (status, True)
    assert ("ulimit -Hn" in fix) == (status != "ok")


def test_the_soft_limit_is_no_problem_since_runs_raise_it() -> None:
    [found] = check_open_files(1)
    assert found.status != "problem"


def test_assertions_that_are_off_are_noted() -> None:
    code = "from harness.cli.doctor.machine import check_python; print([each.name for each in check_python()])"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "'assertions'" in done.stdout
