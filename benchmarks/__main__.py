"""`make bench`: every promise about speed and memory, measured in one go and printed as a table.

    python -m benchmarks [NAME ...]      names: cpu wall schedule one help first list turns workers status memory resume
    python -m benchmarks load [--rollouts 100000] [--in-flight 512] [--json]
    python -m benchmarks million
    python -m benchmarks peers --peer lm-eval=PYTHON --peer inspect_ai=PYTHON --peer verifiers=PYTHON
    python -m benchmarks ray ray-crowd
    python -m benchmarks sampling
    python -m benchmarks view [--rollouts 1000000]

The latter take minutes and are left out unless they are named. Exits 1 if a promise is missed, unless the bare loop
itself was off: then the machine was too busy to tell."""

from __future__ import annotations

import argparse
import heapq
import json
import math
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.children import (
    Cost,
    bench,
    environment,
    first_request_of_resume,
    measure,
    run_bare,
    run_bench,
    run_eval,
    server,
)
from benchmarks.load import Load, run_load
from benchmarks.peers import PROGRAMS, describe, peer_costs
from benchmarks.ray import BUSY_SECONDS, CROWD, run_crowd, run_ray
from benchmarks.sampling import CASES, REPEATS, simulate
from benchmarks.turns import play
from benchmarks.view import run_view
from benchmarks.workers import ENVIRONMENTS, ROLLOUTS, SECONDS, run_workers
from harness.engine.live_status import PERIOD, LiveStatus
from harness.engine.progress import RunProgress
from harness.models.delays import Delay
from harness.plugins.faults.options import fault_script
from harness.reference.fault_sources import ObservedRequest

RUNS = 5
USUAL_BARE_MS = 0.45
"""CPU of a bare request above which the machine is too busy for absolute figures: twice what a quiet one needs."""
USUAL_BARE_SPREAD = 1.3
"""Largest ÷ smallest wall time of the bare loop above which walls cannot be compared."""

TURN_ROLLOUTS = 500
"""Conversations over which the cost of a turn is averaged."""

RESUME_SECONDS = 3.0
"""CPU up to the first request of a resume of 100,000 rollouts."""

RESUME_SECONDS_A_MILLION = 20.0
"""The same of 1,000,000."""

