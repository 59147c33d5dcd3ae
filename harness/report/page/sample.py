"""Choice of the examples that are shown with transcripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from harness.report.page.columns import TOKENS, RolloutColumns
from harness.report.page.gather import EnvPart

EXAMPLES = 60
"""Default number of examples per run with transcripts."""

A_REASON = 3
"""Examples taken early for each reason without a score."""

KINDS = {
    "unscored": "without a score, of every reason",
    "flips": "on which the runs of the environment differ most",
    "worst": "with the lowest mean",
    "best": "with the highest mean",
    "mixed": "whose rollouts disagree most",
    "longest": "with the most tokens written",
    "others": "evenly from the rest",
}
"""Kinds of examples, in the order in which they take turns."""


@dataclass(slots=True)
class Sample:
    """Chosen examples of one run."""

    kinds: dict[int, str] = field(default_factory=dict[int, str])
    """Position of the example in the run → kind that it was chosen for, in order of choice."""
    total: int = 0
    """Number of examples in the run."""

    def counts(self) -> dict[str, int]:
        """Number of chosen examples by kind."""
        chosen = list(self.kinds.values())
        return {kind: chosen.count(kind) for kind in KINDS if kind in chosen}


def samples_of(environment: EnvPart, most: int) -> list[Sample]:
    """Choose examples for each run of an environment.

    The kinds take turns, so that each is represented even if few are shown. Deterministic.

    Args:
        environment: Its runs.
        most: Maximum examples per run.
    """
    differing = _spreads([run.columns for run in environment.runs])
    return [_sample(run.columns, differing, most) for run in environment.runs]


def _sample(columns: RolloutColumns, differing: Mapping[str, float], most: int) -> Sample:
    sample = Sample(total=len(columns.examples))
    queues = _orders(columns, differing)
    while queues:
        for kind, order in list(queues.items()):
            if len(sample.kinds) >= most:
                return sample
            position = next((each for each in order if each not in sample.kinds), None)
            if position is None:
                del queues[kind]
            else:
                sample.kinds[position] = kind
    return sample


def _orders(columns: RolloutColumns, differing: Mapping[str, float]) -> dict[str, Iterator[int]]:
    """Examples by kind, most typical first."""
    rows = columns.examples
    scored = [n for n, row in enumerate(rows) if row.scored]
    by_mean = sorted(scored, key=lambda n: rows[n].mean)
    from_best = sorted(scored, key=lambda n: -rows[n].mean)  # not reversed: equal means keep their order
    level = bool(by_mean) and rows[by_mean[0]].mean == rows[by_mean[-1]].mean
    mixed = [n for n in scored if rows[n].high > rows[n].low]
    tokens = {n: mean for n, row in enumerate(rows) if (mean := columns.mean_of(TOKENS, row)) == mean}
    flips = [n for n, row in enumerate(rows) if differing.get(row.key, 0.0) > 0]
    return {
        "unscored": iter(_by_reason(columns)),
        "flips": iter(sorted(flips, key=lambda n: -differing[rows[n].key])),
        "worst": iter([] if level else by_mean),
        "best": iter([] if level else from_best),
        "mixed": iter(sorted(mixed, key=lambda n: rows[n].low - rows[n].high)),
        "longest": iter(sorted(tokens, key=lambda n: -tokens[n])),
        "others": _evenly(len(rows)),
    }


def _by_reason(columns: RolloutColumns) -> list[int]:
    """A few examples of every reason, then the rest."""
    reasons: dict[str, list[int]] = {}
    for number, row in enumerate(columns.examples):
        if row.reason:
            reasons.setdefault(row.reason, []).append(number)
    early = [number for numbers in reasons.values() for number in islice(numbers, A_REASON)]
    return [*early, *(number for numbers in reasons.values() for number in numbers[A_REASON:])]


def _evenly(count: int) -> Iterator[int]:
    """Yield 0 … count − 1 in an order in which any first few are spread evenly."""
    step = 1
    while step < count:
        step *= 2
    seen: set[int] = set()
    while step >= 1:
        for number in range(0, count, step):
            if number not in seen:
                seen.add(number)
                yield number
        step //= 2


def _spreads(runs: Sequence[RolloutColumns]) -> dict[str, float]:
    """Example key → difference between the highest and lowest mean of the runs; examples of a single run are
    omitted."""
    means: dict[str, list[float]] = {}
    for columns in runs:
        for key, mean in columns.means().items():
            means.setdefault(key, []).append(mean)
    return {key: max(each) - min(each) for key, each in means.items() if len(each) > 1}
