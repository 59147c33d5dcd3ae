"""A compact table of a run's scores, built from its journal. It takes about a hundred bytes per rollout; if a rollout
occurs several times, the last one counts."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Required, TypedDict, Unpack

from harness.core.types import Usage

TRUNCATED, EMPTY, REFUSED = 1, 2, 4

NO_REASON = "no reason given"
UNUSABLE = "reward is not a usable number"

LARGEST_SCORE = 1e100
"""Maximum size of a score. Larger ones are errors of a reward function; their squares would overflow."""

LARGEST = 2**63 - 1
"""Maximum value in a column of counts. Larger counts reported by an endpoint are reduced to it."""


class Details(TypedDict, total=False):
    """Information about a rollout other than its scores."""

    usage: Required[Usage]
    truncated: bool
    empty: bool
    refused: bool
    seconds: float
    """Wall time of generation in seconds; 0 if unknown."""
    judged: Usage | None
    """Usage of the rollout's judges; None if no judge was asked."""
    judged_unpriced: int
    """Number of judge replies with unknown cost."""


class _UsageColumns:
    """A column of `Usage` values.

    Args:
        rows: Number of existing rows.
    """

    def __init__(self, rows: int) -> None:
        self._cost: array[float] = array("d", [math.nan]) * rows
        self._counts: tuple[array[int], ...] = tuple(array("q", [0]) * rows for _ in range(6))
        """The integer fields of `Usage`, in its order."""

    def append(self) -> None:
        self._cost.append(math.nan)
        for column in self._counts:
            column.append(0)

    def set(self, row: int, usage: Usage) -> None:
        numbers = (
            usage.input_tokens, usage.output_tokens, usage.reasoning_tokens,
            usage.cached_tokens, usage.requests, usage.unreported,
        )  # fmt: skip
        for column, number in zip(self._counts, numbers, strict=True):
            column[row] = min(number, LARGEST)
        self._cost[row] = math.nan if usage.cost is None else usage.cost

    def total(self) -> Usage:
        costs = [cost for cost in self._cost if cost == cost]
        return Usage(*(sum(column) for column in self._counts), cost=math.fsum(costs) if costs else None)


LARGEST_GRID, EMPTIEST_GRID = 1 << 18, 64
"""Maximum number of cells of the grid of a table: the first number, and the second for each rollout."""