LINE_BYTES = 1400
"""What bench journals for one of these rollouts, rounded; the exact figure is measured and printed."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    bench: str
    bare: str
    bound: str
    is_met: bool
    is_valid: bool = True
    """Whether the machine was quiet enough to judge."""


@dataclass(frozen=True, slots=True)
class Slope:
    """CPU milliseconds of one more unit of work, of each repetition: the slope between two sizes, so that start-up
    drops out."""

    ours: list[float]
    bare: list[float]

    def row(self, what: str, limit: float, factor: float = 4) -> Row:
        """One line of the table: at most `limit` ms, or `factor` bare loops on a slower machine."""
        mine, floor = median(self.ours), median(self.bare)
        bound = max(limit, factor * floor)
        return Row(
            what,
            f"{mine:.2f} ms ({min(self.ours):.2f}–{max(self.ours):.2f})",
            f"{floor:.2f} ms; ratio {mine / floor:.1f}",
            f"≤ {bound:.2f} ms",
            mine <= bound,
            floor <= USUAL_BARE_MS,
        )


def _slope(ours: Callable[[int], Cost], bare: Callable[[int], Cost], few: int, many: int, unit: float = 1) -> Slope:
    """Measure both at both sizes, in turns. One more of `few` to `many` is so many units of work."""
    found = Slope([], [])
    for _ in range(RUNS):
        for each, costs in ((ours, found.ours), (bare, found.bare)):
            low, high = each(few), each(many)
            costs.append((high.cpu_s - low.cpu_s) / (many - few) / unit * 1000)
    return found


def cpu(folder: Path) -> list[Row]:
    """CPU of one more single-turn rollout, of one more turn, and of one more rollout of an agent in `bench eval`."""
    with server() as url:
        size = run_bench(url, 1000, 64, folder).journal_bytes // 1000
        rollouts = _slope(
            lambda count: run_bench(url, count, 64, folder).cost,
            lambda count: run_bare(url, count, 64, size, folder).cost,
            2000,
            10_000,
        )
        turns = _slope(
            lambda count: run_bench(url, TURN_ROLLOUTS, 64, folder, turns=count).cost,
            lambda count: run_bare(url, TURN_ROLLOUTS, 64, size, folder, turns=count).cost,
            2,
            10,
            TURN_ROLLOUTS,
        )
        agents = _slope(
            lambda count: run_eval(url, count, 64, folder)[0],
            lambda count: run_bare(url, count, 64, size, folder).cost,
            500,
            3000,
        )
    return [
        rollouts.row("CPU a rollout, 64 in flight, no latency", 0.8),
        turns.row("CPU a further turn, of 2 to 10", 0.8),
        agents.row("CPU a rollout of bench eval", 1.0, factor=6),
    ]


def wall(folder: Path) -> list[Row]:
    """Wall time with realistic latency, each less that of its own run of one rollout: does anything but the model hold
    rollouts up?"""
    rollouts, in_flight = 2000, 256
    ratios: list[float] = []
    walls: list[float] = []
    bare_walls: list[float] = []
    for turn in range(RUNS):
        # Both see the same latencies: the server draws them by the number of the request.
        latency = ["--latency", "200", "--sigma", "0.8", "--seed", str(turn)]
        ours: list[float] = []
        bare: list[float] = []
        for count in (1, rollouts):
            with server(*latency) as url:
                ours.append(run_bench(url, count, in_flight, folder).cost.wall_s)
            with server(*latency) as url:
                bare.append(run_bare(url, count, in_flight, LINE_BYTES, folder).cost.wall_s)
        walls.append(ours[1] - ours[0])
        bare_walls.append(bare[1] - bare[0])
        ratios.append(walls[-1] / bare_walls[-1])
    ratio = median(ratios)
    return [
        Row(
            "wall, 2,000 rollouts, 256 in flight, lognormal 200 ms",
            f"{median(walls):.2f} s",
            f"{median(bare_walls):.2f} s",
            f"ratio {ratio:.3f} ≤ 1.05",
            ratio <= 1.05,
            max(bare_walls) / min(bare_walls) <= USUAL_BARE_SPREAD,
        )
    ]


def one(folder: Path) -> list[Row]:
    """One rollout, from the start of the process to its end."""
    with server() as url:
        walls = [run_bench(url, 1, 1, folder).cost.wall_s for _ in range(RUNS)]
        bare = [run_bare(url, 1, 1, LINE_BYTES, folder).cost.wall_s for _ in range(RUNS)]
    return [
        Row("one rollout, start to exit", f"{median(walls):.2f} s ({min(walls):.2f}–{max(walls):.2f})",
            f"{median(bare):.2f} s", "≤ 0.80 s", median(walls) <= 0.8)
    ]  # fmt: skip


def resume(folder: Path, *, rollouts: int = 100_000) -> list[Row]:
    """From the start of a resume to its first request: a run of so many rollouts that wants one more."""
    seconds: list[float] = []
    peaks: list[float] = []
    with server() as url:
        made = run_bench(url, rollouts, 64, folder, rows=rollouts + RUNS)
        repeats = RUNS if rollouts <= 100_000 else 1  # each writes the whole dataset again
        for more in range(1, repeats + 1):
            waited, cost = first_request_of_resume(url, rollouts + more, folder, rows=rollouts + RUNS)
            seconds.append(waited)
            peaks.append(cost.peak_mb)
    bound = max(RESUME_SECONDS, RESUME_SECONDS_A_MILLION * rollouts / 1_000_000)
    peak_mb = max(made.cost.peak_mb, *peaks)
    return [
        Row(f"first request of a resume of {rollouts:,}", f"CPU {median(seconds):.2f} s", "", f"≤ {bound:.1f} s",
            median(seconds) <= bound),
        Row(f"peak memory of {rollouts:,} rollouts; of their resume",
            f"{made.cost.peak_mb:.0f} MB; {median(peaks):.0f} MB", "", "≤ 600 MB", peak_mb <= 600),
    ]  # fmt: skip


def schedule(folder: Path) -> list[Row]:
    """Wall time of an agent evaluation over that of its requests alone, each sent the moment a slot is free."""
    runs, in_flight = 500, 10
    ratios: list[float] = []
    for turn in range(RUNS):
        with server("--latency", "100", "--sigma", "1", "--seed", str(turn)) as url:
            _, wall_s = run_eval(url, runs, in_flight, folder)
        draws = fault_script(latency=0.1, sigma=1.0, seed=turn)
        draws.next(ObservedRequest())  # the request that asks whether the endpoint is there
        slots = [0.0] * in_flight
        for _ in range(runs):
            heapq.heapreplace(slots, slots[0] + draws.next(ObservedRequest()).latency)
        ratios.append(wall_s / max(slots))
    return [
        Row(
            "bench eval, 500 runs, --batch-size 10, lognormal 100 ms",
            f"{median(ratios):.3f} of the ideal schedule ({min(ratios):.3f}–{max(ratios):.3f})",
            "",
            "≤ 1.05",
            median(ratios) <= 1.05,
            min(ratios) > 1.05 or median(ratios) <= 1.05,
        )
    ]


def memory(folder: Path) -> list[Row]:
    """Peak memory must not grow with the run."""
    with server() as url:
        small = run_bench(url, 1_000, 64, folder).cost.peak_mb
        large = run_bench(url, 100_000, 64, folder).cost.peak_mb
    return [
        Row(
            "peak memory, 100,000 rollouts over 1,000",
            f"{large:.0f} MB over {small:.0f} MB: +{large - small:.0f} MB",
            "",
            "≤ +40 MB",
            large - small <= 40,
        )
    ]


def help_page(folder: Path) -> list[Row]:
    """How long a look at the commands takes."""
    seconds = [measure(bench("--help"), folder).wall_s for _ in range(RUNS)]
    python = [measure([sys.executable, "-c", "pass"], folder).wall_s for _ in range(RUNS)]
    return [
        Row("bench --help", f"{median(seconds):.2f} s", f"python itself {median(python):.2f} s", "≤ 0.15 s",
            median(seconds) <= 0.15)
    ]  # fmt: skip


def first_request(folder: Path) -> list[Row]:
    """From the start of the process to the first request's arrival."""
    seconds = [_first_request(folder) for _ in range(RUNS)]
    return [
        Row("first request of bench run", f"{median(seconds):.2f} s ({min(seconds):.2f}–{max(seconds):.2f})", "",
            "≤ 0.80 s", median(seconds) <= 0.8)
    ]  # fmt: skip


