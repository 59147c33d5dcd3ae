"""The single-turn task of the measurements in verifiers 0.1: `verifiers_run.py URL FILE IN_FLIGHT`."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

url, questions, in_flight = sys.argv[1:4]
shutil.rmtree("verifiers-results", ignore_errors=True)  # of another size, which it would resume
os.environ.update(BENCH_API_KEY="none", HF_HUB_OFFLINE="1")

import verifiers as vf  # noqa: E402
from datasets import Dataset  # noqa: E402
from verifiers.types import ClientConfig  # noqa: E402


def is_right(completion: list[dict[str, str]], answer: str) -> float:
    """Whether the answer is in the reply."""
    return float(answer in str(completion[-1]["content"]))


rows = [json.loads(line) for line in Path(questions).read_text().splitlines()]
dataset = Dataset.from_list([{"question": row["input"], "answer": row["target"]} for row in rows])
environment = vf.SingleTurnEnv(dataset=dataset, eval_dataset=dataset, rubric=vf.Rubric(funcs=[is_right]))
done = environment.evaluate_sync(
    client=ClientConfig(api_key_var="BENCH_API_KEY", api_base_url=url),
    model="load",
    num_examples=len(rows),
    rollouts_per_example=1,
    max_concurrent=int(in_flight),
    results_path=Path("verifiers-results"),
    save_results=True,
)
assert len(done["outputs"]) == len(rows)
