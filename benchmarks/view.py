"""`bench view` at size: a run of many rollouts, written by a script, and how long a real server takes over HTTP."""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from benchmarks.children import bench, cpu_so_far, environment
from harness.core.records import Example, Generated, Record, Scored, Timing
from harness.core.types import Usage
from harness.plugins.view.query_arrays import SCAN_SECONDS
from harness.store.codec import document_of, to_line
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

ROLLOUTS_PER_EXAMPLE = 4
RARE = "quernstone"
"""A word of one message in 10,000."""
_WORDS = 4_000
_EXAMPLE_WORDS, _REASONING_WORDS, _REPLY_WORDS = 30, 60, 40


def write_run(output_dir: Path, rollouts: int) -> RunDir:
    """Write a finished run as `bench run` would: four rollouts an example, each of one turn with reasoning.

    Args:
        output_dir: The folder of all runs.
        rollouts: Number of rollouts.
    """
    run = RunDir.create(output_dir, "sums", "lab/m-1")
    planned = {"num_examples": -(-rollouts // ROLLOUTS_PER_EXAMPLE), "rollouts_per_example": ROLLOUTS_PER_EXAMPLE}
    run.write_manifest(
        Manifest(run.id, "sums", "lab/m-1", name="sums", status="done", planned=planned,
                 metric_names=("correct", "length"), state_columns=("turn",),
                 settings={"env.env_id": "sums", "model.model": "lab/m-1", "env.pass_threshold": 1.0})
    )  # fmt: skip
    run.write_config('[[eval]]\nenv_id = "sums"\n')
    with run.journal_path.open("wb") as file:
        file.writelines(to_line(document_of(record)) for record in _records(rollouts))
    return run


def _records(rollouts: int) -> Iterator[Record]:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 10))) for _ in range(_WORDS)]

    def text(count: int) -> str:
        return " ".join(draw.choices(words, k=count))

    example = ""
    for number in range(rollouts):
        index, rollout = divmod(number, ROLLOUTS_PER_EXAMPLE)
        if rollout == 0:
            example = _key("example", index)
            prompt = [{"role": "user", "content": f"What is {index} + 1? {text(_EXAMPLE_WORDS)}"}]
            yield Example(example, index, prompt, str(index + 1), "sums", {"level": index % 5}, index)
        key, is_right = _key("rollout", number), draw.random() < 0.6
        rare = f" {RARE}" if draw.random() < 1e-4 else ""
        answer = index + 1 if is_right else draw.randrange(1000)
        message = {
            "role": "assistant", "content": f"{text(_REPLY_WORDS)}{rare}\n#### {answer}",
            "reasoning_content": text(_REASONING_WORDS),
        }  # fmt: skip
        usage = Usage(60 + index % 7, draw.randint(80, 200), requests=1)
        timing = Timing(1_790_000_000.0 + number / 100, draw.random(), draw.random() / 2)
        yield Generated(key, example, rollout, [message], "stop", usage=usage, timing=timing, state={"turn": 1})
        metrics: dict[str, float | None] = {"correct": float(is_right), "length": draw.randint(0, 100) / 100}
        yield Scored(key, "scored", float(is_right), metrics, {}, 0.01)


