"""Ranking of several models on the same examples: places with simultaneous intervals, and groups of models that cannot
be told apart. For a single difference see `paired`."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.stats.arrays import column
from harness.stats.difference import LEAST_COMMON, Scores
from harness.stats.distributions import t_two_sided
from harness.stats.hypotheses import holm
from harness.stats.intervals import ALPHA, SAME, same

if TYPE_CHECKING:
    from harness.stats.arrays import Floats, Labels, Numbers

CELLS = 2_000_000
"""Number of differences that are in memory at a time."""

MOST_GROUPS = len(string.ascii_letters)
"""Maximum number of groups: one for each small and capital letter."""

LEAST_SHARE = 0.5
"""Minimum number of scored examples of a ranked run, as a share of those of the run with the most."""

MOST_PARTS = 400
"""Maximum number of sets while groups are being found."""


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """A model's place; 1 is best, and equal means share the better place."""

    mean: float
    place: int
    low: int
    """Best place that is plausible."""
    high: int
    """Worst place that is plausible."""
    groups: tuple[int, ...]
    """Numbers of the groups that the model belongs to, from 0."""

    @property
    def letters(self) -> str:
        """A letter for each group, in the style of a compact letter display."""
        return "".join(string.ascii_letters[number] for number in self.groups)

    @property
    def span(self) -> str:
        """The interval of places as text: `1–3`, or `2` if there is only one."""
        return str(self.low) if self.low == self.high else f"{self.low}–{self.high}"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Places of several models, in the order in which the models were given."""

    places: tuple[ModelPlace, ...]
    adjusted: tuple[tuple[int, int, float], ...]
    """(first, second, p-value) of each pair of models, adjusted for all pairs (Holm)."""
    groups: tuple[tuple[int, ...], ...] | None
    """Maximal sets of models of which no two can be told apart, each best first, ordered by their best models. None if
    there are more than `MOST_GROUPS`."""


def ranking(scores: Sequence[Numbers], clusters: Labels | None = None, alpha: float = ALPHA) -> Ranking:
    """Rank models by their means, with intervals of places that hold for all models at the same time.

    Every pair is compared by the test of `paired.paired_difference`, and p-values are adjusted for all pairs (Holm).
    The interval of a model begins after the models that are significantly better and ends before those that are
    significantly worse. If no adjusted finding is false, which has a probability of at least 1 − alpha, every interval
    contains the true place; if true means are equal, it contains all places that the tied models share.

    Args:
        scores: One row per model with one value per example; the same examples in the same order.
        clusters: Label of each example's cluster, if examples depend on each other.
        alpha: Probability that any interval misses its place.

    Raises:
        ValueError: no rows, no example, rows of different lengths, or a value that is not finite.

    Source: Klein, Wright & Wieczorek 2020 (places from pairwise comparisons); Mogstad, Romano, Shaikh & Wilhelm 2024
    (simultaneous intervals, ties); Piepho 2004 (groups).
    """
    import numpy as np

    if len(scores) == 0 or len({len(row) for row in scores}) > 1 or not len(scores[0]):
        raise ValueError("ranks need at least one model and one example, and one value of every model for each example")
    table = np.stack([column(row, "ranking") for row in scores])
    count = len(table)
    found = list(_tests(table, clusters))
    adjusted = [p if p is not None else 1.0 for p in holm([p for *_, p in found])]
    better, worse, apart = [0] * count, [0] * count, list[tuple[int, int]]()
    for (first, second, mean, _), p in zip(found, adjusted, strict=True):
        if p < alpha:
            winner, loser = (first, second) if mean > 0 else (second, first)
            worse[winner] += 1
            better[loser] += 1
            apart.append((winner, loser))
    means = [math.fsum(row) / len(row) for row in table.tolist()]
    groups = _groups(means, apart)
    member = [tuple(number for number, group in enumerate(groups or ()) if model in group) for model in range(count)]
    places = tuple(
        ModelPlace(means[model], _place(means, model), 1 + better[model], count - worse[model], member[model])
        for model in range(count)
    )
    pairs = tuple((first, second, p) for (first, second, *_), p in zip(found, adjusted, strict=True))
    return Ranking(places, pairs, groups)


@dataclass(frozen=True, slots=True)
class RankedRuns:
    """Ranking of runs on the examples that all of them scored."""

    places: tuple[ModelPlace | None, ...]
    """ModelPlace of each run; None for one that is not ranked, since it scored too few examples."""
    ranking: Ranking
    """Ranking of the others, in their order."""
    keys: tuple[str, ...]
    """The examples."""
    most: int
    """Number of examples that the run with the most scored."""


def rank_runs(runs: Sequence[Scores]) -> RankedRuns | None:
    """Rank runs on the examples that all of them scored. Runs with fewer than half as many scored examples as the one
    with the most are not ranked, so that they do not limit the examples of the others.

    Args:
        runs: Scores of each run. Clusters are used if every run has them.

    Returns:
        The ranking; None if fewer than two runs can be ranked, or if they share fewer than two examples.
    """
    most = max((len(run.means) for run in runs), default=0)
    ranked = [number for number, run in enumerate(runs) if is_comparable(len(run.means), most)]
    if len(ranked) < 2:
        return None
    first = runs[ranked[0]]
    keys = tuple(key for key in first.means if all(key in runs[number].means for number in ranked))
    if len(keys) < LEAST_COMMON:
        return None
    owners = first.clusters if all(runs[number].clusters is not None for number in ranked) else None
    found = ranking(
        [[runs[number].means[key] for key in keys] for number in ranked],
        None if owners is None else [owners[key] for key in keys],
    )
    by_run = dict(zip(ranked, found.places, strict=True))
    return RankedRuns(tuple(by_run.get(number) for number in range(len(runs))), found, keys, most)


def is_comparable(scored: int, most: int) -> bool:
    """Whether a run with `scored` scored examples is ranked if one with the most has `most`."""
    return scored > 0 and scored >= LEAST_SHARE * most


def _place(means: Sequence[float], model: int) -> int:
    own = means[model]
    return 1 + sum(each > own and not same(own, each) for each in means)


def _tests(table: Floats, clusters: Labels | None) -> Iterator[tuple[int, int, float, float]]:
    """Compare all pairs of rows: (first, second, mean difference, p-value of `paired.paired_difference`)."""
    import numpy as np

    models, examples = table.shape
    sizes, owners, order = np.ones(examples), None, None
    if clusters is not None:
        numbers = {label: number for number, label in enumerate(dict.fromkeys(clusters))}
        owner = np.array([numbers[label] for label in clusters])
        order = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner).astype(float)
        owners = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
    units = len(sizes)
    step = max(1, CELLS // examples)
    for first in range(models):
        for begin in range(first + 1, models, step):
            others = table[begin : begin + step]
            gaps = table[first] - others
            gaps[np.abs(gaps) <= SAME * np.maximum(np.abs(table[first]), np.abs(others))] = 0.0
            if order is not None and owners is not None:
                gaps = np.add.reduceat(gaps[:, order], owners, axis=1)
            middles, ratios = _statistics(gaps, sizes, units)
            for offset, (middle, ratio) in enumerate(zip(middles.tolist(), ratios.tolist(), strict=True)):
                p = t_two_sided(ratio, units - 1) if units > 1 else 1.0
                yield first, begin + offset, middle, p


def _statistics(gaps: Floats, sizes: Floats, units: int) -> tuple[Floats, Floats]:
    """Mean and t statistic of each row of differences (of units of these sizes) with one additional win and one
    additional loss, as in `paired`; 0 for rows without a difference."""
    import numpy as np

    size = sizes.mean()
    largest = np.abs(gaps).max(axis=1)
    scale = np.where(largest > 0, largest, 1.0)
    parts = gaps / scale[:, None]  # squares of these cannot overflow
    absolute = np.abs(parts).sum(axis=1)
    typical = np.divide((parts**2).sum(axis=1), absolute, out=np.zeros(len(parts)), where=absolute > 0) / size
    parts /= size
    n = units + 2
    middle = parts.sum(axis=1) / n
    total = 2 * (typical**2 + middle**2) + ((parts - middle[:, None] * sizes / size) ** 2).sum(axis=1)
    spread = np.sqrt(total) / n
    return middle * scale, np.divide(middle, spread, out=np.zeros(len(parts)), where=spread > 0)


def _groups(means: Sequence[float], apart: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], ...] | None:
    """Maximal sets without a significant difference, by splitting sets and absorbing those inside another (Piepho
    2004). Sets are bits of an integer, the best model being bit 0."""
    order = sorted(range(len(means)), key=lambda model: -means[model])
    bits = {model: 1 << position for position, model in enumerate(order)}
    sets = [(1 << len(means)) - 1]
    for winner, loser in sorted(apart, key=lambda pair: (bits[pair[0]], bits[pair[1]])):
        both = bits[winner] | bits[loser]
        split = [each for each in sets if each & both == both]
        kept = [each for each in sets if each & both != both]
        for part in (part for each in split for part in (each & ~bits[winner], each & ~bits[loser])):
            if not any(part & other == part for other in kept):
                kept = [other for other in kept if other & part != other] + [part]
        sets = kept
        if len(sets) > MOST_PARTS:
            return None
    if len(sets) > MOST_GROUPS:
        return None
    members = [[position for position in range(len(order)) if each >> position & 1] for each in sets]
    return tuple(tuple(order[position] for position in group) for group in sorted(members))