def _first_request(folder: Path) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = bench("run", "bench-load", "-n", "1", "-r", "1", "-m", "load", "-b", f"http://127.0.0.1:{port}/v1",
                        "-q", "-o", str(folder))  # fmt: skip
        started = time.monotonic()
        with subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as child:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                seconds = time.monotonic() - started
                child.kill()
    return seconds


def list_of_runs(folder: Path) -> list[Row]:
    """How long it takes to look through a thousand runs, and to find the newest."""
    with server() as url:
        run_bench(url, 50, 16, folder)
    [model] = (folder / "evals").iterdir()
    [made] = (path for path in model.iterdir() if path.is_dir())
    text = (made / "run.json").read_text()
    for number in range(1, 1000):
        # Two runs of a second: those that a suite begins together.
        copy = model / f"20250101T{number // 120:02}{number // 2 % 60:02}00Z-{number:04}"
        copy.mkdir()
        (copy / "run.json").write_text(text.replace(made.name, copy.name))
        shutil.copy(made / "summary.json", copy)
    rows: list[Row] = []
    for what, command in (
        ("bench runs --env, of 1,000", bench("runs", "--env", "load", "-o", str(folder))),
        ("bench runs show --settings, of 1,000", bench("runs", "show", "--settings", "-o", str(folder))),
    ):
        costs = [measure(command, folder) for _ in range(RUNS)]
        cpu_s, wall_s = median(cost.cpu_s for cost in costs), median(cost.wall_s for cost in costs)
        # The bound is on CPU, which a busy machine changes least: on a quiet one the two are alike.
        rows.append(Row(what, f"{wall_s:.2f} s, CPU {cpu_s:.2f} s", "", "CPU ≤ 1.00 s", cpu_s <= 1.0))
    return rows


