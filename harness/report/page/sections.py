"""Page sections about results: leaderboard, differences, and one section per environment. Numbers come from `gather`
and are formatted by `report.numerals`."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report import numerals
from harness.report.compare.ranking import explained_places
from harness.report.final_table import metrics_repeat_reward
from harness.report.labels import corrected_text
from harness.report.page.columns import COST, MEASURES, SECONDS, TOKENS, TURNS
from harness.report.page.gather import EnvPart, Page, RunPart
from harness.report.page.markup import Child, Html, join, table, tag
from harness.report.page.plots import AXES, Plots, bars_of, colour, symbol
from harness.stats.intervals import ALPHA, Estimate
from harness.stats.passk import pass_measures

MOST_PANELS = 12
"""Maximum number of runs of an environment with a distribution plot."""

WATCHED = (
    "Runs that ended early (--until-ci, sequential gate) have an interval that accounts for that. Intervals of "
    "differences and p-values assume a fixed number of examples, so they are approximate."
)

SAMPLES = (
    "Runs with fewer than two scored examples in common are compared as two independent samples, by Welch's t test. "
    "A comparison on the same examples would be more precise."
)

OTHER_WAY = {"better": "worse", "worse": "better"}
"""Verdict on the second of two runs, given the verdict on the first."""

CLASSES = {"better": "found", "worse": "lost"}
"""CSS class of each verdict; a verdict not listed here is undecided."""

WIDTH, HEIGHT, EDGE = 170, 18, 7
"""Size and margin of the plot of one mean, in pixels."""

_LABELS = {TURNS: "Turns", TOKENS: "Tokens", SECONDS: "Latency", COST: "Cost"}


def note(words: str) -> Html:
    """An HTML paragraph of explanation."""
    return tag("p", words, class_="note")


def name_of(run: RunPart) -> Html:
    """A run's label with the marker of its model, as HTML for tables."""
    sign = tag("span", symbol(run.colour), class_=f"mark t-{colour(run.colour)}", aria_hidden="true")
    return tag("span", sign, tag("span", run.label, class_="name"), class_="who")


def board_of(environment: EnvPart) -> dict[str, list[str]]:
    """Columns of a leaderboard: header → a cell for each run of an environment, best run first. Pass rates are for the
    k that were chosen, else for the largest."""
    summaries = [run.summary for run in environment.runs]
    chosen = {k for run in environment.runs for k in run.shown_k}
    ks = sorted(chosen or {max((k for summary in summaries for k in summary.pass_at_k), default=1)})
    board = {
        "mean": [numerals.score(run.estimate.mean) for run in environment.runs],
        "95 % interval": [numerals.interval(run.estimate) for run in environment.runs],
        **_places(environment),
        "scored": [numerals.coverage(summary) for summary in summaries],
    }
    for each in pass_measures(ks):
        board[each.name] = [numerals.pass_rate_interval(summary.pass_rates.get(each.name)) for summary in summaries]
    corrected = [run.corrected for run in environment.runs]
    if any(corrected):
        board["corrected by labels"] = [numerals.NONE if c is None else corrected_text(c) for c in corrected]
    board["tokens in"] = [numerals.tokens(summary.usage, summary.usage.input_tokens) for summary in summaries]
    board["tokens out"] = [numerals.tokens(summary.usage, summary.usage.output_tokens) for summary in summaries]
    if any(summary.usage.cost is not None for summary in summaries):
        board["cost"] = [numerals.dollars(summary.usage.cost) for summary in summaries]
    return board | {"time": [numerals.duration(summary.wall_s) for summary in summaries]}


def _places(environment: EnvPart) -> dict[str, list[str]]:
    """Columns of places and groups; empty if the runs are not ranked."""
    if environment.ranked is None:
        return {}
    places = environment.ranked.places
    return {
        "places": [numerals.NONE if place is None else place.span for place in places],
        "group": ["" if place is None else place.letters for place in places],
    }


