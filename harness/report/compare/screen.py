"""Terminal output of a comparison: scores of each run, differences from the first run, verdicts, differing examples.
Numbers come from `sides`, the table layout from `report.layout`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from harness.report import numerals
from harness.report.compare.equal import equality_lines
from harness.report.compare.sequential import early_cause
from harness.report.compare.sides import ComparedRun, Match
from harness.report.layout import LEAST_NAME, Column, Group, grid, head, prose
from harness.report.text import clean, fit
from harness.stats.averages import macro_mean
from harness.stats.hypotheses import p_of_interval
from harness.stats.intervals import ALPHA, Estimate
from harness.stats.methods import describe

LONGEST_ID = 40
"""Maximum characters of an example's id in the table of differing examples."""

LONGEST_LABEL = 80
"""Maximum characters of a run's label in sentences."""


@dataclass(frozen=True, slots=True)
class Compared:
    """All comparisons that one call of `bench compare` prints."""

    matches: tuple[Match, ...]
    """Comparison of each candidate with its baseline, grouped by environment."""
    unmatched: tuple[str, ...] = ()
    """Sentences about runs that were not compared."""
    averages: tuple[tuple[str, Estimate], ...] = field(default=())
    """Label and mean difference of each candidate, if there are several environments."""

    @property
    def sides(self) -> list[ComparedRun]:
        """The compared runs, each once for each measure."""
        sides = (side for match in self.matches for side in (match.baseline, match.candidate))
        return list({(side.run.id, side.measure): side for side in sides}.values())


def averages_of(matches: Sequence[Match]) -> tuple[tuple[str, Estimate], ...]:
    """Average each candidate's difference over its environments, equally weighted; empty if there is only one
    environment. Requires the same baseline model in all environments. Each measure has averages of its own."""
    measures = dict.fromkeys(match.candidate.measure for match in matches)
    groups = [[match for match in matches if match.candidate.measure == measure] for measure in measures]
    return tuple(
        (label if group[0].candidate.attempts is None else f"{label} · {group[0].candidate.measure}", estimate)
        for group in groups
        for label, estimate in _averages_of(group)
    )


def _averages_of(matches: Sequence[Match]) -> tuple[tuple[str, Estimate], ...]:
    columns: dict[str, list[Match]] = {}
    for match in matches:
        columns.setdefault(match.column, []).append(match)
    found = {
        column: group
        for column, group in columns.items()
        if len({match.name for match in group}) == len(group) > 1
        and not any(match.candidate.manifest.functions for match in group)
        and len({match.baseline.label for match in group}) == 1
        and all(match.estimate.mean is not None for match in group)
    }
    models = [{match.candidate.label for match in group} for group in found.values()]
    # Each column must have one model, and all columns different ones.
    are_told_apart = sum(map(len, models)) == len(set[str]().union(*models)) == len(models)
    return tuple(
        (group[0].candidate.label if are_told_apart else column, macro_mean([match.estimate for match in group]))
        for column, group in found.items()
    )


def screen(found: Compared, width: int, *, flips: int) -> Iterator[Text]:
    """Format all comparisons of runs as lines for the terminal.

    Args:
        found: The comparisons.
        width: Width of the terminal in cells.
        flips: Maximum number of differing examples to list per comparison.
    """
    groups: dict[tuple[str, str, str], list[Match]] = {}
    for match in found.matches:
        groups.setdefault((match.name, str(match.baseline.run.path), match.baseline.measure), []).append(match)
    for group in groups.values():
        named = labels([group[0].baseline, *(match.candidate for match in group)])
        yield from _group(group, named, width)
        for label, match in zip(named[1:], group, strict=True):
            yield from _flips(match, (named[0], label), width, flips)
        yield Text()
    if found.averages:
        yield head("Average over the environments")
        columns = [
            Column("difference", [numerals.difference(estimate) for _, estimate in found.averages]),
            Column("95 % interval", [numerals.signed_interval(estimate) for _, estimate in found.averages]),
            Column("p", [numerals.p_value(p_of_interval(estimate)) for _, estimate in found.averages]),
        ]
        yield from grid([clean(column) for column, _ in found.averages], "run", [columns], width)
        yield Text()
    yield from prose(_legend(found), width)
    if found.unmatched:
        yield from prose(f"Not compared: {' '.join(found.unmatched)}", width)


