"""Rollouts of a run as columns of numbers, and examples as rows; about 50 bytes per rollout. Keeps no text except an
example's name and the start of its question."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.core.records import Example
from harness.core.types import Prompt
from harness.report.text import clean
from harness.report.transcript import last_text, role_of
from harness.stats.difference import Range, Scores
from harness.store.outcomes import Outcome

SNIPPET = 110
"""Maximum characters of a question in the table."""

NAME = 80
"""Maximum characters of an example's id in the table."""

TURNS, TOKENS, SECONDS, COST = "turns", "tokens", "seconds", "cost"

MEASURES = (TURNS, TOKENS, SECONDS, COST)
"""Resources of a rollout; each is a column."""


class ExampleRow(NamedTuple):
    """One example of a run."""

    key: str
    name: str
    asked: str
    """Start of the question."""
    begin: int
    """First row of the example's rollouts in the columns; `end` is the row after the last."""
    end: int
    mean: float
    """Mean reward of the example's scored rollouts; NaN without any."""
    scored: int
    low: float
    high: float
    reason: str
    """Reason of its first unscored rollout; "" if all are scored."""

    @property
    def made(self) -> int:
        """Number of rollouts, scored or not."""
        return self.end - self.begin


@dataclass(slots=True)
class RolloutColumns:
    """A run's rollouts, by example and rollout index. Unknown values are NaN."""

    reward: array[float] = field(default_factory=lambda: array("d"))
    numbers: array[int] = field(default_factory=lambda: array("q"))
    """Number of each rollout in the journal."""
    measures: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in MEASURES})
    examples: list[ExampleRow] = field(default_factory=list[ExampleRow])
    _last: Example | None = None
    """Example of the last rollout."""
    _reason: str = ""
    """Reason of its first unscored rollout."""

    def take(self, number: int, outcome: Outcome) -> None:
        """Add the next rollout; rollouts come grouped by example. Call `end_example` after the last one.

        Args:
            number: Number of the rollout in the journal.
            outcome: The rollout with its score.
        """
        if self._last is None or self._last.key != outcome.example.key:
            self.end_example()
        reward = outcome.reward
        self._last = outcome.example
        self.reward.append(math.nan if reward is None else float(reward))
        self.numbers.append(number)
        for name, value in zip(MEASURES, _taken(outcome), strict=True):
            self.measures[name].append(value)
        if reward is None and not self._reason:
            self._reason = clean(outcome.reason, 120)

    def end_example(self) -> None:
        """Add the row of the last example."""
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
            )
            self.examples.append(row)
        self._last, self._reason = None, ""

    def means(self) -> dict[str, float]:
        """Example key → mean reward; examples without a score are omitted."""
        return {row.key: row.mean for row in self.examples if row.scored}

    def scores(self, promised: Range) -> Scores:
        """Scores for a comparison.

        Args:
            promised: Range of rewards, as declared by the run.
        """
        return Scores(self.means(), frozenset(value for value in self.reward if value == value), promised)

    def mean_of(self, measure: str, row: ExampleRow) -> float:
        """Mean of a resource over the rollouts of an example; NaN if unknown for all."""
        known = [value for value in self.measures[measure][row.begin : row.end] if value == value]
        return math.fsum(known) / len(known) if known else math.nan


def asked(prompt: Prompt) -> str:
    """Start of the question; for the prompt of a completion model its end, where the question is."""
    return clean(last_text(prompt, "user", SNIPPET - 1), SNIPPET)


def _taken(outcome: Outcome) -> tuple[float, float, float, float]:
    """Turns of the model, output tokens, seconds without waiting in queues, dollars."""
    base = outcome.base
    usage, timing = base.usage, base.timing
    seconds = timing.generation - timing.waiting
    said = base.completion  # text, if the model is a completion model
    turns = 1 if isinstance(said, str) and said else sum(role_of(each) == "assistant" for each in said)
    return (
        float(turns) or math.nan,
        float(usage.output_tokens) if usage.requests and not usage.unreported else math.nan,
        seconds if seconds > 0 else math.nan,
        math.nan if usage.cost is None else usage.cost,
    )
