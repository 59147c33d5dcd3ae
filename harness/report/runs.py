"""The list of runs (`bench runs`): one line per run, newest first, with remarks below."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.cells import cell_len

from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.text import clean, fit
from harness.settings.budget import flags_of
from harness.settings.built_in import BUILT_INS
from harness.stats.intervals import Estimate
from harness.store.catalogue import ListedRun, reward_of
from harness.store.manifest import Manifest
from harness.store.values import ends, number, table

GAP = "  "

_COMFORT, _LEAST = {"environment": 12, "model": 14}, {"environment": 6, "model": 8}
"""Minimum cells of name columns: while other columns can be dropped, and in any case."""

_FIRST_TO_GO = ("cost", "95 % interval", "kind")
_NEXT_TO_GO = ("scored",)

_BRACKETS = {(False, False): "", (False, True): " ┐", (True, True): " │", (True, False): " ┘"}
"""Mark after an id, by whether the run above, and the one below, belongs to the same invocation."""

_HOW = {"rescore": "rescored", "replay": "replayed"}


@dataclass(frozen=True, slots=True)
class _RunColumn:
    head: str
    cells: list[str]
    is_figure: bool = False

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.head, *self.cells)))


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
    columns = _fitted(_columns(entries), width)
    widths = [column.width for column in columns]
    yield _line([column.head for column in columns], columns, widths)
    yield "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
    for row, entry in enumerate(entries):
        yield _line([column.cells[row] for column in columns], columns, widths)
        for remark in remarks(entry, name_of(entry)):
            yield from textwrap.wrap(
                remark, max(40, width), initial_indent=GAP, subsequent_indent=GAP * 2,
                break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip


def remarks(entry: ListedRun, name: str) -> list[str]:
    """Remarks below a run's line.

    Args:
        entry: The run.
        name: Name of the run for commands.
    """
    said = [clean(problem, 1000) for problem in entry.problems]
    if entry.manifest is not None and entry.manifest.parent:
        said.append(origin_words(entry.manifest.derived, entry.manifest.parent))
    if words := function_words(entry):
        said.append(f"mean over evaluation functions: {words}")
    if entry.state == "died":
        said.append(f"go on: {how_to_go_on(entry, name)}")
    return said


def how_to_go_on(entry: ListedRun, name: str) -> str:
    """The resume command of a run; for a run made from Python, an instruction."""
    if entry.manifest is not None and not has_rows(entry.manifest):
        return "run the program that made it again, with resume=True"
    return shlex.join(["bench", "resume", name, *budget_flags(entry)])


def budget_flags(entry: ListedRun) -> list[str]:
    """Options that repeat the budget of the run's last invocation, for the resume command."""
    return [] if entry.manifest is None else flags_of(entry.manifest.budget)


def has_rows(manifest: Manifest) -> bool:
    """Whether settings alone can repeat the run."""
    ours = BUILT_INS.get(str(manifest.settings.get("env.env_id")))
    args: object = manifest.settings.get("env.env_args")
    return ours is None or ours.has_rows(table(args))


def origin_words(derived: Mapping[str, object], parent: str) -> str:
    """Description of a derived run: `rescored from ID (unscored only)`."""
    how = _HOW.get(str(derived.get("how")), "made")
    only = derived.get("only")
    return f"{how} from {clean(parent, 100)}" + (f" ({clean(only, 60)} only)" if only else "")


def function_words(entry: ListedRun) -> str:
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
    """`9 of 10`: scored of planned rollouts, from `summary.json`."""
    known = summary or {}
    scored, asked, made = (number(known.get(key)) for key in ("scored", "planned", "num_rollouts"))
    total = max((int(number) for number in (asked, made, planned) if number is not None), default=None)
    parts = (numerals.NONE if scored is None else numerals.count(int(scored)),
             "?" if total is None else numerals.count(total))  # fmt: skip
    return " of ".join(parts)


