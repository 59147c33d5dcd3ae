"""Ranking of all runs of an environment against each other (`bench compare --all`): places with simultaneous intervals,
and groups that cannot be told apart. Statistics are in `stats.ranks`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from harness.core.errors import UsageError
from harness.core.types import JsonDict
from harness.report import numerals
from harness.report.compare.screen import labels, missing
from harness.report.compare.sides import REWARD, ComparedRun, check_thresholds
from harness.report.layout import Column, grid, prose
from harness.report.text import clean
from harness.stats.intervals import Estimate
from harness.stats.ranks import ModelPlace, RankedRuns, is_comparable, rank_runs
from harness.stats.summary import Spread

NO_PROOF = "Runs that share a letter cannot be told apart on these examples, which does not show that they are equal."


@dataclass(frozen=True, slots=True)
class RankedSides:
    """Runs of one environment in the order of their places."""

    sides: tuple[ComparedRun, ...]
    """The runs, best mean first; those that are not ranked come last."""
    places: tuple[ModelPlace | None, ...]
    found: RankedRuns

    def spread_of(self, side: ComparedRun) -> Spread:
        """Mean and interval of a run over the examples of the ranking; without an interval if the run ended early and
        has other examples, too."""
        if side.ended_early is not None and len(self.found.keys) == len(side.means):
            return side.ended_early
        found = side.spread_over([side.cells[key] for key in self.found.keys])
        if side.ended_early is None:
            return found
        return replace(found, estimate=Estimate(found.estimate.mean, examples=found.estimate.examples))


def rankings_of(sides: Sequence[ComparedRun]) -> tuple[list[RankedSides], list[str]]:
    """Rank the runs of each environment and measure.

    Args:
        sides: The runs; several measures of one run are ranked separately.

    Returns:
        The rankings, and sentences about runs that are in none.

    Raises:
        UsageError: no runs can be ranked, or runs have different thresholds of passing.
    """
    groups: dict[tuple[str, str], list[ComparedRun]] = {}
    for side in sides:
        groups.setdefault((side.manifest.env_id, side.measure), []).append(side)
    made, left = list[RankedSides](), list[str]()
    for (env_id, measure), group in groups.items():
        check_thresholds(group)
        found = rank_runs([side.scores for side in group])
        if found is None:
            what = "" if measure == REWARD or len(group) == 1 else f" · {clean(measure)}"
            left.append(f"{clean(env_id)}{what} {_unranked(group)}.")
            continue
        pairs = sorted(zip(group, found.places, strict=True), key=lambda pair: _order(pair[1]))
        made.append(RankedSides(tuple(side for side, _ in pairs), tuple(place for _, place in pairs), found))
    left = list(dict.fromkeys(left))
    if not made:
        raise UsageError(f"nothing to rank: {' '.join(left)} Name several runs of one environment")
    return made, left


def _unranked(group: Sequence[ComparedRun]) -> str:
    """Why runs cannot be ranked."""
    if len(group) == 1:
        return "has only one run"
    most = max(len(side.means) for side in group)
    able = sum(is_comparable(len(side.means), most) for side in group)
    if able < 2:
        return f"has only one run with a score on half of {numerals.counted(most, 'example')}"
    return (
        f"has no two examples that all of its {numerals.count(able)} runs scored; leave out a run with other examples"
    )


def _order(place: ModelPlace | None) -> float:
    return float("inf") if place is None else -place.mean


def ranking_lines(rankings: Sequence[RankedSides], left: Sequence[str], width: int) -> Iterator[Text]:
    """The rankings as lines for the terminal."""
    for each in rankings:
        yield from _ranking(each, width)
        yield Text()
    keys = dict.fromkeys(clean(side.cluster_key) for each in rankings for side in each.sides if side.cluster_key)
    words = explained_places([each.found for each in rankings])
    if keys:
        words += f" Examples with the same {' or '.join(keys)} are one cluster, the unit of intervals and tests."
    yield from prose(words, width)
    if left:
        yield from prose(f"Not ranked: {' '.join(left)}", width)


def explained_places(rankings: Sequence[RankedRuns]) -> str:
    """Sentences that say what places and letters mean."""
    pairs = max(len(each.ranking.adjusted) for each in rankings)
    how = f", corrected for {numerals.count(pairs)} pairs (Holm)" if pairs > 1 else ""
    words = (
        "All intervals of places hold together with 95 %; equal models share places, and each interval contains all of "
        f"these. Test of a pair: Student's t on the differences by example{how}."
    )
    if all(each.ranking.groups is None for each in rankings):
        return f"{words} There are too many groups that cannot be told apart for letters."
    return f"{words} {NO_PROOF}"


def _ranking(each: RankedSides, width: int) -> Iterator[Text]:
    first = each.sides[0]
    named = labels(each.sides)
    ranked = sum(place is not None for place in each.places)
    title = f"{clean(first.manifest.env_id)} · {clean(first.measure)} · {numerals.counted(ranked, 'run')} on "
    yield from prose(title + numerals.counted(len(each.found.keys), "example"), width, "bold")
    means = [
        None if place is None else each.spread_of(side) for side, place in zip(each.sides, each.places, strict=True)
    ]
    columns = [
        [
            Column("place", [numerals.NONE if place is None else str(place.place) for place in each.places]),
            Column("places", [numerals.NONE if place is None else place.span for place in each.places]),
            Column("group", ["" if place is None else place.letters for place in each.places], is_text=True),
        ],
        [
            Column("mean", [numerals.NONE if mean is None else numerals.score(mean.estimate.mean) for mean in means]),
            Column(
                "95 % interval", [numerals.NONE if mean is None else numerals.interval(mean.estimate) for mean in means]
            ),
        ],
    ]
    yield from grid(named, "run", columns, width)
    for label, side, place in zip(named, each.sides, each.places, strict=True):
        if place is None:
            scored = f"{numerals.count(len(side.means))} of {numerals.count(each.found.most)} examples"
            yield from prose(f"{label}: not ranked: it has a score on {scored}.", width)
        for words in missing(label, side):
            yield from prose(words, width)
    if len(each.found.keys) < each.found.most:
        all_of = f"Only the {numerals.count(len(each.found.keys))} of {numerals.count(each.found.most)} examples"
        yield from prose(f"{all_of} that every ranked run scored are counted.", width)


def rankings_json(rankings: Sequence[RankedSides], left: Sequence[str]) -> JsonDict:
    """The rankings as JSON, for `--json`."""
    return {"schema_version": 1, "rankings": [_ranking_json(each) for each in rankings], "not_ranked": list(left)}


def _ranking_json(each: RankedSides) -> JsonDict:
    first, ranking = each.sides[0], each.found.ranking
    ids = [side.run.id for side in each.sides]
    by_place = {id(place): name for place, name in zip(each.places, ids, strict=True) if place is not None}
    names = [by_place[id(place)] for place in ranking.places]
    return {
        "env_id": first.manifest.env_id,
        "measure": first.measure,
        "examples": len(each.found.keys),
        "runs": [
            {
                "run": side.run.id,
                "path": str(side.run.path),
                "model": side.manifest.model,
                **place_json(place),
                "score": None if place is None else each.spread_of(side).to_json(),
            }
            for side, place in zip(each.sides, each.places, strict=True)
        ],
        "groups": None if ranking.groups is None else [[names[run] for run in group] for group in ranking.groups],
        "pairs": [{"first": names[a], "second": names[b], "p_adjusted": p} for a, b, p in ranking.adjusted],
    }


def place_json(place: ModelPlace | None) -> JsonDict:
    """A run's place as JSON: `place`, `places` and `groups`, null if the run is not ranked."""
    if place is None:
        return {"place": None, "places": None, "groups": None}
    return {"place": place.place, "places": [place.low, place.high], "groups": list(place.letters)}
