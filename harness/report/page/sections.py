"""Page sections about results: leaderboard, differences, and one section per environment. Figures come from `gather`,
formatted by `report.numerals`."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report import numerals
from harness.report.page.board import board_of
from harness.report.page.columns import MEASURES, SECONDS, TURNS
from harness.report.page.gather import EnvPart, Page, RunPart
from harness.report.page.markup import Child, Html, join, table, tag
from harness.report.page.plots import AXES, Plots, bars_of, colour, symbol
from harness.report.page.strips import strip
from harness.report.table import metrics_repeat_reward
from harness.stats.difference import ALPHA
from harness.stats.intervals import Estimate

MOST_PANELS = 12
"""Maximum number of runs of an environment with a distribution plot."""

WATCHED = (
    "Runs that ended early as asked (--until-ci) have an interval that allows for it; those of differences, and p, "
    "take their size as set beforehand: near, not exact."
)

SAMPLES = (
    "Runs with fewer than two scored examples in common are compared as two independent samples, by Welch's t test. "
    "The same examples for both would tell more."
)

OTHER_WAY = {"better": "worse", "worse": "better"}
"""Verdict on the second run, by that on the first."""

CLASSES = {"better": "found", "worse": "lost"}
"""CSS class of a verdict; the others are undecided."""

_LABELS = {TURNS: "Turns", "tokens": "Tokens", SECONDS: "Latency", "cost": "Cost"}


def marked_name(name: str, number: int) -> Html:
    """A name with the marker of its model, as in tables, legends and figures."""
    sign = tag("span", symbol(number), class_=f"mark t-{colour(number)}", aria_hidden="true")
    return tag("span", sign, tag("span", name, class_="name"), class_="who")


def name_of(run: RunPart) -> Html:
    """A run's label for tables."""
    return marked_name(run.label, run.colour)


def leaderboards(page: Page) -> Html:
    """Section with a leaderboard per environment."""
    parts: list[Child] = [tag("h2", "Leaderboard", id="leaderboard")]
    if page.overall:
        parts.append(_overall(page))
    for environment in page.environments:
        if len(page.environments) > 1:
            parts.append(tag("h3", environment.name))
        parts.append(_leaderboard(environment))
        parts.append(_remarks(environment))
    words = (
        "Mean reward over examples, each the mean over its scored rollouts. The bar is the 95 % interval on a common "
        "axis; what a pale band covers is open because rollouts have no score."
    )
    if any(len(environment.runs) > 1 for environment in page.environments):
        words += (
            " Overlapping intervals do not say that two models are alike: one column compares them on the same "
            "examples, which is sharper."
        )
    parts.append(tag("p", words, class_="note"))
    return tag("section", *parts)


def _overall(page: Page) -> Html:
    ends = [end for environment in page.environments for end in environment.limits]
    limits = (min(ends), max(ends))
    rows = [
        [
            marked_name(each.model, each.colour),
            tag("strong", numerals.score(each.estimate.mean)),
            strip(each.estimate, limits, each.colour),
            numerals.interval(each.estimate),
        ]
        for each in page.overall
    ]
    head = table(["model", "mean", "", "95 % interval"], rows, label="all environments: leaderboard")
    note = (
        f"The mean over all {len(page.environments)} environments, each counting the same. It means something where "
        "their rewards have the same scale."
    )
    return join([tag("h3", "All environments"), head, tag("p", note, class_="note")])


def _leaderboard(environment: EnvPart) -> Html:
    runs, board = environment.runs, board_of(environment)
    columns: dict[str, Sequence[Child]] = {
        "model": [name_of(run) for run in runs],
        "mean": [tag("strong", mean) for mean in board.pop("mean")],
        "": [
            strip(run.estimate, environment.limits, run.colour, run.summary.bounds if run.summary.unscored else None)
            for run in runs
        ],
        "95 % interval": board.pop("95 % interval"),
    }
    if environment.differences:
        columns["against the best"] = [_against_best(environment, position) for position in range(len(runs))]
    for name, cells in board.items():
        if name == "scored":
            columns[name] = [tag("span", cell, class_=_warning(run)) for cell, run in zip(cells, runs, strict=True)]
        elif name == "tokens in":
            columns["tokens in + out"] = [numerals.tokens_in_and_out(run.summary.usage) for run in runs]
        elif name != "tokens out":
            columns[name] = cells
    rows = zip(*columns.values(), strict=True)
    return table([*columns], rows, label=f"{environment.name}: leaderboard", caption=_planned(runs))


def _warning(run: RunPart) -> str | None:
    """CSS class of a run that lacks scores."""
    summary = run.summary
    return None if summary.scored >= max(summary.planned, summary.num_rollouts) else "warn"