def _columns(entries: Sequence[ListedRun]) -> list[_RunColumn]:
    columns = [
        _RunColumn(
            "run", [clean(entry.id, 100) + mark for entry, mark in zip(entries, _brackets(entries), strict=True)]
        )
    ]
    if any(entry.kind not in ("run", "") for entry in entries):
        columns.append(_RunColumn("kind", [clean(entry.kind, 20) or numerals.NONE for entry in entries]))
    columns += [
        _RunColumn("environment", [clean(entry.title, 120) for entry in entries]),
        _RunColumn("model", [clean(entry.model, 80) or numerals.NONE for entry in entries]),
        _RunColumn("state", [entry.state for entry in entries]),
    ]
    estimates = [recorded_estimate(entry.final) for entry in entries]
    columns += [
        _RunColumn("mean", [numerals.score(estimate.mean) for estimate in estimates], True),
        _RunColumn("95 % interval", [numerals.interval(estimate) for estimate in estimates], True),
        _RunColumn("scored", [recorded_coverage(entry.final, entry.planned) for entry in entries], True),
    ]
    costs = [number(table((entry.final or {}).get("usage")).get("cost")) for entry in entries]
    if any(cost is not None for cost in costs):
        columns.append(_RunColumn("cost", [numerals.dollars(cost) for cost in costs], True))
    return columns


def _brackets(entries: Sequence[ListedRun]) -> list[str]:
    """Marks that join consecutive runs of one invocation; "" for each run if no two belong together."""
    suites = [entry.manifest.suite if entry.manifest else None for entry in entries]
    if not any(one is not None and one == other for one, other in pairwise(suites)):
        return [""] * len(suites)
    marks: list[str] = []
    for before, suite, after in zip([None, *suites], suites, [*suites[1:], None], strict=False):
        above, below = (suite is not None and suite == other for other in (before, after))
        marks.append(_BRACKETS[above, below])
    return marks


def _fitted(columns: list[_RunColumn], width: int) -> list[_RunColumn]:
    """Drop columns and cut names until the table fits."""
    columns, most = list(columns), dict(_COMFORT)
    for going in (*_FIRST_TO_GO, "", *_NEXT_TO_GO, ""):
        if _least(columns, most) <= width:
            break
        if going:
            columns = [column for column in columns if column.head != going]
        else:
            most = dict(_LEAST)
    return _shared(columns, most, width)


def _least(columns: Sequence[_RunColumn], most: Mapping[str, int]) -> int:
    widths = [min(column.width, most.get(column.head, column.width)) for column in columns]
    return sum(widths) + len(GAP) * (len(columns) - 1)


def _shared(columns: Sequence[_RunColumn], least: Mapping[str, int], width: int) -> list[_RunColumn]:
    """Widen the name columns to the available space, the narrower one first."""
    room = {column.head: min(column.width, least[column.head]) for column in columns if column.head in least}
    spare = width - _least(columns, least)
    elastic = sorted((column for column in columns if column.head in room), key=lambda column: column.width)
    for left, column in zip(range(len(elastic), 0, -1), elastic, strict=True):
        more = max(0, min(column.width - room[column.head], spare // left))
        room[column.head] += more
        spare -= more
    if elastic:  # remaining space
        last = elastic[-1]
        room[last.head] = min(last.width, room[last.head] + max(0, spare))
    return [
        _RunColumn(_head(column.head, room[column.head]), [_cut(cell, room[column.head]) for cell in column.cells])
        if column.head in room
        else column
        for column in columns
    ]


def _head(head: str, width: int) -> str:
    return head if cell_len(head) <= width else "env"


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else fit(text, width).rstrip()


def _line(cells: Sequence[str], columns: Sequence[_RunColumn], widths: Sequence[int]) -> str:
    padded: list[str] = []
    for cell, column, width in zip(cells, columns, widths, strict=True):
        space = " " * (width - cell_len(cell))
        padded.append(space + cell if column.is_figure else cell + space)
    return GAP.join(padded).rstrip()
