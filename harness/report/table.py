"""The final table: results of a suite, result folders and next steps. Split into as many tables as the width needs;
numbers are never cut."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.report import numerals
from harness.report.advice import GO_ON, Step
from harness.report.text import clean, fit
from harness.stats.intervals import WILSONS
from harness.stats.summary import Summary

MOST_NAME = 36
"""Maximum cells of the first column; the middle of a longer name is cut, and the results list has it in full."""

MOST_STEPS = 8
"""Maximum number of next steps to show."""

GAP = 2
"""Cells between two columns."""

MOST_METRICS = 16
"""Maximum rows of the metrics table; more belong into a file."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Result of one run, for the final table and `--json`."""

    name: str
    env_id: str
    model: str
    path: str | None = None
    """The run's folder; None if nothing was kept."""
    summary: Summary | None = None
    """Summary of the run; None if it has no rollout."""
    state: str = "done"
    """State in which the run ended, a `RunState`."""
    note: str = ""
    """Reason for an early end, or another note to the user."""
    next_steps: tuple[Step, ...] = field(default=())
    """Shown below all tables without duplicates; `report.advice` has the usual ones."""
    error: str = ""
    """Error of the first unscored rollout."""


@dataclass(frozen=True, slots=True)
class _TableColumn:
    head: str
    cells: list[str]

    @property
    def width(self) -> int:
        return max(cell_len(cell) for cell in [self.head, *self.cells])


def final_table(results: Sequence[RunReport], console: Console, what: str = "run") -> None:
    """Print the tables, remarks and next steps.

    Args:
        results: The runs, in the order of the suite.
        console: From `report.text.make_console`: stdout, or stderr if stdout has JSON.
        what: Header of the first column, such as `run`.
    """
    labels = _labels(results)
    names = _TableColumn(what, [_short(label) for label in labels])
    for position, group in enumerate(_pack(_groups(results), names, console.width)):
        columns = [names, *group] if position == 0 else _without_empty([names, *group])
        _print(columns, console)
    _metrics(labels, results, console)
    for line in [*_pass_meaning(results), *_interval_meaning(labels, results)]:
        _prose(console, line)
    for label, result in zip(labels, results, strict=True):
        remarks = remarks_of(result)
        if remarks:
            _say(console, label, "bold")
        for line in remarks:
            _prose(console, line, indent=2)
    _places(labels, results, console)


def _labels(results: Sequence[RunReport]) -> list[str]:
    """Label of each run: its name, with the model if these differ."""
    models = {result.model for result in results}
    if len(models) <= 1:
        return [clean(result.name, 80) for result in results]
    return [f"{clean(result.name, 80)} · {clean(result.model, 80)}" for result in results]


def _short(label: str) -> str:
    return fit(label, min(MOST_NAME, cell_len(label))).rstrip()


def _groups(results: Sequence[RunReport]) -> list[list[_TableColumn]]:
    """Columns that belong together; tables are split only between groups."""

    def column(head: str, cell: Callable[[Summary], str], absent: Callable[[RunReport], str] = _absent) -> _TableColumn:
        return _TableColumn(head, [absent(r) if r.summary is None else cell(r.summary) for r in results])

    score = [
        column("mean", lambda s: numerals.score(s.reward.estimate.mean)),
        column("95 % interval", lambda s: numerals.interval(s.reward.estimate)),
        column("std", lambda s: numerals.score(s.reward.std)),
        column("scored", numerals.coverage, lambda r: r.state),
    ]
    cost = [
        column("tokens in", lambda s: numerals.tokens(s.usage, s.usage.input_tokens)),
        column("tokens out", lambda s: numerals.tokens(s.usage, s.usage.output_tokens)),
        column("time", lambda s: numerals.duration(s.wall_s)),
        column("rollouts", lambda s: numerals.rate(s.rollouts_per_s)),
    ]
    summaries = [result.summary for result in results if result.summary is not None]
    if any(summary.usage.cost is not None for summary in summaries):
        cost.insert(2, column("cost", lambda s: numerals.dollars(s.usage.cost)))
    powers = sorted({k for summary in summaries for k in summary.pass_at_k})
    at_k = [column(f"pass@{k}", lambda s, k=k: numerals.pass_rate(s.pass_at_k.get(k))) for k in powers]
    # pass^1 equals pass@1.
    hat_k = [column(f"pass^{k}", lambda s, k=k: numerals.pass_rate(s.pass_hat_k.get(k))) for k in powers if k > 1]
    groups = [score, at_k, hat_k, cost] if len(powers) > 3 else [score, [*at_k, *hat_k], cost]
    return [group for group in groups if group]


def _absent(_: RunReport) -> str:
    return numerals.NONE


def _pack(groups: list[list[_TableColumn]], names: _TableColumn, width: int) -> list[list[_TableColumn]]:
    """Combine as many groups as fit beside the names."""
    packed: list[list[_TableColumn]] = []
    for group in groups:
        if packed and _table_width([names, *packed[-1], *group]) <= width:
            packed[-1] = [*packed[-1], *group]
        else:
            packed.append(group)
    return packed


