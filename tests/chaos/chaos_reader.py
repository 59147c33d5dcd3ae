"""What a run folder says, read by an independent, slow and obvious reader: Python's `json` a line at a time, and
nothing of `harness`. Owns the invariants of the chaos suite: lost, duplicated, wrong, left behind."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLOCK = {"wall_s", "rollouts_per_s", "rollout_seconds", "resumed"}
"""Keys of a summary that depend on the clock, or on how often a run was resumed."""

PLAIN = (
    "prompt",
    "completion",
    "answer",
    "task",
    "info",
    "reward",
    "outcome",
    "error",
    "stop_condition",
    "is_truncated",
)
"""Columns that depend on nothing but the rollout; metrics come to them."""

STRAYS = (".*.tmp", ".data.*", ".*.old")


@dataclass
class Findings:
    """What was found wrong, in words."""

    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Take over what another reader found."""
        for mine, theirs in zip(self.lists(), other.lists(), strict=True):
            mine += theirs

    def lists(self) -> tuple[list[str], list[str], list[str], list[str]]:
        """All four."""
        return self.lost, self.duplicated, self.wrong, self.left

    def __bool__(self) -> bool:
        return any(self.lists())


@dataclass
class Told:
    """What a journal says, the newest line of a key winning."""

    generated: dict[str, dict[str, Any]] = field(default_factory=dict)
    scored: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, dict[str, Any]] = field(default_factory=dict)
    examples: dict[str, dict[str, Any]] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    """Generated lines a key."""
    tail: bytes = b""
    """What stands after the last whole line."""


def journal(run: Path) -> Told:
    """The whole lines of a run's journal; a last one that is no JSON is torn, any other damage raises `ValueError`."""
    told = Told()
    path = run / "journal.jsonl"
    pieces = path.read_bytes().split(b"\n") if path.exists() else [b""]
    told.tail = pieces.pop()
    for number, piece in enumerate(pieces):
        try:
            line = json.loads(piece)
        except ValueError:
            if number + 1 < len(pieces) or told.tail:
                raise
            told.tail = piece + b"\n"
            continue
        if line["type"] == "example":
            told.examples[line["example_key"]] = line
            continue
        key = line["key"]
        if line["type"] == "generated":
            told.times[key] += 1
            told.failed.pop(key, None)
        elif line["type"] == "failed":
            told.generated.pop(key, None)
        getattr(told, line["type"])[key] = line
    return told


def rows(run: Path) -> list[dict[str, Any]]:
    """The run's dataset, in the order of the files' names."""
    import pyarrow.parquet as pq

    return [row for path in sorted((run / "data").glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def summary(run: Path) -> dict[str, Any]:
    """`summary.json` without what depends on the clock."""
    whole = json.loads((run / "summary.json").read_text())
    return {name: value for name, value in whole.items() if name not in CLOCK}


def check_dead(run: Path) -> Findings:
    """Look at what a process left that is gone: what is there must be readable, and no rollout twice."""
    found = Findings()
    for name in ("run.json", "summary.json"):
        path = run / name
        if path.exists():
            try:
                json.loads(path.read_text())
            except ValueError as error:
                found.wrong.append(f"{run.name}/{name} is torn: {error}")
    try:
        table = rows(run)
    except Exception as error:
        found.wrong.append(f"{run.name}/data cannot be read: {type(error).__name__}: {error}")
        return found
    found.duplicated += _twice(run, ((row["example_id"], row["rollout_index"]) for row in table))
    known, told = len(table), journal(run)
    if known > len(told.generated.keys() | told.failed.keys()):
        found.wrong.append(f"{run.name}: {known} rows, more than the journal holds")
    return found


def check_done(run: Path, calm: Path, *, doubled: Iterable[str] = ()) -> Findings:
    """Compare a run that was disturbed and resumed to its end with one that was not.

    Args:
        run: The disturbed one.
        calm: The other.
        doubled: Keys whose lines the test itself has doubled.
    """
    found = Findings()
    mine, theirs = journal(run), journal(calm)
    found.lost += [f"{run.name}: {key} is in no line" for key in theirs.scored.keys() - mine.scored.keys()]
    found.wrong += [f"{run.name}: {key} is nobody's" for key in mine.scored.keys() - theirs.scored.keys()]
    excused = set(doubled)
    again = {key: times for key, times in mine.times.items() if times > 1 and key not in excused}
    found.duplicated += [f"{run.name}: {key} was generated {times} times" for key, times in again.items()]
    if mine.tail:
        found.wrong.append(f"{run.name}: the journal ends in {mine.tail[:40]!r}")
    found.add(_check_rows(run, calm, mine))
    found.wrong += _check_summary(run, calm, mine)
    status = json.loads((run / "run.json").read_text())["status"]
    if status != "done":
        found.wrong.append(f"{run.name} is {status}")
    found.left += [f"{path.relative_to(run.parent)}" for path in strays(run)]
    return found


def strays(folder: Path) -> list[Path]:
    """What is left of files and folders that were to take the place of others."""
    return [path for pattern in STRAYS for path in folder.rglob(pattern)]


def _check_rows(run: Path, calm: Path, told: Told) -> Findings:
    found = Findings()
    table, other = rows(run), rows(calm)
    places = [(row["example_id"], row["rollout_index"]) for row in table]
    found.duplicated += _twice(run, places)
    wanted = {(row["example_id"], row["rollout_index"]): row for row in other}
    found.lost += [f"{run.name}: no row of {place}" for place in wanted.keys() - set(places)]
    for place, row in zip(places, table, strict=True):
        if place not in wanted:
            found.wrong.append(f"{run.name}: a row of {place}, which nobody asked for")
            continue
        names = [*PLAIN, *(name for name, value in row.items() if isinstance(value, float) and name not in PLAIN)]
        differ = [name for name in names if row[name] != wanted[place][name]]
        if differ:
            found.wrong.append(f"{run.name}: {', '.join(differ)} of {place} differ")
    rewards = sorted(line["reward"] for line in told.scored.values() if line["reward"] is not None)
    if rewards != sorted(row["reward"] for row in table if row["reward"] is not None):
        found.wrong.append(f"{run.name}: the rewards of dataset and journal differ")
    return found


def _check_summary(run: Path, calm: Path, told: Told) -> list[str]:
    mine, theirs = summary(run), summary(calm)
    wrong = [
        f"{run.name}: {name} is {mine.get(name)!r}, undisturbed {theirs.get(name)!r}"
        for name in sorted(mine.keys() | theirs.keys())
        if _close(mine.get(name), theirs.get(name)) is False
    ]
    rewards = [line["reward"] for line in told.scored.values() if line["reward"] is not None]
    mean = math.fsum(rewards) / len(rewards) if rewards else None
    counted = {"scored": len(rewards), "num_rollouts": len(told.scored) + len(told.failed), "not_run": 0}
    wrong += [f"{run.name}: {name} is {mine[name]}, counted {n}" for name, n in counted.items() if mine[name] != n]
    if not _close(mine["reward"]["mean"], mean):
        wrong.append(f"{run.name}: the mean is {mine['reward']['mean']}, counted {mean}")
    return wrong


def _close(one: object, other: object) -> bool:
    """The same: numbers up to the order in which they were added."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-15)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return one == other


def _twice(run: Path, places: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{run.name}: {n} rows of {place}" for place, n in Counter(places).items() if n > 1]
