"""lm-eval itself on tasks of a folder, in a process of its own: the function that its command calls, with few bootstrap
draws, of which the command makes 100,000.

Usage: python golden.py URL FOLDER FILE TASKS CONCURRENCY"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def main(url: str, folder: str, file: str, tasks: str, concurrency: str) -> None:
    """Write results and samples as JSON."""
    lm_eval: Any = importlib.import_module("lm_eval")
    manager: Any = importlib.import_module("lm_eval.tasks").TaskManager
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args=f"model=my-model,base_url={url}/completions,tokenizer_backend=remote,num_concurrent={concurrency}",
        tasks=tasks.split(","),
        task_manager=manager(include_path=folder, include_defaults=False),
        bootstrap_iters=2,
        log_samples=True,
    )
    for samples in found["samples"].values():
        for sample in samples:
            del sample["doc"], sample["arguments"]
    with open(file, "w", encoding="utf-8") as out:
        json.dump({name: found[name] for name in ("results", "samples")}, out, default=lambda value: value.tolist())


main(*sys.argv[1:])
