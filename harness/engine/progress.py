"""What a run looks like from outside while it goes on. The engine writes these counters; a display reads them on
its own clock. Owns no printing and no statistics beyond running sums, so that an update costs next to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from harness.records import Generated, Scored
from harness.types import Usage

RunState: TypeAlias = Literal["loading", "running", "scoring", "done", "stopped", "interrupted", "failed"]


@dataclass(slots=True)
class RunProgress:
    """Live counters of one run. Every count includes what a resume found in the journal."""

    name: str
    """Label of the run: the environment's `name`."""
    env_id: str
    model: str
    total: int = 0
    """Rollouts planned; 0 until the environment is loaded."""
    resumed: int = 0
    """Part of the counts below that earlier attempts at this run had done."""
    scored: int = 0
    unscored: Counter[str] = field(default_factory=Counter[str])
    """Reason → rollouts without a score (failed ones included)."""
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
    example_sums: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])
    """Example index → (sum of rewards, number of scored rollouts): enough for mean and interval."""
    state: RunState = "loading"
    note: str = ""
    """Why the run stopped, or what holds it up."""
    started: float = 0.0
    """Monotonic seconds at dispatch of the first item."""
    finished: float | None = None
    """Monotonic seconds when the run ended."""
    backing_off: Callable[[], str] = lambda: ""
    """Says what the endpoint's limiter is waiting for, or ""."""

    @property
    def done(self) -> int:
        """Rollouts with an outcome."""
        return self.scored + self.unscored.total()

    def count(self, index: int, record: Generated, scored: Scored) -> None:
        """Add the outcome of a rollout of the plan's example `index`."""
        if scored.reward is None:
            self.unscored[scored.reason] += 1
            return
        self.scored += 1
        total, number = self.example_sums.get(index, (0.0, 0))
        self.example_sums[index] = (total + scored.reward, number + 1)
        self.truncated += record.is_truncated
        self.empty += record.is_empty