def _key(kind: str, number: int) -> str:
    return hashlib.sha256(f"{kind} {number}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ViewFigures:
    """What was measured of one run."""

    rollouts: int
    journal_bytes: int
    first_page_s: float
    """From the start of the command to the answer with the first page of rollouts."""
    index_s: float
    index_cpu_s: float
    """CPU of the server until its index was complete."""
    index_bytes: int
    pages_s: list[float]
    """Of each page, filter, sort over columns in the index."""
    groups_s: list[float]
    """Of each answer with groups, and of those that read the journal."""
    list_s: list[float]
    """Of each list of 1,000 runs."""
    text_without_s: float
    """A search of all messages before there is a full-text index, answer by answer."""
    text_built_s: float
    text_bytes: int
    text_s: list[float]
    """Of each search for a rare word that was not searched before."""
    peak_mb: float
    text_peak_mb: float
    """The same with the full-text index."""


class _Viewer:
    """A `bench view` in a process of its own."""

    def __init__(self, output_dir: Path, cache: Path) -> None:
        self.started = time.monotonic()
        self.child = subprocess.Popen(
            bench("view", "--no-open", "-o", str(output_dir)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**environment(), "XDG_CACHE_HOME": str(cache)}, text=True,
        )  # fmt: skip
        assert self.child.stdout is not None
        link = urlsplit(self.child.stdout.readline().strip())
        self._connection = http.client.HTTPConnection(link.hostname or "", link.port, timeout=120)
        self._connection.request("GET", f"/?{link.query}")
        reply = self._connection.getresponse()
        reply.read()
        self._cookie = reply.headers["Set-Cookie"].partition(";")[0]

    def get(self, path: str, **parameters: object) -> Any:
        """The JSON of an answer."""
        self._connection.request("GET", f"{path}?{urlencode(parameters)}", headers={"Cookie": self._cookie})
        reply = self._connection.getresponse()
        body = reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{path}: {reply.status} {body[:500]!r}")
        return json.loads(body)

    def seconds(self, path: str, **parameters: object) -> float:
        """How long an answer takes."""
        started = time.monotonic()
        self.get(path, **parameters)
        return time.monotonic() - started

    def peak_mb(self) -> float:
        """Peak of the resident memory; NaN where the system does not tell."""
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{self.child.pid}/status").read_text().splitlines()
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
        return math.nan

    def close(self) -> None:
        self._connection.close()
        self.child.terminate()
        self.child.wait()


def run_view(folder: Path, rollouts: int) -> ViewFigures:
    """Measure a run of so many rollouts, and a list of 1,000 runs."""
    run = write_run(folder / "outputs", rollouts)
    (folder / "cache").mkdir()
    place = f"/api/runs/{run.id}"
    with closing(_Viewer(folder / "outputs", folder / "cache")) as viewer:
        while not viewer.get(f"{place}/rollouts", limit=50)["rows"]:
            time.sleep(0.01)
        first_page_s = time.monotonic() - viewer.started
        while not viewer.get(f"{place}/groups", by="outcome")["index"]["done"]:
            time.sleep(0.5)  # each answer takes time from the index
        index_s, index_cpu_s = time.monotonic() - viewer.started, cpu_so_far(viewer.child.pid)
        viewer.get(place)
        pages_s, groups_s = _pages(viewer, place, rollouts), _groups(viewer, place)
        peak_mb, index_bytes = viewer.peak_mb(), _size(folder / "cache")
        started = time.monotonic()
        while viewer.get(f"{place}/rollouts", q=f"text:{RARE}", limit=50)["scan"]:
            pass
        text_without_s = time.monotonic() - started
        wait = 0
        while viewer.seconds(f"{place}/rollouts", q=f"text:zq{wait}qz", limit=50) > SCAN_SECONDS / 2:
            wait += 1
            time.sleep(1)
        text_built_s = time.monotonic() - started
        words = [f"{RARE[:size]}" for size in range(5, len(RARE))] + [f'"{n} + 1?"' for n in range(1_000, 1_010)]
        text_s = [viewer.seconds(f"{place}/rollouts", q=f"text:{word}", limit=50) for word in words]
        text_peak_mb, text_bytes = viewer.peak_mb(), _size(folder / "cache") - index_bytes
    with closing(_Viewer(_many_runs(folder, run), folder / "cache")) as viewer:
        viewer.get("/api/runs")
        list_s = [viewer.seconds("/api/runs") for _ in range(10)]
    return ViewFigures(
        rollouts, run.journal_path.stat().st_size, first_page_s, index_s, index_cpu_s, index_bytes, pages_s, groups_s,
        list_s, text_without_s, text_built_s, text_bytes, text_s, peak_mb, text_peak_mb,
    )  # fmt: skip


def _pages(viewer: _Viewer, place: str, rollouts: int) -> list[float]:
    """Seconds of pages, filters and sorts, none of which was asked for before."""
    draw, found = random.Random(2), list[float]()
    for turn in range(20):
        offset = draw.randrange(max(1, rollouts // ROLLOUTS_PER_EXAMPLE - 100))
        limit = draw.random()
        for table, asked in (
            ("examples", {"offset": offset}),
            ("rollouts", {"offset": offset, "sort": "metric.length", "desc": turn % 2}),
            ("examples", {"sort": ("reward", "tokens", "seconds", "metric.length")[turn % 4], "offset": offset}),
            ("rollouts", {"q": f"metric.length<{limit} is:failed"}),
            ("examples", {"q": f"tokens>{160 + 80 * limit} -reward:1", "sort": "seconds"}),
        ):
            found.append(viewer.seconds(f"{place}/{table}", limit=100, **asked))
    return found


def _groups(viewer: _Viewer, place: str) -> list[float]:
    """Seconds of groups, and of the first answers about columns that are read from the journal."""
    groups = [
        viewer.seconds(f"{place}/groups", by=by) for by in ("outcome", "metrics", "metric.length", "stop", "reward")
    ]
    free = [viewer.seconds(f"{place}/rollouts", sort=name, limit=100) for name in ("info.level", "state.turn")]
    return [*groups, *free, viewer.seconds(f"{place}/rollouts", q="reasoning:zz", limit=100)]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _many_runs(folder: Path, run: RunDir) -> Path:
    """An output folder with 1,000 runs that have only just begun."""
    text, model = (run.path / "run.json").read_text(), folder / "many" / "evals" / run.parent.name
    for number in range(1_000):
        copy = model / f"20250101T{number // 3600:02}{number // 60 % 60:02}{number % 60:02}Z-{number:04}"
        copy.mkdir(parents=True)
        (copy / "run.json").write_text(text.replace(run.id, copy.name))
    return folder / "many"
