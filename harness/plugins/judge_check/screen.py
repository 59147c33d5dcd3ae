"""Terminal output of `bench judge check` and `bench judge next`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from harness.plugins.judge_check.agreement import Checked, Group, direction, plain_mean
from harness.plugins.judge_check.sample import NextLabels
from harness.report import numerals
from harness.report.final_table import judge_words
from harness.report.labels import LabelledRun
from harness.report.layout import Column, grid, head, labelled, prose, table_lines
from harness.report.text import clean
from harness.stats.intervals import Estimate
from harness.stats.labels import Corrected
from harness.stats.methods import Method, describe
from harness.stats.summary import Summary
from harness.store.clusters import cluster_words

_INDENT = 11


def check_lines(checked: Checked, width: int) -> Iterator[Text]:
    """Format the comparison of a judge with people.

    Args:
        checked: The figures.
        width: Width of the terminal in cells.
    """
    for run, corrected, summary in checked.runs:
        yield from _run_lines(run, corrected, summary, width)
        yield Text()
    yield head("Judge and people")
    yield from _row("agreement", _known(checked.agreement), width)
    yield from _row("kappa", f"{_known(checked.kappa)}, agreement beyond chance", width)
    found = direction(checked.bias)
    bias = f"{numerals.difference(checked.bias)} {numerals.signed_interval(checked.bias)}, score minus label: "
    words = f"the judge is {found}" if found else "no more than noise"
    yield from _row("bias", f"{bias}{words}", width)
    yield Text()
    columns = [
        Column("", ["judge passes", "judge fails"], is_text=True),
        *(
            Column(f"people {word}", [numerals.count(checked.table[ours, theirs]) for ours in (True, False)])
            for word, theirs in (("pass", True), ("fail", False))
        ),
    ]
    yield from table_lines(columns, width)
    if checked.tied:
        tied = numerals.counted(checked.tied, "rollout")
        yield from prose(f"Left out here: {tied} that as many people pass as fail.", width)
    for kind in dict.fromkeys(group.kind for group in checked.groups):
        yield Text()
        yield from _kind(kind, [group for group in checked.groups if group.kind == kind], width)
    yield Text()
    methods: dict[Method | None, None] = {corrected.estimate.method: None for _, corrected, _ in checked.runs}
    for method in methods:
        yield from prose(f"Corrected: {describe(method)}.", width)


def _run_lines(run: LabelledRun, corrected: Corrected, summary: Summary, width: int) -> Iterator[Text]:
    yield head(clean(f"{run.run.id} · {run.manifest.env_id} · {run.manifest.model}", 200))
    by = ", ".join(clean(name, 40) for name in run.people[:5])
    more = len(run.people) - 5
    labels = f"{numerals.counted(corrected.labels, 'rollout')} of {numerals.count(len(run.rollouts))}, by {by}"
    yield from _row("labels", labels + (f" and {more} more" if more > 0 else ""), width)
    alpha, several = run.alpha
    if several:
        of = numerals.counted(several, "rollout") + " with labels of several"
        yield from _row("people", f"Krippendorff's alpha {numerals.score(alpha, 2)} on {of}", width)
    for words in judge_words(summary) or ["no calls of a judge model on record"]:
        yield from _row("judge", words.removeprefix("judge: "), width)
    mean = plain_mean(run, summary)
    yield from _row("mean", f"{_known(mean)}, {numerals.counted(mean.examples, 'example')}, as judged", width)
    if summary.clusters is not None and run.manifest.cluster_key:
        yield from _row("clusters", clean(cluster_words(summary.clusters), 1000), width)
    if corrected.labels:
        trust = f"weight of the judge {corrected.weight:.2f}"
        found = corrected.estimate
        yield from _row("corrected", f"{_known(found)}, {numerals.counted(corrected.labels, 'label')}, {trust}", width)
    for words in run.cautions(corrected):
        yield from _row("caution", words, width)


def _row(name: str, words: str, width: int) -> Iterator[Text]:
    yield from labelled(f"{name:<{_INDENT}}", words, width)


def _known(estimate: Estimate) -> str:
    return f"{numerals.score(estimate.mean)} {numerals.interval(estimate)}"


def _kind(kind: str, groups: Sequence[Group], width: int) -> Iterator[Text]:
    columns = [
        [
            Column("labels", [numerals.count(group.labels) for group in groups]),
            Column("agree", [numerals.score(group.agreement.mean, 2) for group in groups]),
        ],
        [
            Column("judge", [numerals.score(group.judge) for group in groups]),
            Column("people", [numerals.score(group.people) for group in groups]),
        ],
        [
            Column("bias", [numerals.difference(group.bias) for group in groups]),
            Column("95 % interval", [numerals.signed_interval(group.bias) for group in groups]),
        ],
        [
            Column("p", [numerals.p_value(group.p_value) for group in groups]),
            Column("", [group.words for group in groups], is_text=True),
        ],
    ]
    yield from grid([group.value for group in groups], clean(kind, 40), columns, width)


def next_lines(found: NextLabels, run: LabelledRun, corrected: Corrected, file: str, width: int) -> Iterator[Text]:
    """Format the drawn rollouts, and the expected shrinkage of the interval.

    Args:
        found: The drawn rollouts.
        run: The run with the labels that are known.
        corrected: Its corrected mean.
        file: Name of the file that was written.
        width: Width of the terminal in cells.
    """
    count = len(found.rollouts)
    where = f"{numerals.counted(count, 'rollout')} to label, in random order (seed {found.draw.seed}): {file}"
    yield from prose(where, width, break_words=False)
    has = sum(each.label is not None for each in found.rollouts)
    if has:
        yield from prose(f"{numerals.count(has)} of them have a label already.", width)
    if not found.left:
        yield from prose("No scored rollout is left to draw.", width)
    yield Text()
    known = corrected.labels if corrected.estimate.half_width is not None else 0
    expected = {labels: half for labels, half in found.forecast.items() if labels > known}
    rows = [(numerals.count(labels), f"±{numerals.score(half)}") for labels, half in expected.items()]
    if corrected.estimate.half_width is not None:
        now = f"±{numerals.score(corrected.estimate.half_width)}"
        rows.insert(0, (f"{numerals.count(corrected.labels)} (now)", now))
    columns = [
        Column("labels", [labels for labels, _ in rows]),
        Column("expected interval", [half for _, half in rows]),
    ]
    yield from table_lines(columns, width)
    yield Text()
    guess = "The forecast takes 10 % of the scores to be wrong, since no note has a label yet."
    if found.is_guessed:
        yield from prose(guess, width)
    words = "Fill in the column label (right, wrong or a number), from the top: a part of the list will do."
    yield from prose(words, width)
