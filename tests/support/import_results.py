"""Helpers for tests of `bench import`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.store.outcomes import outcomes, read_journal
from harness.store.rundir import RunDir

GOLDEN = Path(__file__).resolve().parent.parent / "data" / "imports"


def golden(name: str) -> Path:
    """A file that another tool wrote."""
    return GOLDEN / name


def imported(bench: Callable[..., Any], path: Path, *words: str) -> RunDir:
    """The only run that `bench import` makes of a file or folder."""
    made = bench("import", str(path), "--json", *words)
    assert made.code == 0, made.err
    [run] = json.loads(made.out)["runs"]
    return RunDir(Path(run["path"]))


def refused(bench: Callable[..., Any], path: Path, *words: str) -> str:
    """The message of an import that is refused and leaves no run."""
    told = bench("import", str(path), *words)
    assert told.code == 2 and "Traceback" not in told.err, told
    assert not list(Path("outputs").glob("evals/*/*/"))
    return " ".join(told.err.split())


def facts(run: RunDir) -> list[tuple[Any, ...]]:
    """The data of each rollout that an import must keep."""
    return [
        (each.example.example_id, each.example.prompt, each.example.answer, each.example.task, each.example.info,
         each.base.kind, each.base.rollout_index, each.reward,
         {name: value for name, value in each.score.metrics.items() if value is not None} if each.score else {},
         each.base.completion if each.base.kind == "generated" else "", bool(each.error) and not each.is_scored)
        for each in outcomes(read_journal(run))
    ]  # fmt: skip