def turns(folder: Path) -> list[Row]:
    """Whether a conversation of twice the turns costs twice as much."""
    few, many = 5_000, 10_000
    play(few // 10)  # what is imported late is no part of it
    pairs = [(play(few), play(many)) for _ in range(RUNS)]
    short, long = (median(sum(pair[side].values()) for pair in pairs) for side in (0, 1))
    ratio = median(sum(long.values()) / sum(short.values()) for short, long in pairs)
    return [
        Row("CPU of 10,000 turns over that of 5,000", f"{long:.2f} s over {short:.2f} s: {ratio:.2f}", "", "≤ 2.5",
            ratio <= 2.5)
    ]  # fmt: skip


def workers(folder: Path) -> list[Row]:
    """Whether processes of its own use the cores of a suite whose scoring is work for the processor."""
    found = run_workers(folder)
    plain, apart = (median(cost.wall_s for cost in costs) for costs in (found.without, found.with_workers))
    cpu_s = median(cost.cpu_s for cost in found.with_workers) - median(cost.cpu_s for cost in found.without)
    return [
        Row(f"--workers 2, {ENVIRONMENTS} × {ROLLOUTS} rollouts of {SECONDS * 1000:g} ms CPU",
            f"{apart:.1f} s over {plain:.1f} s: {found.ratio:.2f}; CPU +{cpu_s:.1f} s", "", "≤ 0.60",
            found.ratio <= 0.6, found.is_quiet)
    ]  # fmt: skip


def status(folder: Path) -> list[Row]:
    """What `status.json` of a run takes that writes it as often as it may."""
    progress = RunProgress("run", "env", "model", total=10**6, state="running", started=1.0)
    progress.delays = lambda: [Delay("3 backing off (rate_limit), the next", 12.0)] * 3
    file, updates = LiveStatus(folder, progress), 500
    costs: list[float] = []
    for _ in range(RUNS):
        started = time.process_time()
        for _ in range(updates):
            progress.scored += 1  # a change, without which nothing is written
            file.write(time.monotonic(), time.time())
        costs.append((time.process_time() - started) / updates)
    share = median(costs) / PERIOD
    words = f"{median(costs) * 1e6:.0f} µs CPU an update, one in {PERIOD:g} s: {share:.3%}"
    return [Row("status.json of a run in progress", words, "", "≤ 1 % of a core", share <= 0.01)]


def load(folder: Path, *, rollouts: int, in_flight: int, as_json: bool) -> list[Row]:
    """Everything at once: see `benchmarks.load`."""
    found = run_load(folder, rollouts, in_flight)
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    return load_rows(found)


def load_rows(found: Load) -> list[Row]:
    """The promises about a load test, and whether it kept them."""
    what = f"{found.rollouts:,} rollouts, 8 environments, {found.in_flight} in flight"
    grown = found.peak_mb - found.tenth_peak_mb
    gates = ", ".join(f"{gate.peak} of {gate.bound}" for gate in found.gates)
    tasks = TASKS_A_SLOT * 8 * found.in_flight + SPARE_TASKS
    states = STATES_A_SLOT * 8 * found.in_flight
    wrong = f"; {'; '.join(found.wrong)}" if found.wrong else ""
    return [
        Row(f"{what}: lost, doubled, wrong", f"{found.lost}, {found.doubled}, {len(found.wrong)}{wrong}",
            "", "none", not (found.lost or found.doubled or found.wrong)),
        Row("  in flight, as the servers saw it", gates, "", "≥ 80 %, and no more",
            all(0.8 * gate.bound <= gate.peak <= gate.bound for gate in found.gates)),
        Row("  peak memory, over that of a tenth", f"{found.peak_mb:.0f} MB over {found.tenth_peak_mb:.0f} MB", "",
            f"≤ +{LOAD_GROWTH_MB} MB", grown <= LOAD_GROWTH_MB),
        Row("  tasks at once", f"{found.most_tasks:,}", "", f"≤ {tasks:,}", found.most_tasks <= tasks),
        Row("  rollouts in memory at once", f"{found.most_states:,}", "", f"≤ {states:,}",
            found.most_states <= states),
        Row("  first request of a resume", f"{found.resume_s:.1f} s, CPU {found.resume_first_cpu_s:.1f} s", "",
            "≤ 5.0 s", found.resume_s <= 5.0, found.resume_s <= 1.3 * found.resume_first_cpu_s + 1),
        Row("  wall, CPU of the run; CPU of the resume",
            f"{found.wall_s:.0f} s, {found.cpu_s:.0f} s; {found.resume_cpu_s:.0f} s", "", "", True),
    ]  # fmt: skip


TASKS_A_SLOT = 2
"""Workers of a run for each slot of its gate: one generates, one scores."""

SPARE_TASKS = 64
"""Tasks that are no workers."""

STATES_A_SLOT = 3
"""Rollouts of a run that are in memory for each slot of its gate: generating, waiting to be scored, being scored."""

LOAD_GROWTH_MB = 60
"""For nine tenths of 100,000 rollouts: what is kept of one is some 300 bytes, and its allocator rounds up."""

MEASUREMENTS: dict[str, Callable[[Path], list[Row]]] = {
    "cpu": cpu,
    "wall": wall,
    "schedule": schedule,
    "one": one,
    "help": help_page,
    "first": first_request,
    "list": list_of_runs,
    "turns": turns,
    "workers": workers,
    "status": status,
    "memory": memory,
    "resume": resume,
}

BY_HAND = ("load", "million", "peers", "ray", "ray-crowd", "sampling", "view")
"""Measurements that are made only when they are named."""


def sampling(folder: Path) -> list[Row]:
    """How often `--until-ci` is wrong, and what it saves, simulated; beside an ordinary interval that is watched."""
    rows: list[Row] = []
    for case in CASES:
        found = simulate(case)
        bound = 0.05 + 2.33 * (0.05 * 0.95 / REPEATS) ** 0.5  # what 5 % may look like in so many repeats
        rows.append(
            Row(
                case.what,
                f"wrong {found.missed:.1%}, made {found.used:.0%}",
                f"t interval: wrong {found.watched_missed:.1%}, made {found.watched_used:.0%}",
                "wrong ≤ 5 %",
                found.missed <= bound,
            )
        )
    return rows


def view(folder: Path, *, rollouts: int) -> list[Row]:
    """The pages of `bench view` for one long run: see `benchmarks.view`."""
    found = run_view(folder, rollouts)
    pages, slowest, runs = _p95(found.pages_s), max(found.groups_s), median(found.list_s)
    rate = found.rollouts / found.index_s
    return [
        Row(f"bench view, {rollouts:,} rollouts: first page", f"{found.first_page_s:.2f} s", "", "≤ 1.00 s",
            found.first_page_s <= 1),
        Row("  index, rollouts a second", f"{rate:,.0f} ({rollouts / found.index_cpu_s:,.0f} a second of CPU)", "",
            "≥ 20,000", rate >= 20_000),
        Row("  pages, filters, sorts: p95", f"{pages * 1000:.0f} ms (median {median(found.pages_s) * 1000:.0f})", "",
            "≤ 150 ms", pages <= 0.15),
        Row("  groups, free columns: slowest", f"{slowest:.2f} s", "", "≤ 1.00 s", slowest <= 1),
        Row("  list of 1,000 runs", f"{runs * 1000:.0f} ms", "", "≤ 300 ms", runs <= 0.3),
        Row("  peak memory; with full-text index", f"{found.peak_mb:.0f} MB; {found.text_peak_mb:.0f} MB", "",
            "≤ 300 MB", max(found.peak_mb, found.text_peak_mb) <= 300),
        Row("  rare text: slowest; without index", f"{max(found.text_s) * 1000:.0f} ms; {found.text_without_s:.1f} s",
            "", "≤ 1.00 s", max(found.text_s) <= 1),
        Row("  full-text index built in", f"{found.text_built_s:.0f} s", "", "", True),
        Row("  bytes a rollout: journal, index, text",
            f"{found.journal_bytes / rollouts:,.0f}, {found.index_bytes / rollouts:,.0f}, "
            f"{found.text_bytes / rollouts:,.0f}", "", "", True),
    ]  # fmt: skip


def ray(folder: Path) -> list[Row]:
    """What `--executor ray` costs and brings: see `benchmarks.ray`."""
    found = run_ray(folder)
    rows = [
        Row(f"driver's CPU a further rollout, {number} processes on Ray", f"{cost:.2f} ms",
            f"without Ray: {found.plain_ms:.2f} ms", "≤ 3 ms more", cost - found.plain_ms <= 3)
        for number, cost in found.driver_ms.items()
    ]  # fmt: skip
    slowest = max(found.driver_ms.values())
    return [
        *rows,
        Row("  so one driver's core is full at", f"{1000 / slowest:,.0f} rollouts a second", "", "", True),
        Row(f"a second process, {BUSY_SECONDS * 1000:.0f} ms of CPU a rollout", f"{found.speedup:.2f} × as fast", "",
            "≥ 1.60 ×", found.speedup >= 1.6),
    ]  # fmt: skip


def ray_crowd(folder: Path) -> list[Row]:
    """What a hundred processes on Ray cost the driver."""
    found = run_crowd(folder)
    return [
        Row(f"driver's CPU a further rollout, {CROWD} processes", f"{found.driver_ms:.2f} ms", "", "", True),
        Row("  so one driver's core is full at", f"{1000 / found.driver_ms:,.0f} rollouts a second", "", "", True),
        Row("driver's CPU for a process that waits", f"{found.waiting_ms:.2f} ms a second", "", "", True),
        Row("  so it is full with", f"{1000 / found.waiting_ms:,.0f} processes", "", "", True),
        Row("driver's memory a process", f"{found.process_mb:.2f} MB", "", "", True),
    ]


def _p95(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def peers(folder: Path, *, interpreters: dict[str, str]) -> list[Row]:
    """The same rollouts in other harnesses: see `benchmarks.peers`."""
    found = peer_costs(interpreters, folder)
    return [Row(f"CPU a rollout, {name}", cost, ratio, "", True) for name, cost, ratio in describe(found)]


def show(rows: list[Row]) -> None:
    """Print the table."""
    cells = [("", "bench", "bare loop", "promise", "")]
    for row in rows:
        verdict = "met" if row.is_met else "MISSED" if row.is_valid else "machine too busy to tell"
        cells.append((row.what, row.bench, row.bare, row.bound, verdict))
    widths = [max(len(line[column]) for line in cells) for column in range(5)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> int:
    """Measure what was asked for, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join((*MEASUREMENTS, *BY_HAND))}")
    parser.add_argument("--rollouts", type=int, help="of load and resume [100000], of view [1000000]")
    parser.add_argument("--in-flight", type=int, default=512, help="of load")
    parser.add_argument("--json", action="store_true", help="print the figures of load in place of a table")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help=f"{', '.join(PROGRAMS)}")
    asked = parser.parse_args()
    interpreters = dict(each.partition("=")[::2] for each in asked.peer)
    if wrong := sorted(interpreters.keys() - PROGRAMS.keys()):
        parser.error(f"--peer {wrong[0]}: the name must be one of {', '.join(PROGRAMS)}")
    rollouts = asked.rollouts or 100_000
    measurements = {
        **MEASUREMENTS,
        "resume": partial(resume, rollouts=rollouts),
        "load": partial(load, rollouts=rollouts, in_flight=asked.in_flight, as_json=asked.json),
        "million": partial(resume, rollouts=1_000_000),
        "peers": partial(peers, interpreters=interpreters),
        "ray": ray,
        "ray-crowd": ray_crowd,
        "sampling": sampling,
        "view": partial(view, rollouts=asked.rollouts or 1_000_000),
    }
    unknown = [name for name in asked.names if name not in measurements]
    if unknown:
        print(f"no measurement {unknown[0]!r}; there are {', '.join(measurements)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in asked.names or list(MEASUREMENTS):
        print(f"measuring {name} …", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            rows += measurements[name](Path(folder))
    if not asked.json:
        show(rows)
    return 1 if any(not row.is_met and row.is_valid for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