def labels(sides: Sequence[ComparedRun]) -> list[str]:
    """Choose labels that distinguish the runs: their models, else their names, else their ids. Labels are numbered if a
    table would shorten them to the same text."""
    # The name of a run; in a sweep, only the part in brackets, which distinguishes its runs.
    begins = [f"{side.manifest.env_id}[" for side in sides]
    names = [
        name[len(begin) : -1] if name.startswith(begin) and name.endswith("]") else name
        for name, begin in zip([side.manifest.name for side in sides], begins, strict=True)
    ]
    ways = [side.label for side in sides], names, [side.run.id for side in sides]
    for way in ways:
        named = [clean(words, LONGEST_LABEL) for words in way]
        if len(set(named)) == len(named) and all(named):
            break
    else:
        named = [clean(side.run.path, LONGEST_LABEL) for side in sides]
    if len({fit(words, LEAST_NAME) for words in named}) == len(named):
        return named
    return [f"{number} {words}" for number, words in enumerate(named, 1)] if len(named) > 2 else named


def _group(group: Sequence[Match], named: Sequence[str], width: int) -> Iterator[Text]:
    sides = [group[0].baseline, *(match.candidate for match in group)]
    models = {side.label for side in sides}
    of_all = f" · {clean(models.pop(), LONGEST_LABEL)}" if len(models) == 1 else ""
    yield from prose(f"{clean(group[0].name)}{of_all} · {clean(sides[0].measure)}", width, "bold")
    means = [side.spread.estimate for side in sides]
    columns: list[Group] = [
        [
            Column("mean", [numerals.score(mean.mean) for mean in means]),
            Column("95 % interval", [numerals.interval(mean) for mean in means]),
        ],
        [Column("scored", [f"{numerals.count(side.scored)} of {numerals.count(side.planned)}" for side in sides])],
        [Column(f"p{part}", [numerals.latency(side.latency(part / 100)) for side in sides]) for part in (50, 95)],
        [
            Column("tokens in", [numerals.tokens(side.usage, side.usage.input_tokens) for side in sides]),
            Column("tokens out", [numerals.tokens(side.usage, side.usage.output_tokens) for side in sides]),
        ],
    ]
    if any(side.usage.cost is not None for side in sides):
        columns[-1].append(Column("cost", [numerals.dollars(side.usage.cost) for side in sides]))
    yield from grid(named, "run", columns, width)
    for label, side in zip(named, sides, strict=True):
        for words in missing(label, side):
            yield from prose(words, width)
    yield Text()
    yield from prose(f"Difference from {named[0]}, example by example; + is better", width, "bold")
    counts = ("wins", "losses", "ties", "pairs")
    columns = [
        [
            Column("verdict", [match.verdict for match in group]),
            Column("difference", [numerals.difference(match.estimate) for match in group]),
            Column("95 % interval", [numerals.signed_interval(match.estimate) for match in group]),
        ],
        [Column("p", [numerals.p_value(match.adjusted) for match in group])],
        [Column(name, [numerals.count(getattr(match.paired, name)) for match in group]) for name in counts],
    ]
    yield from grid(named[1:], "run", columns, width)
    yield Text()
    for label, match in zip(named[1:], group, strict=True):
        for words in explained(label, named[0], match):
            yield from prose(words, width)
    if group[0].equality is not None:
        yield Text()
    yield from equality_lines(group, named, width)


def missing(label: str, side: ComparedRun) -> Iterator[str]:
    """Sentences about rollouts without a score or not run, and about an early end."""
    if side.unscored:
        yield f"{label}: without a score: {numerals.reasons(side.unscored)}."
    if side.ended_early is not None:
        if side.sequential is not None:
            yield f"{label}: sequential gate, valid at any stopping time: {clean(side.sequential.words(), 300)}."
        is_valid = side.ended_early.estimate.low is not None or not (side.cluster_key or side.attempts)
        own = "Its own interval accounts for that." if is_valid else "So it has no interval of its own here."
        yield (
            f"{label}: ended early ({early_cause(side.manifest)}). {own} Intervals of differences and "
            "p-values assume a fixed number of examples, so they are approximate."
        )
    if side.alone:
        have = "example has" if side.alone == 1 else "examples have"
        own = "is a cluster of its own" if side.alone == 1 else "are clusters of their own"
        yield f"{label}: {numerals.count(side.alone)} {have} no {clean(side.cluster_key)} and {own}."
    if side.planned > side.rollouts:
        state = "still running, or killed" if side.manifest.status == "running" else side.manifest.status
        left = numerals.count(side.planned - side.rollouts)
        yield f"{label}: {left} of {numerals.count(side.planned)} rollouts not run ({clean(state)})."


