"""Rollouts of a run as columns of numbers (about 50 bytes per rollout), examples as rows, and mean reward by resource
use. The only text in memory is each example's name and the start of its question."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from harness.core.records import Example
from harness.core.types import JsonDict, Prompt
from harness.report.text import clean
from harness.report.transcript import last_text, role_of
from harness.stats.clusters import clustered_mean
from harness.stats.difference import Range, Scores
from harness.stats.distributions import nearest_rank
from harness.stats.intervals import Estimate, mean_interval, same
from harness.stats.summary import number
from harness.store.clusters import ClusterLabels
from harness.store.outcomes import Outcome

SNIPPET = 110
"""Maximum characters of a question in the table."""

NAME = 80
"""Maximum characters of an example's id in the table."""

TURNS, TOKENS, SECONDS, COST = "turns", "tokens", "seconds", "cost"

MEASURES = (TURNS, TOKENS, SECONDS, COST)
"""Resources that a rollout uses; each is a column."""

GROUPS = 6
"""Maximum number of groups of rollouts, if a resource has more than MOST_VALUES different values."""

MOST_VALUES = 12
"""Up to this number of different values, each value of a resource is its own group, if groups have about LEAST rollouts
on average. For turns, groups may be smaller."""

LEAST = 5
"""Minimum number of rollouts in a group that combines several values."""


class ExampleRow(NamedTuple):
    """One example of a run."""

    key: str
    name: str
    asked: str
    """Start of the example's question."""
    begin: int
    """Index of the example's first rollout in the columns; `end` is the index after its last rollout."""
    end: int
    mean: float
    """Mean reward of the example's scored rollouts; NaN if none is scored."""
    scored: int
    low: float
    high: float
    reason: str
    """Reason why the first unscored rollout of the example has no score; "" if all are scored."""
    cluster: str | None = None
    """Label of the example's cluster; None if examples are independent."""

    @property
    def made(self) -> int:
        """Number of the example's rollouts, scored or not."""
        return self.end - self.begin


@dataclass(slots=True)
class RolloutColumns:
    """Data of a run's rollouts as columns of numbers, ordered by example and rollout index. Unknown values are NaN."""

    reward: array[float] = field(default_factory=lambda: array("d"))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    """Position of each rollout in the journal."""
    measures: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in MEASURES})
    examples: list[ExampleRow] = field(default_factory=list[ExampleRow])
    cluster_key: str = ""
    """Key of the examples' clusters; "" if examples are independent."""
    _last: Example | None = None
    """Example of the last added rollout."""
    _reason: str = ""
    """Reason of the first unscored rollout of that example."""

    def take(self, number: int, outcome: Outcome) -> None:
        """Add the next rollout; rollouts arrive grouped by example. Call `end_example` after the last one.

        Args:
            number: Position of the rollout in the journal.
            outcome: The rollout with its score.
        """
        if self._last is None or self._last.key != outcome.example.key:
            self.end_example()
        base, reward = outcome.base, outcome.reward
        self._last = outcome.example
        self.reward.append(math.nan if reward is None else float(reward))
        self.numbers.append(number)
        usage, seconds = base.usage, base.timing.generation - base.timing.waiting
        said = base.completion  # text, if the model is a completion model
        turns = 1 if isinstance(said, str) and said else sum(role_of(each) == "assistant" for each in said)
        self.measures[TURNS].append(float(turns) or math.nan)
        is_counted = usage.requests and not usage.unreported
        self.measures[TOKENS].append(float(usage.output_tokens) if is_counted else math.nan)
        self.measures[SECONDS].append(seconds if seconds > 0 else math.nan)
        self.measures[COST].append(math.nan if usage.cost is None else usage.cost)
        if reward is None and not self._reason:
            self._reason = clean(outcome.reason, 120)

    def end_example(self) -> None:
        """Finish the last added example: add its row to the table of examples."""
        example, begin = self._last, self.examples[-1].end if self.examples else 0
        if example is not None:
            rewards = [value for value in self.reward[begin:] if value == value]
            row = ExampleRow(
                key=example.key,
                name=clean(example.example_id, NAME),
                asked=asked(example.prompt),
                begin=begin,
                end=len(self.reward),
                mean=math.fsum(rewards) / len(rewards) if rewards else math.nan,
                scored=len(rewards),
                low=min(rewards, default=math.nan),
                high=max(rewards, default=math.nan),
                reason=self._reason,
                cluster=ClusterLabels(self.cluster_key).add(example, example.key) if self.cluster_key else None,
            )
            self.examples.append(row)
        self._last, self._reason = None, ""

    def means(self) -> dict[str, float]:
        """Mean reward by example key; examples without a score are omitted."""
        return {row.key: row.mean for row in self.examples if row.scored}

    def scores(self, promised: Range) -> Scores:
        """The run's rewards in the form that a comparison of runs takes.

        Args:
            promised: Range of rewards, as declared by the run.
        """
        clusters = {row.key: row.cluster for row in self.examples if row.scored and row.cluster is not None}
        seen = frozenset(value for value in self.reward if value == value)
        return Scores(self.means(), seen, promised, clusters or None)

    def mean_of(self, measure: str, row: ExampleRow) -> float:
        """Mean use of a resource over the rollouts of an example; NaN if unknown for all of them."""
        known = [value for value in self.measures[measure][row.begin : row.end] if value == value]
        return math.fsum(known) / len(known) if known else math.nan


