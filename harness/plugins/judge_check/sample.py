"""Choice of the rollouts to label next. Strata are ranges of the score. The numbers to label in each stratum are those
that narrow the interval of the corrected mean most; within it, every rollout has the same chance."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.report.labels import LabelledRollout, LabelledRun
from harness.stats.distributions import t_quantile
from harness.stats.intervals import LEVEL, sample_variance
from harness.store.draws import Draw, Draws, stratum_of

MOST_STRATA = 4

PRIOR_ERROR = 0.1
"""Share of a judge's scores that are taken to be wrong before any label is known."""

PRIOR_LABELS = 4
"""Number of labels that the assumption about errors counts as."""

EVEN = 0.5
"""Share of the variance of errors that is taken to be the same in all strata, so that none is hardly looked at."""


@dataclass(frozen=True, slots=True)
class NextLabels:
    """Rollouts to label next."""

    draw: Draw
    rollouts: list[LabelledRollout]
    """The drawn rollouts, in random order."""
    forecast: dict[int, float]
    """Expected half width of the interval by the number of drawn rollouts that have a label."""
    left: int
    """Number of scored rollouts that no draw has taken."""
    is_guessed: bool
    """Whether no label was known from which errors of the judge could be estimated."""


def draw_next(found: LabelledRun, draws: Draws, count: int, seed: int) -> NextLabels:
    """Draw rollouts for labelling.

    Numbers per stratum minimize Σ W²S²/n, with W the share and S² the variance of the labels' difference from the score
    (Neyman 1934; integers by Wright 2012). Within a stratum the sample is systematic along a random order of examples,
    so that rollouts of one example are rarely drawn together.

    Args:
        found: The run with the labels that are known.
        draws: Earlier draws.
        count: Number of rollouts to draw.
        seed: Random seed.

    Raises:
        UsageError: nothing is left to draw, or the earlier draws do not fit the run.
    """
    if not found.rollouts:
        raise UsageError(f"{found.run.id} has no scored rollouts, so none can be drawn for labelling")
    newest, taken = draws.newest, draws.strata
    if newest is not None and newest.measure != found.measure:
        raise UsageError(f"{found.run.id}: earlier draws are by {newest.measure}, not by {found.measure}")
    edges = _edges(found) if newest is None else newest.edges
    strata: list[list[LabelledRollout]] = [[] for _ in range(len(edges) + 1)]
    for each in found.rollouts:
        stratum = stratum_of(each.score, edges)
        if taken.get(each.key, stratum) != stratum:
            raise UsageError(
                f"{found.run.id}: scores have changed since the last draw, as by a rescore, so a further draw cannot "
                "be joined to it; label the drawn rollouts, or draw from a run that was not rescored"
            )
        strata[stratum].append(each)
    rest = [[each for each in stratum if each.key not in taken] for stratum in strata]
    left = sum(map(len, rest))
    if not left:
        raise UsageError(f"{found.run.id}: all {len(found.rollouts)} scored rollouts are drawn already")
    known = [len(stratum) - len(free) for stratum, free in zip(strata, rest, strict=True)]
    generator = random.Random(f"{seed}/{len(draws.draws)}")
    spread = _variances(found, strata)
    sizes = _allocated(strata, spread, known, min(count, left))
    chosen = [
        _systematic(free, size - before, generator) for free, size, before in zip(rest, sizes, known, strict=True)
    ]
    keys = tuple(tuple(each.key for each in group) for group in chosen)
    rollouts = [each for group in chosen for each in group]
    generator.shuffle(rollouts)
    draw = Draw(found.measure, tuple(edges), tuple(map(len, strata)), keys, seed)
    forecast: dict[int, float] = {}
    for total in (sum(known), *(sum(known) + len(rollouts) * times for times in (1, 2, 4))):
        planned = _allocated(strata, spread, [0] * len(strata), min(total, len(found.rollouts)))
        if total and min(planned[n] for n, stratum in enumerate(strata) if stratum):
            forecast[min(total, len(found.rollouts))] = _half_width(found, strata, spread, planned)
    return NextLabels(draw, rollouts, forecast, left - len(rollouts), not found.labelled)


