"""The final table (results of a suite, result folders and next steps), and the JSON output of `--json`. A table that is
too wide is split into several; numbers are never cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import orjson
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.core.redact import redactor
from harness.core.types import JsonDict
from harness.engine.spending import priced_usages
from harness.report import numerals
from harness.report.layout import Column, Group, grid, head, print_lines, prose, table_lines, table_width
from harness.report.runs import GO_ON, Step
from harness.report.text import clean, clean_block, fit
from harness.stats.intervals import WILSONS
from harness.stats.summary import Summary
from harness.store.clusters import cluster_words

MOST_NAME = 36
"""Maximum width of the first column in cells; a longer name is cut in the middle."""

MOST_STEPS = 8
"""Maximum number of next steps to show."""

MOST_METRICS = 16
"""Maximum rows of the metrics table; if there are more, a note refers to the file that has them."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Result of one run, for the final table and `--json`."""

    name: str
    env_id: str
    model: str
    path: str | None = None
    """The run's folder; None if nothing was stored."""
    summary: Summary | None = None
    """Summary of the run; None if it has no rollout."""
    state: str = "done"
    """State in which the run ended, a `RunState`."""
    note: str = ""
    """Reason for an early end, or another note to the user."""
    next_steps: tuple[Step, ...] = field(default=())
    """Suggested commands, shown once each below all tables; `report.runs.next_steps` returns the usual ones."""
    error: str = ""
    """Error message of the first unscored rollout."""
    unfinished: JsonDict = field(default_factory=dict[str, Any])
    """Usage of replies to rollouts without an outcome, such as cancelled ones: `Manifest.given_up`; may be empty."""


def final_table(results: Sequence[RunReport], console: Console) -> None:
    """Print the result tables, remarks and next steps of all runs.

    Args:
        results: The runs, in the order of the suite.
        console: From `report.text.make_console`: stdout, or stderr if stdout has JSON.
    """
    print_lines(result_lines(results, console.width), console)


def result_lines(results: Sequence[RunReport], width: int, what: str = "run") -> Iterator[Text]:
    """Format the result tables, remarks and next steps as lines."""
    with_model = len({result.model for result in results}) > 1
    labels = [clean(r.name, 80) + (f" · {clean(r.model, 80)}" if with_model else "") for r in results]
    if results:
        yield from grid([_short(label) for label in labels], what, _groups(results), width, least=MOST_NAME)
        yield Text()
    yield from _metrics(labels, results, width)
    yield from _attempts(labels, results, width)
    for line in _meanings(labels, results):
        yield from prose(line, width)
    for label, result in zip(labels, results, strict=True):
        remarks = remarks_of(result)
        if remarks:
            yield head(label)
        for line in remarks:
            yield from prose(line, width, indent=2)
    yield from _places(labels, results)


def _short(label: str) -> str:
    return fit(label, min(MOST_NAME, cell_len(label))).rstrip()


