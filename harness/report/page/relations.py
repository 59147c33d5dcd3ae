"""Reward by resource use (turns, tokens, seconds, dollars): grouping of rollouts. Mean and interval of each group are
computed in `stats`, over examples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import groupby

from harness.core.types import JsonDict
from harness.report.page.columns import MEASURES, TURNS, RolloutColumns
from harness.stats.intervals import Estimate, mean_interval, same
from harness.stats.quantiles import nearest_rank
from harness.stats.summary import number

GROUPS = 6
"""Maximum number of groups of a run with more than MOST_VALUES different values."""

MOST_VALUES = 12
"""Maximum number of different values for one group per value, if each has about LEAST rollouts. For turns, LEAST is not
required."""

LEAST = 5
"""Minimum rollouts of a group with several values."""


@dataclass(frozen=True, slots=True)
class CostBin:
    """Rollouts with similar resource use."""

    low: float
    middle: float
    """Median of the rollouts' resource use."""
    high: float
    rollouts: int
    reward: Estimate
    """Mean over examples, each the mean of its rollouts in the group."""

    def to_json(self) -> JsonDict:
        """The group as JSON."""
        e = self.reward
        return {
            "low": self.low,
            "median": self.middle,
            "high": self.high,
            "rollouts": self.rollouts,
            "examples": e.examples,
            "mean": number(e.mean),
            "ci95": e.ends,
            "method": e.method,
        }


def relations_of(
    columns: RolloutColumns, *, limits: tuple[float, float] | None = None, is_watched: bool = False
) -> dict[str, list[CostBin]]:
    """Groups by resource; a resource that is unknown, or equal for all rollouts, is omitted.

    Args:
        columns: The rollouts.
        limits: Minimum and maximum possible reward; None if unknown.
        is_watched: Whether the run ended early because of its results: then groups have no interval, since the ordinary
            one assumes a size fixed in advance.
    """
    found = {measure: _groups(columns, measure, limits) for measure in MEASURES}
    return {
        measure: [replace(group, reward=_mean_alone(group.reward)) for group in groups] if is_watched else groups
        for measure, groups in found.items()
        if len(groups) > 1
    }


def _mean_alone(reward: Estimate) -> Estimate:
    return Estimate(mean=reward.mean, examples=reward.examples)


def _groups(columns: RolloutColumns, measure: str, limits: tuple[float, float] | None) -> list[CostBin]:
    """Group scored rollouts by a resource: one group per value or, with many values, of about equal size."""
    values = columns.measures[measure]
    rows = [row for row, reward in enumerate(columns.reward) if reward == reward and values[row] == values[row]]
    rows.sort(key=lambda row: values[row])
    if not rows or same(values[rows[0]], values[rows[-1]]):
        return []
    distinct = len({values[row] for row in rows})
    if distinct <= MOST_VALUES and (measure == TURNS or distinct * LEAST <= len(rows)):
        parts = [list(group) for _, group in groupby(rows, key=lambda row: values[row])]
    else:
        size = max(LEAST, math.ceil(len(rows) / GROUPS))
        parts: list[list[int]] = [[]]
        for row in rows:
            if len(parts[-1]) >= size and values[row] > values[parts[-1][-1]]:
                parts.append([])
            parts[-1].append(row)
        if len(parts) > 1 and len(parts[-1]) < LEAST:
            last = parts.pop()
            parts[-1] += last
    examples = [number for number, row in enumerate(columns.examples) for _ in range(row.made)]
    return [_group(columns, measure, part, examples, limits) for part in parts]


def _group(
    columns: RolloutColumns, measure: str, rows: list[int], examples: list[int], limits: tuple[float, float] | None
) -> CostBin:
    rewards: dict[int, list[float]] = {}
    for row in rows:
        rewards.setdefault(examples[row], []).append(columns.reward[row])
    means = [math.fsum(each) / len(each) for each in rewards.values()]
    values = [columns.measures[measure][row] for row in rows]
    single = all(len(each) == 1 for each in rewards.values())
    binary = all(value in (0.0, 1.0) for each in rewards.values() for value in each)
    reward = mean_interval(means, single_rollout=single, binary=binary, limits=limits)
    return CostBin(values[0], nearest_rank(values, 0.5), values[-1], len(rows), reward)
