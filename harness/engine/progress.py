"""What a run looks like from outside while it goes on. The engine writes these counters; a display reads them on
its own clock. Owns no printing and no statistics beyond running sums, so that an update costs next to nothing."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from harness.core.records import Failed, Generated, Scored
from harness.core.types import Usage
from harness.stats.target import StoppingRule

RunState: TypeAlias = Literal["loading", "waiting", "running", "scoring", "done", "stopped", "interrupted", "failed"]


class ExampleSums:
    """Sum and number of the rewards of each example, in machine numbers: memory must not grow with the run."""

    def __init__(self) -> None:
        self._sums = array("d")
        self._numbers = array("I")
        self.binary = True
        """Whether every reward so far is 0 or 1."""
        self._lowest, self._highest = math.inf, -math.inf

    def add(self, index: int, reward: float) -> None:
        """Count a reward of the plan's example `index`."""
        missing = index + 1 - len(self._numbers)
        if missing > 0:
            self._sums.extend([0.0] * missing)
            self._numbers.extend([0] * missing)
        self._sums[index] += reward
        self._numbers[index] += 1
        self.binary = self.binary and reward in (0.0, 1.0)
        self._lowest, self._highest = min(self._lowest, reward), max(self._highest, reward)

    def widened(self, limits: tuple[float, float] | None) -> tuple[float, float] | None:
        """The limits, with the rewards so far that lie outside; None if the limits are None."""
        return limits and (min(limits[0], self._lowest), max(limits[1], self._highest))

    def means(self) -> tuple[array[float], bool]:
        """The mean of each example that has a reward, and whether none has more than one. For another thread, too."""
        # Each slice is one step under the interpreter's lock; numbers come first, so that none is ahead of its sum.
        numbers, sums = self._numbers[:], self._sums[:]
        means = array("d", (total / number for total, number in zip(sums, numbers, strict=False) if number))
        return means, all(number <= 1 for number in numbers)


@dataclass(slots=True)
class RunProgress:
    """Live counters of one run. Every count includes what a resume found in the journal."""

    name: str
    """Label of the run: the environment's `name`."""
    env_id: str
    model: str
    total: int = 0
    """Rollouts planned; 0 until the environment is loaded."""
    held: int = 0
    """Rollouts that earlier attempts had brought to an outcome; the counts below take a while to have all of them."""
    resumed: int = 0
    """Part of the counts below that earlier attempts at this run had done."""
    scored: int = 0
    unscored: Counter[str] = field(default_factory=Counter[str])
    """Reason → rollouts without a score (failed ones included)."""
    first_error: str = ""
    """Why the first of those has none, in words."""
    generating: int = 0
    """Rollouts that hold a generation slot now."""
    backlog: int = 0
    """Rollouts generated and waiting for scoring."""
    scoring: int = 0
    """Rollouts that hold a scoring slot now."""
    truncated: int = 0
    empty: int = 0
    """Scored rollouts whose last answer had neither text nor tool calls."""
    usage: Usage = field(default_factory=Usage)
    """Of this attempt and, for resumed rollouts, of the attempts before."""
    rewards: ExampleSums = field(default_factory=ExampleSums)
    """Of the scored rollouts: enough for mean and interval."""
    limits: tuple[float, float] | None = None
    """The least and the greatest reward possible; None if unknown."""
    state: RunState = "loading"
    note: str = ""
    """Why the run stopped, or what holds it up."""
    started: float = 0.0
    """Monotonic seconds at dispatch of the first item."""
    finished: float | None = None
    """Monotonic seconds when the run ended."""
    target: StoppingRule | None = None
    """What ends the run before all is made; None for all others."""
    backing_off: Callable[[], str] = lambda: ""
    """Says what the endpoint's limiter is waiting for, or ""."""
    listener: Callable[[Generated | Failed, Scored | None], None] | None = None
    """Told of each rollout that comes to an outcome now, once its line is on disk. Must not raise."""

    @property
    def done(self) -> int:
        """Rollouts with an outcome."""
        return self.scored + self.unscored.total()

    def tell(self, record: Generated | Failed, scored: Scored | None = None) -> None:
        """Let the listener know of an outcome."""
        if self.listener is not None:
            self.listener(record, scored)

    def count(self, index: int, record: Generated, scored: Scored) -> None:
        """Add the outcome of a rollout of the plan's example `index`."""
        if self.target is not None:
            self.target.count(index, scored.reward)
        if scored.reward is None:
            self.unscored[scored.reason] += 1
            self.first_error = self.first_error or scored.words
            return
        self.scored += 1
        self.rewards.add(index, scored.reward)
        self.truncated += record.is_truncated
        self.empty += record.is_empty and not record.is_refusal

    def count_failed(self, index: int, record: Failed) -> None:
        """Add a rollout of the plan's example `index` that came to no end."""
        if self.target is not None:
            self.target.count(index, None)
        self.unscored[record.reason] += 1
        self.first_error = self.first_error or record.error