def _groups(results: Sequence[RunReport]) -> list[Group]:
    """Columns of the result table in groups; a table that is too wide is split only between groups."""

    def column(name: str, cell: Callable[[Summary], str]) -> Column:
        return Column(name, [numerals.NONE if r.summary is None else cell(r.summary) for r in results])

    score = [
        replace(column("mean", lambda s: numerals.score(s.reward.estimate.mean)), style="bold"),
        column("95 % interval", lambda s: numerals.interval(s.reward.estimate)),
        column("std", lambda s: numerals.score(s.reward.std)),
        Column("scored", [r.state if r.summary is None else numerals.coverage(r.summary) for r in results]),
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


def _metrics(labels: Sequence[str], results: Sequence[RunReport], width: int) -> Iterator[Text]:
    """Table of the metrics of all runs; empty if the metrics only repeat the reward."""
    rows = [
        (_short(label), _short(clean(name, 80)), spread)
        for label, result in zip(labels, results, strict=True)
        if result.summary is not None and not metrics_repeat_reward(result.summary)
        for name, spread in result.summary.metrics.items()
    ]
    if len(rows) > MOST_METRICS:
        yield from prose(f"{len(rows)} metrics: see summary.json in each run's folder, or --json", width)
    if not 0 < len(rows) <= MOST_METRICS:
        return
    spreads = [spread for _, _, spread in rows]
    columns = [
        Column("run", [label for label, _, _ in rows], is_text=True),
        Column("metric", [name for _, name, _ in rows], is_text=True),
        Column("mean", [numerals.score(spread.estimate.mean) for spread in spreads], style="bold"),
        Column("95 % interval", [numerals.interval(spread.estimate) for spread in spreads]),
    ][1 if len(results) == 1 else 0 :]
    for extra in (
        Column("min", [numerals.score(spread.min) for spread in spreads]),
        Column("max", [numerals.score(spread.max) for spread in spreads]),
        Column("values", [numerals.count(spread.count) for spread in spreads]),
    ):
        if table_width([*columns, extra]) <= width:
            columns.append(extra)
    yield from table_lines(columns, width)
    yield Text()


def _attempts(labels: Sequence[str], results: Sequence[RunReport], width: int) -> Iterator[Text]:
    """Table of the intervals of pass@k and pass^k; without pass@1 where it is the mean reward."""
    rows = [
        (_short(label), k, summary.pass_at_k[k], summary.pass_hat_k[k])
        for label, summary in ((label, each.summary) for label, each in zip(labels, results, strict=True))
        if summary is not None
        for k in summary.pass_at_k
        if k > 1 or summary.pass_at_k[k].estimate.ends != summary.reward.estimate.ends
    ]
    if len(rows) > MOST_METRICS:
        yield from prose(f"{len(rows)} intervals of pass rates: see --json", width)
    if not 0 < len(rows) <= MOST_METRICS or all(at.estimate.low is None for _, _, at, _ in rows):
        return
    columns = [
        Column("run", [label for label, *_ in rows], is_text=True),
        Column("k", [str(k) for _, k, _, _ in rows]),
        Column("pass@k", [numerals.pass_rate(at) for _, _, at, _ in rows]),
        Column("95 % interval", [numerals.interval(at.estimate) for _, _, at, _ in rows]),
        Column("pass^k", [numerals.pass_rate(hat) for *_, hat in rows]),
        Column("95 % interval", [numerals.interval(hat.estimate) for *_, hat in rows]),
    ][1 if len(results) == 1 else 0 :]
    yield from table_lines(columns, width)
    yield Text()


def metrics_repeat_reward(summary: Summary) -> bool:
    """Return whether the run's only metric equals the reward."""
    reward = summary.reward
    same = [m.estimate.mean == reward.estimate.mean and m.std == reward.std for m in summary.metrics.values()]
    return same == [True]


def threshold_text(named: Iterable[tuple[str, float]]) -> str:
    """Text with the most frequent pass threshold, and the names of environments that have others."""
    named = dict.fromkeys(named)
    counts = Counter(threshold for _, threshold in named)
    usual = max(counts, key=lambda threshold: (counts[threshold], threshold))
    others = ", ".join(f"{name}: {threshold:g}" for name, threshold in named if threshold != usual)
    return f"{usual:g} ({others})" if others else f"{usual:g}"


def _meanings(labels: Sequence[str], results: Sequence[RunReport]) -> Iterator[str]:
    """Sentences about the pass threshold and about the runs with Wilson intervals."""
    shown = [(label, r.name, r.summary) for label, r in zip(labels, results, strict=True) if r.summary is not None]
    named = [(clean(name, 80), summary.pass_threshold) for _, name, summary in shown if summary.pass_at_k]
    if named:
        yield f"pass@k, pass^k: a rollout passes with a reward of at least {threshold_text(named)}"
    scored = [(label, summary.reward.estimate) for label, _, summary in shown if summary.scored]
    wilson = [label for label, estimate in scored if estimate.method in WILSONS]
    if wilson:
        yield "95 % interval: Wilson's" + ("" if len(wilson) == len(scored) else f" ({', '.join(wilson)})")


def remarks_of(result: RunReport) -> list[str]:
    """Remarks about a run on facts that the numbers do not show."""
    remarks, summary = list[str](), result.summary
    if result.state != "done" or result.note:
        note = clean(result.note, 2000)
        remarks.append(f"{result.state}: {note}" if note and result.state != "done" else note or result.state)
    if summary is not None:
        remarks += [] if summary.clusters is None else [f"clustered: {clean(cluster_words(summary.clusters), 1000)}"]
        remarks += _figures(summary) + _early(summary, result.note) + _missing(summary, result) + _doubts(summary)
        remarks += judge_words(summary)
    return [*remarks, *unfinished_words(result.unfinished)]


def unfinished_words(given_up: JsonDict) -> list[str]:
    """Text about replies that were paid for and that no other number includes; may be empty.

    Args:
        given_up: The manifest's field of this name.
    """
    return [
        f"not counted here: {numerals.counted(usage.requests, 'reply', 'replies')} to rollouts that were cancelled, "
        f"{numerals.tokens(usage, usage.input_tokens)} + {numerals.tokens(usage, usage.output_tokens)} tokens"
        + ("" if usage.cost is None else f", {numerals.dollars(usage.cost)}")
        for usage, _ in priced_usages([given_up])
    ]


def _early(summary: Summary, note: str) -> list[str]:
    """Remarks on the interval of a run that ended early, unless the run's note contains them."""
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


def _figures(summary: Summary) -> list[str]:
    """Text with the environment's own figures of the run."""
    shown = [f"{clean(name, 80)} {numerals.score(value)}" for name, value in summary.figures.items()]
    more = len(shown) - MOST_METRICS
    return [f"over all examples: {', '.join(shown[:MOST_METRICS])}{f' and {more} more' * (more > 0)}"] if shown else []


def judge_words(summary: Summary) -> list[str]:
    """Text about the usage and cost of judges, which the columns do not include."""
    usage = summary.judge_usage
    if usage is None:
        return []
    tokens = f"{numerals.tokens(usage, usage.input_tokens)} + {numerals.tokens(usage, usage.output_tokens)} tokens"
    cost = "cost unknown" if usage.cost is None else numerals.dollars(usage.cost)
    if usage.cost is not None and summary.judge_unpriced:
        cost = f"at least {cost} ({numerals.counted(summary.judge_unpriced, 'reply', 'replies')} of unknown cost)"
    return [f"judge: {numerals.counted(usage.requests, 'reply', 'replies')}, {tokens}, {cost}"]


def _missing(summary: Summary, result: RunReport) -> list[str]:
    remarks: list[str] = []
    unscored = sum(summary.unscored.values())
    if unscored:
        bounds = ""
        if summary.bounds is not None:
            low, high = summary.bounds
            digits = 3 if high - low >= 0.002 else 5
            worst, best = (numerals.score(each, digits) for each in summary.bounds)
            bounds = f"; mean {worst} if all were worst, {best} if all best"
        remarks.append(f"{numerals.count(unscored)} unscored ({numerals.reasons(summary.unscored)}){bounds}")
        if not summary.scored and result.error and result.error not in result.note:
            remarks.append(f"first error: {clean(result.error)}")
    if summary.not_run:
        remarks.append(f"{numerals.count(summary.not_run)} of {numerals.count(summary.planned)} not run")
    excluded = {k: rate.excluded for k, rate in summary.pass_at_k.items() if rate.excluded}
    if excluded:
        # The largest k excludes most; one number is sufficient.
        k, number = max(excluded.items(), key=lambda item: (item[1], item[0]))
        few = "no scored rollout" if k == 1 else f"fewer than {k} scored rollouts"
        remarks.append(f"{numerals.counted(number, 'example has', 'examples have')} {few}: no part in pass@{k}")
    return remarks


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
        if estimate.clusters == 1 and estimate.examples > 1:
            why = "all examples are in one cluster, which says nothing about others"
        if summary.target is not None and summary.clusters is not None:
            why = "that of a run that ended early assumes that examples are independent"
        if summary.target is not None and summary.target.outside is not None:
            why = f"a reward of {summary.target.outside:g} lies outside the rubric's range"
        remarks.append(f"no interval: {why}")
    if summary.usage.unreported:
        u = summary.usage
        remarks.append(f"{numerals.count(u.unreported)} of {numerals.count(u.requests)} replies reported no tokens")
    return remarks


def _places(labels: Sequence[str], results: Sequence[RunReport]) -> Iterator[Text]:
    kept = [(label, result.path) for label, result in zip(labels, results, strict=True) if result.path is not None]
    if kept:
        yield from (Text(), head("Results"))
    for label, path in kept:
        yield Text(f"  {label}: {clean(path, 2000)}" if len(results) > 1 else f"  {clean(path, 2000)}")
    every = dict.fromkeys(step for result in results for step in result.next_steps)
    steps = sorted(every, key=lambda step: step.purpose != GO_ON)  # incomplete runs first
    if steps:
        yield from (Text(), head("Next"))
    yield from (Text(f"  {clean(step, 2000)}") for step in steps[:MOST_STEPS])
    if len(steps) > MOST_STEPS:
        yield Text(f"  and {len(steps) - MOST_STEPS} more like these")


def result_object(results: Sequence[RunReport], budget: JsonDict | None = None, **more: object) -> JsonDict:
    """Build the object that `--json` prints: `{"runs": [{env_id, name, model, path, state, note, summary}]}`. The
    `summary` is null for a run without rollouts; `unfinished` is the usage of cancelled rollouts, if there is any.

    Args:
        results: Results of the runs.
        budget: Limits and spending, under `budget`; None omits the key.
        **more: Further fields.
    """
    whole: JsonDict = {
        "runs": [
            {
                "env_id": result.env_id,
                "name": result.name,
                "model": result.model,
                "path": result.path,
                "state": result.state,
                "note": result.note,
                "summary": None if result.summary is None else result.summary.to_json(),
                **({"unfinished": result.unfinished} if result.unfinished else {}),
            }
            for result in results
        ]
    }
    whole |= more
    return whole if budget is None else {**whole, "budget": budget}


def result_json(results: Sequence[RunReport], budget: JsonDict | None = None, **more: object) -> bytes:
    """Serialize an object as indented JSON with a final newline, to be written to `sys.stdout.buffer`."""
    whole = writable(result_object(results, budget, **more))
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def writable(value: object) -> object:
    """Copy a JSON value without secrets and unprintable characters, since reasons and notes may contain text from
    others."""
    if isinstance(value, str):
        value = redactor.text(value, patterns=False)
        return value if value.isprintable() else clean_block(value)
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return {writable(str(key)): writable(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [writable(item) for item in cast("list[object]", value)]
    return value
