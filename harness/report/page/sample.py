"""Choice of the examples that are shown with transcripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

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


Sample: TypeAlias = dict[int, str]
"""Position of each chosen example in its run → kind that it was chosen for, in order of choice."""


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
    sample: Sample = {}
    queues = _orders(columns, differing)
    while queues:
        for kind, order in list(queues.items()):
            if len(sample) >= most:
                return sample
            position = next((each for each in order if each not in sample), None)
            if position is None:
                del queues[kind]
            else:
                sample[position] = kind
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
    reasons: dict[str, list[int]] = {}
    for n, row in enumerate(rows):
        if row.reason:
            reasons.setdefault(row.reason, []).append(n)
    early = [n for numbers in reasons.values() for n in numbers[:A_REASON]]
    late = [n for numbers in reasons.values() for n in numbers[A_REASON:]]
    return {
        "unscored": iter([*early, *late]),
        "flips": iter(sorted(flips, key=lambda n: -differing[rows[n].key])),
        "worst": iter([] if level else by_mean),
        "best": iter([] if level else from_best),
        "mixed": iter(sorted(mixed, key=lambda n: rows[n].low - rows[n].high)),
        "longest": iter(sorted(tokens, key=lambda n: -tokens[n])),
        "others": _evenly(len(rows)),
    }


def _evenly(count: int) -> Iterator[int]:
    """Yield 0 … count − 1 in an order in which any first few are spread evenly."""
    step = 1 << count.bit_length()
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