def explained(label: str, baseline: str, match: Match) -> Iterator[str]:
    """Sentences that explain a comparison's figures."""
    size = numerals.difference(match.estimate).lstrip("+-")
    if match.is_found:
        yield f"{label} is {match.verdict} than {baseline}, by {size}: more than noise."
    elif match.verdict == "unknown":
        yield f"{label}: too little to compare with {baseline}.{_too_few(match)}"
    elif match.estimate.mean or match.unpaired is not None:
        alone = ""
        if match.p_value is not None and match.p_value < ALPHA:  # not significant after correction
            p = numerals.p_value(match.p_value)
            alone = f" Its own p is {p}, but it is one of {match.comparisons} comparisons."
        yield f"{label} and {baseline} are tied: the difference may be noise.{alone}{_settling(match)}"
    elif match.flips:
        yield f"{label} and {baseline} are tied: their means are the same.{_settling(match)}"
    else:
        yield f"{label} and {baseline} have the same score on every example.{_settling(match)}"
    if match.unpaired is not None and match.p_value is not None:
        yield (
            f"The two share {_examples(match.paired.pairs)}, so they are compared as two independent samples (Welch). "
            "A comparison on the same examples would be more precise."
        )
    counts = (
        (match.only_candidate, f"of {label} alone"),
        (match.only_baseline, f"of {baseline} alone"),
        (match.lost, f"{match.lack} on one side or the other"),
    )
    if parts := [f"{numerals.count(number)} {words}" for number, words in counts if number]:
        means = ""
        if match.unpaired is None and match.paired.pairs:
            first, second = numerals.score(match.paired.first), numerals.score(match.paired.second)
            means = f"; on these the means are {first} and {second}"
        yield f"{_examples(match.paired.pairs).capitalize()} paired{means}. Not paired: {', '.join(parts)}."


def _too_few(match: Match) -> str:
    """Explain that there are too few examples for any significant result."""
    if not match.is_too_small or match.p_value is None:
        return ""
    is_clustered = match.paired.estimate.clusters is not None
    needed = match.least if is_clustered else match.settling or match.least
    more = numerals.count(needed) if needed == match.least else f"about {numerals.count(needed)}"
    noun = "cluster" if is_clustered else "example"
    units = numerals.counted(match.units, f"{noun} is", f"{noun}s are")
    return f" {units} too few for a significant difference: it takes {more} or more."


def _settling(match: Match) -> str:
    words, pairs = "", match.paired.pairs
    if match.settling is not None:
        if match.settling <= pairs:
            return " If it is real, a few more examples would show it."
        needed = numerals.count(match.settling)
        words = f" If it is real, about {needed} examples would show it (there are {numerals.count(pairs)})."
    if match.detectable is not None:
        words += f" These show a difference of {numerals.score(match.detectable)} or more in 80 % of cases."
    return words


def _examples(number: int) -> str:
    return numerals.counted(number, "example") if number else "no example"


def _flips(match: Match, named: tuple[str, str], width: int, most: int) -> Iterator[Text]:
    if not match.flips or most < 1:
        return
    shown = match.flips[:most]
    yield Text()
    which = "the one" if len(shown) == 1 else f"the {numerals.count(len(shown))}"
    more = f"; {which} furthest apart" if len(shown) < len(match.flips) else ""
    first, second = named
    yield from prose(
        f"{first} (baseline) and {second} (run) differ on {numerals.count(len(match.flips))} of "
        f"{_examples(match.paired.pairs)}{more}",
        width,
        "bold",
    )
    columns = [
        Column("baseline", [numerals.score(flip.second.mean) for flip in shown]),
        Column("run", [numerals.score(flip.first.mean) for flip in shown]),
        Column("difference", [numerals.difference(Estimate(mean=flip.difference)) for flip in shown]),
    ]
    names = [clean(flip.first.example_id, LONGEST_ID) for flip in shown]
    yield from grid(names, "example", [columns], width)


def _legend(found: Compared) -> str:
    matches = found.matches
    estimates = [match.estimate for match in matches] + [estimate for _, estimate in found.averages]
    methods = dict.fromkeys(describe(estimate.method) for estimate in estimates if estimate.method is not None)
    words = (
        "Examples are paired by content: prompt, answer, task and info. An example's value is the mean over its scored "
        "rollouts. A verdict is better or worse where p is below 0.05."
    )
    made = [match for match in matches if match.p_value is not None]
    corrected = f", corrected for {len(made)} comparisons (Holm)" if len(made) > 1 else ""
    tests = dict.fromkeys("Welch's t test" if match.unpaired else "Student's t, as the interval" for match in made)
    if made:
        words += f" p: {' or '.join(tests)}{corrected}."
    keys = dict.fromkeys(clean(side.cluster_key) for side in found.sides if side.cluster_key)
    if keys:
        words += f" Examples with the same {' or '.join(keys)} are one cluster, the unit of intervals and p."
    if any(match.equality is not None for match in matches):
        many = f"; its interval allows for {len(matches)} comparisons (Bonferroni)" if len(matches) > 1 else ""
        words += (
            " Equal or different: the whole interval lies within the margin, or beyond it on one side; equal also "
            f"needs enough examples to see rare losses{many}."
        )
    if methods:
        each = ", each difference for itself" if len(matches) > 1 else ""
        words += f" Interval{each}: {'; '.join(methods)}."
    return words
