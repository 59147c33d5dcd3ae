"""`bench` as its users have it: a process in a folder, with throw-away environments on the import path, real signals,
and a server in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import nursery
import orjson

ROOT = Path(__file__).resolve().parents[2]

BENCH = Path(sys.executable).with_name("bench")
"""The command."""

PATIENCE = 90.0
"""Seconds after which a process that does not do what is expected is a failure. Generous: the machine may be busy."""

SUMS = """
import asyncio
from harness import Rubric, SingleTurnEnv

def correct(completion, answer):
    return float(completion[-1]["content"] == answer)

async def said(completion):
    return float(len(completion[-1]["content"]))

class Sums(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def null_reply(self, example, messages):
        return "?"

def load_environment(size=24, first=0, tag=""):
    rows = [{"question": f"{tag}{n} + {n}", "answer": str(2 * n)} for n in range(first, first + size)]
    return Sums(dataset=rows, rubric=Rubric([correct, said], [1.0, 0.0]))
"""
"""An environment with reference policies and no surprises."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """stderr as one line, so that a test does not depend on wrapping."""
        return " ".join(self.err.split())

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What `--json` printed: one object, and nothing else."""
        return json.loads(self.out)["runs"]

    @property
    def run(self) -> dict[str, Any]:
        """The only run that `--json` printed."""
        [only] = self.runs
        return only


class Process(Protocol):
    """A process that was started."""

    pid: int

    @property
    def args(self) -> Any: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Running:
    """A command that goes on. Its output goes to files, where it can be read at any time."""

    def __init__(self, folder: Path, begin: Callable[[int, int], Process]) -> None:
        number = len(list(folder.iterdir()))
        self._out, self._err = folder / f"{number:03d}.out", folder / f"{number:03d}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = begin(out.fileno(), err.fileno())

    @property
    def out(self) -> str:
        """stdout so far."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """stderr so far."""
        return self._err.read_text()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = PATIENCE) -> Done:
        try:
            return Done(self.process.wait(timeout), self.out, self.err)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.process.args} goes on for ever:\n{self.out}{self.err}") from None

    def says(self, words: str) -> None:
        """Return when `words` stand on stderr."""
        self.until(lambda: words in self.err, f"it says {words!r}")

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Return when `condition` holds; the command ending first is a failure."""

        def alive() -> bool:
            if self.process.poll() is not None and not condition():
                done = self.wait()
                raise AssertionError(f"ended with {done.code} before {what}:\n{done.out}{done.err}")
            return bool(condition())

        until(alive, what)


class Workshop:
    """A working directory, and a folder of environments that is on the import path of every command."""

    def __init__(self, folder: Path) -> None:
        self.modules = folder / "modules"
        self.cwd = folder / "work"
        self.logs = folder / "logs"
        for each in (self.modules, self.cwd, self.logs):
            each.mkdir(parents=True)
        self.environment("sums", SUMS)

    def environment(self, module: str, source: str) -> Path:
        path = self.modules / f"{module}.py"
        path.write_text(source)
        return path

    def write(self, name: str, text: str) -> Path:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def environ(self, **extra: str) -> dict[str, str]:
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHONWARN"))}
        return {
            **keep, "PYTHONPATH": str(self.modules), "NO_COLOR": "1", "COLUMNS": "180", "HF_HOME": str(self.cwd / "hf"),
            **extra,
        }  # fmt: skip

    def start(self, *args: str, env: Mapping[str, str] | None = None, **more: Any) -> Running:
        """Start a command as its users do."""
        command = [BENCH, *args]

        def begin(out: int, err: int) -> Process:
            streams = {"stdout": out, "stderr": err, **more}
            return subprocess.Popen(command, cwd=self.cwd, env=self.environ(**(env or {})), **streams)

        return Running(self.logs, begin)

    def start_on(self, terminal: int, *args: str, piped: str | None, env: Mapping[str, str] | None = None) -> Running:
        """Start with a terminal on stdout and stderr, but for the one that is piped to a file."""
        streams = {name: terminal for name in ("stdout", "stderr") if name != piped}
        return self.start(*args, env=env, **streams)

    def bench(self, *args: str, env: Mapping[str, str] | None = None) -> Done:
        """Run a command to its end; how it starts is not what its test is about."""

        def begin(out: int, err: int) -> Process:
            environ = self.environ(**(env or {}))
            return nursery.start(["bench", *args], cwd=self.cwd, environ=environ, stdout=out, stderr=err)

        return Running(self.logs, begin).wait()

    def python(self, source: str, *args: str, env: Mapping[str, str] | None = None) -> Any:
        """What `source` prints, as JSON, in a process of its own."""
        environ = self.environ(**(env or {}))
        done = nursery.run(["-c", source, *args], cwd=self.cwd, environ=environ, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def run_dirs(self, output_dir: str = "outputs") -> list[Path]:
        """Every run folder, oldest first."""
        return sorted((self.cwd / output_dir / "evals").glob("*/*/run.json"))

    def run_dir(self, output_dir: str = "outputs") -> Path:
        """The only run folder."""
        [only] = self.run_dirs(output_dir)
        return only.parent

    @contextmanager
    def serving(
        self, env_id: str = "sums", *, args: Mapping[str, object] | None = None, **faults: float
    ) -> Generator[Server]:
        """A server that plays `env_id` and counts requests by rollout, in a process of its own."""
        command = ["-m", "counting_server", env_id, json.dumps(args or {}), json.dumps(faults)]
        environ = self.environ(PYTHONPATH=os.pathsep.join([str(self.modules), str(Path(__file__).parent)]))
        with served(command, self.cwd, environ) as server:
            yield server

    @contextmanager
    def bench_serve(self, *args: str) -> Generator[Server]:
        """`bench serve` on a free port."""
        with served(["bench", "serve", "--port", "0", *args], self.cwd, self.environ()) as server:
            yield server


@dataclass(frozen=True)
class Server:
    """A reference server in another process."""

    url: str
    process: Process

    def stats(self) -> dict[str, Any]:
        """`requests`, `in_flight`, `peak_in_flight`, and `rollouts`: requests by rollout key."""
        with urllib.request.urlopen(f"{self.url.removesuffix('/v1')}/stats?rollouts", timeout=60) as reply:
            return json.load(reply)


@contextmanager
def served(command: list[str], cwd: Path, environ: Mapping[str, str]) -> Generator[Server]:
    """The server that a command of the nursery starts, as long as the `with` block lasts."""
    read, write = os.pipe()
    with open(read, encoding="utf-8") as out, tempfile.TemporaryFile() as err:
        with open(write, "wb"):
            process = nursery.start(command, cwd=cwd, environ=environ, stdout=write, stderr=err.fileno())
        try:
            url = out.readline().strip()
            if not url.startswith("http"):
                err.seek(0)
                raise AssertionError(f"{command} did not start:\n{err.read().decode()}")
            yield Server(url, process)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Return when `condition` holds."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.005)


def lines(run: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's journal, also while it is written."""
    path = run / "journal.jsonl"
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [orjson.loads(line) for line in whole.split(b"\n") if line]


def count(run: Path, kind: str) -> int:
    """Whole lines of one type."""
    return sum(line["type"] == kind for line in lines(run))


def summary(run: Path) -> dict[str, Any]:
    """`summary.json` without what depends on the clock and on how often the run was resumed."""
    whole = json.loads((run / "summary.json").read_text())
    return {name: value for name, value in whole.items() if name not in CLOCK}


CLOCK = {"wall_s", "rollouts_per_s", "rollout_seconds", "resumed"}


def rows(run: Path) -> list[dict[str, Any]]:
    """The run's dataset."""
    import pyarrow.parquet as pq

    return [row for path in sorted((run / "data").glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