def asked(prompt: Prompt) -> str:
    """Return the start of an example's question; for a completion model, the end of its prompt (the question)."""
    return clean(last_text(prompt, "user", SNIPPET - 1), SNIPPET)


@dataclass(frozen=True, slots=True)
class CostBin:
    """A group of rollouts with similar use of a resource, such as tokens or seconds."""

    low: float
    middle: float
    """Median of the rollouts' resource use."""
    high: float
    rollouts: int
    reward: Estimate
    """Mean reward over the examples in the group, each counted with the mean of its rollouts there."""

    def to_json(self) -> JsonDict:
        """The group of rollouts as JSON."""
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
    """For each resource, such as tokens or seconds, group a run's rollouts by how much of it they used, to plot reward
    against use. Omits a resource whose use is unknown, or the same in all rollouts.

    Args:
        columns: The rollouts.
        limits: Minimum and maximum possible reward; None if unknown.
        is_watched: Whether the run ended early because of its results. Groups then have no interval, since ordinary
            intervals assume a number of examples fixed in advance.
    """
    example_of = [position for position, row in enumerate(columns.examples) for _ in range(row.made)]
    found: dict[str, list[CostBin]] = {}
    for measure, values in columns.measures.items():
        parts = _parts(columns, measure)
        for rows in parts if len(parts) > 1 else ():
            rewards: dict[int, list[float]] = {}
            for row in rows:
                rewards.setdefault(example_of[row], []).append(columns.reward[row])
            single = all(len(each) == 1 for each in rewards.values())
            binary = all(value in (0.0, 1.0) for each in rewards.values() for value in each)
            means = [math.fsum(each) / len(each) for each in rewards.values()]
            owners = [owner for place in rewards if (owner := columns.examples[place].cluster) is not None]
            if owners:
                reward = clustered_mean(means, owners, limits=limits)
            else:
                reward = mean_interval(means, single_rollout=single, binary=binary, limits=limits)
            if is_watched:
                reward = Estimate(mean=reward.mean, examples=reward.examples)
            used = [values[row] for row in rows]
            group = CostBin(used[0], nearest_rank(used, 0.5), used[-1], len(rows), reward)
            found.setdefault(measure, []).append(group)
    return found


def _parts(columns: RolloutColumns, measure: str) -> list[list[int]]:
    """Split scored rollouts into groups by use of a resource, lowest use first: one group per value or, if there are
    many values, groups of about equal size."""
    values = columns.measures[measure]
    rows = [row for row, reward in enumerate(columns.reward) if reward == reward and values[row] == values[row]]
    rows.sort(key=lambda row: values[row])
    if not rows or same(values[rows[0]], values[rows[-1]]):
        return []
    distinct = len({values[row] for row in rows})
    if distinct <= MOST_VALUES and (measure == TURNS or distinct * LEAST <= len(rows)):
        return [list(group) for _, group in groupby(rows, key=lambda row: values[row])]
    size = max(LEAST, math.ceil(len(rows) / GROUPS))
    parts: list[list[int]] = [[]]
    for row in rows:
        if len(parts[-1]) >= size and values[row] > values[parts[-1][-1]]:
            parts.append([])
        parts[-1].append(row)
    if len(parts) > 1 and len(parts[-1]) < LEAST:
        last = parts.pop()
        parts[-1] += last
    return parts