def strip(
    estimate: Estimate, limits: tuple[float, float], number: int, bounds: tuple[float, float] | None = None
) -> Html:
    """Draw a mean with its interval as a small plot for a table cell.

    Args:
        estimate: The mean and its interval.
        limits: Minimum and maximum of the axis.
        number: Colour index of the run.
        bounds: The mean if all unscored rollouts had the worst reward, and if they had the best; None if all have one.
    """

    def place(value: float) -> str:
        part = min(1.0, max(0.0, (value - limits[0]) / (limits[1] - limits[0])))
        return f"{EDGE + part * (WIDTH - 2 * EDGE):.1f}"

    middle, name = f"{HEIGHT / 2:g}", colour(number)
    shapes = [tag("line", x1=EDGE, x2=WIDTH - EDGE, y1=middle, y2=middle, class_="s-grid")]
    if bounds is not None:
        low, high = map(place, bounds)
        width = f"{float(high) - float(low):.1f}"
        shapes.append(tag("rect", x=low, y="2", width=width, height=HEIGHT - 4, class_="pale"))
    if estimate.low is not None and estimate.high is not None:
        low, high = place(estimate.low), place(estimate.high)
        shapes.append(tag("line", x1=low, x2=high, y1=middle, y2=middle, class_=f"bar s-{name}"))
    if estimate.mean is not None:
        shapes.append(tag("circle", cx=place(estimate.mean), cy=middle, r="4.5", class_=f"f-{name}"))
    words = f"mean {numerals.score(estimate.mean)}, 95 % interval {numerals.interval(estimate)}"
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *shapes, viewBox=box, width=WIDTH, height=HEIGHT, role="img", aria_label=words, class_="strip")


def leaderboards(page: Page, grid: Html | None = None) -> Html:
    """Page section with a leaderboard per environment.

    Args:
        page: Data of the page.
        grid: Section with the table of models × environments; None to omit it.
    """
    heading = tag("h2", "Leaderboard", id="leaderboard")
    parts: list[Child] = [heading, grid]
    for environment in page.environments:
        if len(page.environments) > 1:
            parts.append(tag("h3", environment.name))
        parts.append(_leaderboard(environment))
        mentioned = [run for run in environment.runs if run.remarks]
        names = [[] if len(environment.runs) == 1 else [tag("b", run.label), ": "] for run in mentioned]
        items = [tag("li", name, "; ".join(run.remarks)) for run, name in zip(mentioned, names, strict=True)]
        parts.append(tag("ul", *items, class_="remarks") if items else None)
    words = (
        "Mean reward over examples, each the mean over its scored rollouts. The bar is the 95 % interval on a common "
        "axis. A pale band shows how far the mean could move if the rollouts without a score had one."
    )
    if any(len(environment.runs) > 1 for environment in page.environments):
        words += (
            " Overlapping intervals do not show that two models are equal: one column compares them on the same "
            "examples, which is more precise."
        )
    if rankings := [environment.ranked for environment in page.environments if environment.ranked is not None]:
        words += f" Places are from the examples that all runs scored. {explained_places(rankings)}"
    return tag("section", *parts, note(words))


def _two_lines(rate: str) -> Child:
    """A pass rate with its interval below, so that the table fits the page."""
    value, _, interval = rate.partition(" ")
    return tag("span", value, " ", tag("br"), tag("small", interval)) if interval else value


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
            lacking = [run.summary.scored < max(run.summary.planned, run.summary.num_rollouts) for run in runs]
            classes = ["warn" if lacks else None for lacks in lacking]
            columns[name] = [tag("span", cell, class_=each) for cell, each in zip(cells, classes, strict=True)]
        elif name == "tokens in":
            columns["tokens in + out"] = [numerals.tokens_in_and_out(run.summary.usage) for run in runs]
        elif name.startswith("pass"):
            columns[name] = [_two_lines(cell) for cell in cells]
        elif name == "group":  # in the column of the places, so that the table fits the page
            columns["places"] = [" ".join(pair) for pair in zip(board["places"], cells, strict=True)]
        elif name != "tokens out":
            columns[name] = cells
    examples = sorted({run.summary.num_examples for run in runs})
    rollouts = sorted({run.manifest.planned.get("rollouts_per_example", 1) for run in runs})
    planned = f"{' / '.join(map(numerals.count, examples))} {'example' if examples == [1] else 'examples'}"
    if rollouts != [1]:
        planned += f", {' / '.join(map(str, rollouts))} rollouts each"
    rows = zip(*columns.values(), strict=True)
    return table([*columns], rows, label=f"{environment.name}: leaderboard", caption=planned)


def _against_best(environment: EnvPart, position: int) -> Child:
    best = environment.differences[0].first
    if position == best:
        return "best"
    found = next((d for d in environment.differences if (d.first, d.second) == (best, position)), None)
    if found is None:
        return numerals.NONE
    mean = found.estimate.mean
    size = numerals.difference(Estimate(None if mean is None else -mean))
    words = OTHER_WAY.get(found.words, found.words)
    return join([f"{size} ", tag("span", words, class_=CLASSES.get(words, "open"))])


