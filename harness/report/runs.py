"""The list of runs (`bench runs`), one line per run, newest first, with remarks below; and suggested next steps."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.layout import Column, prose, table_lines, table_width
from harness.report.text import clean
from harness.settings.budget import flags_of
from harness.settings.built_in import BUILT_INS
from harness.stats.intervals import Estimate
from harness.store.catalogue import ListedRun, reward_of
from harness.store.manifest import Manifest
from harness.store.values import ends, number, table

_COMFORT, _LEAST = 13, 7
"""Minimum width of name columns in cells: as long as other columns can be omitted, and in any case."""

_FIRST_TO_GO = ("cost", "95 % interval", "kind")
"""Columns to omit, in this order, from a list of runs that is too wide."""

_BRACKETS = {(False, False): "", (False, True): " ┐", (True, True): " │", (True, False): " ┘"}
"""Mark after a run's id, by whether the run above and the run below in the list belong to the same invocation."""

GO_ON, PUBLISH = "go on", "publish"
"""Purposes of next steps that commands check for: to resume an incomplete run, and to publish."""

_HOW = {"rescore": "rescored", "replay": "replayed", "import": "imported"}


def runs_lines(entries: Sequence[ListedRun], width: int, *, name_of: Callable[[ListedRun], str]) -> Iterator[str]:
    """Format the list of runs.

    Args:
        entries: The runs.
        width: Width of a line in cells. Names are cut to fit, ids and figures never.
        name_of: Function that returns the name of a run for commands.

    Yields:
        Lines without a trailing newline; no line if there are no runs.
    """
    if not entries:
        return
    head, rule, *rows = table_lines(_columns(entries, width), width)
    yield from (head.plain, rule.plain)
    for row, entry in zip(rows, entries, strict=True):
        yield row.plain
        for remark in remarks(entry, name_of(entry)):
            yield from (line.plain for line in prose(remark, max(40, width), indent=2, break_words=False))


def remarks(entry: ListedRun, name: str) -> list[str]:
    """Remarks below a run's line in the list of runs.

    Args:
        entry: The run.
        name: Name of the run for commands.
    """
    said = [clean(problem, 1000) for problem in entry.problems]
    if entry.manifest is not None and entry.manifest.derived:
        said.append(origin_text(entry.manifest.derived, entry.manifest.parent))
    if words := function_means(entry):
        said.append(f"mean over evaluation functions: {words}")
    if entry.state == "died":
        said.append(f"go on: {resume_hint(entry, name)}")
    return said


def resume_hint(entry: ListedRun, name: str) -> str:
    """Return the command that resumes a run; for a run started from Python, an instruction."""
    if entry.manifest is not None and not has_rows(entry.manifest):
        return "run its program again with resume=True"
    return shlex.join(["bench", "resume", name, *budget_flags(entry)])


def budget_flags(entry: ListedRun) -> list[str]:
    """Options with the budget of the run's last invocation, to be added to the resume command."""
    return [] if entry.manifest is None else flags_of(entry.manifest.budget)


def has_rows(manifest: Manifest) -> bool:
    """Return whether a run can be repeated from its settings alone."""
    if manifest.is_imported:
        return False
    ours = BUILT_INS.get(str(manifest.settings.get("env.env_id")))
    args: object = manifest.settings.get("env.env_args")
    return ours is None or ours.has_rows(table(args))


def origin_text(derived: Mapping[str, object], parent: str | None) -> str:
    """Text about the origin of a derived run: `rescored from ID (unscored only)`."""
    how = _HOW.get(str(derived.get("how")), "made")
    only, reward = derived.get("only"), derived.get("reward")
    words = f" ({clean(only, 60)} only)" if only else f" (reward: {clean(reward, 60)})" if reward else ""
    return f"{how} from {clean(parent or derived.get('path'), 100)}{words}"


def function_means(entry: ListedRun) -> str:
    """Mean of each function from `summary.json`, for an agent evaluation with several; otherwise ""."""
    metrics = table((entry.final or {}).get("metrics"))
    names = () if entry.manifest is None else entry.manifest.functions
    means = {name: number(table(metrics.get(name)).get("mean")) for name in names if name in metrics}
    return ", ".join(f"{clean(name, 60)} {numerals.score(mean)}" for name, mean in means.items())


