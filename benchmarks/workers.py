"""What `--workers 2` makes of a suite whose scoring is work for the processor: the same suite in one process and in
several, in turns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.children import Cost, bench, measure

ENVIRONMENTS, ROLLOUTS, SECONDS = 4, 100, 0.05
"""Rollouts of each environment, and seconds of the processor that scoring each of them takes."""

WORKERS = 2
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Workers:
    """The suite without and with workers, by turns."""

    without: list[Cost]
    with_workers: list[Cost]

    @property
    def ratio(self) -> float:
        """Of the wall times: the median over the turns."""
        pairs = zip(self.with_workers, self.without, strict=True)
        return median(mine.wall_s / plain.wall_s for mine, plain in pairs)

    @property
    def is_quiet(self) -> bool:
        """Whether there were two cores for this: then the processor's time is nearly twice that of the wall."""
        return median(cost.cpu_s / cost.wall_s for cost in self.with_workers) >= 1.7


def run_workers(folder: Path, rollouts: int = ROLLOUTS, rounds: int = ROUNDS) -> Workers:
    """Measure.

    Args:
        folder: Where to work.
        rollouts: Of each environment.
        rounds: How often each is run.
    """
    suite = folder / "busy.toml"
    text = f'model = "reference/oracle"\n[env]\nnum_examples = {rollouts}\nrollouts_per_example = 1\n'
    for number in range(ENVIRONMENTS):
        arguments = f'{{rows = {rollouts}, seconds = {SECONDS}, tag = "{number}"}}'
        text += f'[[eval]]\n[eval.env]\nenv_id = "bench-busy"\nname = "busy-{number}"\nenv_args = {arguments}\n'
    suite.write_text(text)
    found = Workers([], [])
    for _ in range(rounds):
        for workers, costs in ((0, found.without), (WORKERS, found.with_workers)):
            command = bench("run", str(suite), "--workers", str(workers), "--json", "-q", "-o", str(folder / "outputs"))
            cost = measure(command, folder)
            runs = json.loads(cost.output)["runs"]
            scored = [run["summary"]["scored"] for run in runs]
            assert scored == [rollouts] * ENVIRONMENTS, runs
            costs.append(cost)
    return found
