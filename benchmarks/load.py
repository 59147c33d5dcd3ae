"""Many rollouts of eight environments at once, against servers in processes of their own: is memory flat, do the gates
hold as the servers see them, is every rollout on disk exactly once, and does a resume soon ask its first question? Owns
the suite that is run and what is looked at; the bounds, and the table, are `__main__`'s."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.children import Cost, bench, cpu_so_far, measure, server

GROUP = 5
"""Rollouts of an example that are scored together, in the environment that does so."""

GROWTH = 5
"""Further examples of each environment that the resume makes."""

NARROW = 8
"""One of so many slots belongs to the environment that has a server, and a gate, of its own."""

UNSCORED = 10
"""Of `scattered`, every so many examples come to no score."""

SAMPLES = "BENCH_LOAD_SAMPLES"
"""The variable by which the environments learn where to write what they see of their process."""

RIGHT = frozenset({"2", "4", "42"})
"""The even numbers in what the server says, as parts of longer words too: the answers that are right."""


@dataclass(frozen=True, slots=True)
class Part:
    """One environment of the suite."""

    name: str
    kind: str
    turns: int = 1
    group: int = 1
    is_narrow: bool = False


PARTS = (
    Part("single-1", "single"),
    Part("single-2", "single"),
    Part("single-3", "single"),
    Part("group", "group", group=GROUP),
    Part("turns", "turns", turns=3),
    Part("blocking", "blocking", turns=2),
    Part("scattered", "scattered"),
    Part("narrow", "single", is_narrow=True),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run."""

    rollouts: int
    in_flight: int
    growth: int = 0

    def examples(self, part: Part) -> int:
        """Examples of one environment."""
        return self.rollouts // len(PARTS) // part.group + self.growth

    def planned(self, part: Part) -> int:
        """Rollouts of one environment."""
        return self.examples(part) * part.group

    def requests(self, *, narrow: bool) -> int:
        """Requests that one of the two servers gets."""
        return sum(self.planned(part) * part.turns for part in PARTS if part.is_narrow == narrow)

    @property
    def gates(self) -> tuple[int, int]:
        """The bounds of the two servers."""
        narrow = max(1, self.in_flight // NARROW)
        return self.in_flight - narrow, narrow


@dataclass(frozen=True, slots=True)
class Gate:
    """A bound on requests in flight, and what its server saw."""

    bound: int
    peak: int


@dataclass(slots=True)
class Load:
    """What one load test came to."""

    rollouts: int
    """In the first run; the resume makes some more."""
    in_flight: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    tenth_peak_mb: float = 0.0
    """The same with a tenth of the rollouts."""
    most_tasks: int = 0
    """Of asyncio, at once."""
    most_states: int = 0
    """Rollouts whose state was in memory at once."""
    gates: list[Gate] = field(default_factory=list[Gate])
    lost: int = 0
    """Planned rollouts without an outcome in the journal, or without a row in the dataset."""
    doubled: int = 0
    """Lines of the journal, rows of the dataset and requests that were there before."""
    wrong: list[str] = field(default_factory=list[str])
    """Runs whose numbers are not those that the answers give."""
    resume_s: float = 0.0
    """From the start of the resuming process to the first request's arrival."""
    resume_first_cpu_s: float = 0.0
    """CPU of that time: what it takes on a machine that does nothing else."""
    resume_cpu_s: float = 0.0
    """Of the whole resume, with the datasets that it writes anew."""
    resume_peak_mb: float = 0.0


def run_load(folder: Path, rollouts: int, in_flight: int) -> Load:
    """Make `rollouts` rollouts and look at everything that is left of them; resume with some more, and look again."""
    load = Load(rollouts, in_flight)
    with _servers() as urls:
        tenth = Size(max(rollouts // 10, len(PARTS) * GROUP), in_flight)
        load.tenth_peak_mb = measure(_command(folder / "tenth", tenth, urls), folder).peak_mb
    with _servers() as urls:
        size, work = Size(rollouts, in_flight), folder / "all"
        cost = _watched(load, _command(work, size, urls), folder)
        load.wall_s, load.cpu_s, load.peak_mb = cost.wall_s, cost.cpu_s, cost.peak_mb
        _audit(load, size, cost)
        asked = [_stats(url)["requests"] for url in urls]

        started = time.monotonic()

        def first_request(pid: int) -> None:
            while [_stats(url)["requests"] for url in urls] == asked:
                if time.monotonic() - started > 120:
                    return  # it has failed, and says so when it is waited for
                time.sleep(0.02)
            load.resume_s, load.resume_first_cpu_s = time.monotonic() - started, cpu_so_far(pid)

        grown = Size(rollouts, in_flight, GROWTH)
        again = measure([*_command(work, grown, urls), "--resume"], folder, first_request)
        load.resume_cpu_s, load.resume_peak_mb = again.cpu_s, again.peak_mb
        _audit(load, grown, again)
        for url, bound, narrow in zip(urls, size.gates, (False, True), strict=True):
            stats = _stats(url)
            load.gates.append(Gate(bound, stats["peak_in_flight"]))
            load.doubled += max(0, stats["requests"] - grown.requests(narrow=narrow))
    return load


@contextmanager
def _servers() -> Iterator[tuple[str, str]]:
    latency = ["--latency", "40", "--sigma", "0.8", "--seed", "1"]
    with server(*latency) as wide, server(*latency) as narrow:
        yield wide, narrow


def _command(work: Path, size: Size, urls: tuple[str, str]) -> list[str]:
    """`bench run` of the suite, in `work`."""
    work.mkdir(exist_ok=True)
    tables: list[str] = []
    for part in PARTS:
        # More rows than are ever run, so that the resume asks for more of the same dataset.
        tables += ["[[eval]]", 'env.env_id = "bench-crowd"', f'env.name = "{part.name}"',
                   f'env.env_args = {{kind = "{part.kind}", rows = {size.rollouts}}}',
                   f"env.num_examples = {size.examples(part)}", f"env.rollouts_per_example = {part.group}",
                   f'model.api_base_url = "{urls[part.is_narrow]}"',
                   f"model.max_concurrent = {size.gates[part.is_narrow]}"]  # fmt: skip
    suite = work / "suite.toml"
    suite.write_text("\n".join(tables))
    return bench("run", str(suite), "-m", "load", "--json", "-q", "-o", str(work))


def _watched(load: Load, command: Sequence[str], folder: Path) -> Cost:
    samples = folder / "samples.jsonl"
    os.environ[SAMPLES] = str(samples)
    try:
        cost = measure(command, folder)
    finally:
        del os.environ[SAMPLES]
    seen = [json.loads(line) for line in samples.read_text().splitlines()]
    load.most_tasks = max(each["tasks"] for each in seen)
    load.most_states = max(each["states"] for each in seen)
    return cost


def _stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats", timeout=30) as reply:
        return json.load(reply)


def _audit(load: Load, size: Size, cost: Cost) -> None:
    """Count what is on disk, line by line and row by row."""
    runs = {run["name"]: run for run in json.loads(cost.output)["runs"]}
    for part in PARTS:
        run, planned = runs[part.name], size.planned(part)
        outcomes, doubled = _journal(Path(run["path"]))
        rows = _rows(Path(run["path"]))
        load.lost += 2 * planned - min(outcomes, planned) - min(rows, planned)
        load.doubled += doubled + max(0, outcomes - planned) + max(0, rows - planned)
        summary, examples = run["summary"], range(size.examples(part))
        scored = [i for i in examples if part.kind != "scattered" or i % UNSCORED]
        mean = sum(str(2 * i) in RIGHT for i in scored) / len(scored)
        told = (run["state"], summary["scored"], sum(summary["unscored"].values()), summary["reward"]["mean"])
        right = ("done", len(scored) * part.group, planned - len(scored) * part.group)
        if told[:3] != right or abs(told[3] - mean) > 1e-12:
            load.wrong.append(f"{part.name}: {told}, and not {(*right, mean)}")


def _journal(run: Path) -> tuple[int, int]:
    """Rollouts that are generated and have an outcome, and lines that another one had said already."""
    seen: dict[str, Counter[str]] = {kind: Counter() for kind in ("example", "generated", "scored", "failed")}
    with (run / "journal.jsonl").open("rb") as lines:
        for line in lines:
            record = orjson.loads(line)
            seen[record["type"]][record["key" if "key" in record else "example_key"]] += 1
    doubled = sum(number - 1 for counter in seen.values() for number in counter.values())
    return len(seen["generated"].keys() & seen["scored"].keys()), doubled


def _rows(run: Path) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in (run / "data").glob("*.parquet"))