def recorded_estimate(summary: JsonDict | None) -> Estimate:
    """Mean reward with its interval from `summary.json`."""
    reward = reward_of(summary)
    low, high = ends(reward.get("ci95")) or (None, None)
    return Estimate(number(reward.get("mean")), number(reward.get("stderr")), low, high)


def recorded_coverage(summary: JsonDict | None, planned: int | None) -> str:
    """Number of scored and planned rollouts from `summary.json`: `9 of 10`."""
    known = summary or {}
    scored, asked, made = (number(known.get(key)) for key in ("scored", "planned", "num_rollouts"))
    total = max((int(number) for number in (asked, made, planned) if number is not None), default=None)
    parts = (numerals.NONE if scored is None else numerals.count(int(scored)),
             "?" if total is None else numerals.count(total))  # fmt: skip
    return " of ".join(parts)


def _columns(entries: Sequence[ListedRun], width: int) -> list[Column]:
    """Columns of the list; the least important ones are omitted if the width is too small for all."""
    estimates = [recorded_estimate(entry.final) for entry in entries]
    costs = [number(table((entry.final or {}).get("usage")).get("cost")) for entry in entries]
    suites = [entry.manifest.suite if entry.manifest else None for entry in entries]
    joined = [False, *(one is not None and one == other for one, other in pairwise(suites)), False]
    marks = [_BRACKETS[pair] for pair in pairwise(joined)]
    names = [clean(entry.title, 120) for entry in entries]
    models = [clean(entry.model, 80) or numerals.NONE for entry in entries]
    columns = {
        "run": Column("run", [clean(entry.id, 100) + mark for entry, mark in zip(entries, marks, strict=True)], True),
        "kind": Column("kind", [clean(entry.kind, 20) or numerals.NONE for entry in entries], True),
        "environment": Column("environment", names, True, "middle", _COMFORT),
        "model": Column("model", models, True, "middle", _COMFORT),
        "state": Column("state", [entry.state for entry in entries], True),
        "mean": Column("mean", [numerals.score(estimate.mean) for estimate in estimates]),
        "95 % interval": Column("95 % interval", [numerals.interval(estimate) for estimate in estimates]),
        "scored": Column("scored", [recorded_coverage(entry.final, entry.planned) for entry in entries]),
        "cost": Column("cost", [numerals.dollars(cost) for cost in costs]),
    }
    if all(entry.kind in ("run", "") for entry in entries):
        del columns["kind"]
    if all(cost is None for cost in costs):
        del columns["cost"]
    for name in _FIRST_TO_GO:
        if table_width([*columns.values()]) > width:
            columns.pop(name, None)
    if table_width([*columns.values()]) > width:
        columns["environment"] = Column("env", names, True, "middle", _LEAST)
        columns["model"] = Column("model", models, True, "middle", _LEAST)
    if table_width([*columns.values()]) > width:
        del columns["scored"]
    return [*columns.values()]


class Step(NamedTuple):
    """One suggested next step for the user."""

    purpose: str
    command: str
    """The command to run, or a snippet of Python."""

    def __str__(self) -> str:
        return f"{self.purpose}: {self.command}"


def next_steps(
    path: str,
    *,
    has_data: bool,
    to_publish: bool = True,
    resume: str | None = None,
    compare: str | None = None,
    push: str | None = None,
) -> tuple[Step, ...]:
    """Suggest the next steps for a run.

    Args:
        path: The run's folder.
        has_data: Whether the dataset has rows.
        to_publish: Whether the run may be published: it is not private, and not on the Hub yet.
        resume: The resume command, or None if the run is complete.
        compare: The command that compares it with a similar run; None if there is no such run.
        push: The command that publishes it, if not the default one.
    """
    folder = PurePath(path)
    load = f"load_dataset({str(folder.parent)!r}, {folder.name!r}, split='train')"
    publish = push or f"bench push {shlex.quote(path)}"
    steps = {
        GO_ON: resume,
        "compare": compare,
        "load": load if has_data else None,
        PUBLISH: publish if has_data and to_publish else None,
    }
    return tuple(Step(purpose, command) for purpose, command in steps.items() if command)
