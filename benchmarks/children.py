"""Child processes and what they cost: CPU seconds, wall seconds and peak memory as the operating system accounts them,
and the server that all measurements talk to, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Cost:
    """One finished child process."""

    cpu_s: float
    """User and system time of the process."""
    wall_s: float
    peak_mb: float
    output: bytes


def environment() -> dict[str, str]:
    """What children run with: the measured environment can be imported, and no proxy or colour interferes."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks" / "environment")])
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": path, "NO_COLOR": "1"}


def measure(command: Sequence[str], cwd: Path, meanwhile: Callable[[int], None] = lambda _: None) -> Cost:
    """Run `command` to its end.

    Args:
        command: What to run.
        cwd: Where.
        meanwhile: Called once it has started, with its process id.

    Raises:
        RuntimeError: it failed; holds what it said.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.monotonic()
        child = subprocess.Popen(command, cwd=cwd, env=environment(), stdout=out, stderr=err)
        meanwhile(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            words = (err.read() or out.read()).decode(errors="replace")
            raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}:\n{words}")
        scale = 1024 if sys.platform == "linux" else 1024 * 1024
        return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / scale, out.read())


def cpu_so_far(pid: int) -> float:
    """CPU seconds of a child that goes on; NaN where the system does not tell."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return math.nan
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def bench(*arguments: str) -> list[str]:
    """The command line of `bench`."""
    return [str(Path(sys.executable).parent / "bench"), *arguments]


@contextlib.contextmanager
def server(*arguments: str) -> Iterator[str]:
    """`bench serve` in another process; gives its URL."""
    with subprocess.Popen(
        bench("serve", "--port", "0", *arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


@dataclass(frozen=True, slots=True)
class Ran:
    """One `bench run` against a server."""

    cost: Cost
    wall_s: float
    """From the first dispatch to the last acknowledgement: start-up and the writing of the dataset are not in it."""
    busy_s: float
    """Sum of the times that generation slots were held."""
    journal_bytes: int


def run_bench(url: str, rollouts: int, in_flight: int, cwd: Path, turns: int = 1, rows: int = 0) -> Ran:
    """`rollouts` rollouts of so many turns with `bench run`, of a dataset with at least so many rows."""
    arguments = json.dumps({"rows": max(rows, rollouts), "turns": turns})
    cost = measure(
        bench("run", "bench-load", "-a", arguments, "-n", str(rollouts), "-r", "1",
              "-c", str(in_flight), "-m", "load", "-b", url, "--json", "-q", "-o", str(cwd)),
        cwd,
    )  # fmt: skip
    run: dict[str, Any] = json.loads(cost.output)["runs"][0]
    assert run["summary"]["scored"] == rollouts, run["summary"]
    journal = cwd / run["path"] / "journal.jsonl"
    busy = 0.0
    with journal.open("rb") as lines:
        for line in lines:
            record = json.loads(line)
            if record["type"] == "generated":
                busy += record["timing"]["generation"]
    return Ran(cost, run["summary"]["wall_s"], busy, journal.stat().st_size)


def first_request_of_resume(url: str, rollouts: int, cwd: Path, rows: int) -> tuple[float, Cost]:
    """Resume the only run in `cwd` for `rollouts` of its `rows`: CPU seconds up to the first request, and the cost."""
    before = requests_so_far(url)
    cpu_s = math.nan

    def until_asked(pid: int) -> None:
        nonlocal cpu_s
        while requests_so_far(url) == before and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.01)
        cpu_s = cpu_so_far(pid)

    arguments = json.dumps({"rows": rows, "turns": 1})
    cost = measure(
        bench("run", "bench-load", "-a", arguments, "-n", str(rollouts), "-r", "1", "-c", "64", "-m", "load",
              "-b", url, "--json", "-q", "-o", str(cwd), "--resume"),
        cwd,
        until_asked,
    )  # fmt: skip
    run = json.loads(cost.output)["runs"][0]
    assert run["summary"]["scored"] == rollouts, run["summary"]
    return cpu_s, cost


def requests_so_far(url: str) -> int:
    """Requests that the server has had."""
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats", timeout=30) as reply:
        return int(json.load(reply)["requests"])


def run_eval(url: str, runs: int, in_flight: int, cwd: Path) -> tuple[Cost, float]:
    """One `bench eval` of `runs` rows: its cost, and wall seconds from first dispatch to last acknowledgement."""
    rows = cwd / "rows.jsonl"
    row = {"system_prompt": "Answer with a number.", "ground_truth": "4"}
    rows.write_text("".join(json.dumps({**row, "user_prompt": f"{i} + 4?"}) + "\n" for i in range(runs)))
    cost = measure(
        bench("eval", "-m", "bench_agent:Asker", "-d", str(rows), "--eval-fn", "bench_agent:has_answer",
              "--model", "load", "--base-url", url, "--batch-size", str(in_flight), "-q",
              "--output-dir", str(cwd / "out")),
        cwd,
    )  # fmt: skip
    [summary] = (cwd / "out").rglob("summary.json")
    seconds = float(json.loads(summary.read_text())["wall_s"])
    shutil.rmtree(cwd / "out")
    return cost, seconds


@dataclass(frozen=True, slots=True)
class Bare:
    """One run of the bare loop."""

    cost: Cost
    wall_s: float
    busy_s: float


def run_bare(url: str, requests: int, in_flight: int, line_bytes: int, cwd: Path, turns: int = 1) -> Bare:
    """The same work with nothing around it."""
    arguments = [url, str(requests), str(in_flight), str(line_bytes), str(turns)]
    cost = measure([sys.executable, "-m", "benchmarks.bare", *arguments], cwd)
    result = json.loads(cost.output)
    return Bare(cost, result["wall_s"], result["busy_s"])