def _without_empty(columns: Sequence[_TableColumn]) -> list[_TableColumn]:
    """Omit runs without any value; the first table has them."""
    full = [i for i in range(len(columns[0].cells)) if any(c.cells[i] != numerals.NONE for c in columns[1:])]
    return [_TableColumn(column.head, [column.cells[i] for i in full]) for column in columns]


def _table_width(columns: Sequence[_TableColumn]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)


def _print(columns: Sequence[_TableColumn], console: Console, left: int = 1) -> None:
    """Print one table: the first `left` columns are text, the others figures. The header is marked by a line."""
    if not columns[0].cells:
        return
    rows = [[column.head for column in columns], *zip(*(column.cells for column in columns), strict=True)]
    for number, row in enumerate(rows):
        line = Text(no_wrap=True, overflow="ignore")
        for position, (cell, column) in enumerate(zip(row, columns, strict=True)):
            pad = " " * (column.width - cell_len(cell))
            line.append(" " * GAP if position else "")
            line.append(cell + pad if position < left else pad + cell, "bold" if column.head == "mean" else "")
        line.rstrip()
        if number == 0:
            line.stylize("bold")
        console.print(line, soft_wrap=True)
        if number == 0:
            console.print(("-" if console.options.ascii_only else "─") * _table_width(columns), soft_wrap=True)
    console.print()


def _metrics(labels: Sequence[str], results: Sequence[RunReport], console: Console) -> None:
    """Print the metrics of each run, unless they only repeat the reward."""
    rows = [
        (_short(label), name, spread)
        for label, result in zip(labels, results, strict=True)
        if result.summary is not None and not repeats(result.summary)
        for name, spread in result.summary.metrics.items()
    ]
    if not rows:
        return
    if len(rows) > MOST_METRICS:
        _prose(console, f"{len(rows)} metrics: see summary.json in each run's folder, or --json")
        return
    shown = rows
    columns = [
        _TableColumn("run", [label for label, _, _ in shown]),
        _TableColumn("metric", [_short(clean(name, 80)) for _, name, _ in shown]),
        _TableColumn("mean", [numerals.score(spread.estimate.mean) for _, _, spread in shown]),
        _TableColumn("95 % interval", [numerals.interval(spread.estimate) for _, _, spread in shown]),
    ]
    if len(results) == 1:
        del columns[0]
    for extra in (
        _TableColumn("min", [numerals.score(spread.min) for _, _, spread in shown]),
        _TableColumn("max", [numerals.score(spread.max) for _, _, spread in shown]),
        _TableColumn("values", [numerals.count(spread.count) for _, _, spread in shown]),
    ):
        if _table_width([*columns, extra]) <= console.width:
            columns.append(extra)
    if len(rows) > len(shown):
        columns[0].cells.append(f"and {len(rows) - len(shown)} more")
        for column in columns[1:]:
            column.cells.append("")
    _print(columns, console, left=1 if len(results) == 1 else 2)


def repeats(summary: Summary) -> bool:
    """Whether the only metric equals the reward."""
    reward = summary.reward
    same = [m.estimate.mean == reward.estimate.mean and m.std == reward.std for m in summary.metrics.values()]
    return same == [True]


def _pass_meaning(results: Sequence[RunReport]) -> list[str]:
    told = [(result.name, result.summary) for result in results if result.summary is not None]
    named = [(clean(name, 80), summary.pass_threshold) for name, summary in told if summary.pass_at_k]
    return [f"pass@k, pass^k: a rollout passes with a reward of at least {thresholds(named)}"] if named else []


def thresholds(named: Iterable[tuple[str, float]]) -> str:
    """The most frequent pass threshold, with the names of environments that use others."""
    named = dict.fromkeys(named)
    counts = Counter(threshold for _, threshold in named)
    usual = max(counts, key=lambda threshold: (counts[threshold], threshold))
    others = ", ".join(f"{name}: {threshold:g}" for name, threshold in named if threshold != usual)
    return f"{usual:g} ({others})" if others else f"{usual:g}"


def _interval_meaning(labels: Sequence[str], results: Sequence[RunReport]) -> list[str]:
    """Line that names the runs with Wilson intervals."""
    shown = [(label, r.summary) for label, r in zip(labels, results, strict=True) if r.summary and r.summary.scored]
    wilson = [label for label, summary in shown if summary.reward.estimate.method in WILSONS]
    if not wilson:
        return []
    return ["95 % interval: Wilson's" + ("" if len(wilson) == len(shown) else f" ({', '.join(wilson)})")]


def remarks_of(result: RunReport) -> list[str]:
    """Remarks on facts that the numbers do not show."""
    remarks: list[str] = []
    if result.state != "done" or result.note:
        note = clean(result.note, 2000)
        remarks.append(f"{result.state}: {note}" if note and result.state != "done" else note or result.state)
    summary = result.summary
    if summary is None:
        return remarks
    remarks += _early(summary, result.note)
    return [*remarks, *_missing(summary, _why_none(result, summary)), *_doubts(summary), *_judges(summary)]