class ScoreTable:
    """Outcomes of rollouts by example index and rollout index.

    The columns are arrays of machine numbers. Rows are looked up in a grid of row numbers with one line per example,
    since a dict would take more memory than all columns. If indices are so scattered that the grid would be almost
    empty, as in a damaged journal, a dict is used."""

    def __init__(self) -> None:
        self._width = 1
        self._grid: array[int] = array("i")
        """Row number of (example, rollout) at index example · width + rollout; −1 if there is none."""
        self._scattered: dict[tuple[int, int], int] | None = None
        """Row numbers by (example, rollout), in place of the grid; None while the grid is used."""
        self._reward: array[float] = array("d")
        self._reason: array[int] = array("i")
        """Reason of each rollout without a score, as an index into `_reasons`; −1 if scored."""
        self._reasons: dict[str, int] = {}
        self._flags: array[int] = array("B")
        self._seconds: array[float] = array("f")
        self._usage = _UsageColumns(0)
        self._metrics: dict[str, array[float]] = {}
        self._judged: _UsageColumns | None = None
        """Usage of each rollout's judges; None until a rollout with a judge call is added."""
        self._unpriced: array[int] = array("q")
        """Number of judge replies without a cost, for each rollout in `_judged`."""

    def __len__(self) -> int:
        """Number of rollouts with an outcome."""
        return len(self._reward)

    def add(
        self,
        example: int,
        rollout: int,
        reward: float | None,
        metrics: Mapping[str, float | None],
        reason: str | None,
        **details: Unpack[Details],
    ) -> None:
        """Set the outcome of a rollout. An earlier outcome of the same rollout is replaced, including its usage.

        Args:
            example: Index of the example in the plan, 0-based.
            rollout: Rollout index, 0-based.
            reward: The reward; None if unscored. NaN, infinite and extremely large values count as unscored.
            metrics: Values by name; None and invalid values count as missing.
            reason: Reason for a missing reward; ignored otherwise.
            **details: `usage` (required), `truncated`, `empty`, `refused`, `seconds`, `judged` and `judged_unpriced`.

        Raises:
            ValueError: a negative index.
        """
        row = self._row(example, rollout)
        value = self._reward[row] = _usable(reward)
        self._reason[row] = -1
        if value != value:
            words = UNUSABLE if reward is not None else reason or NO_REASON
            self._reason[row] = self._reasons.setdefault(words, len(self._reasons))
        self._flags[row] = (
            (TRUNCATED if details.get("truncated") else 0)
            | (EMPTY if details.get("empty") else 0)
            | (REFUSED if details.get("refused") else 0)
        )
        self._seconds[row] = details.get("seconds", 0.0)
        self._usage.set(row, details["usage"])
        judged = details.get("judged")
        if judged is not None and self._judged is None:
            self._judged = _UsageColumns(len(self._reward))
            self._unpriced = array("q", [0]) * len(self._reward)
        if self._judged is not None:
            self._judged.set(row, judged or Usage())
            self._unpriced[row] = details.get("judged_unpriced", 0)
        for name in metrics:
            if name not in self._metrics:
                self._metrics[name] = array("d", [math.nan]) * len(self._reward)
        for name, column in self._metrics.items():
            column[row] = _usable(metrics.get(name))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of all metrics, in the order in which they were added."""
        return tuple(self._metrics)

    def outcomes(self) -> Iterator[int]:
        """Number of rollouts of each example with at least one outcome, in the order of the plan."""
        return (len(rows) for _, rows in self._groups())

    def examples(self) -> Iterator[int]:
        """Indexes of the examples with at least one outcome."""
        return (example for example, _ in self._groups())

    def rewards(self) -> Iterator[list[float]]:
        """Rewards of each example with at least one outcome; an empty list if it has no score. An iterator, since a
        list would take more memory than the table."""
        return self._values(self._reward)

    def metric(self, name: str) -> Iterator[list[float]]:
        """Values of one metric for each example with at least one outcome; an empty list if it has none."""
        return self._values(self._metrics[name])

    def is_reward(self, name: str) -> bool:
        """Return whether a metric equals the reward in every rollout."""
        return self._metrics[name].tobytes() == self._reward.tobytes()

    def unscored(self) -> Counter[str]:
        """Number of unscored rollouts by reason, most frequent first, then by name, since the order in which rollouts
        end varies."""
        names = list(self._reasons)
        codes = Counter(code for code in self._reason if code >= 0)
        found = ((names[code], number) for code, number in codes.items())
        return Counter(dict(sorted(found, key=lambda each: (-each[1], each[0]))))

    def marked(self, flag: int) -> int:
        """Number of scored rollouts with a flag: TRUNCATED, EMPTY or REFUSED."""
        return sum(1 for flags, code in zip(self._flags, self._reason, strict=True) if flags & flag and code < 0)

    def usage(self) -> Usage:
        """Total usage of all rollouts, including unscored ones, which also cost money."""
        return self._usage.total()

    def judged(self) -> Usage | None:
        """Total usage of judges; None if no judge was asked."""
        return None if self._judged is None else self._judged.total()

    def judged_unpriced(self) -> int:
        """Total number of judge replies with unknown cost."""
        return sum(self._unpriced)

    def seconds(self) -> list[float]:
        """Known generation times, in any order."""
        return [value for value in self._seconds if value > 0.0]

    def _groups(self) -> Iterator[tuple[int, list[int]]]:
        """Index, and row numbers of the rollouts, of each example with at least one outcome."""
        if self._scattered is not None:
            cells = groupby(sorted(self._scattered.items()), key=lambda cell: cell[0][0])
            return ((example, [row for _, row in group]) for example, group in cells)
        width, grid = self._width, self._grid
        lines = (
            (start // width, [row for row in grid[start : start + width] if row >= 0])
            for start in range(0, len(grid), width)
        )
        return (line for line in lines if line[1])

    def _values(self, column: array[float]) -> Iterator[list[float]]:
        return ([value for row in rows if (value := column[row]) == value] for _, rows in self._groups())

    def _row(self, example: int, rollout: int) -> int:
        if example < 0 or rollout < 0:
            raise ValueError(f"example {example}, rollout {rollout}: the indexes must not be negative")
        if self._scattered is not None:
            row = self._scattered.setdefault((example, rollout), len(self._reward))
        else:
            row = self._grid_row(example, rollout)
        if row == len(self._reward):
            for column in (self._reward, self._seconds, *self._metrics.values()):
                column.append(math.nan)
            for column in (self._reason, self._flags):
                column.append(0)
            self._usage.append()
            if self._judged is not None:
                self._judged.append()
                self._unpriced.append(0)
        return row

    def _grid_row(self, example: int, rollout: int) -> int:
        """Row number of a rollout in the grid, which is replaced by a dict if it became too large."""
        width = self._width if rollout < self._width else max(rollout + 1, 2 * self._width)
        lines = max(example + 1, len(self._grid) // self._width)
        if lines * width > LARGEST_GRID + EMPTIEST_GRID * len(self._reward):
            self._scattered = {divmod(slot, self._width): row for slot, row in enumerate(self._grid) if row >= 0}
            self._grid = array("i")
            return self._scattered.setdefault((example, rollout), len(self._reward))
        if width > self._width:
            grid: array[int] = array("i")
            for start in range(0, len(self._grid), self._width):
                grid.extend(self._grid[start : start + self._width])
                grid.extend(array("i", [-1]) * (width - self._width))
            self._grid, self._width = grid, width
        slot = example * self._width + rollout
        missing = (example + 1) * self._width - len(self._grid)
        if missing > 0:
            self._grid.extend(array("i", [-1]) * missing)
        if self._grid[slot] < 0:
            self._grid[slot] = len(self._reward)
        return self._grid[slot]


def _usable(value: float | None) -> float:
    return float(value) if value is not None and abs(value) <= LARGEST_SCORE else math.nan
