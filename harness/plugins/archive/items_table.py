"""The table of scores, models × examples, from many runs, and the statistics of its examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from harness.core.errors import UsageError
from harness.plugins.archive.scores import ExampleText, RunScores, example_texts, pooled_spread
from harness.report import numerals
from harness.stats.intervals import Estimate
from harness.stats.items import Discrimination, Flakiness, discrimination, flakiness
from harness.stats.subsets import (
    LEAST_MODELS,
    Line,
    SubsetError,
    fit_line,
    sizes_below,
    smallest_sufficient,
    subset_errors,
    subset_of,
)
from harness.stats.summary import spread
from harness.stats.target import finite_limits
from harness.store.values import number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.stats.arrays import Floats


COVERED = 0.9
"""Share of the most examples of any model that a model needs for a part in the choice of a subset."""


@dataclass
class ItemTable:
    """Scores of several models on the same examples."""

    runs: Sequence[RunScores]
    """The runs, oldest first."""
    measure: str
    models: list[str] = field(default_factory=list[str])
    """Models, the best first."""
    keys: list[str] = field(default_factory=list[str])
    cells: list[dict[str, list[float]]] = field(default_factory=list[dict[str, list[float]]])
    """Scores of each model by example key, pooled over its runs."""

    def __post_init__(self) -> None:
        pooled: dict[str, dict[str, list[float]]] = {}
        for run in self.runs:
            cells = pooled.setdefault(run.manifest.model, {})
            for key, values in run.values.items():
                cells.setdefault(key, []).extend(values)
        pooled = {model: cells for model, cells in pooled.items() if cells}
        means = {
            model: math.fsum(_mean(each) for each in cells.values()) / len(cells) for model, cells in pooled.items()
        }
        self.models = sorted(pooled, key=lambda model: (-means[model], model))
        self.cells = [pooled[model] for model in self.models]
        self.keys = list(dict.fromkeys(key for cells in self.cells for key in cells))

    @cached_property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest score: as the runs declare, extended to the observed ones."""
        values = [value for cells in self.cells for each in cells.values() for value in each]
        declared = [finite_limits(run.manifest.range_of(self.measure)) for run in self.runs]
        ends = [end for pair in declared if pair is not None for end in pair]
        return min([*values, *ends]), max([*values, *ends])

    @cached_property
    def means(self) -> Floats:
        """Mean score of each model (row) on each example (column); NaN without a score."""
        return self._array(_mean)

    @cached_property
    def counts(self) -> Floats:
        """Number of scores in each cell."""
        import numpy as np

        return np.nan_to_num(self._array(len))

    @cached_property
    def scaled(self) -> Floats:
        """`means`, with the limits at 0 and 1."""
        low, high = self.limits
        return (self.means - low) / (high - low) if high > low else self.means - low

    def _array(self, value: Callable[[list[float]], float]) -> Floats:
        import numpy as np

        places = {key: place for place, key in enumerate(self.keys)}
        found = np.full((len(self.models), len(self.keys)), np.nan)
        for row, cells in enumerate(self.cells):
            found[row, [places[key] for key in cells]] = [value(each) for each in cells.values()]
        return found

    @cached_property
    def discrimination(self) -> Discrimination:
        """Relation of each example to the rest."""
        return discrimination(self.scaled)

    @cached_property
    def flakiness(self) -> Flakiness:
        """Variation within models; the scores are scaled to 0..1."""
        import numpy as np

        low, high = self.limits
        width = high - low or 1.0
        squares = np.nan_to_num(self._array(lambda each: _squares(each, width)))
        return flakiness(self.scaled, self.counts, squares, (0.0, 1.0))

    @cached_property
    def estimates(self) -> list[Estimate]:
        """Mean of each example over models, with the interval for models like these."""
        return [spread([cells[key] for cells in self.cells if key in cells], self.limits).estimate for key in self.keys]

    def model_estimate(self, place: int) -> Estimate:
        """Mean of a model over its examples, with its interval."""
        model = self.models[place]
        runs = [run for run in self.runs if run.manifest.model == model]
        return pooled_spread(self.cells[place], self.limits, runs)

    @cached_property
    def solved(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Whether each example is solved by every model in every rollout, and by no model in any."""
        import numpy as np

        threshold = number(self.runs[-1].manifest.settings.get("env.pass_threshold"))
        threshold = 1.0 if threshold is None else threshold
        least, most = self._array(min), self._array(max)
        known = ~np.isnan(least)
        failed: NDArray[np.bool_] = np.where(known, least, math.inf) < threshold
        passed: NDArray[np.bool_] = np.where(known, most, -math.inf) >= threshold
        return ~np.any(failed, axis=0, keepdims=True)[0], ~np.any(passed, axis=0, keepdims=True)[0]

    @cached_property
    def texts(self) -> dict[str, ExampleText]:
        """Name and text of every example."""
        return example_texts(self.runs, self.keys)

    def name(self, place: int) -> str:
        """Id of the example in a column."""
        return str(self.texts[self.keys[place]].example_id)


@dataclass(frozen=True)
class Subset:
    """A subset of the examples that ranks the models, and the errors of all sizes."""

    examples: int
    """Number of examples that every one of these models has a score for; the subset is chosen among them."""
    without: int
    """Number of models that have far fewer examples than others, and no part in this."""
    errors: list[SubsetError]
    chosen: list[int]
    """Columns of the examples; empty if no subset is sufficient."""
    line: Line | None
    problem: str = ""
    """Why there is no subset."""

    @property
    def error(self) -> SubsetError | None:
        """The error of the chosen size."""
        return next((each for each in self.errors if each.size == len(self.chosen)), None)


def subset_for(items: ItemTable, size: int | None) -> Subset:
    """Choose a subset.

    Args:
        items: The scores.
        size: Number of examples; None for the smallest sufficient one.

    Raises:
        UsageError: the size is not below the number of examples.
    """
    import numpy as np

    numbers = (items.counts > 0).sum(axis=1)
    rows = np.flatnonzero(numbers >= COVERED * numbers.max())
    scaled = items.scaled[rows]
    complete = np.flatnonzero(~np.isnan(scaled).any(axis=0))
    count = len(complete)
    without = len(items.models) - len(rows)
    if size is not None and size >= max(count, 1):
        raise UsageError(f"--subset {size}: must be below the number of examples that every model has, {count}")
    if len(rows) < LEAST_MODELS:
        words = f"a subset needs {LEAST_MODELS} models or more, since its error is measured on models left out"
        return Subset(count, without, [], [], None, words)
    sizes = sizes_below(count)
    if size is not None and size not in sizes:
        sizes = sorted([*sizes, size])
    means = scaled[:, complete]
    errors = subset_errors(means, sizes) if sizes else []
    best = size or smallest_sufficient(errors)
    if best is None:
        reason = "no two models clearly differ" if not any(each.clear for each in errors) else "none is good enough"
        if not sizes:
            reason = (
                f"{numerals.counted(count, 'example has', 'examples have')} a score of every model, which is too few"
            )
        return Subset(count, without, errors, [], None, f"no subset: {reason}")
    chosen = subset_of(means, best, next(each.choice for each in errors if each.size == best))
    line = fit_line(means[:, chosen].mean(axis=1), means.mean(axis=1))
    low, high = items.limits
    # From the scale 0..1 to that of the scores.
    line = Line(line.intercept * (high - low) + low * (1 - line.slope), line.slope)
    return Subset(count, without, errors, [int(complete[place]) for place in chosen], line)


def _mean(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else math.fsum(values) / len(values)


def _squares(values: Sequence[float], width: float) -> float:
    if len(values) == 1:
        return 0.0
    mean = _mean(values)
    return math.fsum(((value - mean) / width) ** 2 for value in values)
