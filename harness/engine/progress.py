"""Live counters of a run. The engine writes them; a display polls them. They hold only running sums, so that an update
is cheap."""

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
from harness.store.outcome_kinds import missing_reason

RunState: TypeAlias = Literal["loading", "waiting", "running", "scoring", "done", "stopped", "interrupted", "failed"]


class ExampleSums:
    """Sum and number of the rewards of each example, in compact arrays that limit memory."""

    def __init__(self) -> None:
        self._sums = array("d")
        self._numbers = array("I")
        self.binary = True
        """Whether every reward added so far is 0 or 1."""
        self._lowest, self._highest = math.inf, -math.inf

    def add(self, index: int, reward: float) -> None:
        """Add a reward of the plan's example `index`."""
        missing = index + 1 - len(self._numbers)
        if missing > 0:
            self._sums.extend([0.0] * missing)
            self._numbers.extend([0] * missing)
        self._sums[index] += reward
        self._numbers[index] += 1
        self.binary = self.binary and reward in (0.0, 1.0)
        self._lowest, self._highest = min(self._lowest, reward), max(self._highest, reward)

    def widened(self, limits: tuple[float, float] | None) -> tuple[float, float] | None:
        """Extend the limits to include all rewards so far; None if the limits are None."""
        return limits and (min(limits[0], self._lowest), max(limits[1], self._highest))

    def means(self) -> tuple[array[float], bool]:
        """The mean reward of each example that has one, and whether no example has more than one reward.
        Thread-safe."""
        # Each slice is atomic under the interpreter's lock; numbers are copied first, so that none is ahead of its sum.
        numbers, sums = self._numbers[:], self._sums[:]
        means = array("d", (total / number for total, number in zip(sums, numbers, strict=False) if number))
        return means, all(number <= 1 for number in numbers)


@dataclass(slots=True)
class RunProgress:
    """Live counters of one run. Every count includes records that a resume found in the journal."""

    name: str
    """Label of the run: the environment's `name`."""
    env_id: str
    model: str
    total: int = 0
    """Number of planned rollouts; 0 until the environment is loaded."""
    held: int = 0
    """Number of rollouts that earlier attempts at this run finished; a resume adds them to the counters gradually."""
    resumed: int = 0
    """Number of rollouts, among those that the counters include so far, that earlier attempts finished."""
    scored: int = 0
    unscored: Counter[str] = field(default_factory=Counter[str])
    """Number of rollouts without a score by reason (failed ones included)."""
    first_error: str = ""
    """Error message of the first rollout without a score."""
    generating: int = 0
    """Number of rollouts that hold a generation slot."""
    backlog: int = 0
    """Number of generated rollouts that wait for scoring."""
    scoring: int = 0
    """Number of rollouts that hold a scoring slot."""
    truncated: int = 0
    empty: int = 0
    """Number of scored rollouts whose last answer had neither text nor tool calls."""
    usage: Usage = field(default_factory=Usage)
    """Usage of this attempt and, for resumed rollouts, of the attempts before."""
    rewards: ExampleSums = field(default_factory=ExampleSums)
    """Rewards of the scored rollouts: enough for mean and interval."""
    limits: tuple[float, float] | None = None
    """The lowest and the highest possible reward; None if unknown."""
    state: RunState = "loading"
    note: str = ""
    """Reason why the run stopped or is delayed."""
    started: float = 0.0
    """Monotonic seconds at dispatch of the first item."""
    finished: float | None = None
    """Monotonic seconds when the run ended."""
    target: StoppingRule | None = None
    """Early stopping rule; None without one."""
    backing_off: Callable[[], str] = lambda: ""
    """Returns the reason why the endpoint's limiter waits, or ""."""

    @property
    def done(self) -> int:
        """Number of finished rollouts."""
        return self.scored + self.unscored.total()

    def count(self, index: int, record: Generated, scored: Scored) -> None:
        """Add the outcome of a generated rollout of the plan's example `index`."""
        if self.target is not None:
            self.target.count(index, scored.reward)
        if scored.reward is None:
            self.unscored[missing_reason(record, scored)] += 1
            self.first_error = self.first_error or scored.words
            return
        self.scored += 1
        self.rewards.add(index, scored.reward)
        self.truncated += record.is_truncated
        self.empty += record.is_empty and not record.is_refusal

    def count_failed(self, index: int, record: Failed) -> None:
        """Add a failed rollout of the plan's example `index`."""
        if self.target is not None:
            self.target.count(index, None)
        self.unscored[record.reason] += 1
        self.first_error = self.first_error or record.error
