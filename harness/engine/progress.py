"""Live counters of a run. The engine updates them, and a display polls them. Only running sums are stored, so that
updates are fast."""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from harness.core.records import Failed, Generated, Scored
from harness.core.types import Usage
from harness.models.delays import Delay
from harness.stats.target import StoppingRule
from harness.store.outcome_kinds import missing_reason

RunState: TypeAlias = Literal["loading", "waiting", "running", "scoring", "done", "stopped", "interrupted", "failed"]

OPEN = frozenset({"loading", "waiting", "running", "scoring"})
"""States of a run that has not ended."""

WINDOW = 20.0
"""Seconds over which the rate is averaged: long enough for a steady rate, short enough to show a stall."""

SETTLED = 5.0
"""Seconds of observation needed before the recent rate replaces the average since the start."""


class ExampleSums:
    """Sum and number of the rewards of each example, in compact arrays to save memory."""

    def __init__(self) -> None:
        self._sums = array("d")
        self._numbers = array("I")
        self.binary = True
        """Whether every reward added so far is 0 or 1."""
        self._lowest, self._highest = math.inf, -math.inf

    def add(self, index: int, reward: float) -> None:
        """Add a reward for the example at `index` in the plan."""
        missing = index + 1 - len(self._numbers)
        if missing > 0:
            self._sums.extend([0.0] * missing)
            self._numbers.extend([0] * missing)
        self._sums[index] += reward
        self._numbers[index] += 1
        self.binary = self.binary and reward in (0.0, 1.0)
        self._lowest, self._highest = min(self._lowest, reward), max(self._highest, reward)

    def widened(self, limits: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the limits, extended to include all rewards so far; None if the limits are None."""
        return limits and (min(limits[0], self._lowest), max(limits[1], self._highest))

    def means(self) -> tuple[array[float], bool, Sequence[int]]:
        """Return the mean reward of each example that has rewards, whether no example has more than one, and the
        number of rewards of each example of the plan so far. Thread-safe."""
        # Each slice is atomic under the interpreter's lock; numbers are copied first, so that none is ahead of its sum.
        numbers, sums = self._numbers[:], self._sums[:]
        means = array("d", (total / number for total, number in zip(sums, numbers, strict=False) if number))
        return means, all(number <= 1 for number in numbers), numbers


@dataclass(slots=True)
class RunProgress:
    """Live counters of one run. In a resumed run, they include the records of earlier attempts."""

    name: str
    """Label of the run: the environment's `name`."""
    env_id: str
    model: str
    total: int = 0
    """Number of planned rollouts; 0 until the environment is loaded."""
    held: int = 0
    """Number of rollouts that earlier attempts finished. A resumed run adds them to the counters gradually."""
    resumed: int = 0
    """Number of rollouts of earlier attempts that have been added to the counters so far."""
    scored: int = 0
    unscored: Counter[str] = field(default_factory=Counter[str])
    """Number of rollouts without a score, by reason; includes failed rollouts."""
    first_error: str = ""
    """Error message of the first rollout without a score."""
    generating: int = 0
    """Number of rollouts that are being generated."""
    backlog: int = 0
    """Number of generated rollouts waiting to be scored."""
    scoring: int = 0
    """Number of rollouts that are being scored."""
    truncated: int = 0
    empty: int = 0
    """Number of scored rollouts whose last answer had neither text nor tool calls."""
    usage: Usage = field(default_factory=Usage)
    """Usage of all rollouts counted so far, including those of earlier attempts at a resumed run."""
    rewards: ExampleSums = field(default_factory=ExampleSums)
    """Rewards of the scored rollouts, for the mean and its confidence interval."""
    limits: tuple[float, float] | None = None
    """The lowest and the highest possible reward; None if unknown."""
    clusters: Mapping[int, str] = field(default_factory=dict[int, str])
    """Label of each planned example's cluster, by the example's index; empty if examples are independent."""
    state: RunState = "loading"
    note: str = ""
    """Reason why the run stopped or is delayed; "" without one."""
    started: float = 0.0
    """Monotonic seconds when the first rollout started."""
    finished: float | None = None
    """Monotonic seconds when the run ended."""
    target: StoppingRule | None = None
    """Early stopping rule; None without one."""
    delays: Callable[[], Sequence[Delay]] = tuple[Delay, ...]
    """Returns the reasons why requests are delayed; thread-safe."""

    @property
    def done(self) -> int:
        """Number of finished rollouts."""
        return self.scored + self.unscored.total()

    def count(self, index: int, record: Generated, scored: Scored) -> None:
        """Count a generated rollout and its score for the example at `index` in the plan."""
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
        """Count a failed rollout of the example at `index` in the plan."""
        if self.target is not None:
            self.target.count(index, None)
        self.unscored[record.reason] += 1
        self.first_error = self.first_error or record.error


class Pace:
    """Rate and remaining time of a run that is observed from time to time.

    Args:
        progress: The run's counters; only read.
    """

    def __init__(self, progress: RunProgress) -> None:
        self.progress = progress
        self._samples: deque[tuple[float, int]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self.progress.state in OPEN

    def observe(self, now: float) -> None:
        """Record the number of finished rollouts at this time, from which the rate is computed. May be called at any
        interval."""
        if not self.progress.started or not self.is_open:
            return
        self._samples.append((now, self.progress.done))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW:
            self._samples.popleft()

    def rate(self, now: float) -> float | None:
        """Recent rollouts per second; after the end, the average of the whole run. None if not known yet."""
        progress = self.progress
        if not progress.started:
            return None
        if self.is_open and self._samples and now - self._samples[0][0] >= SETTLED:
            then, done = self._samples[0]
            return (progress.done - done) / (now - then)
        elapsed = self.elapsed(now)
        return (progress.done - progress.resumed) / elapsed if elapsed > 0 else None

    def elapsed(self, now: float) -> float:
        """Seconds since the first rollout was dispatched."""
        progress = self.progress
        if not progress.started:
            return 0.0
        return max(0.0, (now if progress.finished is None else progress.finished) - progress.started)

    def left(self, now: float) -> float | None:
        """Estimated seconds until the end of the run; None if unknown."""
        rate = self.rate(now)
        remaining = self.progress.total - self.progress.done
        return remaining / rate if rate and remaining > 0 else None
