"""The single-turn task of the measurements in inspect_ai: `inspect_ai_run.py URL FILE IN_FLIGHT`."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import os
import sys
from pathlib import Path

url, questions, in_flight = sys.argv[1:4]
os.environ.update(BENCH_API_KEY="none", BENCH_BASE_URL=url, XDG_DATA_HOME=str(Path("inspect").absolute()))

from inspect_ai import Task, eval  # noqa: E402
from inspect_ai.dataset import json_dataset  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402
from inspect_ai.solver import generate  # noqa: E402

task = Task(dataset=json_dataset(questions), solver=generate(), scorer=includes())
[log] = eval(
    task,
    model="openai-api/bench/load",
    max_connections=int(in_flight),
    max_samples=int(in_flight),
    display="none",
    log_dir="inspect-logs",
)
assert log.status == "success", log.error
assert log.samples is not None
assert len(log.samples) == len(Path(questions).read_text().splitlines())
