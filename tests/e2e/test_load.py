"""Many rollouts at once, and one that never ends, as `python -m benchmarks load` and `turns` measure them: here at a
size that takes seconds, with bounds that a leak, a lost line or a quadratic step would break all the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench_runs import ROOT

ROLLOUTS, IN_FLIGHT, RUNS = 2400, 64, 8


def python(folder: Path, *args: str) -> Any:
    """What a program prints as JSON, with the benchmarks on its path and its files in `folder`."""
    environ = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, *args], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_suite_under_load_loses_nothing_and_holds_its_gates(tmp_path: Path) -> None:
    size = ["--rollouts", str(ROLLOUTS), "--in-flight", str(IN_FLIGHT)]
    found = python(tmp_path, "-m", "benchmarks", "load", *size, "--json")
    assert (found["rollouts"], found["in_flight"]) == (ROLLOUTS, IN_FLIGHT)
    # Counted line by line and row by row, after the run and again after a resume with more examples.
    assert (found["lost"], found["doubled"], found["wrong"]) == (0, 0, [])
    # As two servers saw it: neither gate was passed. Whether a request still waits when the last slot is taken depends
    # on how fast a busy machine sends them, so nearly all slots are enough.
    assert [gate["bound"] for gate in found["gates"]] == [56, 8]
    assert all(0.8 * gate["bound"] <= gate["peak"] <= gate["bound"] for gate in found["gates"]), found["gates"]
    # For each slot of a run's gate: one generates, one waits to be scored, one is scored. All rollouts are many more.
    assert 0 < found["most_states"] <= 3 * RUNS * IN_FLIGHT < ROLLOUTS
    assert 0 < found["most_tasks"] <= 2 * RUNS * IN_FLIGHT + 64
    assert found["peak_mb"] - found["tenth_peak_mb"] <= 40
    assert found["resume_s"] > 0 and 0 < found["resume_first_cpu_s"] <= 5.0, "of CPU, a second and a half"


TURNS = """
import gc, json
from benchmarks.turns import play
gc.disable()  # a full collection in one of the two, and not in the other, is half of it
play(500)
few, many = ([play(turns) for _ in range(3)] for turns in (2_500, 10_000))
print(json.dumps([[min(each[name] for each in plays) for name in few[0]] for plays in (few, many)]))
"""


@pytest.mark.slow
def test_four_times_the_turns_cost_about_four_times_as_much(tmp_path: Path) -> None:
    few, many = python(tmp_path, "-c", TURNS)
    # A step that looks at every earlier turn makes it sixteen times as much; a busy machine, up to six.
    assert sum(many) <= 8 * sum(few)
    # No stage hides behind a larger one: what takes but milliseconds is too short to be told from noise.
    slow = [(short, long) for short, long in zip(few, many, strict=True) if long > 0.03]
    assert len(slow) >= 3, (few, many)
    assert all(long <= 10 * short for short, long in slow), slow


@pytest.mark.slow
def test_a_resume_is_measured_up_to_its_first_request(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "resume", "--rollouts", "200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"first request of a resume of 200 +CPU \d+\.\d\d s +≤ 3\.0 s +met", done.stdout), done.stdout
