"""Scores of one example in a compared run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from harness.stats.passk import PassMeasure


@dataclass(slots=True)
class ExampleScores:
    """Scores of one example in a run."""

    example_id: int | str
    index: int
    """Position of the example in the run."""
    cluster: str | None = None
    values: list[float] = field(default_factory=list[float])
    """Values (reward or metric) of the example's scored rollouts; for pass@k and pass^k, 1 for each that passed, else
    0."""
    unscored: int = 0
    attempts: PassMeasure | None = None
    """Set if the example's value is pass@k or pass^k; otherwise it is the mean."""

    @property
    def counted(self) -> list[float]:
        """The values whose mean is the example's value; empty if it has none."""
        return self.values if self.attempts is None else self.attempts.values(self.values)

    @property
    def mean(self) -> float | None:
        """Value of the example: the mean of its scored rollouts, or its pass rate; None if too few are scored."""
        values = self.counted
        return math.fsum(values) / len(values) if values else None