def _early(summary: Summary, note: str) -> list[str]:
    """Remarks on the interval of a run that ended early (`--until-ci`), unless its note has them."""
    target = summary.target
    if target is None:
        return []
    remarks = [] if target.words() in note else [f"ended early: {target.words()}"]
    if summary.reward.estimate.method == "betting":
        of = f"its interval is for the mean of all {numerals.count(target.aim.examples)} examples, however one stops"
        remarks.append(f"{of} (confidence sequence); metrics and pass rates have none")
    elif summary.reward.estimate.method == "asymptotic":
        of = "its interval is an asymptotic confidence sequence, since rewards have no range: good for late stops"
        remarks.append(f"{of}; metrics and pass rates have none")
    return remarks


def _why_none(result: RunReport, summary: Summary) -> list[str]:
    """The first error, if no rollout has a score."""
    if summary.scored or not result.error or result.error in result.note:
        return []
    return [f"first error: {clean(result.error)}"]


def _judges(summary: Summary) -> list[str]:
    """Usage and cost of judges, which are not part of the columns."""
    usage = summary.judge_usage
    if usage is None:
        return []
    tokens = f"{numerals.tokens(usage, usage.input_tokens)} + {numerals.tokens(usage, usage.output_tokens)} tokens"
    cost = "cost unknown" if usage.cost is None else numerals.dollars(usage.cost)
    if usage.cost is not None and summary.judge_unpriced:
        cost = f"at least {cost} ({_replies(summary.judge_unpriced)} of unknown cost)"
    return [f"judge: {_replies(usage.requests)}, {tokens}, {cost}"]


def _replies(number: int) -> str:
    return f"{numerals.count(number)} {'reply' if number == 1 else 'replies'}"


def _missing(summary: Summary, why_none: Sequence[str]) -> list[str]:
    remarks: list[str] = []
    unscored = sum(summary.unscored.values())
    if unscored:
        remarks.append(f"{numerals.count(unscored)} unscored ({numerals.reasons(summary.unscored)}){_bounds(summary)}")
        remarks += why_none
    if summary.not_run:
        remarks.append(f"{numerals.count(summary.not_run)} of {numerals.count(summary.planned)} not run")
    excluded = {k: rate.excluded for k, rate in summary.pass_at_k.items() if rate.excluded}
    if excluded:
        # The largest k excludes most; one number is sufficient.
        k, number = max(excluded.items(), key=lambda item: (item[1], item[0]))
        noun = "example has" if number == 1 else "examples have"
        few = "no scored rollout" if k == 1 else f"fewer than {k} scored rollouts"
        remarks.append(f"{numerals.count(number)} {noun} {few}: no part in pass@{k}")
    return remarks


def _bounds(summary: Summary) -> str:
    if summary.bounds is None:
        return ""
    low, high = summary.bounds
    digits = 3 if high - low >= 0.002 else 5
    return f"; mean {numerals.score(low, digits)} if all were worst, {numerals.score(high, digits)} if all best"


def _doubts(summary: Summary) -> list[str]:
    remarks: list[str] = []
    for number, words in (
        (summary.truncated, "were cut short by a limit"),
        (summary.empty, "are empty"),
        (summary.refused, "are refusals"),
    ):
        if number and summary.scored:
            share = numerals.percent(number / summary.scored)
            remarks.append(f"{numerals.count(number)} of {numerals.count(summary.scored)} answers {words} ({share})")
    estimate = summary.reward.estimate
    if summary.scored and estimate.method is None:
        why = "one example says nothing about others" if estimate.examples == 1 else "all examples have the same mean"
        if summary.target is not None and summary.target.outside is not None:
            why = f"a reward of {summary.target.outside:g} lies outside the rubric's range"
        remarks.append(f"no interval: {why}")
    if summary.usage.unreported:
        u = summary.usage
        remarks.append(f"{numerals.count(u.unreported)} of {numerals.count(u.requests)} replies reported no tokens")
    return remarks


def _places(labels: Sequence[str], results: Sequence[RunReport], console: Console) -> None:
    kept = [(label, result.path) for label, result in zip(labels, results, strict=True) if result.path is not None]
    if kept:
        _say(console, "\nResults", "bold")
        for label, path in kept:
            _say(console, f"  {label}: {clean(path, 2000)}" if len(results) > 1 else f"  {clean(path, 2000)}")
    every = dict.fromkeys(step for result in results for step in result.next_steps)
    steps = sorted(every, key=lambda step: step.purpose != GO_ON)  # incomplete runs first
    if steps:
        _say(console, "\nNext", "bold")
        for step in steps[:MOST_STEPS]:
            _say(console, f"  {clean(step, 2000)}")
        if len(steps) > MOST_STEPS:
            _say(console, f"  and {len(steps) - MOST_STEPS} more like these")


def _prose(console: Console, line: str, indent: int = 0) -> None:
    lead = " " * indent
    wrapped = textwrap.wrap(line, max(20, console.width), initial_indent=lead, subsequent_indent=lead + "  ")
    for part in wrapped:
        _say(console, part)


def _say(console: Console, line: str, style: str = "") -> None:
    # Print without wrapping, so that paths and commands can be copied.
    console.print(Text(line), style=style or None, soft_wrap=True)
