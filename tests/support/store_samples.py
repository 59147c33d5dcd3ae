"""Records, run folders and child processes for tests of the store."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.core.records import Example, Failed, Generated, Record, Scored, Timing
from harness.core.types import JsonDict, Messages, Usage
from harness.store.journal import Journal, read
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir


def key(*parts: object) -> str:
    """A key as `harness.core.keys` makes them."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def example(index: int = 0, **changes: Any) -> Example:
    prompt: Messages = [{"role": "system", "content": "Think."}, {"role": "user", "content": f"What is {index} + 1?"}]
    values: JsonDict = {
        "answer": str(index + 1),
        "task": "sums",
        "info": {"n": index},
        "index": index,
        "prompt": prompt,
    }
    return Example(**{"key": key("example", index), "example_id": index, **values, **changes})


def generated(index: int = 0, rollout: int = 0, **changes: Any) -> Generated:
    values: JsonDict = {
        "completion": [{"role": "assistant", "content": f"#### {index + 1}"}],
        "stop_condition": "stop",
        "usage": Usage(10, 5, requests=1),
        "timing": Timing(1_790_000_000.0, 0.5, 0.25),
        "state": {"turn": 1},
    }
    values |= {"key": key("rollout", index, rollout), "example_key": key("example", index), "rollout_index": rollout}
    return Generated(**{**values, **changes})


def scored(index: int = 0, rollout: int = 0, reward: float | None = 1.0, **changes: Any) -> Scored:
    values: JsonDict = {"metrics": {"correct": reward}, "reasons": {}, "seconds": 0.01}
    values |= {"outcome": "unscored" if reward is None else "scored", "reward": reward}
    return Scored(**{"key": key("rollout", index, rollout), **values, **changes})


def failed(index: int = 0, rollout: int = 0, **changes: Any) -> Failed:
    values: JsonDict = {"stage": "generation", "reason": "timeout", "error": "no reply in 600 s", "retryable": True}
    values |= {"key": key("rollout", index, rollout), "example_key": key("example", index), "rollout_index": rollout}
    return Failed(**{**values, **changes})


def rollouts(count: int, per_example: int = 1) -> Iterable[Record]:
    """A whole run's lines: `count` examples, each scored `per_example` times; odd ones right, even ones wrong."""
    for index in range(count):
        yield example(index)
        for rollout in range(per_example):
            yield generated(index, rollout)
            yield scored(index, rollout, float(index % 2))


def write(path: Path, records: Iterable[Record]) -> list[int]:
    """Appends `records` to a journal; returns their offsets."""

    async def main() -> list[int]:
        journal = Journal.open(path)
        try:
            return [await each for each in [journal.submit(record) for record in records]]
        finally:
            journal.close()

    return asyncio.run(main())


def records(path: Path) -> list[Record]:
    return [record for _, record in read(path)]


def make_run(output_dir: Path, *, env_id: str = "sums", model: str = "lab/m-1", **changes: Any) -> RunDir:
    """A run folder with a manifest and without a journal."""
    run = RunDir.create(output_dir, env_id, model)
    values: JsonDict = {"metric_names": ("correct",), "state_columns": ("turn",), "name": env_id}
    run.write_manifest(Manifest(run.id, env_id, model, **{**values, **changes}))
    run.write_config(f'[[eval]]\nenv_id = "{env_id}"\n')
    return run


PEAK = """
def peak():
    # Not ru_maxrss: a child inherits it from the process that made it.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
"""
"""Source of a function for `python`: the process's largest resident memory so far, in MB. Linux alone says it."""


def python(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a new interpreter."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environ = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ, check=False)
