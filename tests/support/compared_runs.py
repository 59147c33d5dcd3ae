"""Runs with chosen scores, written straight into journals, for tests of what is said of several runs together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from run_samples import run_at
from store_samples import example, failed, generated, key, scored, write

from harness.core.records import Record, Timing
from harness.core.types import Usage
from harness.store.rundir import RunDir, write_suite

Scores = Mapping[int, Sequence[float | None]]
"""Of each example, by its number, those of its rollouts; None failed."""


def scored_run(output_dir: Path, scores: Scores, minute: int = 0, **changes: Any) -> RunDir:
    """A run that ended.

    Args:
        output_dir: Where runs are.
        scores: What its rollouts came to.
        minute: When it began.
        **changes: Of its manifest; `cost` and `seconds` of every rollout, `infos` and `ids` by example number.
    """
    more = {name: changes.pop(name, None) for name in ("cost", "seconds", "infos", "ids")}
    rollouts = max((len(values) for values in scores.values()), default=1)
    planned = {"num_examples": len(scores), "rollouts_per_example": rollouts}
    run = run_at(output_dir, minute=minute, **{"planned": planned, **changes})
    write(run.journal_path, _records(scores, more))
    return run


def suite_of(output_dir: Path, suite_id: str, runs: Sequence[RunDir]) -> str:
    """The runs as one invocation; returns its id."""
    pairs = [(run, run.read_manifest()) for run in runs]
    write_suite(output_dir, suite_id, file="suite.toml", command="bench run suite.toml", runs=pairs)
    return suite_id


def _records(scores: Scores, more: Mapping[str, Any]) -> Iterator[Record]:
    usage = Usage(100, 20, requests=1, cost=more["cost"])
    for place, (number, values) in enumerate(scores.items()):
        changes: dict[str, Any] = {}
        if more["infos"]:
            changes["info"] = more["infos"][number]
        if more["ids"]:
            changes["example_id"] = more["ids"][number]
        yield replace(example(number, **changes), index=place)
        for rollout, score in enumerate(values):
            timing = Timing(1_790_000_000.0, more["seconds"] or 0.5, 0.25)
            if score is None:
                yield failed(number, rollout, usage=usage, timing=timing)
                continue
            yield generated(number, rollout, usage=usage, timing=timing)
            yield scored(number, rollout, score, key=key("rollout", number, rollout))