def _planned(runs: Sequence[RunPart]) -> str:
    examples = sorted({run.summary.num_examples for run in runs})
    rollouts = sorted({run.manifest.planned.get("rollouts_per_example", 1) for run in runs})
    words = " / ".join(numerals.count(number) for number in examples)
    each = " / ".join(map(str, rollouts))
    noun = "example" if examples == [1] else "examples"
    return f"{words} {noun}" + ("" if rollouts == [1] else f", {each} rollouts each")


def _against_best(environment: EnvPart, position: int) -> Child:
    best = next((each.first for each in environment.differences), 0)
    if position == best:
        return "best"
    found = next((d for d in environment.differences if (d.first, d.second) == (best, position)), None)
    if found is None:
        return numerals.NONE
    mean = found.estimate.mean
    size = numerals.difference(Estimate(None if mean is None else -mean))
    words = OTHER_WAY.get(found.words, found.words)
    return join([f"{size} ", tag("span", words, class_=CLASSES.get(words, "open"))])


def _remarks(environment: EnvPart) -> Html | None:
    told = [run for run in environment.runs if run.remarks]
    one = len(environment.runs) == 1
    items = [tag("li", [] if one else [tag("b", run.label), ": "], "; ".join(run.remarks)) for run in told]
    return tag("ul", *items, class_="remarks") if told else None


def differences(page: Page) -> Html | None:
    """Section with the differences of all pairs of runs; None without any."""
    told = [environment for environment in page.environments if environment.differences]
    if not told:
        return None
    parts: list[Child] = [
        tag("h2", "Do they differ?", id="differences"),
        tag(
            "p",
            "Each pair is compared on the examples that both scored. p is of the test of the interval, adjusted "
            f"for all pairs of this page (Holm). The verdict is on the first; below {ALPHA:g} a difference is more "
            "than noise. An interval is for its difference alone: without the adjustment, p is below 0.05 exactly "
            "where it leaves 0 out.",
            class_="note",
        ),
    ]
    if has_samples(page):
        parts.append(tag("p", SAMPLES, class_="note"))
    if is_watched(page):
        parts.append(tag("p", WATCHED, class_="note"))
    for environment in told:
        if len(told) > 1:
            parts.append(tag("h3", environment.name))
        parts.append(_differences(environment))
    return tag("section", *parts)


def has_samples(page: Page) -> bool:
    """Whether some compared runs share too few examples."""
    return any(each.unpaired is not None for environment in page.environments for each in environment.differences)


def is_watched(page: Page) -> bool:
    """Whether one of the compared runs ended early (`--until-ci`)."""
    return any(run.summary.target is not None for each in page.environments if each.differences for run in each.runs)


def _differences(environment: EnvPart) -> Html:
    head = ["first", "second", "verdict", "difference", "95 % interval", "p", "wins / ties / losses", "examples"]
    rows: list[list[Child]] = []
    for each in environment.differences:
        runs = (name_of(environment.runs[position]) for position in (each.first, each.second))
        verdict = tag("span", each.outlook, class_=f"verdict {CLASSES.get(each.words, 'open')}")
        rows.append([*runs, verdict, *each.figures, numerals.count(each.paired.pairs)])
    return table(head, rows, words=(0, 1, 2), label=f"{environment.name}: differences")


def environment_section(environment: EnvPart, number: int, plots: Plots | None) -> Html:
    """Section of one environment: distributions, attempts, resource use, unscored rollouts, metrics."""
    parts: list[Child] = [tag("h2", environment.name, id=f"environment-{number}")]
    if plots is not None:
        if len(environment.runs) > 1:
            parts.append(tag("ul", *(tag("li", name_of(run)) for run in environment.runs), class_="legend"))
        parts.append(_figures(environment, plots))
    parts += [_metrics(environment), _groups(environment), _unscored(environment)]
    return tag("section", *parts)


