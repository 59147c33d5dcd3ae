"""Run folders to push, what is on the Hub before, and what `load_dataset` makes of them through its own protocol."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import nursery
from hub_repos import Entry, Repo
from hub_server import HubServer

from harness.core.types import Messages
from harness.store.manifest import Manifest
from harness.store.rundir import RunDir

TOKEN = "hf_write0123456789abcdef"
READER = "hf_read0123456789abcdef"
STRANGER = "hf_stranger0123456789abcdef"

JOURNAL = '{"kind":"example","secret":"the journal stays at home"}\n'


def hub_env(server: HubServer, home: Path, token: str | None = TOKEN) -> dict[str, str]:
    """The environment of a child process that talks to `server` and to nothing else."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING", "PYTHONWARN"))}
    login = {"HF_TOKEN": token} if token else {}
    return {**keep, "HF_ENDPOINT": server.url, "HF_HOME": str(home), **login}


_LOAD = """
import json, sys
from datasets import load_dataset
repo, *configs = sys.argv[1:]
loaded = []
for config in configs:
    data = load_dataset(repo, config or None)
    assert list(data) == ["train"], list(data)
    loaded.append({"columns": data["train"].column_names, "rows": data["train"].to_list()})
print(json.dumps(loaded))
"""


def load_back(server: HubServer, home: Path, repo: str, *configs: str) -> list[dict[str, Any]]:
    """`columns` and `rows` of `load_dataset(repo, config)` for every config ("": the default), in another process."""
    done = nursery.run(["-c", _LOAD, repo, *configs], environ=hub_env(server, home))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def make_run(output_dir: Path, run_id: str, rows: int = 3, *, model: str = "my-model", files: int = 1) -> Path:
    """A finished run of `gsm8k` with `rows` rollouts in `files` parquet files, and a journal beside them."""
    from harness.store.rundir import folder_name

    run = RunDir(output_dir / "evals" / folder_name("gsm8k", model) / run_id)
    run.data_path.mkdir(parents=True)
    run.write_manifest(
        Manifest(
            run_id,
            "gsm8k",
            model,
            status="done",
            created=f"2026-01-0{run_id[7]}T00:00:00.000000Z",
            command=f"bench run gsm8k -m {model}",
            settings={"env.env_id": "gsm8k", "model.model": model},
            metric_names=("correct",),
            planned={"num_examples": rows, "rollouts_per_example": 1},
        )
    )
    run.write_config(f'[[eval]]\nenv_id = "gsm8k"\nmodel = "{model}"\n')
    run.journal_path.write_text(JOURNAL)
    write_data(run.data_path, rows, model=model, files=files)
    return run.path


def write_data(folder: Path, rows: int, *, model: str = "my-model", files: int = 1) -> None:
    """`rows` rollouts, the third of them unscored, spread over `files` files that replace what was there."""
    from harness.core.records import Example, Generated, Scored
    from harness.store.outcomes import Outcome
    from harness.store.rows import RowFile, RowShape

    for old in folder.glob("*.parquet"):
        old.unlink()
    columns = RowShape("gsm8k", model, ("correct",))
    parts = [RowFile(folder / f"train-{n:05d}-of-{files:05d}.parquet", columns, {}) for n in range(files)]
    for index in range(rows):
        question: Messages = [{"role": "user", "content": f"What is {index} + 1?"}]
        example = Example(f"e{index}", index, question, str(index + 1), "gsm8k", {"hint": [index, None]}, index)
        reply: Messages = [{"role": "assistant", "content": f"#### {index + 1}", "reasoning_content": "añadir 一"}]
        rollout = Generated(f"k{index}", example.key, 0, reply)
        scored = Scored(rollout.key, "scored", 1.0, {"correct": 1.0}, {})
        if index == 2:
            scored = Scored(rollout.key, "unscored", None, {"correct": None}, {"correct": "timeout"})
        parts[index % files].add(Outcome(example, rollout, scored))
    for part in parts:
        part.close()


BENCHMARK, MODEL = "acme/sums-bench", "labs/my-model"

SUMMARY: dict[str, Any] = {
    "num_examples": 1319, "num_rollouts": 1319, "planned": 1319, "scored": 1319, "unscored": {}, "not_run": 0,
    "reward": {"mean": 0.7346, "stderr": 0.012, "ci95": [0.70991, 0.75879], "min": 0.0, "max": 1.0, "method": "t"},
    "bounds": [0.7346, 0.7346], "pass_at_k": {"1": 0.7346}, "until_ci": None,
}  # fmt: skip
"""Of a run of a whole benchmark."""


def result_manifest(run_id: str = "20260101T000000Z-aaaa", **changes: Any) -> Manifest:
    """A finished run of all of a benchmark by a real model."""
    values: dict[str, Any] = {
        "model": "my-model",
        "status": "done",
        "created": "2026-01-01T12:30:00.000000Z",
        "settings": {"env.num_examples": -1, "env.shuffle": False, "env.shuffle_seed": 0},
        "identity": {
            "env": {"env_id": "gsm8k", "env_args": {}, "distribution": "gsm8k 0.1.0"},
            "model": {"names": ["my-model"], "sampling_args": {"temperature": 0.0, "max_tokens": 1024}},
        },
        "versions": {"python": "3.13", "bench-harness": "0.1.0"},
        "planned": {"num_examples": 1319, "rollouts_per_example": 1},
    }
    return Manifest(run_id, "gsm8k", **{**values, **changes})


def make_result(output_dir: Path, run_id: str, summary: dict[str, Any] | None = None, **changes: Any) -> Path:
    """The folder of such a run, with three rows that stand for all."""
    run = RunDir(make_run(output_dir, run_id))
    run.write_manifest(result_manifest(run_id, **changes))
    run.write_summary({**SUMMARY, **(summary or {})})
    return run.path


def stock_benchmark(server: HubServer, *tasks: str, model: str = MODEL) -> Repo:
    """Put a benchmark with these tasks, and a model, on the Hub; returns the model's repository."""
    server.hub.repos[BENCHMARK] = bench = Repo(BENCHMARK, private=False)
    listed = "".join(f"  - id: {task}\n    config: default\n    split: test\n" for task in tasks or ("sums",))
    bench.add("a benchmark", {"eval.yaml": Entry(f"name: Sums\ntasks:\n{listed}".encode())})
    return server.hub.model(model)