def _edges(found: LabelledRun) -> list[float]:
    """Lowest score of each stratum but the first: of each of a few scores, or of quarters of the rollouts."""
    ordered = sorted(each.score for each in found.rollouts)
    values = sorted({*ordered})
    if len(values) > MOST_STRATA:
        values = sorted({ordered[len(ordered) * n // MOST_STRATA] for n in range(MOST_STRATA)})
        values = values if values[0] == ordered[0] else [ordered[0], *values]
    return values[1:]


def _variances(found: LabelledRun, strata: Sequence[Sequence[LabelledRollout]]) -> list[float]:
    """Variance of the labels' difference from the score in each stratum, as far as labels say, else as assumed."""
    low, high = found.limits or (min(each.score for each in found.rollouts), max(each.score for each in found.rollouts))
    prior = PRIOR_ERROR * (1 - PRIOR_ERROR) * ((high - low) or 1.0) ** 2
    made: list[float] = []
    for stratum in strata:
        errors = [each.label - each.score for each in stratum if each.label is not None]
        seen = sample_variance(errors) * (len(errors) - 1) if len(errors) > 1 else 0.0
        made.append((seen + PRIOR_LABELS * prior) / (max(0, len(errors) - 1) + PRIOR_LABELS))
    whole = math.fsum(len(stratum) * each for stratum, each in zip(strata, made, strict=True)) / len(found.rollouts)
    return [EVEN * whole + (1 - EVEN) * each for each in made]


def _allocated(
    strata: Sequence[Sequence[object]], spread: Sequence[float], known: Sequence[int], count: int
) -> list[int]:
    """Numbers of each stratum after `count` more, each given where it lowers the variance most (Wright 2012)."""
    sizes = list(known)
    for _ in range(count):
        gains = [
            0.0 if sizes[n] >= len(stratum) else math.inf if not sizes[n]
            else len(stratum) ** 2 * spread[n] / (sizes[n] * (sizes[n] + 1))
            for n, stratum in enumerate(strata)
        ]  # fmt: skip
        sizes[gains.index(max(gains))] += 1
    return sizes


def _systematic(rollouts: Sequence[LabelledRollout], count: int, generator: random.Random) -> list[LabelledRollout]:
    """A random sample in which every rollout has the same chance, spread over the examples."""
    places = {key: generator.random() for key in dict.fromkeys(each.example_key for each in rollouts)}
    shuffled = list(rollouts)
    generator.shuffle(shuffled)
    shuffled.sort(key=lambda each: places[each.example_key])
    start = generator.random()
    return [shuffled[math.floor((start + n) * len(shuffled) / count)] for n in range(count)]


def _half_width(
    found: LabelledRun, strata: Sequence[Sequence[object]], spread: Sequence[float], sizes: Sequence[int]
) -> float:
    """Expected half width of the corrected mean's interval with these numbers of labels."""
    total, labels = len(found.rollouts), sum(sizes)
    examples = Counter[str]()
    sums: dict[str, float] = {}
    for each in found.rollouts:
        examples[each.example_key] += 1
        sums[each.example_key] = sums.get(each.example_key, 0.0) + each.score
    means = [sums[key] / examples[key] for key in sums]
    variance = sample_variance(means) / len(means) if len(means) > 1 else 0.0
    for stratum, each, size in zip(strata, spread, sizes, strict=True):
        if size:
            variance += (len(stratum) / total) ** 2 * each / size * (1 - size / len(stratum))
    if found.limits is not None:
        variance += 2 * ((found.limits[1] - found.limits[0]) / (labels + 2)) ** 2  # the two that are added
    return t_quantile(0.5 + LEVEL / 2, max(1, min(labels, len(means)) - 1)) * math.sqrt(variance)