def _figures(environment: EnvPart, plots: Plots) -> Html:
    runs, name = environment.runs, environment.name
    panels: list[Html] = []

    def add(drawn: Html, title: str, under: Child = None) -> None:
        words = tag("figcaption", tag("b", title), [" ", under] if under is not None else None)
        panels.append(tag("figure", words, drawn))

    bars = [bars_of(run.columns.means().values(), environment.limits) for run in runs[:MOST_PANELS]]
    tallest = max((max(each) for each in bars), default=0)
    for run, counts in zip(runs, bars, strict=False):
        if any(counts):
            title = f"Distribution of the examples' mean rewards: {name}, {run.label}"
            drawn = plots.distribution(counts, tallest, environment.limits, run.colour, title)
            add(drawn, "Examples by reward", name_of(run) if len(runs) > 1 else None)
    curves = [(run.colour, run.summary.pass_at_k, run.summary.pass_hat_k) for run in runs]
    if any(len([rate for rate in rates.values() if rate.value is not None]) > 1 for _, rates, _ in curves):
        drawn = plots.attempts(curves, f"pass@k and pass^k against k: {name}")
        add(drawn, "Attempts", "solid: pass@k, at least one passes; dashed: pass^k, all pass")
    for measure in MEASURES:
        known = [(run.colour, run.relations[measure]) for run in runs if measure in run.relations]
        if known:
            drawn = plots.relation(measure, known, f"Mean reward against {AXES[measure]}: {name}")
            add(drawn, f"Reward by {_LABELS[measure].lower()}")
    left = len(runs) - MOST_PANELS
    more = f"{left} more distributions are not drawn; the tables have every run." if left > 0 else None
    return join([tag("div", *panels, class_="panels"), tag("p", more, class_="note") if more else None])


def _metrics(environment: EnvPart) -> Html | None:
    rows: list[list[Child]] = [
        [
            name,
            name_of(run),
            numerals.score(spread.estimate.mean),
            numerals.interval(spread.estimate),
            numerals.score(spread.min),
            numerals.score(spread.max),
            numerals.count(spread.count),
        ]
        for run in environment.runs
        if not metrics_repeat_reward(run.summary)
        for name, spread in run.summary.metrics.items()
    ]
    if not rows:
        return None
    rows.sort(key=lambda row: str(row[0]))
    head = ["metric", "model", "mean", "95 % interval", "min", "max", "values"]
    body = table(head, rows, words=(0, 1), label=f"{environment.name}: metrics")
    return tag("details", tag("summary", f"Metrics ({len(rows)})"), body, open=len(rows) <= 12)


def _groups(environment: EnvPart) -> Html | None:
    """Table with the figures of the resource plots."""
    rows: list[list[Child]] = [
        [
            _LABELS[measure],
            name_of(run),
            f"{group.low:,.4g} … {group.high:,.4g}",
            numerals.count(group.rollouts),
            numerals.count(group.reward.examples),
            numerals.score(group.reward.mean),
            numerals.interval(group.reward),
        ]
        for measure in MEASURES
        for run in environment.runs
        for group in run.relations.get(measure, [])
    ]
    level = [_LABELS[m].lower() for m in MEASURES if not any(m in run.relations for run in environment.runs)]
    if not rows:
        return None
    head = ["by", "model", "from … to", "rollouts", "examples", "mean", "95 % interval"]
    words = (
        "Rollouts that took as much stand together; of more than a dozen different amounts, in up to six groups of "
        "about equal size. An association, not an effect: hard examples take longer and fail "
        "more." + (f" Not shown, because unknown or the same for all rollouts: {', '.join(level)}." if level else "")
    )
    if any(run.summary.target is not None for run in environment.runs):
        words += " Groups of runs that ended early as asked (--until-ci) have no interval."
    body = table(head, rows, words=(0, 1), label=f"{environment.name}: reward by what rollouts took")
    return tag(
        "details", tag("summary", "Reward by what rollouts took, in figures"), tag("p", words, class_="note"), body
    )


def _unscored(environment: EnvPart) -> Html:
    rows: list[list[Child]] = []
    for run in environment.runs:
        for trouble in run.found.troubles:
            share = numerals.percent(trouble.count / run.summary.num_rollouts)
            heal = "" if not trouble.retryable else f"{numerals.count(trouble.retryable)} may succeed on retry"
            rows.append(
                [
                    trouble.reason[:200],
                    name_of(run),
                    tag("span", trouble.message[:400], class_="said"),
                    f"{numerals.count(trouble.count)} ({share})",
                    "scored nevertheless" if trouble.is_scored else heal,
                ]
            )
    waiting = sum(run.found.waiting for run in environment.runs)
    missing = sum(run.summary.not_run for run in environment.runs)
    words = [
        *([f"{numerals.count(waiting)} rollouts are generated and not scored yet."] if waiting else []),
        *([f"{numerals.count(missing)} planned rollouts were not run."] if missing else []),
    ]
    if not rows:
        words = words or ["Every rollout has a score, and every function gave a value."]
        return tag("p", *words, class_="note")
    head = ["reason", "model", "what the first one said", "rollouts", ""]
    body = table(head, rows, words=(0, 1, 2, 4), label=f"{environment.name}: what has no score, and why")
    return join([tag("h3", "Without a score"), body, tag("p", " ".join(words), class_="note") if words else None])
