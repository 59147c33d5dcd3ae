"""What one more single-turn rollout costs in other harnesses, each run by the Python of its own virtual environment.

    python -m benchmarks peers --peer lm-eval=/venvs/lm-eval/bin/python --peer inspect_ai=… --peer verifiers=…

Every harness reads the same file of questions, asks the same server once for each, scores by match and saves its
results. The cost is the slope between two sizes, so that start-up drops out."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from benchmarks.children import measure, run_bench, server
from benchmarks.environment.bench_load import Rows

PROGRAMS = {
    "lm-eval": "lm_eval_run.py",
    "inspect_ai": "inspect_ai_run.py",
    "verifiers": "verifiers_run.py",
}
"""Program of each harness, beside this file: `PROGRAM URL FILE IN_FLIGHT`, run in a folder for its results."""

SIZES = (200, 1000)
IN_FLIGHT = 64
REPEATS = 3


def peer_costs(interpreters: dict[str, str], folder: Path) -> dict[str, list[float]]:
    """Measure the CPU of one more rollout, in milliseconds, of bench and of each harness, in turns.

    Args:
        interpreters: Path of the Python interpreter of each harness, by the names of `PROGRAMS`.
        folder: Folder for the questions and the results.

    Raises:
        RuntimeError: a harness failed; holds its output.
    """
    found: dict[str, list[float]] = {"bench": [], **{name: [] for name in interpreters}}
    files = {size: _questions(folder, size) for size in SIZES}
    few, many = SIZES
    with server() as url:
        for _ in range(REPEATS):
            for name, costs in found.items():
                cpu = {size: _cpu(name, interpreters, url, size, files[size], folder) for size in SIZES}
                costs.append((cpu[many] - cpu[few]) / (many - few) * 1000)
    return found


def _questions(folder: Path, size: int) -> Path:
    path = folder / f"questions-{size}.jsonl"
    lines = ({"input": row["question"], "target": row["answer"]} for row in Rows(size))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _cpu(name: str, interpreters: dict[str, str], url: str, size: int, questions: Path, folder: Path) -> float:
    if name == "bench":
        return run_bench(url, size, IN_FLIGHT, folder).cost.cpu_s
    program = Path(__file__).parent / PROGRAMS[name]
    return measure([interpreters[name], str(program), url, str(questions), str(IN_FLIGHT)], folder).cpu_s


def describe(found: dict[str, list[float]]) -> list[tuple[str, str, str]]:
    """Lines of the table: harness, CPU of a rollout (median and range), and the ratio to bench."""
    ours = median(found["bench"])
    return [
        (name, f"{median(costs):.2f} ms ({min(costs):.2f}–{max(costs):.2f})", f"{median(costs) / ours:.1f} × bench")
        for name, costs in found.items()
    ]
