"""The scores of a run in compact columns: what a journal is folded into before anything is computed. Owns which rollout
has which values, newest wins, at about a hundred bytes a rollout; computes nothing."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Required, TypedDict, Unpack

from harness.core.types import Usage

TRUNCATED, EMPTY, REFUSED = 1, 2, 4

NO_REASON = "no reason given"
UNUSABLE = "reward is not a usable number"

LARGEST_SCORE = 1e100
"""Greater values are mistakes of a reward function; their squares would overflow."""

LARGEST = 2**63 - 1
"""What a column of counts holds. An endpoint may claim anything; a claim beyond this is cut, not an error."""


class Details(TypedDict, total=False):
    """What is known of a rollout besides its scores."""

    usage: Required[Usage]
    truncated: bool
    empty: bool
    refused: bool
    seconds: float
    """Wall time of generation; 0 = unknown."""
    judged: Usage | None
    """What judges of the rollout used; None if none was asked."""
    judged_unpriced: int
    """Replies among these whose cost is unknown."""


class _UsageColumns:
    """One `Usage` a row.

    Args:
        rows: So many there are already.
    """

    __slots__ = ("_cost", "_counts")

    def __init__(self, rows: int) -> None:
        self._cost: array[float] = array("d", [math.nan]) * rows
        self._counts: tuple[array[int], ...] = tuple(array("q", [0]) * rows for _ in range(6))
        """The whole-number fields of `Usage`, in its order."""

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


class ScoreTable:
    """Outcomes of rollouts, addressed by example index and rollout index.

    Rows stand in columns of machine numbers; a grid of row numbers, one line an example, finds the row of a rollout and
    the rollouts of an example without a dict, which alone would cost more than all columns.
    """

    __slots__ = (
        "_flags",
        "_grid",
        "_judged",
        "_metrics",
        "_reason",
        "_reasons",
        "_reward",
        "_seconds",
        "_unpriced",
        "_usage",
        "_width",
    )

    def __init__(self) -> None:
        self._width = 1
        self._grid: array[int] = array("i")
        """Row of (example, rollout) at example · width + rollout; −1 = none."""
        self._reward: array[float] = array("d")
        self._reason: array[int] = array("i")
        """Position in `_reasons`; −1 = scored."""
        self._reasons: dict[str, int] = {}
        self._flags: array[int] = array("B")
        self._seconds: array[float] = array("f")
        self._usage = _UsageColumns(0)
        self._metrics: dict[str, array[float]] = {}
        self._judged: _UsageColumns | None = None
        """Made for the first rollout that a judge was asked about."""
        self._unpriced: array[int] = array("q")
        """Replies of judges without a cost; as long as `_judged`."""

    def __len__(self) -> int:
        """Rollouts with an outcome."""
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
        """Set the outcome of a rollout; a rollout that is set again is replaced, its usage too.

        Args:
            example: Position of the example in the plan, 0-based.
            rollout: Rollout index, 0-based.
            reward: None is unscored; so is what is no number, infinite or absurdly large.
            metrics: Values by name; None and such values count as missing.
            reason: Why there is no reward; ignored if there is one.
            **details: `usage`, which is required, and `truncated`, `empty`, `refused`, `seconds`, `judged` and
                `judged_unpriced`.

        Raises:
            ValueError: a negative index.
        """
        row = self._row(example, rollout)
        value = _usable(reward)
        scored = value == value
        self._reward[row] = value
        self._reason[row] = -1 if scored else self._code(UNUSABLE if reward is not None else reason or NO_REASON)
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
        self._set_metrics(row, metrics)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Every name that was ever added, in that order."""
        return tuple(self._metrics)

    def outcomes(self) -> Iterator[int]:
        """Rollouts of each example that has any outcome, in the order of the plan."""
        return (len(rows) for rows in self._groups())

    def examples(self) -> Iterator[int]:
        """The position of each of those examples."""
        width, grid = self._width, self._grid
        return (start // width for start in range(0, len(grid), width) if max(grid[start : start + width]) >= 0)

    def rewards(self) -> Iterator[list[float]]:
        """The rewards of each of those examples; an empty list for one without a score. Made one by one: as a list
        they would take more memory than the table."""
        return self._values(self._reward)

    def metric(self, name: str) -> Iterator[list[float]]:
        """The values of one metric, as `rewards`."""
        return self._values(self._metrics[name])

    def is_reward(self, name: str) -> bool:
        """Whether a metric has the reward's value in every rollout."""
        return self._metrics[name].tobytes() == self._reward.tobytes()

    def unscored(self) -> Counter[str]:
        """Reason → rollouts, the commonest first; of equally common ones by name, whichever came first: the order in
        which rollouts end is chance."""
        names = list(self._reasons)
        codes = Counter(code for code in self._reason if code >= 0)
        found = ((names[code], number) for code, number in codes.items())
        return Counter(dict(sorted(found, key=lambda each: (-each[1], each[0]))))

    def marked(self, flag: int) -> int:
        """Scored rollouts with a flag: TRUNCATED, EMPTY or REFUSED."""
        return sum(1 for flags, code in zip(self._flags, self._reason, strict=True) if flags & flag and code < 0)

    def usage(self) -> Usage:
        """The sum over all rollouts, scored or not: all of it was paid for."""
        return self._usage.total()

    def judged(self) -> Usage | None:
        """What judges used, of all rollouts; None if none was ever asked."""
        return None if self._judged is None else self._judged.total()

    def judged_unpriced(self) -> int:
        """Replies of judges whose cost is unknown, of all rollouts."""
        return sum(self._unpriced)

    def seconds(self) -> list[float]:
        """Generation times that are known, in no order."""
        return [value for value in self._seconds if value > 0.0]

    def _groups(self) -> Iterator[list[int]]:
        """The rows of each example that has any."""
        width, grid = self._width, self._grid
        lines = ([row for row in grid[start : start + width] if row >= 0] for start in range(0, len(grid), width))
        return (rows for rows in lines if rows)

    def _values(self, column: array[float]) -> Iterator[list[float]]:
        return ([value for row in rows if (value := column[row]) == value] for rows in self._groups())

    def _row(self, example: int, rollout: int) -> int:
        if example < 0 or rollout < 0:
            raise ValueError(f"example {example}, rollout {rollout}: an index is negative")
        if rollout >= self._width:
            self._widen(max(rollout + 1, 2 * self._width))
        slot = example * self._width + rollout
        missing = (example + 1) * self._width - len(self._grid)
        if missing > 0:
            self._grid.extend(array("i", [-1]) * missing)
        row = self._grid[slot]
        if row < 0:
            row = self._grid[slot] = len(self._reward)
            for column in (self._reward, self._seconds, *self._metrics.values()):
                column.append(math.nan)
            for column in (self._reason, self._flags):
                column.append(0)
            self._usage.append()
            if self._judged is not None:
                self._judged.append()
                self._unpriced.append(0)
        return row

    def _widen(self, width: int) -> None:
        grid: array[int] = array("i")
        padding = array("i", [-1]) * (width - self._width)
        for start in range(0, len(self._grid), self._width):
            grid.extend(self._grid[start : start + self._width])
            grid.extend(padding)
        self._grid, self._width = grid, width

    def _code(self, reason: str) -> int:
        return self._reasons.setdefault(reason, len(self._reasons))

    def _set_metrics(self, row: int, metrics: Mapping[str, float | None]) -> None:
        for name in metrics:
            if name not in self._metrics:
                self._metrics[name] = array("d", [math.nan]) * len(self._reward)
        for name, column in self._metrics.items():
            column[row] = _usable(metrics.get(name))


def _usable(value: float | None) -> float:
    return float(value) if value is not None and abs(value) <= LARGEST_SCORE else math.nan