def differences(page: Page) -> Html | None:
    """Page section with the differences of all pairs of runs; None if there are no pairs."""
    mentioned = [environment for environment in page.environments if environment.differences]
    if not mentioned:
        return None
    words = (
        "Each pair is compared on the examples that both scored. p is of the test of the interval, adjusted "
        f"for all pairs of this page (Holm). The verdict is on the first; below {ALPHA:g} a difference is more "
        "than noise. An interval is for its difference alone: without the adjustment, p is below 0.05 exactly "
        "where it leaves 0 out."
    )
    parts: list[Child] = [tag("h2", "Do they differ?", id="differences"), note(words), map(note, cautions(page))]
    head = ["first", "second", "verdict", "difference", "95 % interval", "p", "wins / ties / losses", "examples"]
    for environment in mentioned:
        if len(mentioned) > 1:
            parts.append(tag("h3", environment.name))
        rows: list[list[Child]] = []
        for each in environment.differences:
            runs = (name_of(environment.runs[position]) for position in (each.first, each.second))
            verdict = tag("span", each.outlook, class_=f"verdict {CLASSES.get(each.words, 'open')}")
            rows.append([*runs, verdict, *each.figures, numerals.count(each.paired.pairs)])
        parts.append(table(head, rows, words=(0, 1, 2), label=f"{environment.name}: differences"))
    return tag("section", *parts)


def cautions(page: Page) -> list[str]:
    """Sentences about comparisons of runs that share too few examples, or that ended early."""
    has_samples = any(each.unpaired is not None for each in page.differences)
    compared = [run for environment in page.environments if environment.differences for run in environment.runs]
    is_watched = any(run.summary.target is not None for run in compared)
    return [*([SAMPLES] if has_samples else []), *([WATCHED] if is_watched else [])]


def environment_section(environment: EnvPart, number: int, plots: Plots | None) -> Html:
    """Page section of one environment: reward distributions, pass rates, resource use, unscored rollouts, metrics."""
    parts: list[Child] = [tag("h2", environment.name, id=f"environment-{number}")]
    if plots is not None:
        if len(environment.runs) > 1:
            parts.append(tag("ul", *(tag("li", name_of(run)) for run in environment.runs), class_="legend"))
        parts.append(_figures(environment, plots))
    return tag("section", *parts, _metrics(environment), _groups(environment), _unscored(environment))


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
    more = f"{left} more distributions are not drawn; the tables have every run."
    return join([tag("div", *panels, class_="panels"), note(more) if left > 0 else None])


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
    """Table with the numbers behind the plots of reward by resource use."""
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
    words = (
        "Rollouts that used the same amount form a group; with more than a dozen different amounts, there are up to "
        "six groups of about equal size. An association, not an effect: hard examples take longer and fail "
        "more." + (f" Not shown, because unknown or the same for all rollouts: {', '.join(level)}." if level else "")
    )
    if any(run.summary.target is not None for run in environment.runs):
        words += " Groups of runs that ended early have no interval."
    head = ["by", "model", "from … to", "rollouts", "examples", "mean", "95 % interval"]
    body = table(head, rows, words=(0, 1), label=f"{environment.name}: reward by what rollouts took")
    return tag("details", tag("summary", "Reward by what rollouts took, in figures"), note(words), body)


def _unscored(environment: EnvPart) -> Html:
    rows: list[list[Child]] = []
    for run in environment.runs:
        for trouble in run.found.troubles:
            share = numerals.percent(trouble.count / run.summary.num_rollouts)
            heal = f"{numerals.count(trouble.retryable)} may succeed on retry" if trouble.retryable else ""
            said = tag("span", trouble.message[:400], class_="said")
            counted = f"{numerals.count(trouble.count)} ({share})"
            remarks = [
                "scored nevertheless" if trouble.is_scored else heal,
                f"on {trouble.where}" if trouble.nodes else "",
            ]
            rows.append([trouble.reason[:200], name_of(run), said, counted, "; ".join(filter(None, remarks))])
    waiting = sum(run.found.waiting for run in environment.runs)
    missing = sum(run.summary.not_run for run in environment.runs)
    words = [
        *([f"{numerals.count(waiting)} rollouts are generated and not scored yet."] if waiting else []),
        *([f"{numerals.count(missing)} planned rollouts were not run."] if missing else []),
    ]
    if not rows:
        return tag("p", *(words or ["Every rollout has a score, and every function gave a value."]), class_="note")
    head = ["reason", "model", "first error message", "rollouts", ""]
    body = table(head, rows, words=(0, 1, 2, 4), label=f"{environment.name}: reasons for missing scores")
    return join([tag("h3", "Without a score"), body, note(" ".join(words)) if words else None])
